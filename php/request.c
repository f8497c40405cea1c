/*
 * Parts of a request that are the same with and without an application that stays booted. See request.h.
 */
#include "request.h"

#include <sys/resource.h>

#include "php.h"
#include "SAPI.h"
#include "php_output.h"

#include "sapi.h"

static uint64_t microseconds(const struct timeval *time)
{
	return (uint64_t)time->tv_sec * 1000000 + (uint64_t)time->tv_usec;
}

void request_measure(struct figures *figures)
{
	struct rusage usage, children;
	getrusage(RUSAGE_SELF, &usage);
	getrusage(RUSAGE_CHILDREN, &children);
	figures->user_microseconds = microseconds(&usage.ru_utime) + microseconds(&children.ru_utime);
	figures->cpu_microseconds = figures->user_microseconds + microseconds(&usage.ru_stime) +
				    microseconds(&children.ru_stime);
	figures->peak_resident = (uint64_t)usage.ru_maxrss * 1024;
}

void request_subtract(struct figures *figures, const struct figures *before)
{
	figures->cpu_microseconds -= before->cpu_microseconds;
	figures->user_microseconds -= before->user_microseconds;
}

void request_refuse(int code, const char *text)
{
	zend_try {
		SG(sapi_headers).http_response_code = code;
		PUTS(text);
	} zend_end_try();
}

bool request_has_body(void)
{
	volatile enum body_state state = BODY_IS_LONG;
	zend_try {
		state = sapi_take_body();
	} zend_end_try();
	if (state == BODY_IS_LONG) {
		request_refuse(500, "Internal Server Error.\n");
	}
	return state == BODY_IS_WHOLE;
}

void request_mark_failure(void)
{
	char *line = sapi_settings.error_header;
	if (EG(exit_status) != 255 || SG(headers_sent) || !line || !*line) {
		return;
	}
	sapi_header_line header = {.line = line, .line_len = strlen(line)};
	sapi_header_op(SAPI_HEADER_REPLACE, &header);
}
