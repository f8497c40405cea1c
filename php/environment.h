/*
 * The environment. PHP starts with the environment of the user who started weir, as PHP-FPM's master does, so php.ini,
 * its folders and extensions can use its variables (${NAME}, PHP_INI_SCAN_DIR, PHPRC). Scripts see the pool's environment.
 *
 * Other processes of the pool's user can read the environment of this process until it has forbidden that. So it is executed
 * only with variables that have no secrets, and the manager sends the others afterwards.
 */
#ifndef WEIR_ENVIRONMENT_H
#define WEIR_ENVIRONMENT_H

#include <stdbool.h>

#include "config.h"

/* Adds the variables that the manager has sent in this file. Returns false, with errno, if they cannot be read. */
bool environment_receive(int descriptor);

/*
 * Sets the environment of scripts. With clear_env it erases all other variables from the process. Call it when extensions have
 * started, and before any code of the pool's user runs.
 */
void environment_become(const struct pool_config *config);

/* Sets the arguments that process lists show, cut to the room that the program's own have. */
void environment_set_title(const char *title);

#endif
