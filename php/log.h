/*
 * Messages of PHP and about a request. They go to the gateway as the request's error log. If the pool's output is
 * written in PHP-FPM's format, they also go to standard error with the same text.
 */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include "config.h"

/* Numbered as in PHP-FPM. */
enum message_level { MESSAGE_DEBUG = 1, MESSAGE_NOTICE, MESSAGE_WARNING, MESSAGE_ERROR };

/* From now on PHP's messages go to standard error in the format of PHP-FPM on a command line. */
void log_on_command_line(void);

/* From now on messages go to the gateway. Before that, they go to standard error unchanged. */
void log_start(const struct pool_config *config);

/* Resets the state of the previous request. */
void log_begin_request(void);

/* Ends the request: an unfinished line that it wrote to standard error counts as a line. */
void log_end_request(void);

/* Logs a message of PHP: error_log(), warnings, uncaught exceptions. */
void log_php(const char *message);

/* Logs a message of the worker about a request. */
void log_event_of(enum message_level level, const char *function, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
#define log_event(level, ...) log_event_of(level, __func__, __LINE__, __VA_ARGS__)

#endif
