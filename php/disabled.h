/*
 * Functions and classes that the front end disables for one request (PHP_ADMIN_VALUE with disable_functions or
 * disable_classes). PHP-FPM disables them in that child for good, whoever is served next.
 */
#ifndef WEIR_DISABLED_H
#define WEIR_DISABLED_H

#include "php.h"

/* Disables what a setting of this name lists, until the end of the request; other settings are none of its business. */
void disabled_add(const char *setting, const char *names);

/* Gives all of them back. After the end of the request. */
void disabled_clear(void);

#endif
