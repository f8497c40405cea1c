/*
 * PHP itself: started once in a master, with the pool's settings, and shut down at the end of each process.
 */
#ifndef WEIR_ENGINE_H
#define WEIR_ENGINE_H

#include "config.h"

/* Starts PHP; false, with the reason in `error`, where it does not. */
bool engine_start(const struct pool_config *config, char *error, size_t size);

/* Ends PHP. In the process that started it, `whole` is true; in its forks false. */
void engine_stop(bool whole);

/* Has PHP's constants name the folders of settings that are used. In MINIT. */
void engine_name_folders(void);

/* What phpinfo() prints, with the folder of settings that is used; `what` as php_print_info(). */
void engine_print_info(int what);

/*
 * PHP's version, as "8.2.30", and then a line for each file and folder that php.ini was read from, as far as PHP tells
 * them: what is different when PHP is started after one of them has changed.
 */
const char *engine_inputs(void);

#endif
