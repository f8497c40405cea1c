/*
 * The parameters of one request: CGI variables, found by name, in the order in which they arrived.
 *
 * They are parsed in place: names and values stay in the received bytes, each followed by a NUL. Values that the worker
 * sets are stored separately. Both are valid until the next request.
 */
#ifndef WEIR_PARAMS_H
#define WEIR_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum size and maximum number of a request's parameters. The gateway's own limits are far lower. */
#define PARAMS_MAX_BYTES (4u * 1024 * 1024)
#define PARAMS_MAX_COUNT 16384u

struct param {
	char *name;
	/* NULL: the parameter was removed. */
	char *value;
	uint32_t name_length;
	uint32_t value_length;
	uint32_t hash;
};

/* Removes all parameters. */
void params_clear(void);

/* Adds encoded bytes of the PARAMS stream. Returns false above PARAMS_MAX_BYTES. */
bool params_feed(const unsigned char *bytes, size_t length);

/*
 * Parses all bytes that were added. Returns false if they are not valid name-value pairs (FastCGI 1.0 §3.4), or too
 * many.
 */
bool params_read(void);

/* The value of a parameter, which may be changed in place; NULL: there is no such parameter. */
char *params_get(const char *name, size_t name_length);
#define PARAM(name) params_get(name, sizeof(name) - 1)
#define PARAM_IS_EMPTY(name) (!PARAM(name) || !*PARAM(name))

/* Sets a copy of a value, or with NULL removes the parameter. Returns the copy. */
char *params_set(const char *name, const char *value);

/* Updates the length of a value that was changed in place. */
void params_measure(const char *name);

/* All parameters, including removed ones. */
const struct param *params_all(size_t *count);

#endif
