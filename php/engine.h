/*
 * PHP itself: it is started once in the master, with the pool's settings, and shut down at the end of each process.
 */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include "config.h"

/*
 * Starts PHP. `become` is called when extensions have started and none of the pool's code has run; NULL: nothing is. Returns false,
 * with the reason in `error`, on failure.
 */
bool engine_start(const struct pool_config *config, void (*become)(const struct pool_config *), char *error, size_t size);

/*
 * In a process that was forked from a template while `become` ran: takes the settings of its pool that `engine_start` would have taken
 * from `config`. Call it there.
 */
void engine_take_pool(const struct pool_config *config);

/* Whether the pool is in PHP-FPM's place (`weir fpm`), so that scripts find what PHP-FPM has. Call it in MINIT or later. */
bool engine_is_fpm(void);

/* Lets PHP call `become` after the start of all extensions. Call it in MINIT. */
void engine_watch_extensions(void);

/*
 * Whether this user may read the files that PHP reads while it starts, and write where PHP checks for it. If not,
 * `why` gets the reason. Call it when extensions have started.
 */
bool engine_may_read(char *why, size_t size);

/*
 * Closes persistent connections and has extensions end (MSHUTDOWN), as a child of PHP-FPM does before it exits. Call this in processes
 * that have served requests. PHP cannot be used any more. Nothing that only frees memory is done: the kernel does that
 * at once, while a free(3) of memory that a process shares with the one that forked it copies that first, page by page. That took
 * more time than all the rest of a short worker's life.
 */
void engine_stop(void);

/* Sets PHP's constants for the configuration folders to the folders that are used. Call it in MINIT. */
void engine_name_folders(void);

/* Prints phpinfo() with the configuration folder that is used. `what`: see php_print_info(). */
void engine_print_info(int what);

/* PHP's version, such as "8.2.30". It may be newer than the headers that this was compiled with. Call it after the start. */
const char *engine_version(void);

/*
 * PHP's version, such as "8.2.30", then one line for each file and folder that php.ini was read from, if PHP reports
 * it. The text shows whether a new start of PHP would read other files.
 */
const char *engine_inputs(void);

#endif
