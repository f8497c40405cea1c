/*
 * Messages to standard error, which the manager copies to the log, and exits with a message.
 */
#ifndef WEIR_SAY_H
#define WEIR_SAY_H

#include <stddef.h>

/* Exit codes as in sysexits(3). */
enum { EXIT_FINE = 0, EXIT_COMMAND_LINE = 64, EXIT_PROTOCOL = 65, EXIT_INTERNAL = 70, EXIT_SYSTEM = 71 };

/* Writes one line with one write. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes the message, and ends the process without running anything else. */
_Noreturn void die(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* malloc, realloc and strdup that end the process if there is no memory. */
void *take_memory(size_t size);
void *take_more_memory(void *memory, size_t size);
char *take_text(const void *bytes, size_t length);

#endif
