/*
 * The PHP functions that only this SAPI has: those of PHP-FPM.
 */
#ifndef WEIR_FUNCTIONS_H
#define WEIR_FUNCTIONS_H

#include "php.h"

extern const zend_function_entry weir_functions[];

#endif
