/*
 * Messages of PHP and about a request. See log.h; formats and limits are those of PHP-FPM 8.2 (sapi/fpm/fpm/zlog.c).
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "php.h"
#include "SAPI.h"
#include "php_main.h"

#include "fastcgi.h"
#include "sapi.h"

/* Maximum length of a message if the pool has no limit. PHP-FPM's default would cut most stack traces in the middle. */
#define MAX_MESSAGE 8192

/* Maximum length of a message about a request if the pool has a limit, whatever that limit is. */
#define MAX_EVENT 2048

#define PHP_MESSAGE "PHP message: "
#define CUT "..."

/* Marks the end of a request for the manager. */
static const char end_of_request[] = "\0fscf";

static const char *level_names[] = {
	[MESSAGE_DEBUG] = "DEBUG",
	[MESSAGE_NOTICE] = "NOTICE",
	[MESSAGE_WARNING] = "WARNING",
	[MESSAGE_ERROR] = "ERROR",
};

static const struct pool_config *pool;
/* Whether this request has logged a message: "; " separates messages. */
static bool has_logged;

/* Uses one write, so that no other process's line comes in between. A failure cannot be reported anywhere. */
static void write_error(const struct iovec *parts, int count)
{
	while (writev(STDERR_FILENO, parts, count) < 0 && errno == EINTR) {
	}
}

static struct iovec part(const char *text, size_t length)
{
	return (struct iovec){.iov_base = (void *)text, .iov_len = length};
}

/* "NOTICE: ", or the longer prefix of a log with debug level. Empty for messages below the log's level. */
static struct iovec prefix_of(enum message_level level, const char *function, int line, char *text, size_t size)
{
	if (!pool->log_level || level < pool->log_level) {
		return part(text, 0);
	}
	int length = pool->log_level == MESSAGE_DEBUG
			     ? snprintf(text, size, "%s: %s(), line %d: ", level_names[level], function, line)
			     : snprintf(text, size, "%s: ", level_names[level]);
	return part(text, length < (int)size ? (size_t)length : size - 1);
}

/* The client has the whole answer, and the script goes on. Each message is a line. */
static void log_late(const struct iovec *parts, int count)
{
	for (int at = 0; at < count; at++) {
		stream_write_late(parts[at].iov_base, parts[at].iov_len);
	}
	stream_write_late("\n", 1);
	stream_flush();
}

static void log_to_gateway(const struct iovec *parts, int count)
{
	if (!SG(server_context) || !sapi_settings.logging) {
		return;
	}
	if (stream_ended()) {
		log_late(parts, count);
		return;
	}
	if (has_logged) {
		stream_write(RECORD_STDERR, "; ", 2);
	}
	has_logged = true;
	bool heard = true;
	for (int at = 0; at < count; at++) {
		if (parts[at].iov_len) {
			heard = stream_write(RECORD_STDERR, parts[at].iov_base, parts[at].iov_len);
		}
	}
	if (!heard) {
		php_handle_aborted_connection();
	}
}

static bool on_command_line;

void log_on_command_line(void)
{
	on_command_line = true;
}

/* "[22-Nov-2026 14:31:48] NOTICE: PHP message: ", on a command line. */
static struct iovec prefix_of_start(char *text, size_t size)
{
	time_t now = time(NULL);
	struct tm parts;
	if (!on_command_line || !localtime_r(&now, &parts)) {
		return part(text, 0);
	}
	return part(text, strftime(text, size, "[%d-%b-%Y %H:%M:%S] NOTICE: " PHP_MESSAGE, &parts));
}

void log_php(const char *message)
{
	size_t length = strlen(message);
	if (!pool || (!SG(server_context) && !pool->log_level)) {
		char start[64];
		struct iovec parts[] = {
			prefix_of_start(start, sizeof start),
			part(message, length < MAX_MESSAGE ? length : MAX_MESSAGE),
			part("\n", 1),
		};
		write_error(parts, 3);
		return;
	}
	char prefix[128];
	struct iovec before = prefix_of(MESSAGE_NOTICE, "sapi_cgi_log_message", __LINE__, prefix, sizeof prefix);
	size_t most = pool->log_limit ? pool->log_limit - 1 - before.iov_len : MAX_MESSAGE;
	most -= strlen(PHP_MESSAGE);
	bool fits = length <= most;
	struct iovec parts[] = {
		before,
		part(PHP_MESSAGE, strlen(PHP_MESSAGE)),
		part(message, fits ? length : most - strlen(CUT)),
		part(CUT, fits ? 0 : strlen(CUT)),
		part("\n", 1),
	};
	log_to_gateway(parts + 1, 3);
	if (pool->log_level) {
		write_error(parts, 5);
	}
}

void log_event_of(enum message_level level, const char *function, int line, const char *format, ...)
{
	size_t most = pool->log_limit ? MAX_EVENT : MAX_MESSAGE;
	char *message;
	va_list arguments;
	va_start(arguments, format);
	size_t length = vspprintf(&message, most, format, arguments);
	va_end(arguments);
	if (length == most) {
		memcpy(message + length - strlen(CUT), CUT, strlen(CUT));
	}
	struct iovec whole = part(message, length);
	log_to_gateway(&whole, 1);
	if (pool->log_level && level >= pool->log_level) {
		char prefix[128];
		struct iovec before = prefix_of(level, function, line, prefix, sizeof prefix);
		bool fits = before.iov_len + length < MAX_EVENT;
		size_t limit = pool->log_limit < MAX_EVENT ? pool->log_limit : MAX_EVENT;
		struct iovec parts[] = {
			before,
			part(message, fits ? length : limit - 1 - strlen(CUT) - before.iov_len),
			part(CUT, fits ? 0 : strlen(CUT)),
			part("\n", 1),
		};
		write_error(parts, 4);
	}
	efree(message);
}

void log_start(const struct pool_config *config)
{
	pool = config;
}

void log_begin_request(void)
{
	has_logged = false;
}

void log_end_request(void)
{
	if (pool->log_level) {
		struct iovec mark = part(end_of_request, sizeof end_of_request);
		write_error(&mark, 1);
	}
}
