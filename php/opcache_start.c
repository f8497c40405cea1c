/*
 * Starts OPcache with little memory of its own. See opcache_start.h.
 */
#include "opcache_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "php_streams.h"
#include "zend_ini.h"

#include "say.h"

/* ---- tables ---- */

/* What OPcache changes at its start, and so has to find: it replaces these functions, and has itself told of changes of this setting. */
static const char *const REPLACED[] = {"chdir", "file_exists", "is_file", "is_readable"};
static const char WATCHED[] = "include_path";

/* A table of PHP, and what it contains while OPcache must find it empty. */
struct hidden {
	HashTable *table;
	HashTable content;
};

static void hide(struct hidden *hidden)
{
	hidden->content = *hidden->table;
	zend_hash_init(hidden->table, 8, NULL, NULL, 1);
}

static void show(const struct hidden *hidden)
{
	zend_hash_destroy(hidden->table);
	*hidden->table = hidden->content;
}

static void leave_entry(struct hidden *hidden, const char *name)
{
	zval *entry = zend_hash_str_find(&hidden->content, name, strlen(name));
	if (entry) {
		zend_hash_str_add(hidden->table, name, strlen(name), entry);
	}
}

static zend_result start_with_few(zend_result (*start)(void))
{
	struct hidden functions = {.table = CG(function_table)}, settings = {.table = EG(ini_directives)};
	struct hidden others[] = {
		{.table = CG(class_table)},
		{.table = EG(zend_constants)},
		{.table = CG(auto_globals)},
		{.table = &module_registry},
		{.table = php_get_stream_filters_hash_global()},
		{.table = php_stream_get_url_stream_wrappers_hash_global()},
		{.table = php_stream_xport_get_hash()},
	};
	size_t other_count = sizeof others / sizeof *others;
	zend_string *empty = zend_empty_string, *of_one_byte[256], *known[ZEND_STR_LAST_KNOWN];

	hide(&functions);
	for (size_t at = 0; at < sizeof REPLACED / sizeof *REPLACED; at++) {
		leave_entry(&functions, REPLACED[at]);
	}
	hide(&settings);
	leave_entry(&settings, WATCHED);
	for (size_t at = 0; at < other_count; at++) {
		hide(&others[at]);
	}
	memcpy(of_one_byte, zend_one_char_string, sizeof of_one_byte);
	memcpy(known, zend_known_strings, sizeof known);
	for (size_t at = 0; at < 256; at++) {
		zend_one_char_string[at] = empty;
	}
	for (size_t at = 0; at < ZEND_STR_LAST_KNOWN; at++) {
		zend_known_strings[at] = empty;
	}

	zend_result result = start();

	zend_empty_string = empty;
	memcpy(zend_one_char_string, of_one_byte, sizeof of_one_byte);
	memcpy(zend_known_strings, known, sizeof known);
	for (size_t at = other_count; at-- > 0;) {
		show(&others[at]);
	}
	show(&settings);
	show(&functions);
	return result;
}

/* ---- memory ---- */

/* The largest mapping that is shared with processes that this one will fork, which is OPcache's. */
static char *shared_memory(size_t *length)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL, *found = NULL;
	size_t room = 0;
	*length = 0;
	while (maps && getline(&line, &room, maps) > 0) {
		char rights[5] = "";
		unsigned long from = 0, to = 0;
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && !strcmp(rights, "rw-s") && to - from > *length) {
			*length = to - from;
			found = (char *)from;
		}
	}
	free(line);
	if (maps) {
		fclose(maps);
	}
	return found;
}

static bool is_zero(const char *page, size_t size)
{
	return !*page && !memcmp(page, page + 1, size - 1);
}

/*
 * Gives the pages back that OPcache has only filled with zeros, which are two thirds of what it has touched. They are zeros again
 * when somebody reads them.
 */
static void give_zeros_back(void)
{
	size_t length, page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = shared_memory(&length);
	unsigned char *present = memory ? malloc(length / page) : NULL;
	if (!present || mincore(memory, length, present) < 0) {
		free(present);
		return;
	}
	char *begin = NULL;
	for (size_t at = 0; at <= length; at += page) {
		bool is_empty = at < length && present[at / page] & 1 && is_zero(memory + at, page);
		if (is_empty && !begin) {
			begin = memory + at;
		} else if (!is_empty && begin) {
			madvise(begin, (size_t)(memory + at - begin), MADV_REMOVE);
			begin = NULL;
		}
	}
	free(present);
}

zend_result opcache_start(zend_result (*start)(void))
{
	const char *preload = zend_ini_string_ex("opcache.preload", sizeof "opcache.preload" - 1, 0, NULL);
	if (preload && *preload) {
		/* It runs scripts. */
		return start();
	}
	zend_result result = start_with_few(start);
	give_zeros_back();
	return result;
}
