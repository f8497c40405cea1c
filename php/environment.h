/*
 * The environment: PHP starts with that of whoever started weir, as PHP-FPM's master does, so that php.ini and its folders
 * may name its variables (${NAME}, PHP_INI_SCAN_DIR, PHPRC). Scripts find the pool's.
 */
#ifndef WEIR_ENVIRONMENT_H
#define WEIR_ENVIRONMENT_H

#include "config.h"

/* Remembers where the kernel has put it. Before anything changes it. */
void environment_start(void);

/* Makes it what scripts find. With clear_env nothing of the first one is left in the process. After PHP's start. */
void environment_become(const struct pool_config *config);

#endif
