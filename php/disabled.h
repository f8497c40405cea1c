/*
 * Functions and classes that the front end disables for one request (PHP_ADMIN_VALUE with disable_functions or
 * disable_classes). In PHP-FPM they stay disabled in that child for all later requests.
 *
 * Code in OPcache was compiled while certain functions were enabled. It calls them without another check, and JIT code
 * contains their addresses. So a request uses OPcache only if it disables the same functions and classes as the
 * requests that filled OPcache.
 */
#ifndef WEIR_DISABLED_H
#define WEIR_DISABLED_H

#include <stdbool.h>

#include "config.h"
#include "php.h"

/* Stores the pool's settings. Call it before PHP starts. */
void disabled_start(const struct pool_config *config);

/*
 * Adds the pool's list to the list of php.ini. Call it in MINIT: PHP disables both together before it compiles
 * anything, including preloaded code.
 */
void disabled_add_for_pool(void);

/* Disables the listed names until the end of the request. Ignores settings with another name. */
void disabled_add(const char *setting, const char *names);

/*
 * Decides whether this request may use OPcache. Call it before the start of the request, after all settings of the
 * front end. Returns NULL, or the reason why the request must not run.
 */
const char *disabled_settle(void);

/* Enables all of them again. Call it after the end of the request. */
void disabled_clear(void);

/* Whether the code in OPcache was compiled without anything disabled by the front end. */
bool disabled_is_plain(void);

#endif
