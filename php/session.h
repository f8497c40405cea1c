/*
 * For how long a request holds the lock of its session. While it does, other requests of the same session wait in
 * session_start(), so weir may let them wait before they have a worker (serialize_by = "auto").
 */
#ifndef WEIR_SESSION_H
#define WEIR_SESSION_H

#include <stdint.h>

/* The longest name of a session's cookie that is reported. */
#define LONGEST_SESSION_NAME 64

struct session_use {
	/* How long the lock was held. 0: not at all, or the session's cookie has no name that can be reported. */
	uint64_t held_microseconds;
	/* How long session_start() took, mostly to wait for the lock. */
	uint64_t waited_microseconds;
	/* The name of the session's cookie (session.name). */
	char name[LONGEST_SESSION_NAME + 1];
};

/* Replaces PHP's session functions by ones that note the time. Call it once, when the functions of all modules exist. */
void session_watch(void);

/* A request begins. Call it before PHP starts it, and afterwards the other function: PHP may start a session by itself. */
void session_before_start(void);
void session_after_start(void);

/* The request has ended, and PHP has closed its session. */
const struct session_use *session_of_request(void);

#endif
