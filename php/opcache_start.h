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

/*
 * In a template whose pools have no settings of OPcache: OPcache starts before the fork, and each master takes memory and a lock of its
 * own in the place of the template's. That saves 4 of 5 ms, in which OPcache writes zeros into 2 MB of new memory.
 *
 * The first function says whether php.ini allows that. The second one remembers what OPcache has written: call it behind opcache_start.
 * The third one is for a master, before anything of its pool is there; it does nothing in a master of another template.
 */
bool opcache_may_start_early(void);
void opcache_keep_start(void);
void opcache_renew_start(void);

/* The memory that opcache_renew_start replaces; NULL: there is none. */
const char *opcache_kept_memory(void);

#endif
