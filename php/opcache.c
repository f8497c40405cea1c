/*
 * Lists and compiles the scripts in OPcache. See opcache.h.
 */
#include "opcache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "php.h"
#include "SAPI.h"
#include "php_main.h"
#include "zend_exceptions.h"

#include "bytes.h"
#include "disabled.h"
#include "engine.h"
#include "say.h"
#include "shared.h"

/* Maximum number of scripts in a list, and maximum length of a path. */
#define MAX_SCRIPTS 4000
#define MAX_PATH 4096

struct script {
	const char *path;
	zend_long hits;
	zend_long used;
};

/* Starts a request without a client: no limits, no messages. Returns false if PHP cannot start it. */
static bool begin(void)
{
	/* opcache.restrict_api is checked against the path of the running script, and here there is no script. */
	const char *allowed = zend_ini_string_ex("opcache.restrict_api", sizeof "opcache.restrict_api" - 1, 0, NULL);
	SG(request_info).path_translated = estrdup(allowed ? allowed : "");
	if (php_request_startup() == FAILURE) {
		return false;
	}
	SG(headers_sent) = 1;
	SG(request_info).no_headers = 1;
	EG(error_reporting) = 0;
	PG(log_errors) = 0;
	PG(display_errors) = 0;
	zend_set_memory_limit(-1);
	zend_unset_timeout();
	return true;
}

static void end(void)
{
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	php_request_shutdown(NULL);
}

/* A function of OPcache; NULL: OPcache is not loaded. PHP's own table lacks those that disable_functions names. */
static zif_handler function_of_opcache(const char *name)
{
	static const char MODULE[] = "zend opcache";
	const zend_module_entry *opcache = zend_hash_str_find_ptr(&module_registry, MODULE, sizeof MODULE - 1);
	const zend_function_entry *at = opcache ? opcache->functions : NULL;
	while (at && at->fname && strcmp(at->fname, name) != 0) {
		at++;
	}
	return at && at->fname ? at->handler : NULL;
}

/* Calls a function of OPcache, even if scripts must not call it. The caller must destroy the result. */
static bool call(const char *name, zval *argument, zval *result)
{
	zif_handler handler = function_of_opcache(name);
	ZVAL_UNDEF(result);
	if (!handler) {
		return false;
	}
	zend_function function;
	memset(&function, 0, sizeof function);
	function.internal_function.type = ZEND_INTERNAL_FUNCTION;
	function.internal_function.function_name = zend_string_init(name, strlen(name), 0);
	function.internal_function.handler = handler;
	function.internal_function.num_args = 1;
	ZVAL_NULL(result);
	zend_execute_data *frame = zend_vm_stack_push_call_frame(ZEND_CALL_TOP_FUNCTION, &function, 1, NULL);
	ZVAL_COPY(ZEND_CALL_ARG(frame, 1), argument);
	frame->prev_execute_data = EG(current_execute_data);
	EG(current_execute_data) = frame;
	handler(frame, result);
	EG(current_execute_data) = frame->prev_execute_data;
	zend_vm_stack_free_args(frame);
	zend_vm_stack_free_call_frame(frame);
	zend_string_release(function.internal_function.function_name);
	if (EG(exception)) {
		zend_clear_exception();
	}
	return true;
}

/* ---- list ---- */

static zend_long number_of(HashTable *script, const char *name)
{
	zval *value = zend_hash_str_find(script, name, strlen(name));
	return value && Z_TYPE_P(value) == IS_LONG ? Z_LVAL_P(value) : 0;
}

static int by_use(const void *one, const void *other)
{
	const struct script *a = one, *b = other;
	if (a->hits != b->hits) {
		return a->hits < b->hits ? 1 : -1;
	}
	return a->used < b->used ? 1 : a->used > b->used ? -1 : strcmp(a->path, b->path);
}

static void write_scripts(int list, HashTable *scripts)
{
	size_t count = 0;
	struct script *sorted = emalloc((zend_hash_num_elements(scripts) + 1) * sizeof *sorted);
	zend_string *path;
	zval *script;
	ZEND_HASH_FOREACH_STR_KEY_VAL(scripts, path, script) {
		if (path && Z_TYPE_P(script) == IS_ARRAY && ZSTR_LEN(path) <= MAX_PATH && *ZSTR_VAL(path) == '/') {
			sorted[count++] = (struct script){
				.path = ZSTR_VAL(path),
				.hits = number_of(Z_ARRVAL_P(script), "hits"),
				.used = number_of(Z_ARRVAL_P(script), "last_used_timestamp"),
			};
		}
	} ZEND_HASH_FOREACH_END();
	qsort(sorted, count, sizeof *sorted, by_use);
	off_t end_of_list = 0;
	for (size_t at = 0; at < count && at < MAX_SCRIPTS; at++) {
		/* Not write(2): the reader of the list shares the file position. */
		ssize_t written = pwrite(list, sorted[at].path, strlen(sorted[at].path) + 1, end_of_list);
		if (written < 0) {
			break;
		}
		end_of_list += written;
	}
	efree(sorted);
}

/* What OPcache calls for a script that it does not have. */
static zend_op_array *(*compile_script)(zend_file_handle *file, int type);

static zend_op_array *compile_and_count(zend_file_handle *file, int type)
{
	atomic_fetch_add_explicit(&shared->compiled, 1, memory_order_relaxed);
	return compile_script(file, type);
}

void opcache_count_scripts(void)
{
	compile_script = zend_compile_file;
	zend_compile_file = compile_and_count;
}

bool opcache_is_worth_a_list(void)
{
	return atomic_load_explicit(&shared->compiled, memory_order_relaxed) >= SCRIPTS_WORTH_A_LIST;
}

int opcache_write_list(int list)
{
	if (!begin()) {
		return EXIT_INTERNAL;
	}
	if (!disabled_is_plain()) {
		/*
		 * The process that compiles the list disables nothing. This pool's requests disable something, so they could
		 * not use its code.
		 */
		end();
		return EXIT_FINE;
	}
	zend_try {
		zval with_scripts, status;
		ZVAL_TRUE(&with_scripts);
		if (call("opcache_get_status", &with_scripts, &status) && Z_TYPE(status) == IS_ARRAY) {
			zval *scripts = zend_hash_str_find(Z_ARRVAL(status), "scripts", sizeof "scripts" - 1);
			if (scripts && Z_TYPE_P(scripts) == IS_ARRAY) {
				write_scripts(list, Z_ARRVAL_P(scripts));
			}
		}
		zval_ptr_dtor(&status);
	} zend_end_try();
	end();
	return EXIT_FINE;
}

/* ---- compile ---- */

/* The path, with the first matching pair of prefixes applied; the result is in `rewritten`. */
static const char *rewrite(const char *path, const unsigned char *pairs, size_t length, char *rewritten)
{
	const unsigned char *at = pairs, *limit = pairs + length;
	while (limit - at >= 2) {
		size_t from = get_u16(at);
		if ((size_t)(limit - at) < 2 + from + 2) {
			break;
		}
		const unsigned char *second = at + 2 + from;
		size_t to = get_u16(second);
		if ((size_t)(limit - second) < 2 + to) {
			break;
		}
		if (strncmp(path, (const char *)at + 2, from) == 0) {
			snprintf(rewritten, 2 * MAX_PATH, "%.*s%s", (int)to, second + 2, path + from);
			return rewritten;
		}
		at = second + 2 + to;
	}
	return path;
}

static void compile(const char *path)
{
	struct stat about;
	if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) {
		return;
	}
	/* One request for each script, so that declarations of one script do not conflict with another. */
	if (!begin()) {
		die(EXIT_INTERNAL, "weir-php: PHP cannot start a request");
	}
	zend_try {
		zval name, result;
		ZVAL_STRING(&name, path);
		call("opcache_compile_file", &name, &result);
		zval_ptr_dtor(&result);
		zval_ptr_dtor(&name);
	} zend_end_try();
	end();
}

int opcache_compile_list(int list, const unsigned char *rewrites, size_t length)
{
	struct stat about;
	if (fstat(list, &about) != 0) {
		return EXIT_SYSTEM;
	}
	size_t size = (size_t)about.st_size;
	if (size > (size_t)MAX_SCRIPTS * MAX_PATH) {
		die(EXIT_PROTOCOL, "weir-php: the manager sent a list of %zu bytes", size);
	}
	char *paths = take_memory(size + 1);
	ssize_t got = pread(list, paths, size, 0);
	if (got < 0) {
		return EXIT_SYSTEM;
	}
	paths[got] = 0;
	char rewritten[2 * MAX_PATH];
	int count = 0;
	if (got) {
		/* Nothing is disabled for the code that is compiled here. */
		disabled_settle();
	}
	for (char *path = paths; path < paths + got && count < MAX_SCRIPTS; path += strlen(path) + 1, count++) {
		if (strlen(path) <= MAX_PATH) {
			compile(rewrite(path, rewrites, length, rewritten));
		}
	}
	free(paths);
	return EXIT_FINE;
}

/* ---- of applications that stay booted ---- */

static void set_for_process(const char *name, const char *value)
{
	zend_string *setting = zend_string_init(name, strlen(name), 0);
	/* Without OPcache the settings do not exist. */
	zend_alter_ini_entry_chars(setting, value, strlen(value), ZEND_INI_SYSTEM, ZEND_INI_STAGE_ACTIVATE);
	zend_string_release(setting);
}

/* opcache.file_update_protection of the pool, s, and the time of the boot, which is "now" for OPcache. */
static zend_long protection;
static time_t booted_at, adapted_at;

void opcache_begin_boot(void)
{
	booted_at = (time_t)sapi_get_request_time();
	/*
	 * At each boot OPcache checks whether files have changed, even shortly after the last boot: booted code stays in
	 * the process, so later changes would not be noticed. Zygotes of one master follow each other quickly if somebody
	 * reloads twice.
	 */
	set_for_process("opcache.revalidate_freq", "0");
}

void opcache_adapt(void)
{
	static bool is_first = true;
	if (is_first) {
		protection = zend_ini_long("opcache.file_update_protection", sizeof "opcache.file_update_protection" - 1, 0);
		is_first = false;
	}
	time_t now = time(NULL);
	if (protection <= 0 || now == adapted_at) {
		return;
	}
	adapted_at = now;
	/* The protected time begins this many seconds before the boot. 0 would mean no protection. */
	zend_long seconds = protection - (zend_long)(now - booted_at);
	char text[24];
	snprintf(text, sizeof text, ZEND_LONG_FMT, seconds ? seconds : 1);
	set_for_process("opcache.file_update_protection", text);
}

/* The result of opcache_get_status() without its scripts, which the caller must destroy. False: OPcache does not run. */
static bool get_status(zval *status)
{
	zval without_scripts;
	char *path = SG(request_info).path_translated;
	const char *allowed = zend_ini_string_ex("opcache.restrict_api", sizeof "opcache.restrict_api" - 1, 0, NULL);
	SG(request_info).path_translated = (char *)(allowed ? allowed : "");
	ZVAL_FALSE(&without_scripts);
	bool runs = call("opcache_get_status", &without_scripts, status) && Z_TYPE_P(status) == IS_ARRAY;
	SG(request_info).path_translated = path;
	return runs;
}

/* A true or false value of the status; `otherwise` if OPcache does not run. */
static bool status_says(const char *name, bool otherwise)
{
	zval status;
	bool says = otherwise;
	if (get_status(&status)) {
		zval *value = zend_hash_str_find(Z_ARRVAL(status), name, strlen(name));
		says = value && Z_TYPE_P(value) == IS_TRUE;
	}
	zval_ptr_dtor(&status);
	return says;
}

/* A number of a part of the status; 0 without it. */
static zend_long status_number(zval *status, const char *part, const char *name)
{
	zval *numbers = zend_hash_str_find(Z_ARRVAL_P(status), part, strlen(part));
	return numbers && Z_TYPE_P(numbers) == IS_ARRAY ? number_of(Z_ARRVAL_P(numbers), name) : 0;
}

bool opcache_waits(void)
{
	return status_says("restart_pending", false);
}

/* A worker looks this often, s. */
#define LOOK 5

static unsigned permille(zend_long part, zend_long whole)
{
	return whole > 0 && part > 0 && part <= whole ? (unsigned)(part * 1000.0 / whole) : 0;
}

unsigned opcache_look(void)
{
	static time_t looked;
	time_t now = time(NULL);
	if (now - looked < LOOK) {
		return 0;
	}
	looked = now;
	zval status;
	unsigned used = 0;
	if (get_status(&status)) {
		/* Wasted memory is free again only after OPcache has cleared all. */
		zend_long taken = status_number(&status, "memory_usage", "used_memory") +
		                  status_number(&status, "memory_usage", "wasted_memory");
		zend_long memory = taken + status_number(&status, "memory_usage", "free_memory");
		zend_long keys = status_number(&status, "opcache_statistics", "num_cached_keys");
		zend_long most_keys = status_number(&status, "opcache_statistics", "max_cached_keys");
		used = 1 + MAX(permille(taken, memory), permille(keys, most_keys));
	}
	zval_ptr_dtor(&status);
	return used;
}

/* ---- the lock ---- */

/* Names of the file in PHP 8.2: in a folder, and as a memory file. */
static const char *const LOCKS[] = {"/.ZendSem.", "/memfd:opcache_lock"};

/* The byte that each process locks for reading while it runs a script (mem_usage in OPcache's source). */
#define USED_BYTE 1

static int lock = -1;

void opcache_find_lock(void)
{
	DIR *list = opendir("/proc/self/fd");
	const struct dirent *entry;
	while (list && lock < 0 && (entry = readdir(list))) {
		char path[64], name[MAX_PATH];
		snprintf(path, sizeof path, "/proc/self/fd/%.16s", entry->d_name);
		ssize_t length = readlink(path, name, sizeof name - 1);
		name[length > 0 ? length : 0] = '\0';
		for (size_t at = 0; at < sizeof LOCKS / sizeof *LOCKS; at++) {
			if (strstr(name, LOCKS[at])) {
				lock = atoi(entry->d_name);
			}
		}
	}
	if (list) {
		closedir(list);
	}
}

int opcache_lock(void)
{
	return lock;
}

void opcache_renew_lock(void)
{
	int own = lock >= 0 ? memfd_create("opcache_lock", MFD_CLOEXEC) : -1;
	if (lock >= 0 && (own < 0 || dup3(own, lock, O_CLOEXEC) < 0)) {
		die(EXIT_SYSTEM, "weir-php: OPcache's lock cannot be replaced: %s", strerror(errno));
	}
	if (own >= 0) {
		close(own);
	}
}

bool opcache_may_fork(void)
{
	/* Without shared memory there is nothing to lock. */
	return lock >= 0 || status_says("file_cache_only", true);
}

void opcache_lock_again(void)
{
	struct flock used = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = USED_BYTE, .l_len = 1};
	if (lock >= 0 && fcntl(lock, F_SETLK, &used) < 0) {
		die(EXIT_SYSTEM, "weir-php: cannot lock OPcache's memory: %s", strerror(errno));
	}
}
