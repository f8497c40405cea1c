/*
 * Messages: of PHP and about a request. They go to the gateway, as the request's error log, and, where the pool's
 * output is written in PHP-FPM's format, to standard error in the same words.
 */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include "config.h"

/* As PHP-FPM numbers them. */
enum message_level { MESSAGE_DEBUG = 1, MESSAGE_NOTICE, MESSAGE_WARNING, MESSAGE_ERROR };

/* From now on what PHP says is written to standard error as PHP-FPM writes it on a command line. */
void log_on_command_line(void);

/* From now on messages go to the gateway; before that, to standard error as they are. */
void log_start(const struct pool_config *config);

/* Forgets what belongs to the request before. */
void log_begin_request(void);

/* The request is over: what it wrote to standard error without an end of line is a line. */
void log_end_request(void);

/* What PHP logs: error_log(), warnings, uncaught exceptions. */
void log_php(const char *message);

/* What a worker says about a request itself. */
void log_event_of(enum message_level level, const char *function, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
#define log_event(level, ...) log_event_of(level, __func__, __LINE__, __VA_ARGS__)

#endif
