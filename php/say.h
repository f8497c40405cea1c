/*
 * Messages to standard error, which the manager copies into the log, and exits that say why.
 */
#ifndef WEIR_SAY_H
#define WEIR_SAY_H

#include <stddef.h>

/* Exit codes, as sysexits(3) numbers them. */
enum { EXIT_FINE = 0, EXIT_COMMAND_LINE = 64, EXIT_PROTOCOL = 65, EXIT_INTERNAL = 70, EXIT_SYSTEM = 71 };

/* One line, in one write. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says it, and ends the process without running anything more. */
_Noreturn void die(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* malloc, realloc and strdup that end the process where there is no memory. */
void *take_memory(size_t size);
void *take_more_memory(void *memory, size_t size);
char *take_text(const void *bytes, size_t length);

#endif
