/*
 * Finds the script of a request: from SCRIPT_FILENAME and related parameters to the file. The part after the file's
 * name becomes PATH_INFO.
 */
#ifndef WEIR_SCRIPT_H
#define WEIR_SCRIPT_H

#include "config.h"

/* Fills SG(request_info) from the parameters, and corrects wrong parameters. Call it before PHP starts the request. */
void script_find(void);

/* Whether the pool's limit_extensions allow a script with this path. */
bool script_is_allowed(const struct pool_config *config, const char *path);

#endif
