/*
 * Which script a request is for: from SCRIPT_FILENAME and its neighbours to the file, with what follows the file's
 * name as PATH_INFO.
 */
#ifndef WEIR_SCRIPT_H
#define WEIR_SCRIPT_H

#include "config.h"

/* Fills SG(request_info) from the parameters, and sets those that were wrong. Before PHP starts the request. */
void script_find(void);

/* Whether a script of this path may run, by the pool's limit_extensions. */
bool script_is_allowed(const struct pool_config *config, const char *path);

#endif
