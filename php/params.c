/*
 * The parameters of one request. See params.h.
 */
#include "params.h"

#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "say.h"

/* A larger buffer is freed at the end of a request. */
#define KEPT_BYTES (64u * 1024)

/* A value that the worker has set. */
struct own_value {
	struct own_value *next;
	char text[];
};

static unsigned char *raw;
static size_t raw_length, raw_room;
static struct param *list;
static uint32_t count, list_room;
static struct own_value *own_values;

/* Hash table with open addressing: indices in `list`, plus one; 0 is free. At most half of the slots are used. */
static uint16_t *slots;
static uint32_t slot_count;

_Static_assert(PARAMS_MAX_COUNT < UINT16_MAX, "a slot holds a place in the list, plus one");

void params_clear(void)
{
	while (own_values) {
		struct own_value *next = own_values->next;
		free(own_values);
		own_values = next;
	}
	if (raw_room > KEPT_BYTES) {
		free(raw);
		raw = NULL;
		raw_room = 0;
	}
	raw_length = 0;
	count = 0;
	if (slots) {
		memset(slots, 0, slot_count * sizeof *slots);
	}
}

bool params_feed(const unsigned char *bytes, size_t length)
{
	if (length > PARAMS_MAX_BYTES - raw_length) {
		return false;
	}
	/* One more byte, for the NUL after the last value. */
	if (raw_length + length + 1 > raw_room) {
		raw_room = (raw_length + length + 1) * 2;
		raw = take_more_memory(raw, raw_room);
	}
	memcpy(raw + raw_length, bytes, length);
	raw_length += length;
	return true;
}

static uint32_t hash_of(const char *name, size_t length)
{
	/* FNV-1a. Names are short, and come from the gateway or are header names with a prefix. */
	uint32_t hash = 2166136261u;
	for (size_t at = 0; at < length; at++) {
		hash = (hash ^ (unsigned char)name[at]) * 16777619u;
	}
	return hash;
}

/* The slot of the name, or the free slot for it. */
static uint16_t *slot_of(uint32_t hash, const char *name, size_t length)
{
	for (uint32_t at = hash;; at++) {
		uint16_t *slot = &slots[at & (slot_count - 1)];
		if (!*slot) {
			return slot;
		}
		const struct param *param = &list[*slot - 1];
		if (param->hash == hash && param->name_length == length && memcmp(param->name, name, length) == 0) {
			return slot;
		}
	}
}

static void make_room(void)
{
	if (count == list_room) {
		list_room = list_room ? list_room * 2 : 128;
		list = take_more_memory(list, list_room * sizeof *list);
	}
	if ((count + 1) * 2 <= slot_count) {
		return;
	}
	slot_count = slot_count ? slot_count * 2 : 256;
	free(slots);
	slots = take_memory(slot_count * sizeof *slots);
	memset(slots, 0, slot_count * sizeof *slots);
	for (uint32_t at = 0; at < count; at++) {
		*slot_of(list[at].hash, list[at].name, list[at].name_length) = (uint16_t)(at + 1);
	}
}

/* The parameter with this name. Creates it if it does not exist. NULL: too many parameters. */
static struct param *entry(char *name, size_t length)
{
	make_room();
	uint32_t hash = hash_of(name, length);
	uint16_t *slot = slot_of(hash, name, length);
	if (!*slot) {
		if (count == PARAMS_MAX_COUNT) {
			return NULL;
		}
		list[count] = (struct param){.name = name, .name_length = (uint32_t)length, .hash = hash};
		*slot = (uint16_t)++count;
	}
	return &list[*slot - 1];
}

/* Reads a length: one byte, or four bytes with the highest bit set. */
static bool read_length(unsigned char **at, const unsigned char *end, uint32_t *length)
{
	if (*at == end) {
		return false;
	}
	if (**at < 0x80) {
		*length = *(*at)++;
		return true;
	}
	if (end - *at < 4) {
		return false;
	}
	*length = get_u32(*at) & 0x7fffffff;
	*at += 4;
	return true;
}

bool params_read(void)
{
	unsigned char *at = raw, *end = raw + raw_length;
	/* After the first byte of a pair has been read, it becomes the NUL after the previous value. */
	unsigned char *after_value = NULL;
	while (at < end) {
		uint32_t name_length, value_length;
		if (!read_length(&at, end, &name_length) || !read_length(&at, end, &value_length)) {
			return false;
		}
		size_t left = (size_t)(end - at);
		if (name_length > left || value_length > left - name_length) {
			return false;
		}
		if (after_value) {
			*after_value = 0;
		}
		/* At least two length bytes precede the name. The name moves one byte back to make room for its NUL. */
		char *name = (char *)at - 1;
		memmove(name, at, name_length);
		name[name_length] = 0;
		at += name_length;
		struct param *param = entry(name, name_length);
		if (!param) {
			return false;
		}
		param->value = (char *)at;
		param->value_length = value_length;
		at += value_length;
		after_value = at;
	}
	if (after_value) {
		*after_value = 0;
	}
	return true;
}

char *params_get(const char *name, size_t name_length)
{
	if (!slots) {
		return NULL;
	}
	uint16_t *slot = slot_of(hash_of(name, name_length), name, name_length);
	return *slot ? list[*slot - 1].value : NULL;
}

static char *keep(const char *text, size_t length)
{
	struct own_value *own = take_memory(sizeof *own + length + 1);
	memcpy(own->text, text, length);
	own->text[length] = 0;
	own->next = own_values;
	own_values = own;
	return own->text;
}

char *params_set(const char *name, const char *value)
{
	size_t name_length = strlen(name);
	if (!value && !params_get(name, name_length)) {
		return NULL;
	}
	struct param *param = entry(keep(name, name_length), name_length);
	if (!param) {
		return NULL;
	}
	param->value_length = value ? (uint32_t)strlen(value) : 0;
	param->value = value ? keep(value, param->value_length) : NULL;
	return param->value;
}

void params_measure(const char *name)
{
	struct param *param = entry((char *)name, strlen(name));
	if (param && param->value) {
		param->value_length = (uint32_t)strlen(param->value);
	}
}

const struct param *params_all(size_t *number)
{
	*number = count;
	return list;
}
