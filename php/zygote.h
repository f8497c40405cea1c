/*
 * The zygote of an application that stays booted: a process that has run the application's script up to its first
 * frankenphp_handle_request(), and from which workers are forked. So a new worker costs a fork and not a boot, and workers
 * share the pages of the booted application.
 *
 * The master forks the zygote, passes the manager's orders to it, and is the parent of its workers: they do not depend on the
 * zygote's life. zygote_look.c decides whether a process may be forked at all.
 */
#ifndef WEIR_ZYGOTE_H
#define WEIR_ZYGOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config.h"

/* ---- the master's end ---- */

/* Descriptors of an order: a worker's stream, the pipe of its orders, its standard output and error. */
enum { ZYGOTE_STREAM, ZYGOTE_ORDERS, ZYGOTE_OUTPUT, ZYGOTE_ERROR, ZYGOTE_DESCRIPTORS };

enum zygote_event { ZYGOTE_BOOTED = 1, ZYGOTE_DECLINED = 2, ZYGOTE_FORKED = 3, ZYGOTE_FORK_FAILED = 4 };

/* What a zygote tells its master. */
struct zygote_message {
	uint32_t event;
	/* ZYGOTE_FORKED, ZYGOTE_FORK_FAILED: the worker's number, and its process id or the error. */
	uint32_t number;
	int32_t value;
	/* ZYGOTE_DECLINED: why the process cannot be forked. */
	char text[256];
};

/* Orders a zygote to fork a worker, without waiting. Returns 0 or an error. The descriptors stay the caller's. */
int zygote_order(int socket, uint32_t number, const int descriptors[ZYGOTE_DESCRIPTORS]);

/* Reads a message, without waiting. Returns 1; 0: there is none now; -1: the zygote has closed the socket. */
int zygote_hear(int socket, struct zygote_message *message);

/* ---- in the zygote ---- */

/*
 * Makes this process a zygote; the application is not booted yet. `socket`: to the master. `life`: the process ends when the
 * other end of this socket is closed. `reports`: see booted_report_to().
 */
void zygote_start(const struct pool_config *config, int socket, int life, int reports, pid_t master);

/*
 * The application is booted. In a zygote this returns only in workers, which are then ready for requests. In any other process
 * it does nothing.
 */
void zygote_serve(void);

/* ---- zygote_memory.c ---- */

/* Makes that workers share as much of the booted application's memory as possible, and for as long as possible. */
void zygote_prepare_memory(void);

/* ---- zygote_look.c ---- */

/* Notes what the process has open before the boot. Call it where /proc can be read. */
void zygote_look_before(void);

/* Whether the process may be forked. If not, says why. */
bool zygote_may_fork(char *why, size_t size);

/*
 * Opens the files again that the boot has opened, so that this process has its own position in them. Returns false if that
 * is not possible.
 */
bool zygote_reopen(void);

#endif
