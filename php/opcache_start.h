/*
 * The start of OPcache in a master that was forked from a template (template.h): with as little memory of its own as possible.
 */
#ifndef WEIR_OPCACHE_START_H
#define WEIR_OPCACHE_START_H

#include "php.h"

/*
 * Calls what extensions do when all have started (zend_post_startup_cb), where OPcache makes its memory, and returns its result.
 *
 * OPcache copies all of PHP's own strings, the names of its functions, classes, constants and settings, into that memory, and turns
 * every pointer to them: that would be 5 MB that each master writes to, and 5 ms. The template's strings stay where they are and are
 * the same for all: OPcache does not find the tables that lead to them. Strings of scripts are kept in OPcache's memory as always.
 */
zend_result opcache_start(zend_result (*start)(void));

#endif
