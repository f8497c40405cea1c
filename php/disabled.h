/*
 * Functions and classes that the front end disables for one request (PHP_ADMIN_VALUE with disable_functions or
 * disable_classes). PHP-FPM disables them in that child for good, whoever is served next.
 *
 * What OPcache holds was compiled with some functions there and others not: it calls those that were there without
 * looking whether they still are, and code of the JIT has their addresses in it. So a request runs what OPcache holds
 * only if it disables the same as the requests that filled it.
 */
#ifndef WEIR_DISABLED_H
#define WEIR_DISABLED_H

#include <stdbool.h>

#include "config.h"
#include "php.h"

/* Makes what the workers of a pool share. Before PHP is started. */
void disabled_start(const struct pool_config *config);

/*
 * Adds the pool's own to those of php.ini. In MINIT: PHP disables both together before it compiles anything, preloaded
 * code included.
 */
void disabled_add_for_pool(void);

/* Disables what a setting of this name lists, until the end of the request; other settings are none of its business. */
void disabled_add(const char *setting, const char *names);

/*
 * Decides whether this request may use OPcache. Before the start of the request, when all settings of the front end are
 * there. NULL, or why the request must not run at all.
 */
const char *disabled_settle(void);

/* Gives all of them back. After the end of the request. */
void disabled_clear(void);

/* Whether what OPcache holds was compiled with nothing disabled by the front end. */
bool disabled_is_plain(void);

#endif
