/*
 * The environment. PHP starts with the environment of the user who started weir, as PHP-FPM's master does, so php.ini
 * and its folders can use its variables (${NAME}, PHP_INI_SCAN_DIR, PHPRC). Scripts see the pool's environment.
 */
#ifndef WEIR_ENVIRONMENT_H
#define WEIR_ENVIRONMENT_H

#include "config.h"

/* Stores where the kernel placed the environment. Call it before any change of the environment. */
void environment_start(void);

/*
 * Sets the environment of scripts. With clear_env it erases the first environment from the process. Call it after PHP
 * has started.
 */
void environment_become(const struct pool_config *config);

#endif
