/*
 * Settings of the pool, of a request and of a script's folder. See ini.h.
 */
#include "ini.h"

#include "php.h"
#include "SAPI.h"
#include "php_ini.h"
#include "zend_ini_scanner.h"

#include "disabled.h"
#include "log.h"
#include "params.h"
#include "say.h"
#include "sapi.h"

/* Maximum number of folders with cached .user.ini files. Above it, the cache is emptied. */
#define MAX_FOLDERS 1024

/* ---- of the pool ---- */

static void disable_classes(const char *names)
{
	/* PHP 8.5 has no such setting any more, so this is not called there. */
#if PHP_VERSION_ID < 80500
	char *copy = estrdup(names), *rest = NULL;
	for (char *name = strtok_r(copy, " ,", &rest); name; name = strtok_r(NULL, " ,", &rest)) {
		zend_disable_class(name, strlen(name));
	}
	efree(copy);
#endif
}

/* Sets a value permanently. Returns false if PHP does not know the setting. */
static bool set_for_good(const struct ini_value *ini)
{
	zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), ini->name, strlen(ini->name));
	if (!entry) {
		return false;
	}
	zend_string *value = zend_string_init(ini->value, strlen(ini->value), 1);
	GC_MAKE_PERSISTENT_LOCAL(value);
	if (entry->on_modify && entry->on_modify(entry, value, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
						 PHP_INI_STAGE_ACTIVATE) != SUCCESS) {
		zend_string_release(value);
		return true;
	}
	entry->value = value;
	if (ini->admin) {
		entry->modifiable = ZEND_INI_SYSTEM;
	}
	if (strcmp(ini->name, "disable_functions") == 0) {
		zend_disable_functions(ini->value);
	} else if (strcmp(ini->name, "disable_classes") == 0) {
		disable_classes(ini->value);
	}
	return true;
}

/* Sets what PHP would have found in php.ini. */
static void set_at_start(const char *name, const char *text)
{
	zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));
	/* A setting with which PHP was loaded already has its value. */
	if (!entry || (entry->value && strcmp(ZSTR_VAL(entry->value), text) == 0)) {
		return;
	}
	zend_string *value = zend_string_init(text, strlen(text), 1);
	GC_MAKE_PERSISTENT_LOCAL(value);
	if (!entry->on_modify || entry->on_modify(entry, value, entry->mh_arg1, entry->mh_arg2, entry->mh_arg3,
						  PHP_INI_STAGE_STARTUP) == SUCCESS) {
		entry->value = value;
	} else {
		zend_string_release(value);
	}
}

static bool is_of_opcache(const char *name)
{
	return strncmp(name, "opcache.", 8) == 0;
}

static void set_defined(zval *name, zval *value, zval *offset, int kind, void *nothing)
{
	(void)offset;
	(void)nothing;
	if (kind == ZEND_INI_PARSER_ENTRY && name && value && is_of_opcache(Z_STRVAL_P(name))) {
		set_at_start(Z_STRVAL_P(name), Z_STRVAL_P(value));
	}
}

void ini_start_for_pool(const struct pool_config *config, char *defines)
{
	disabled_add_for_pool();
	zend_parse_ini_string(defines, 1, ZEND_INI_SCANNER_NORMAL, set_defined, NULL);
	for (size_t at = 0; at < config->ini_count; at++) {
		const struct ini_value *ini = &config->ini[at];
		if (strcmp(ini->name, "disable_functions") == 0) {
			zend_disable_functions(ini->value);
		} else if (strcmp(ini->name, "disable_classes") == 0) {
			disable_classes(ini->value);
		} else if (is_of_opcache(ini->name)) {
			set_at_start(ini->name, ini->value);
		}
	}
}

void ini_set_for_pool(const struct pool_config *config)
{
	for (size_t at = 0; at < config->ini_count; at++) {
		const struct ini_value *ini = &config->ini[at];
		/* Extensions were loaded when PHP started. */
		if (strcmp(ini->name, "extension") != 0 && !set_for_good(ini)) {
			say("weir-php: pool %s: PHP has no setting %s (php_%svalue)", config->pool, ini->name,
			    ini->admin ? "admin_" : "");
		}
	}
}

/* ---- of a request ---- */

static void set_from_parameter(zval *name, zval *value, zval *offset, int kind, void *is_admin)
{
	(void)offset;
	bool admin = *(bool *)is_admin;
	if (!name) {
		return;
	}
	if (kind != ZEND_INI_PARSER_ENTRY) {
		log_event(MESSAGE_ERROR, "Passing INI directive through FastCGI: only classic entries are allowed");
		return;
	}
	if (!Z_STRLEN_P(name)) {
		log_event(MESSAGE_ERROR, "Passing INI directive through FastCGI: empty key");
		return;
	}
	if (!value) {
		log_event(MESSAGE_ERROR, "Passing INI directive through FastCGI: empty value for key '%s'", Z_STRVAL_P(name));
		return;
	}
	int source = admin ? ZEND_INI_SYSTEM : ZEND_INI_USER;
	/* An admin value also locks the setting. The end of the request undoes both. */
	if (zend_alter_ini_entry_ex(Z_STR_P(name), Z_STR_P(value), source, ZEND_INI_STAGE_ACTIVATE, true) != SUCCESS) {
		log_event(MESSAGE_ERROR, "Passing INI directive through FastCGI: unable to set '%s'", Z_STRVAL_P(name));
		return;
	}
	disabled_add(Z_STRVAL_P(name), Z_STRVAL_P(value));
}

static void set_from_text(const char *text, bool admin)
{
	if (!text) {
		return;
	}
	char *line;
	spprintf(&line, 0, "%s\n", text);
	zend_parse_ini_string(line, 1, ZEND_INI_SCANNER_NORMAL, set_from_parameter, &admin);
	efree(line);
}

const char *ini_set_for_request(void)
{
	set_from_text(PARAM("PHP_VALUE"), false);
	set_from_text(PARAM("PHP_ADMIN_VALUE"), true);
	return disabled_settle();
}

/* ---- of a script's folder ---- */

/* The combined settings of the .user.ini files from the document root to a folder, and when the cache entry expires. */
struct folder {
	double expires;
	HashTable settings;
};

static HashTable *folders;

static void forget_folder(zval *value)
{
	struct folder *folder = Z_PTR_P(value);
	zend_hash_destroy(&folder->settings);
	free(folder);
}

static void forget_setting(zval *value)
{
	if (Z_TYPE_P(value) == IS_STRING) {
		zend_string_release_ex(Z_STR_P(value), 1);
	}
}

static struct folder *folder_of(const char *path, size_t length)
{
	if (!folders) {
		folders = take_memory(sizeof *folders);
		zend_hash_init(folders, 16, NULL, forget_folder, 1);
	}
	struct folder *folder = zend_hash_str_find_ptr(folders, path, length);
	if (folder) {
		return folder;
	}
	if (zend_hash_num_elements(folders) == MAX_FOLDERS) {
		zend_hash_clean(folders);
	}
	folder = take_memory(sizeof *folder);
	folder->expires = 0;
	zend_hash_init(&folder->settings, 8, NULL, forget_setting, 1);
	zend_hash_str_add_new_ptr(folders, path, length, folder);
	return folder;
}

/* Reads the .user.ini of each folder from the root to this one. For a folder outside of the root: only its own. */
static void read_user_ini(char *path, size_t length, const char *root, size_t root_length, HashTable *settings)
{
	const char *name = PG(user_ini_filename);
	/* Compares up to the shorter length, as PHP-FPM does. */
	size_t compared = length > root_length ? root_length : length;
	if (strncmp(path, root, compared) != 0) {
		php_parse_user_ini_file(path, name, settings);
		return;
	}
	if (length <= root_length) {
		/* A folder above the root. PHP-FPM reads its file only if the root was given with a trailing slash. */
		if (root[root_length] == '/') {
			php_parse_user_ini_file(path, name, settings);
		}
		return;
	}
	for (char *slash = path + root_length; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		php_parse_user_ini_file(path, name, settings);
		*slash = '/';
	}
}

static void activate_user_ini(char *path, size_t length)
{
	const char *root = PARAM("DOCUMENT_ROOT");
	if (!root) {
		return;
	}
	size_t root_length = strlen(root);
	if (root_length && root[root_length - 1] == '/') {
		root_length--;
	}
	struct folder *folder = folder_of(path, length);
	double now = sapi_get_request_time();
	if (now > folder->expires) {
		zend_hash_clean(&folder->settings);
		read_user_ini(path, length, root, root_length, &folder->settings);
		folder->expires = now + (double)PG(user_ini_cache_ttl);
	}
	php_ini_activate_config(&folder->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}

static void activate_host(void)
{
	const char *server = PARAM("SERVER_NAME");
	if (!server) {
		return;
	}
	size_t length = strlen(server);
	char *name = estrndup(server, length);
	zend_str_tolower(name, length);
	php_ini_activate_per_host_config(name, length);
	efree(name);
}

int ini_activate_for_script(void)
{
	const char *script = SG(request_info).path_translated;
	if (!script) {
		return FAILURE;
	}
	if (php_ini_has_per_host_config()) {
		activate_host();
	}
	bool user_ini = PG(user_ini_filename) && *PG(user_ini_filename);
	if (!user_ini && !php_ini_has_per_dir_config()) {
		return SUCCESS;
	}
	/* The script's folder, with a trailing slash. */
	size_t length = strlen(script);
	char *path = emalloc(length + 2);
	memcpy(path, script, length + 1);
	length = zend_dirname(path, length);
	path[length++] = '/';
	path[length] = 0;
	php_ini_activate_per_dir_config(path, length);
	if (user_ini) {
		activate_user_ini(path, length);
	}
	efree(path);
	return SUCCESS;
}
