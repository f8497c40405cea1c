/*
 * The parameters of one request: CGI's variables, found by name, in the order in which they came.
 *
 * They are read in place: names and values lie, each with a NUL behind it, in the bytes that came. What the worker sets
 * itself is kept beside. Both are gone with the next request.
 */
#ifndef WEIR_PARAMS_H
#define WEIR_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of a request's parameters, and most of them. The gateway's own limits are far below. */
#define PARAMS_MAX_BYTES (4u * 1024 * 1024)
#define PARAMS_MAX_COUNT 16384u

struct param {
	char *name;
	/* NULL: it was removed. */
	char *value;
	uint32_t name_length;
	uint32_t value_length;
	uint32_t hash;
};

/* Forgets all. */
void params_clear(void);

/* Adds encoded bytes of the stream of parameters; false: more than PARAMS_MAX_BYTES. */
bool params_feed(const unsigned char *bytes, size_t length);

/* Reads all that was fed; false where it is no sequence of name-value pairs (FastCGI 1.0 §3.4), or too many. */
bool params_read(void);

/* The value of a parameter, which may be changed in place; NULL: not there. */
char *params_get(const char *name, size_t name_length);
#define PARAM(name) params_get(name, sizeof(name) - 1)
#define PARAM_IS_EMPTY(name) (!PARAM(name) || !*PARAM(name))

/* Sets a copy of a value, or with NULL removes the parameter; gives the copy. */
char *params_set(const char *name, const char *value);

/* Takes the length of a value anew, which was changed in place. */
void params_measure(const char *name);

/* All parameters, removed ones among them. */
const struct param *params_all(size_t *count);

#endif
