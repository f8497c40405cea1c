/*
 * What the manager says of a pool, once, before PHP is started.
 */
#ifndef WEIR_CONFIG_H
#define WEIR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

/* A php_value, or a php_admin_value, which scripts and .user.ini cannot change. */
struct ini_value {
	char *name;
	char *value;
	bool admin;
};

struct pool_config {
	/* The number of what the manager speaks (protocol.h), which is its first word; 0: it does not say. */
	unsigned protocol;
	/* The manager's program, for messages; NULL: it does not say. */
	char *weir;
	char *pool;
	/* What processes are called in lists of them, where that is not the program's name; else NULL. */
	char *process_name;
	/* Folder to be shut into once PHP is started; none: NULL. */
	char *chroot;
	/* Folder to start scripts from, inside of `chroot`; none: NULL. */
	char *chdir;
	/* Where php.ini is, as -c; none: NULL. */
	char *php_ini;
	/* As -n: without php.ini. */
	bool no_ini;
	/* As -d, each "name=value". */
	char **defines;
	size_t define_count;
	struct ini_value *ini;
	size_t ini_count;
	/* The environment of workers, each "NAME=value"; beside what the master was started with, or, with clear_env, alone. */
	char **environment;
	size_t environment_count;
	bool clear_env;
	/* Endings of the scripts that may run; none: any. */
	char **extensions;
	size_t extension_count;
	/* Most lines of a stack trace; 0: no limit. */
	unsigned trace_depth;
	/* Whether CPU and memory of each request are measured. */
	bool figures;
	/* Whether workers may dump core and be looked into. */
	bool dumpable;
	/* Messages go to standard error, too, in PHP-FPM's format: the log's level (log.h). 0: they do not. */
	unsigned log_level;
	/* Longest line of a message in PHP-FPM's format, bytes; 0: it is not in that format. */
	unsigned log_limit;
	/* The slow log's socket; none: -1. */
	int slow_log;
};

/* Reads the body of a CONFIG message; false, with the reason in `error`, where it is none. */
bool config_read(struct pool_config *config, const unsigned char *body, size_t length, char *error, size_t size);

#endif
