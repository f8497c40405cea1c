/*
 * PHP itself, started and stopped. See engine.h.
 */
#include "engine.h"

#include <signal.h>
#include <sys/stat.h>

#include "php.h"
#include "SAPI.h"
#include "php_main.h"
#include "zend_signal.h"

#include "disabled.h"
#include "say.h"
#include "sapi.h"

#define STRING_OF(number) #number
#define NAME_OF(number) STRING_OF(number)
/* As it stands in paths: "8.2". */
#define BRANCH NAME_OF(PHP_MAJOR_VERSION) "." NAME_OF(PHP_MINOR_VERSION)

/* Debian keeps an own set of settings for each SAPI: this is the one of PHP-FPM, whose place is taken. */
#define FPM_FOLDER "/etc/php/" BRANCH "/fpm"

/* Of main/php_ini.c, in no header. */
extern char *php_ini_opened_path, *php_ini_scanned_path, *php_ini_scanned_files;

const char *engine_inputs(void)
{
	char *text = take_text(PHP_VERSION, sizeof PHP_VERSION - 1);
	const char *paths[] = {php_ini_opened_path, php_ini_scanned_path, php_ini_scanned_files};
	for (size_t at = 0; at < sizeof paths / sizeof *paths; at++) {
		if (paths[at]) {
			size_t length = strlen(text);
			text = take_more_memory(text, length + strlen(paths[at]) + 2);
			sprintf(text + length, "\n%s", paths[at]);
		}
	}
	return text;
}

/*
 * Whether the loader found the library that this program was built for: another version's structures differ, and
 * nothing would be right. It says "Zend Engine v4.2.30" for PHP 8.2.30, once it has been started.
 */
static bool is_the_right_library(char *error, size_t size)
{
	static const char wanted[] = "Zend Engine v4." NAME_OF(PHP_MINOR_VERSION) ".";
	const char *version = get_zend_version();
	if (strncmp(version, wanted, sizeof wanted - 1) == 0) {
		return true;
	}
	snprintf(error, size, "this is weir-php for PHP " BRANCH ", but the libphp that was loaded is another: %.40s",
		 version);
	return false;
}

/* "name=value" as a line of php.ini: a value that is no plain word is put in quotes. */
static void add_line(char **text, size_t *length, const char *name, size_t name_length, const char *value)
{
	size_t value_length = strlen(value);
	/* As PHP's command lines do: what begins with a letter or digit, a quote or nothing at all stays as it is. */
	bool quote = value_length && !isalnum((unsigned char)*value) && *value != '"' && *value != '\'';
	*text = take_more_memory(*text, *length + name_length + value_length + 5);
	*length += (size_t)sprintf(*text + *length, quote ? "%.*s=\"%s\"\n" : "%.*s=%s\n", (int)name_length, name, value);
}

/* The values that only count at PHP's start, since shared memory and extensions are made then. */
static bool is_for_start(const char *name)
{
	return strcmp(name, "extension") == 0 || strcmp(name, "zend_extension") == 0 ||
	       strncmp(name, "opcache.", 8) == 0 || strncmp(name, "apc.", 4) == 0;
}

static char *start_settings(const struct pool_config *config)
{
	char *text = take_text("", 0);
	size_t length = 0;
	for (size_t at = 0; at < config->define_count; at++) {
		const char *define = config->defines[at];
		const char *equals = strchr(define, '=');
		if (equals) {
			add_line(&text, &length, define, (size_t)(equals - define), equals + 1);
		} else {
			add_line(&text, &length, define, strlen(define), "1");
		}
	}
	for (size_t at = 0; at < config->ini_count; at++) {
		const struct ini_value *ini = &config->ini[at];
		if (is_for_start(ini->name)) {
			add_line(&text, &length, ini->name, strlen(ini->name), ini->value);
		}
	}
	return text;
}

static void choose_folders(const struct pool_config *config)
{
	struct stat about;
	if (stat(FPM_FOLDER, &about) != 0 || !S_ISDIR(about.st_mode)) {
		return;
	}
	if (!config->php_ini && !config->no_ini) {
		weir_sapi.php_ini_path_override = take_text(FPM_FOLDER, sizeof FPM_FOLDER - 1);
	}
	setenv("PHP_INI_SCAN_DIR", FPM_FOLDER "/conf.d", 0);
}

bool engine_start(const struct pool_config *config, char *error, size_t size)
{
	signal(SIGPIPE, SIG_IGN);
	zend_signal_startup();
	sapi_startup(&weir_sapi);
	disabled_start(config);
	bool scanned = getenv("PHP_INI_SCAN_DIR") != NULL;
	choose_folders(config);
	if (config->php_ini) {
		weir_sapi.php_ini_path_override = take_text(config->php_ini, strlen(config->php_ini));
	}
	weir_sapi.php_ini_ignore = config->no_ini;
	weir_sapi.ini_entries = start_settings(config);
	if (weir_sapi.startup(&weir_sapi) != SUCCESS) {
		snprintf(error, size, "PHP " PHP_VERSION " does not start; what it said stands before this");
		return false;
	}
	if (!scanned) {
		unsetenv("PHP_INI_SCAN_DIR");
	}
	return is_the_right_library(error, size);
}

void engine_stop(bool whole)
{
	SG(server_context) = NULL;
	php_module_shutdown();
	if (whole) {
		sapi_shutdown();
	}
}
