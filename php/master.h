/*
 * The master of a pool: starts PHP once, then forks workers as the manager orders, and tells it of their ends.
 */
#ifndef WEIR_MASTER_H
#define WEIR_MASTER_H

/* Serves the manager on this channel until it closes it; gives the process's exit code. */
int master_run(int channel);

#endif
