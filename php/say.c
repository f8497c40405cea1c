/*
 * Messages to standard error, and memory allocation that ends the process on failure. See say.h.
 */
#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_line(const char *format, va_list arguments)
{
	char line[2048];
	int length = vsnprintf(line, sizeof line - 1, format, arguments);
	if (length < 0) {
		return;
	}
	if ((size_t)length > sizeof line - 2) {
		length = sizeof line - 2;
	}
	line[length++] = '\n';
	/* If standard error is closed too, the message cannot be reported. */
	if (write(STDERR_FILENO, line, (size_t)length) < 0) {
		return;
	}
}

void say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}

void die(int code, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
	_exit(code);
}

void *take_memory(size_t size)
{
	return take_more_memory(NULL, size);
}

void *take_more_memory(void *memory, size_t size)
{
	void *more = realloc(memory, size ? size : 1);
	if (!more) {
		die(EXIT_SYSTEM, "weir-php: out of memory (%zu bytes requested)", size);
	}
	return more;
}

char *take_text(const void *bytes, size_t length)
{
	char *text = take_memory(length + 1);
	memcpy(text, bytes, length);
	text[length] = 0;
	return text;
}
