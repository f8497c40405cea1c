/*
 * Name-value pairs (FastCGI 1.0 §3.4) in NOTE records. See note.h.
 *
 * status, script, uri: what the status page of PHP-FPM would show; no script: there is none. microseconds, cpu, user,
 * memory: the cost. e:NAME: a parameter, as the worker has set it. o:NAME: a header of the response that is known by then.
 */
#include "note.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "php.h"
#include "SAPI.h"

#include "params.h"

enum {
	/* Neither a line of PHP-FPM nor any value is longer than this. */
	MAX_VALUE = 1024,
	MAX_NOTE = 64 * 1024,
};

static struct {
	unsigned char bytes[MAX_NOTE];
	size_t length;
	/* When the request began, µs. */
	uint64_t begun;
} note;

static size_t put_length(unsigned char *at, size_t length)
{
	if (length < 128) {
		at[0] = (unsigned char)length;
		return 1;
	}
	at[0] = (unsigned char)(0x80 | length >> 24);
	at[1] = (unsigned char)(length >> 16);
	at[2] = (unsigned char)(length >> 8);
	at[3] = (unsigned char)length;
	return 4;
}

/* A new pair, whose name has two parts. A pair that does not fit is left out. */
static void put(const char *kind, const char *name, const char *value)
{
	size_t kind_length = strlen(kind), name_length = strlen(name);
	size_t value_length = strnlen(value, MAX_VALUE);
	if (MAX_NOTE - note.length < 8 + kind_length + name_length + value_length) {
		return;
	}
	note.length += put_length(note.bytes + note.length, kind_length + name_length);
	note.length += put_length(note.bytes + note.length, value_length);
	memcpy(note.bytes + note.length, kind, kind_length);
	note.length += kind_length;
	memcpy(note.bytes + note.length, name, name_length);
	note.length += name_length;
	memcpy(note.bytes + note.length, value, value_length);
	note.length += value_length;
}

static void put_number(const char *name, uint64_t number)
{
	char digits[24];
	snprintf(digits, sizeof digits, "%llu", (unsigned long long)number);
	put("", name, digits);
}

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* The first header of this name, in the same case, that has a value. */
static void put_header(const char *name)
{
	size_t length = strlen(name);
	zend_llist_position position;
	zend_llist *headers = &SG(sapi_headers).headers;
	for (sapi_header_struct *at = zend_llist_get_first_ex(headers, &position); at;
	     at = zend_llist_get_next_ex(headers, &position)) {
		if (at->header_len > length + 2 && strncmp(at->header, name, length) == 0 && at->header[length] == ':' &&
		    at->header[length + 1] == ' ') {
			put("o:", name, at->header + length + 2);
			return;
		}
	}
}

void note_begin(const struct pool_config *config)
{
	if (!config->notes) {
		return;
	}
	/* PHP changes these fields while it runs the script. */
	const sapi_request_info *info = &SG(request_info);
	note.begun = now();
	note.length = 0;
	if (info->path_translated) {
		put("", "script", info->path_translated);
	}
	if (info->request_uri) {
		put("", "uri", info->request_uri);
	}
}

void note_request(const struct pool_config *config, const struct figures *figures)
{
	put_number("status", (uint64_t)SG(sapi_headers).http_response_code);
	put_number("microseconds", now() - note.begun);
	put_number("cpu", figures->cpu_microseconds);
	put_number("user", figures->user_microseconds);
	put_number("memory", figures->peak_memory);
	for (size_t at = 0; at < config->noted_param_count; at++) {
		const char *name = config->noted_params[at];
		const char *value = params_get(name, strlen(name));
		if (value) {
			put("e:", name, value);
		}
	}
	for (size_t at = 0; at < config->noted_header_count; at++) {
		put_header(config->noted_headers[at]);
	}
	stream_note(note.bytes, note.length);
}
