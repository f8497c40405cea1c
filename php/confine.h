/*
 * Restricts the processes of a pool after PHP has started: folders and capabilities.
 */
#ifndef WEIR_CONFINE_H
#define WEIR_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

/*
 * Changes to the pool's AppArmor profile and to the folder of its scripts, and drops all capabilities. Returns false, with the reason in `error`,
 * on failure.
 */
bool confine_master(const struct pool_config *config, char *error, size_t size);

/* Sets whether other processes of the same user may inspect this process. Called by each worker. */
void confine_worker(const struct pool_config *config);

#endif
