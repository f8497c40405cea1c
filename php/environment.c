/*
 * The environment of a pool's processes. See environment.h.
 */
#include "environment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

/* The environment with which the process was started: consecutive strings. */
static char *first, *behind_last;

void environment_start(void)
{
	for (char **variable = environ; variable && *variable; variable++) {
		first = first ? first : *variable;
		behind_last = *variable + strlen(*variable) + 1;
	}
}

static void set(const char *variable)
{
	const char *equals = strchr(variable, '=');
	char *name = take_text(variable, (size_t)(equals - variable));
	/* Skips invalid names, as PHP-FPM does. */
	if (setenv(name, equals + 1, 1) != 0 && errno == ENOMEM) {
		die(EXIT_SYSTEM, "weir-php: cannot set the environment: %s", strerror(errno));
	}
	free(name);
}

void environment_become(const struct pool_config *config)
{
	if (config->clear_env) {
		clearenv();
		if (first) {
			/* It may contain secrets that scripts must not see, and /proc/self/environ shows it. */
			explicit_bzero(first, (size_t)(behind_last - first));
		}
	}
	for (size_t at = 0; at < config->environment_count; at++) {
		set(config->environment[at]);
	}
}
