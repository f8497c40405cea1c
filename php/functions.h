/*
 * The PHP functions that only this SAPI has: those of PHP-FPM.
 */
#ifndef WEIR_FUNCTIONS_H
#define WEIR_FUNCTIONS_H

#include "php.h"

extern const zend_function_entry weir_functions[];

/* Applications that stay booted have these under other names, too (booted_functions.c). */
PHP_FUNCTION(fastcgi_finish_request);
PHP_FUNCTION(apache_request_headers);

#endif
