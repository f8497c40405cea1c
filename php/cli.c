/*
 * The command line of weir-php. See cli.h.
 */
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "php.h"
#include "SAPI.h"
#include "ext/standard/info.h"
#include "php_main.h"
#include "zend_extensions.h"

#include "config.h"
#include "engine.h"
#include "log.h"
#include "say.h"
#include "sapi.h"
#include "template.h"

/* The last row of -i with -l (crates/tools/src/doctor/php.rs). */
#define LOAD_ROW "Load that pools may share => "

/* The beginning of the line about PHP in the output of -s (crates/fpm/src/php.rs). */
#define STARTED "weir-php started PHP "

static const struct option LONG_OPTIONS[] = {
	{"php-ini", required_argument, NULL, 'c'},
	{"define", required_argument, NULL, 'd'},
	{"help", no_argument, NULL, 'h'},
	{"info", no_argument, NULL, 'i'},
	{"load", no_argument, NULL, 'l'},
	{"modules", no_argument, NULL, 'm'},
	{"no-php-ini", no_argument, NULL, 'n'},
	{"start", no_argument, NULL, 's'},
	{"version", no_argument, NULL, 'v'},
	{NULL, 0, NULL, 0},
};

static int usage(int code)
{
	static const char text[] =
		"Usage: weir-php" " [-n] [-c FILE] [-d NAME=VALUE]... -i [-l] | -m | -s | -v\n"
		"\n"
		"  -i, --info           print phpinfo()\n"
		"  -l, --load           with -i: also say whether pools may share a load of this PHP\n"
		"  -m, --modules        list the modules that are compiled in or loaded\n"
		"  -s, --start          start PHP and print only its messages\n"
		"  -v, --version        print PHP's version\n"
		"  -c, --php-ini FILE   path of php.ini, or of its folder\n"
		"  -d, --define N=V     set a PHP setting\n"
		"  -n, --no-php-ini     read no php.ini\n"
		"\n"
		"Without options it is the master process of a pool, started by weir.\n";
	fputs(text, code == EXIT_FINE ? stdout : stderr);
	return code;
}

static int compare_names(Bucket *one, Bucket *other)
{
	zend_module_entry *a = Z_PTR(one->val), *b = Z_PTR(other->val);
	return strcasecmp(a->name, b->name);
}

static void print_modules(void)
{
	HashTable sorted;
	zend_module_entry *module;
	zend_hash_init(&sorted, 64, NULL, NULL, 1);
	zend_hash_copy(&sorted, &module_registry, NULL);
	zend_hash_sort(&sorted, compare_names, 0);
	php_printf("[PHP Modules]\n");
	ZEND_HASH_FOREACH_PTR(&sorted, module) {
		php_printf("%s\n", module->name);
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&sorted);
	php_printf("\n[Zend Modules]\n");
	zend_llist_position at;
	zend_extension *extension = zend_llist_get_first_ex(&zend_extensions, &at);
	for (; extension; extension = zend_llist_get_next_ex(&zend_extensions, &at)) {
		php_printf("%s\n", extension->name);
	}
	php_printf("\n");
}

static void print_version(void)
{
	php_printf("PHP %s (%s) (built: %s %s)\nCopyright (c) The PHP Group\n%s", engine_version(), sapi_module.name, __DATE__,
		   __TIME__, get_zend_version());
}

/* Why pools cannot share a load of this PHP; empty: they can. */
static char why_own[256];

static void look_at_load(const struct pool_config *config)
{
	(void)config;
	template_may_fork(why_own, sizeof why_own);
}

/* Starts PHP and a request, because printing needs one, and prints. */
static int print(const struct pool_config *config, int what, bool with_load)
{
	char error[512];
	weir_sapi.phpinfo_as_text = 1;
	log_on_command_line();
	template_begin();
	if (!engine_start(config, with_load ? look_at_load : NULL, error, sizeof error)) {
		if (what != 's') {
			say("weir-php: %s", error);
		}
		return EXIT_INTERNAL;
	}
	if (what == 's') {
		/* For weir: the version, and whether answers may name it. The rest is for a master's manager. */
		const char *inputs = engine_inputs();
		dprintf(STDOUT_FILENO, STARTED "%.*s\n", (int)strcspn(inputs, "\n"), inputs);
		/* weir waits for the end of this process, and PHP-FPM goes on here without an end of PHP. */
		_exit(EXIT_FINE);
	}
	if (php_request_startup() == FAILURE) {
		return EXIT_INTERNAL;
	}
	SG(headers_sent) = 1;
	SG(request_info).no_headers = 1;
	zend_try {
		if (what == 'i') {
			engine_print_info(PHP_INFO_ALL);
			if (with_load) {
				php_printf(LOAD_ROW "%s\n", *why_own ? why_own : "yes");
			}
		} else if (what == 'm') {
			print_modules();
		} else {
			print_version();
		}
	} zend_end_try();
	php_request_shutdown(NULL);
	engine_stop();
	return EXIT_FINE;
}

int cli_run(int argc, char **argv)
{
	struct pool_config config;
	char error[1];
	config_read(&config, NULL, 0, error, sizeof error);
	int what = 0, option;
	bool with_load = false;
	while ((option = getopt_long(argc, argv, "c:d:hilmnsv", LONG_OPTIONS, NULL)) != -1) {
		switch (option) {
		case 'c':
			config.php_ini = optarg;
			break;
		case 'd':
			config.defines = take_more_memory(config.defines, (config.define_count + 1) * sizeof *config.defines);
			config.defines[config.define_count++] = optarg;
			break;
		case 'l':
			with_load = true;
			break;
		case 'n':
			config.no_ini = true;
			break;
		case 'i':
		case 'm':
		case 's':
		case 'v':
			what = option;
			break;
		case 'h':
			return usage(EXIT_FINE);
		default:
			return usage(EXIT_COMMAND_LINE);
		}
	}
	return what && optind == argc ? print(&config, what, with_load) : usage(EXIT_COMMAND_LINE);
}
