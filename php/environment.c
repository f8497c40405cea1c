/*
 * The environment of a pool's processes. See environment.h.
 */
#include "environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"

/* The variables that the manager has sent: "NAME=value", each with its zero. The environment points into it. */
static char *sent;
static size_t sent_length;

static bool read_all(int descriptor, char *into, size_t length)
{
	for (size_t at = 0; at < length;) {
		ssize_t count = pread(descriptor, into + at, length - at, (off_t)at);
		if (count == 0 || (count < 0 && errno != EINTR)) {
			return false;
		}
		at += count > 0 ? (size_t)count : 0;
	}
	return true;
}

bool environment_receive(int descriptor)
{
	struct stat about;
	if (fstat(descriptor, &about) < 0) {
		return false;
	}
	sent_length = (size_t)about.st_size;
	sent = take_memory(sent_length + 1);
	sent[sent_length] = '\0';
	if (!read_all(descriptor, sent, sent_length)) {
		return false;
	}
	for (char *next, *at = sent; at < sent + sent_length; at = next) {
		next = at + strlen(at) + 1;
		char *equals = strchr(at, '=');
		if (!equals) {
			errno = EINVAL;
			return false;
		}
		*equals = '\0';
		/* If a library has set another value at its start, the library's value counts. */
		bool is_set = getenv(at) != NULL;
		*equals = '=';
		if (!is_set && putenv(at) != 0) {
			return false;
		}
	}
	return true;
}

/* Fields of /proc/PID/stat: where the kernel placed the arguments, and the environment, at the start (proc(5)). */
enum { ARGUMENTS = 48, ENVIRONMENT = 50 };

/*
 * Finds the arguments or the environment, as the kernel placed them at the start: `field` and the next field have the
 * bounds. `environ` does not tell it, because libraries change that before main() is called.
 */
static bool find_first(int field, char **begin, char **end)
{
	char text[2048];
	FILE *stat = fopen("/proc/self/stat", "re");
	size_t length = stat ? fread(text, 1, sizeof text - 1, stat) : 0;
	if (stat) {
		fclose(stat);
	}
	text[length] = '\0';
	/* The second field is a name in parentheses, which may contain spaces. */
	char *at = strrchr(text, ')');
	for (int before = 2; at && before < field; before++) {
		at = strchr(at + 1, ' ');
	}
	unsigned long place[2] = {0, 0};
	if (!at || sscanf(at, " %lu %lu", &place[0], &place[1]) != 2) {
		return false;
	}
	*begin = (char *)place[0];
	*end = (char *)place[1];
	return *begin && *begin < *end;
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
	char *begin, *end;
	if (config->clear_env) {
		clearenv();
		/*
		 * The memory may contain secrets that scripts must not see, so it is erased. It is not freed, because
		 * libraries may point to it.
		 */
		if (sent) {
			explicit_bzero(sent, sent_length);
		}
		/* What /proc/self/environ shows. */
		if (find_first(ENVIRONMENT, &begin, &end)) {
			explicit_bzero(begin, (size_t)(end - begin));
		}
	}
	for (size_t at = 0; at < config->environment_count; at++) {
		set(config->environment[at]);
	}
}

void environment_set_title(const char *title)
{
	char *begin, *end;
	if (!find_first(ARGUMENTS, &begin, &end) || end - begin < 2) {
		return;
	}
	size_t room = (size_t)(end - begin) - 1;
	size_t length = strnlen(title, room);
	memcpy(begin, title, length);
	memset(begin + length, 0, room + 1 - length);
}
