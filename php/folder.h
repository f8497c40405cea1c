/*
 * The working folder: a script runs in its own folder, everything else of a worker in the folder in which it started.
 * PHP itself calls getcwd(), chdir() to the script's folder and chdir() back in every request. This module omits the
 * calls that change nothing: with a chdir() in each request, a script that prints one line takes 1 µs of CPU time more, of 24 (PHP
 * 8.2, 2026-11-28).
 *
 * The name of a folder may later refer to another folder, such as a link to the current release. So after
 * FOLDER_TRUST_MS the worker enters a script's folder again. PHP caches the paths of files for much longer
 * (realpath_cache_ttl).
 */
#ifndef WEIR_FOLDER_H
#define WEIR_FOLDER_H

#define FOLDER_TRUST_MS 1000

/* Stores the current folder of this process. */
void folder_start(void);

/* Changes to the folder of the script with this path. */
void folder_enter(const char *script);

/* Changes back. */
void folder_leave(void);

/* Remembers the current folder. */
void folder_keep(void);

/* Changes to the remembered folder. */
void folder_return(void);

#endif
