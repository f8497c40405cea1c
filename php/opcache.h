/*
 * What a pool has compiled, told to the next master of the pool, so that it has it before its first request.
 *
 * Both are children of the master that do this and nothing else. The list is a file in memory: paths, each with a NUL
 * behind it, those of the most used scripts first.
 */
#ifndef WEIR_OPCACHE_H
#define WEIR_OPCACHE_H

#include <stddef.h>

/* Writes the scripts in OPcache to the list; gives the process's exit code. */
int opcache_write_list(int list);

/*
 * Compiles the scripts of the list; what cannot be compiled, or is not there, is passed over. `rewrites` are pairs of
 * prefixes, each a length of 16 bits and so many bytes: a path that begins with the first gets the second instead.
 */
int opcache_compile_list(int list, const unsigned char *rewrites, size_t length);

#endif
