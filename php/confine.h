/*
 * Where a pool's processes may be and what they may do, once PHP is started.
 */
#ifndef WEIR_CONFINE_H
#define WEIR_CONFINE_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

/* Goes where the pool's scripts run, and gives up every capability; false, with the reason in `error`. */
bool confine_master(const struct pool_config *config, char *error, size_t size);

/* Says whether others of the same user may look into this process. Of each worker. */
void confine_worker(const struct pool_config *config);

#endif
