/*
 * The values of a request for PHP-FPM's access log, taken at the moment when PHP-FPM writes its line: after the script, and before
 * its shutdown functions. The gateway writes the line.
 */
#ifndef WEIR_NOTE_H
#define WEIR_NOTE_H

#include "config.h"
#include "fastcgi.h"

/* Call it when the script is known. */
void note_begin(const struct pool_config *config);

/* Sends the note. `figures` are those of the request so far. */
void note_request(const struct pool_config *config, const struct figures *figures);

#endif
