/*
 * PHP's errors while it reads a request: too many variables, a body that is too large, a form that is not valid. They come before the
 * application's function or script runs, so its error handler does not see them, and they go to the log. Scripts ask for them with
 * frankenphp_request_parse_errors().
 */
#ifndef WEIR_INPUT_ERRORS_H
#define WEIR_INPUT_ERRORS_H

#include "php.h"

/* Has PHP report errors to this file. Call it in MINIT. */
void input_errors_watch(void);

/* PHP reads the next request now, until `input_errors_end`. `has_memory`: the memory of earlier requests is still there. */
void input_errors_begin(bool has_memory);
void input_errors_end(void);

/* Sets `result` to a list of the request's errors, each with the keys of error_get_last(). */
void input_errors_list(zval *result);

#endif
