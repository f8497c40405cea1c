/*
 * The settings of a pool. The manager sends them once, before PHP starts.
 */
#ifndef WEIR_CONFIG_H
#define WEIR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* A php_value, or a php_admin_value. Scripts and .user.ini cannot change a php_admin_value. */
struct ini_value {
	char *name;
	char *value;
	bool admin;
};

struct pool_config {
	/* The manager's protocol number (protocol.h). It is the first field. 0: not sent. */
	unsigned protocol;
	/* The manager's version; NULL: not sent. */
	char *weir_version;
	/* Path of the manager's program, for messages; NULL: not sent. */
	char *weir;
	/* The process belongs to no pool: masters are forked from it (template.h). */
	bool is_template;
	/* Of a template: no pool has settings of OPcache, so it may start before the fork. */
	bool opcache_is_alike;
	char *pool;
	/* The whole name of a master in process lists; NULL: it was executed with its name. */
	char *title;
	/* Name of the processes in process lists, if it differs from the program's name; else NULL. */
	char *process_name;
	/* Root folder for chroot(2) after PHP has started; NULL: none. */
	char *chroot;
	/* Working folder for scripts, inside of `chroot`; NULL: none. */
	char *chdir;
	/* Path of php.ini, as with -c; NULL: none. */
	char *php_ini;
	/* Do not read a php.ini, as with -n. */
	bool no_ini;
	/* Settings as with -d, each "name=value". */
	char **defines;
	size_t define_count;
	struct ini_value *ini;
	size_t ini_count;
	/*
	 * Environment of the workers, each "NAME=value". It is added to the environment of the master, or, with clear_env,
	 * replaces it.
	 */
	char **environment;
	size_t environment_count;
	bool clear_env;
	/* Limits that a master sets for itself (setrlimit(2)): it was not executed with them. */
	struct limit {
		int resource;
		unsigned long long soft, hard;
	} limits[3];
	size_t limit_count;
	/* Extensions of the scripts that may run; none: any. */
	char **extensions;
	size_t extension_count;
	/* The script that keeps the application booted; NULL: each request runs its script. */
	char *worker;
	/* Names of scripts, below the document root, whose requests are for that application. */
	char **worker_scripts;
	size_t worker_script_count;
	/* Maximum number of lines of a stack trace; 0: no limit. */
	unsigned trace_depth;
	/* Measure CPU and memory of each request. */
	bool figures;
	/*
	 * Say what PHP-FPM would log of each request (note.h), with these parameters and headers of the response.
	 */
	bool notes;
	char **noted_params;
	size_t noted_param_count;
	char **noted_headers;
	size_t noted_header_count;
	/* Workers may dump core, and debuggers may attach to them. */
	bool dumpable;
	/* AppArmor hat of the master and its workers; NULL: none. */
	char *apparmor_hat;
	/* The pool is in PHP-FPM's place (`weir fpm`). */
	bool is_fpm;
	/* Messages also go to standard error, in PHP-FPM's format, up to this level of the log (log.h). 0: they do not. */
	unsigned log_level;
	/* Maximum length of a message in PHP-FPM's format, bytes; 0: messages are not in that format. */
	unsigned log_limit;
	/* Socket of the slow log; -1: none. */
	int slow_log;
};

/* Reads the body of a CONFIG message. Returns false, with the reason in `error`, if the body is not valid. */
bool config_read(struct pool_config *config, const unsigned char *body, size_t length, char *error, size_t size);

#endif
