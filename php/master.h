/*
 * The master of a pool: starts PHP once, forks workers when the manager orders it, and reports their exits to the
 * manager.
 */
#ifndef WEIR_MASTER_H
#define WEIR_MASTER_H

/* Serves the manager on this channel until the manager closes it. Returns the exit code of the process. */
int master_run(int channel);

#endif
