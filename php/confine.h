/*
 * Restricts the processes of a pool: who may inspect them, and, after PHP has started, folders and capabilities.
 */
#ifndef WEIR_CONFINE_H
#define WEIR_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

/*
 * The first act of a master: forbids other processes of its user to inspect it, because it has the manager's channel, every
 * worker's memory and, while PHP starts, weir's environment. It makes system calls only, so it may run before the C library has
 * started.
 */
void confine_start(void);

/*
 * In a template's fork: the capabilities for a change of user can be used, and, second function, are given up. They
 * return false, with errno, on failure.
 */
bool confine_use_all(void);
bool confine_keep_user(void);

/* Sets the pool's limits. A limit that is above the hard one is set to that. */
void confine_limit(const struct pool_config *config);

/*
 * Changes to the pool's AppArmor profile and to the folder of its scripts, and drops all capabilities. Returns false, with the reason in `error`,
 * on failure.
 */
bool confine_master(const struct pool_config *config, char *error, size_t size);

/*
 * Sets whether other processes of the same user may inspect this process. Each worker calls this. It ends the worker
 * if its pool's AppArmor profile is not there.
 */
void confine_worker(const struct pool_config *config);

#endif
