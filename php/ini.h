/*
 * PHP settings from other sources than php.ini: from the pool, from the front end with a request, and from the folders
 * of a script.
 */
#ifndef WEIR_INI_H
#define WEIR_INI_H

#include "config.h"

/*
 * Sets the pool's php_value and php_admin_value permanently. Call it after PHP has started and before the first fork.
 */
void ini_set_for_pool(const struct pool_config *config);

/*
 * Sets what PHP reads of the pool's settings while it starts. For a process that was forked from one that had loaded
 * PHP: call it when extensions have started, and before OPcache makes its memory. `defines`: the lines that PHP would
 * have read after php.ini.
 */
void ini_start_for_pool(const struct pool_config *config, char *defines);

/*
 * Applies the settings in the parameters PHP_VALUE and PHP_ADMIN_VALUE until the end of the request. Returns NULL, or
 * the reason why the request must not run.
 */
const char *ini_set_for_request(void);

/*
 * Applies the settings of [HOST=] and [PATH=] sections and of .user.ini files for the script until the end of the
 * request. PHP calls it at the start of a request. Returns SUCCESS or FAILURE.
 */
int ini_activate_for_script(void);

#endif
