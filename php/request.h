/*
 * Parts of a request that are the same with and without an application that stays booted.
 */
#ifndef WEIR_REQUEST_H
#define WEIR_REQUEST_H

#include "fastcgi.h"

/*
 * CPU time of this process and its exited children, the user part of it, and the peak resident set of this process in
 * bytes.
 */
void request_measure(struct figures *figures);

/* Sets the CPU time to that since `before`. */
void request_subtract(struct figures *figures, const struct figures *before);

/* Answers with this status and text. */
void request_refuse(int code, const char *text);

/*
 * Whether the whole body is there, so that the script may run. If the body cannot be stored, this sends the answer.
 */
bool request_has_body(void);

/* If a script failed and nothing has been sent, sends the header of fastcgi.error_header. */
void request_mark_failure(void);

#endif
