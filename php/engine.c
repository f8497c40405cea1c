/*
 * PHP itself, started and stopped. See engine.h.
 */
#include "engine.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "php.h"
#include "SAPI.h"
#include "ext/standard/info.h"
#include "php_main.h"
#include "php_output.h"
#include "zend_constants.h"
#include "zend_extensions.h"
#include "zend_signal.h"

#include "booted.h"
#include "disabled.h"
#include "host.h"
#include "ini.h"
#include "opcache.h"
#include "opcache_start.h"
#include "say.h"
#include "sapi.h"
#include "shared.h"

/* Debian has separate settings for each SAPI. weir uses those of PHP-FPM, because it replaces PHP-FPM. */
#define OWN_FOLDER "/etc/php/" PHP_BRANCH "/"
#define FPM_FOLDER OWN_FOLDER "fpm"
#define SCANNED FPM_FOLDER "/conf.d"

/* From main/php_ini.c. No header declares them. */
extern char *php_ini_opened_path, *php_ini_scanned_path, *php_ini_scanned_files;

/*
 * Extensions and a function that are compiled into php and php-cgi, but not into php-fpm. Scripts must
 * not find them here, because they would not find them in PHP-FPM. If php.ini loads such an extension, it is there.
 */
static const char *const NOT_IN_FPM[] = {"pcntl", "readline"};
static const char FUNCTION_NOT_IN_FPM[] = "chroot";

static int (*register_built_in)(void);

/*
 * Takes an extension away before its start, when it has functions, but no constants, classes and settings yet. The numbers of
 * extensions must stay without a gap: PHP uses their count as the size of tables, and as the next number.
 */
static void take_away(zend_module_entry *gone)
{
	int number = gone->module_number;
	if (gone->functions) {
		zend_unregister_functions(gone->functions, -1, CG(function_table));
	}
	zend_hash_str_del(&module_registry, gone->name, strlen(gone->name));
	zend_module_entry *module;
	ZEND_HASH_FOREACH_PTR(&module_registry, module) {
		if (module->module_number > number) {
			module->module_number--;
		}
	} ZEND_HASH_FOREACH_END();
}

static int register_those_of_fpm(void)
{
	int result = register_built_in();
	for (size_t at = 0; at < sizeof NOT_IN_FPM / sizeof *NOT_IN_FPM; at++) {
		zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, NOT_IN_FPM[at], strlen(NOT_IN_FPM[at]));
		if (module) {
			take_away(module);
		}
	}
	zend_hash_str_del(CG(function_table), FUNCTION_NOT_IN_FPM, sizeof FUNCTION_NOT_IN_FPM - 1);
	return result;
}

/* Writes "name=value" as a line of php.ini. A value that is not a plain word gets quotes. */
static void add_line(char **text, size_t *length, const char *name, size_t name_length, const char *value)
{
	size_t value_length = strlen(value);
	/*
	 * As on PHP's command line: an empty value, or a value that begins with a letter, digit or quote, stays
	 * unchanged.
	 */
	bool quote = value_length && !isalnum((unsigned char)*value) && *value != '"' && *value != '\'';
	*text = take_more_memory(*text, *length + name_length + value_length + 5);
	*length += (size_t)sprintf(*text + *length, quote ? "%.*s=\"%s\"\n" : "%.*s=%s\n", (int)name_length, name, value);
}

/* Settings that PHP reads only at its start, because it creates shared memory and loads extensions then. */
static bool is_for_start(const char *name)
{
	return strcmp(name, "extension") == 0 || strcmp(name, "zend_extension") == 0 ||
	       strncmp(name, "opcache.", 8) == 0 || strncmp(name, "apc.", 4) == 0;
}

/* php_define and what is like it. */
static char *defines(const struct pool_config *config, size_t *length)
{
	char *text = take_text("", 0);
	*length = 0;
	for (size_t at = 0; at < config->define_count; at++) {
		const char *define = config->defines[at];
		const char *equals = strchr(define, '=');
		if (equals) {
			add_line(&text, length, define, (size_t)(equals - define), equals + 1);
		} else {
			add_line(&text, length, define, strlen(define), "1");
		}
	}
	return text;
}

static char *start_settings(const struct pool_config *config)
{
	size_t length;
	char *text = defines(config, &length);
	for (size_t at = 0; at < config->ini_count; at++) {
		const struct ini_value *ini = &config->ini[at];
		if (is_for_start(ini->name)) {
			add_line(&text, &length, ini->name, strlen(ini->name), ini->value);
		}
	}
	return text;
}

/* A list of folders, with empty names (PHP's own folder) replaced by PHP-FPM's folder. */
static char *with_own_folder(const char *list)
{
	char *text = take_text("", 0);
	size_t length = 0;
	for (const char *at = list;; at++) {
		size_t part = strcspn(at, ":");
		const char *name = part ? at : SCANNED;
		size_t name_length = part ? part : sizeof SCANNED - 1;
		text = take_more_memory(text, length + name_length + 2);
		length += (size_t)sprintf(text + length, length ? ":%.*s" : "%.*s", (int)name_length, name);
		at += part;
		if (!*at) {
			return text;
		}
	}
}

/* The target of PHPRC, looked up as PHP does: a php.ini, or a folder that takes precedence over PHP's own. */
static char *own_php_ini(void)
{
	const char *place = getenv("PHPRC");
	if (!place || !*place) {
		return take_text(FPM_FOLDER, sizeof FPM_FOLDER - 1);
	}
	struct stat about;
	if (stat(place, &about) == 0 && !S_ISDIR(about.st_mode) && access(place, R_OK) == 0) {
		return take_text(place, strlen(place));
	}
	char *text = take_memory(strlen(place) + sizeof ":" FPM_FOLDER);
	sprintf(text, "%s:" FPM_FOLDER, place);
	return text;
}

/* Whether this PHP is Debian's for another SAPI, and Debian's settings for PHP-FPM exist. php-fpm uses them itself. */
static bool has_own_folder(void)
{
	struct stat about;
	return !host_is_fpm() && stat(FPM_FOLDER, &about) == 0 && S_ISDIR(about.st_mode) && host_contains(OWN_FOLDER);
}

static bool use_own_folder;

/* Folders to scan for more settings; NULL: PHP's default. */
static char *scanned_folders;

/* PHP_INI_SCAN_DIR as it was before PHP started; NULL: it was not set. */
static char *asked_folders;

/*
 * The callback for the moment when extensions have started and none of the pool's code has run. opcache.preload comes
 * after it.
 */
static const struct pool_config *starting;
static void (*before_scripts)(const struct pool_config *config);

/* The function that extensions run when all have started. OPcache makes its memory there, and preloads. */
static zend_result (*finish_extensions)(void);

/* Whether this process was forked from one that had loaded PHP. */
static bool is_forked;

static zend_result extensions_have_started(void)
{
	if (scanned_folders && asked_folders) {
		setenv("PHP_INI_SCAN_DIR", asked_folders, 1);
	} else if (scanned_folders) {
		unsetenv("PHP_INI_SCAN_DIR");
	}
	/* Reported as it was requested. PHP's own is in the environment, which will be erased. */
	if (scanned_folders || asked_folders) {
		php_ini_scanned_path = asked_folders ? asked_folders : scanned_folders;
	}
	bool is_early = starting->is_template && starting->opcache_is_alike && finish_extensions && opcache_may_start_early();
	zend_result result = SUCCESS;
	opcache_count_scripts();
	if (is_early) {
		result = opcache_start(finish_extensions);
		opcache_keep_start();
	}
	if (before_scripts) {
		before_scripts(starting);
	}
	shared_make();
	if (is_early || !finish_extensions) {
		return result;
	}
	return is_forked ? opcache_start(finish_extensions) : finish_extensions();
}

/* The new callback runs first. It calls the callback that extensions have stored. */
static int take_finish(zend_extension *self)
{
	(void)self;
	finish_extensions = zend_post_startup_cb;
	zend_post_startup_cb = extensions_have_started;
	/* After a failure PHP removes this helper from its list of extensions. */
	return FAILURE;
}

void engine_watch_extensions(void)
{
	zend_extension last = {.name = "weir", .startup = take_finish, .resource_number = -1};
	/* PHP starts them in their order. */
	zend_register_extension(&last, NULL);
}

void engine_take_pool(const struct pool_config *config)
{
	size_t length;
	char *own = defines(config, &length);
	is_forked = true;
	ini_start_for_pool(config, own);
	free(own);
}

bool engine_is_fpm(void)
{
	return starting->is_fpm;
}

static bool start_php(const struct pool_config *config)
{
	use_own_folder = has_own_folder();
	bool own = use_own_folder;
	const char *asked = getenv("PHP_INI_SCAN_DIR");
	asked_folders = asked ? take_text(asked, strlen(asked)) : NULL;
	if (config->php_ini) {
		weir_sapi.php_ini_path_override = take_text(config->php_ini, strlen(config->php_ini));
	} else if (own && !config->no_ini) {
		weir_sapi.php_ini_path_override = own_php_ini();
	}
	/* An empty value means: scan nothing. */
	if (own && (!asked_folders || *asked_folders)) {
		scanned_folders = with_own_folder(asked_folders ? asked_folders : "");
		setenv("PHP_INI_SCAN_DIR", scanned_folders, 1);
	}
	return weir_sapi.startup(&weir_sapi) == SUCCESS;
}

bool engine_start(const struct pool_config *config, void (*become)(const struct pool_config *), char *error, size_t size)
{
	starting = config;
	before_scripts = become;
	if (!host_check(error, size)) {
		return false;
	}
	signal(SIGPIPE, SIG_IGN);
	if (!host_is_fpm()) {
		register_built_in = php_register_internal_extensions_func;
		php_register_internal_extensions_func = register_those_of_fpm;
	}
	zend_signal_startup();
	sapi_startup(&weir_sapi);
	disabled_start(config);
	booted_start(config);
	weir_sapi.executable_location = host_binary();
	weir_sapi.php_ini_ignore = config->no_ini;
	weir_sapi.ini_entries = start_settings(config);
	if (!start_php(config)) {
		snprintf(error, size, "PHP " PHP_BRANCH " does not start; see its messages above");
		return false;
	}
	return true;
}

/* A constant of PHP. */
static const char *constant_text(const char *name)
{
	zend_constant *constant = zend_hash_str_find_ptr(EG(zend_constants), name, strlen(name));
	return constant && Z_TYPE(constant->value) == IS_STRING ? Z_STRVAL(constant->value) : "";
}

const char *engine_version(void)
{
	const char *version = constant_text("PHP_VERSION");
	return *version ? version : PHP_VERSION;
}

const char *engine_inputs(void)
{
	const char *version = engine_version();
	char *text = take_memory(strlen(version) + sizeof " exposed");
	sprintf(text, "%s%s", version, PG(expose_php) ? " exposed" : "");
	const char *scanned = scanned_folders ? scanned_folders : php_ini_scanned_path;
	const char *paths[] = {php_ini_opened_path, scanned, php_ini_scanned_files};
	for (size_t at = 0; at < sizeof paths / sizeof *paths; at++) {
		if (paths[at]) {
			size_t length = strlen(text);
			text = take_more_memory(text, length + strlen(paths[at]) + 2);
			sprintf(text + length, "\n%s", paths[at]);
		}
	}
	return text;
}

/* ---- what this user may read ---- */

static bool is_barred(const char *path, int mode, char *why, size_t size)
{
	if (access(path, mode) == 0 || errno != EACCES) {
		return false;
	}
	snprintf(why, size, "the process that loads PHP for several pools has no permission for %.150s", path);
	return true;
}

static bool has_barred_file(const char *folder, char *why, size_t size)
{
	struct dirent **found;
	char path[PATH_MAX];
	int count = scandir(folder, &found, NULL, NULL);
	bool is_found = false;
	for (int at = 0; at < count; at++) {
		const char *end = strrchr(found[at]->d_name, '.');
		int length = snprintf(path, sizeof path, "%s/%s", folder, found[at]->d_name);
		if (!is_found && end && !strcmp(end, ".ini") && length > 0 && (size_t)length < sizeof path) {
			is_found = is_barred(path, R_OK, why, size);
		}
		free(found[at]);
	}
	if (count >= 0) {
		free(found);
	}
	return is_found;
}

/* Whether something in this list of folders is barred: of those with php.ini (`is_main`), or of those with more files. */
static bool has_barred(const char *list, bool is_main, char *why, size_t size)
{
	char path[PATH_MAX], file[PATH_MAX + sizeof "/php.ini"];
	const char *built_in = constant_text(is_main ? "PHP_CONFIG_FILE_PATH" : "PHP_CONFIG_FILE_SCAN_DIR");
	for (const char *at = list;; at++) {
		size_t length = strcspn(at, ":");
		snprintf(path, sizeof path, "%.*s", (int)(length ? length : strlen(built_in)), length ? at : built_in);
		snprintf(file, sizeof file, "%s/php.ini", path);
		if (is_barred(path, R_OK, why, size) ||
		    (is_main ? is_barred(file, R_OK, why, size) : has_barred_file(path, why, size))) {
			return true;
		}
		at += length;
		if (!*at) {
			return false;
		}
	}
}

bool engine_may_read(char *why, size_t size)
{
	const char *main = weir_sapi.php_ini_path_override, *cache = INI_STR("opcache.file_cache");
	const char *more = scanned_folders ? scanned_folders : php_ini_scanned_path;
	/* OPcache looks at this one when its settings are read. */
	if (cache && *cache && is_barred(cache, R_OK | W_OK, why, size)) {
		return false;
	}
	return weir_sapi.php_ini_ignore ||
	       (!has_barred(main ? main : "", true, why, size) && (!more || !has_barred(more, false, why, size)));
}

/* ---- output of phpinfo() ---- */

/* The folder that is compiled into the program: "/etc/php/8.2/cgi". */
static const char *built_in_folder;

static PHP_FUNCTION(phpinfo)
{
	zend_long what = PHP_INFO_ALL;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(what)
	ZEND_PARSE_PARAMETERS_END();
	engine_print_info((int)what);
	RETURN_TRUE;
}

/* Changes a constant of PHP. Returns the old value. */
static const char *change(const char *name, const char *text)
{
	zend_constant *constant = zend_hash_str_find_ptr(EG(zend_constants), name, strlen(name));
	if (!constant || Z_TYPE(constant->value) != IS_STRING) {
		return NULL;
	}
	const char *before = Z_STRVAL(constant->value);
	zend_string *value = zend_string_init_interned(text, strlen(text), 1);
	ZVAL_INTERNED_STR(&constant->value, value);
	return before;
}

void engine_name_folders(void)
{
	if (!use_own_folder) {
		return;
	}
	built_in_folder = change("PHP_CONFIG_FILE_PATH", FPM_FOLDER);
	change("PHP_CONFIG_FILE_SCAN_DIR", SCANNED);
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), "phpinfo", sizeof "phpinfo" - 1);
	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		function->internal_function.handler = PHP_FN(phpinfo);
	}
}

void engine_print_info(int what)
{
	static const char row[] = "Configuration File (php.ini) Path";
	zval text;
	php_output_start_default();
	php_print_info(what);
	if (php_output_get_contents(&text) != SUCCESS) {
		php_output_end();
		return;
	}
	php_output_discard();
	const char *begin = Z_STRVAL(text), *all = begin;
	const char *at = built_in_folder ? strstr(begin, row) : NULL;
	const char *value = at ? strstr(at, built_in_folder) : NULL;
	if (value && value - at < 100) {
		PHPWRITE(begin, (size_t)(value - begin));
		PHPWRITE(FPM_FOLDER, sizeof FPM_FOLDER - 1);
		begin = value + strlen(built_in_folder);
	}
	PHPWRITE(begin, Z_STRLEN(text) - (size_t)(begin - all));
	zval_ptr_dtor(&text);
}

/*
 * At its end, readline only restores callbacks of php(1), which this process does not have. But it would search all
 * libraries for their names.
 */
static const char NEEDS_NO_END[] = "readline";

void engine_stop(void)
{
	SG(server_context) = NULL;
	zend_interned_strings_switch_storage(0);
	zend_hash_graceful_reverse_destroy(&EG(persistent_list));
	zend_module_entry *module;
	ZEND_HASH_REVERSE_FOREACH_PTR(&module_registry, module) {
		if (module->module_started && module->module_shutdown_func && strcmp(module->name, NEEDS_NO_END) != 0) {
			module->module_shutdown_func(module->type, module->module_number);
		}
	} ZEND_HASH_FOREACH_END();
	zend_llist_position at;
	for (zend_extension *extension = zend_llist_get_first_ex(&zend_extensions, &at); extension;
	     extension = zend_llist_get_next_ex(&zend_extensions, &at)) {
		if (extension->shutdown) {
			extension->shutdown(extension);
		}
	}
}
