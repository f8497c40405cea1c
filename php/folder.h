/*
 * The working folder: a script runs in its own, everything else of a worker in the one it was started in. PHP itself
 * asks where it is, goes to the script's folder and comes back at every request; here nobody goes where he is already,
 * and nobody comes back who has nothing to do there.
 *
 * A folder's name may come to mean another folder, as a link to the current release does. So after FOLDER_TRUST_MS a
 * script's folder is entered anew. PHP believes the paths of files for much longer (realpath_cache_ttl).
 */
#ifndef WEIR_FOLDER_H
#define WEIR_FOLDER_H

#define FOLDER_TRUST_MS 1000

/* Remembers where this process is. */
void folder_start(void);

/* Goes to the folder of the script with this path. */
void folder_enter(const char *script);

/* Goes back. */
void folder_leave(void);

#endif
