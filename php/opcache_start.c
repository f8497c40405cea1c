/*
 * Starts OPcache with little memory of its own. See opcache_start.h.
 */
#include "opcache_start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "php_streams.h"
#include "zend_ini.h"

#include "opcache.h"
#include "say.h"

/* ---- tables ---- */

/*
 * What OPcache changes at its start, and so must find unchanged: it replaces these functions, and is notified of
 * changes of this setting.
 */
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

/* OPcache's memory: the first mapping of at least the wanted size that is shared with processes that this one will fork. */
static char *shared_memory(size_t wanted, size_t *length)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL, *found = NULL;
	size_t room = 0;
	while (maps && !found && getline(&line, &room, maps) > 0) {
		/* "BEGIN-END rw-s OFFSET DEVICE INODE  PATH" */
		char *at;
		unsigned long from = strtoul(line, &at, 16), to = strtoul(at + 1, &at, 16);
		if (!strncmp(at, " rw-s ", 6) && to - from >= wanted) {
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

static char *memory_of_opcache(size_t *length)
{
	/* The setting has a number of MB. */
	zend_long wanted = zend_ini_long("opcache.memory_consumption", sizeof "opcache.memory_consumption" - 1, 0);
	return wanted > 0 ? shared_memory((size_t)wanted << 20, length) : NULL;
}

static bool is_zero(const char *page, size_t size)
{
	return !*page && !memcmp(page, page + 1, size - 1);
}

/*
 * OPcache uses its memory from the beginning on. Asking the kernel about all pages would take longer than the rest of
 * the start.
 */
#define LOOK_SIZE (2 << 20)

/* Gives the pages back that contain only zeros. Returns whether any page was touched at all. */
static bool give_zeros_back(char *memory, size_t length, size_t page)
{
	unsigned char present[LOOK_SIZE / 4096];
	bool is_touched = false;
	char *begin = NULL;
	if (mincore(memory, length, present) < 0) {
		return false;
	}
	for (size_t at = 0; at <= length; at += page) {
		bool is_present = at < length && present[at / page] & 1;
		bool is_empty = is_present && is_zero(memory + at, page);
		is_touched |= is_present;
		if (is_empty && !begin) {
			begin = memory + at;
		} else if (!is_empty && begin) {
			madvise(begin, (size_t)(memory + at - begin), MADV_REMOVE);
			begin = NULL;
		}
	}
	return is_touched;
}

/*
 * Gives the pages back that OPcache has only filled with zeros, which are two thirds of what it has touched. They are zeros again
 * when somebody reads them.
 */
static void give_memory_back(void)
{
	size_t length, page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = memory_of_opcache(&length);
	for (size_t at = 0; memory && at < length; at += LOOK_SIZE) {
		size_t size = length - at < LOOK_SIZE ? length - at : LOOK_SIZE;
		if (!give_zeros_back(memory + at, size, page)) {
			return;
		}
	}
}

zend_result opcache_start(zend_result (*start)(void))
{
	const char *preload = zend_ini_string_ex("opcache.preload", sizeof "opcache.preload" - 1, 0, NULL);
	if (preload && *preload) {
		/* It runs scripts. */
		return start();
	}
	zend_result result = start_with_few(start);
	give_memory_back();
	return result;
}

/* ---- before the fork ---- */

static bool is_set(const char *name)
{
	const char *value = zend_ini_string_ex(name, strlen(name), 0, NULL);
	return value && *value;
}

static bool is_on(const char *name)
{
	const zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));
	return entry && entry->value && zend_ini_parse_bool(entry->value);
}

bool opcache_may_start_early(void)
{
	static const char MODULE[] = "zend opcache";
	const char *jit = zend_ini_string_ex("opcache.jit", sizeof "opcache.jit" - 1, 0, NULL);
	bool has_jit = jit && strcmp(jit, "disable") != 0 && is_set("opcache.jit_buffer_size") &&
		       strcmp(INI_STR("opcache.jit_buffer_size"), "0") != 0;
	/* Not yet tried with OPcache as a part of PHP, as it is since 8.5. */
	return PHP_VERSION_ID < 80500 && zend_hash_str_exists(&module_registry, MODULE, sizeof MODULE - 1) &&
	       is_on("opcache.enable") && !has_jit && !is_on("opcache.protect_memory") && !is_on("opcache.file_cache_only") && !is_set("opcache.preload") &&
	       !is_set("opcache.preferred_memory_model");
}

/* The pages that are not empty: a master needs them to make memory with the same content. */
static struct {
	char *memory;
	size_t length;
	size_t page;
	size_t *used;
	size_t used_count;
} kept;

void opcache_keep_start(void)
{
	size_t length, page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory = memory_of_opcache(&length);
	unsigned char *present = memory ? malloc(length / page) : NULL;
	size_t *used = memory ? malloc(length / page * sizeof *used) : NULL;
	size_t count = 0;
	if (present && used && mincore(memory, length, present) == 0) {
		for (size_t at = 0; at < length / page; at++) {
			if (present[at] & 1) {
				used[count++] = at * page;
			}
		}
		used = take_more_memory(used, (count + 1) * sizeof *used);
		kept.memory = memory, kept.length = length, kept.page = page, kept.used = used, kept.used_count = count;
		opcache_find_lock();
	} else {
		free(used);
	}
	free(present);
}

void opcache_renew_start(void)
{
	if (!kept.memory) {
		return;
	}
	char *own = mmap(NULL, kept.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (own == MAP_FAILED) {
		die(EXIT_SYSTEM, "weir-php: OPcache's memory cannot be allocated: %s", strerror(errno));
	}
	for (size_t at = 0; at < kept.used_count; at++) {
		memcpy(own + kept.used[at], kept.memory + kept.used[at], kept.page);
	}
	if (mremap(own, kept.length, kept.length, MREMAP_MAYMOVE | MREMAP_FIXED, kept.memory) == MAP_FAILED) {
		die(EXIT_SYSTEM, "weir-php: OPcache's memory cannot be replaced: %s", strerror(errno));
	}
	opcache_renew_lock();
	kept.memory = NULL;
	free(kept.used);
}

const char *opcache_kept_memory(void)
{
	return kept.memory;
}
