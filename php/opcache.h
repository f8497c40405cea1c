/*
 * Passes the list of compiled scripts to the next master of the pool, so that it can compile them before its first
 * request.
 *
 * Children of the master, which do nothing else, write and compile the list. The list is a file in memory: paths, each
 * followed by a NUL, the most used scripts first.
 */
#ifndef WEIR_OPCACHE_H
#define WEIR_OPCACHE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Below this many scripts a list is not worth two processes that write and compile it: the first requests do that sooner. Call the first
 * function before OPcache starts: from then on the scripts are counted that OPcache has compiled. The second one says in the master
 * whether there are that many.
 */
#define SCRIPTS_WORTH_A_LIST 16
void opcache_count_scripts(void);
bool opcache_is_worth_a_list(void);

/* Writes the paths of the scripts in OPcache to the list. Returns the exit code of the process. */
int opcache_write_list(int list);

/*
 * Compiles the scripts of the list. Skips scripts that do not exist or cannot be compiled. `rewrites` are pairs of
 * prefixes, each with a 16-bit length before it: if a path begins with the first prefix, the second replaces it.
 */
int opcache_compile_list(int list, const unsigned char *rewrites, size_t length);

/*
 * For a process whose application stays booted. For OPcache such a process is one long request, and the time of its boot
 * is "now" as long as it lives: each file that is newer would be compiled again whenever it is used, and changes of others
 * would not be noticed. The functions change settings so that both are as in other processes: call the first at the start of the boot,
 * and the second before each request.
 */
void opcache_begin_boot(void);
void opcache_adapt(void);

/*
 * OPcache knows which processes use its memory by locks of a file, and a process does not inherit locks. The first function
 * looks for the file: call it in the master, where /proc can be read. The second one says whether it was found or is not needed,
 * the third takes the lock for a process that was forked from one with a running script, or ends the process.
 */
void opcache_find_lock(void);
bool opcache_may_fork(void);
void opcache_lock_again(void);

/* The file's descriptor; -1: it was not found. */
int opcache_lock(void);

/* Puts another file in its place, so that no other process has the same. */
void opcache_renew_lock(void);

/* Whether OPcache waits until no process uses its memory, to clear it: after opcache_reset(), or because it is full. */
bool opcache_waits(void);

/*
 * How full OPcache is: 1 + the share in use, in thousandths, of its memory or of its table of scripts, whichever is fuller. 0: it does not run,
 * or it is too early to look again. Call it while PHP may allocate memory: a script may have left none.
 */
unsigned opcache_look(void);

#endif
