/*
 * Notes when a request gets and releases the lock of its session. See session.h.
 *
 * PHP has no hook for that. So the functions that open and close sessions are replaced by ones that look at the
 * session's state before and after. A request without a session costs nothing.
 */
#include "session.h"

#include <string.h>
#include <time.h>

#include "php.h"
#include "SAPI.h"
#include "ext/session/php_session.h"

static struct session_use use;

/* Since when the lock is held; 0: it is not held. */
static uint64_t since;

/* When PHP began to start the request, if it may start a session. */
static uint64_t start;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/*
 * Whether a session handler locks the session for one request at a time. For handlers of scripts this is not known.
 */
static bool locks(const ps_module *handler)
{
	if (!handler) {
		return false;
	}
	if (strcmp(handler->s_name, "files") == 0) {
		return true;
	}
	if (strcmp(handler->s_name, "memcached") == 0) {
		return INI_BOOL("memcached.sess_locking");
	}
	if (strcmp(handler->s_name, "redis") == 0 || strcmp(handler->s_name, "rediscluster") == 0) {
		return INI_BOOL("redis.session.locking_enabled");
	}
	return false;
}

/* Whether this request holds the lock of a session. */
static bool holds(void)
{
	if (PS(session_status) != php_session_active) {
		return false;
	}
	/* A handler in PHP that extends SessionHandler uses the configured one. */
	return locks(PS(mod)) || (PS(mod_user_is_open) && locks(PS(default_mod)));
}

static void note_name(void)
{
#if PHP_VERSION_ID >= 80500
	const char *name = PS(session_name) ? ZSTR_VAL(PS(session_name)) : NULL;
#else
	const char *name = PS(session_name);
#endif
	use.name[0] = 0;
	if (PS(use_cookies) && name && strlen(name) <= LONGEST_SESSION_NAME) {
		strcpy(use.name, name);
	}
}

/* The state may have changed between these two times. */
static void look(uint64_t before, uint64_t after)
{
	if (since) {
		use.held_microseconds += after - since;
		since = 0;
	} else {
		use.waited_microseconds += after - before;
	}
	if (holds()) {
		since = after;
		note_name();
	}
}

static void around(zif_handler original, INTERNAL_FUNCTION_PARAMETERS)
{
	uint64_t before = now();
	original(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	look(before, now());
}

#define WATCHED(name) \
	static zif_handler original_##name; \
	static ZEND_NAMED_FUNCTION(watched_##name) \
	{ \
		around(original_##name, INTERNAL_FUNCTION_PARAM_PASSTHRU); \
	}

WATCHED(session_start)
WATCHED(session_write_close)
WATCHED(session_commit)
WATCHED(session_abort)
WATCHED(session_destroy)

static void replace(const char *name, zif_handler *original, zif_handler watched)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		*original = function->internal_function.handler;
		function->internal_function.handler = watched;
	}
}
#define REPLACE(name) replace(#name, &original_##name, watched_##name)

void session_watch(void)
{
	REPLACE(session_start);
	REPLACE(session_write_close);
	REPLACE(session_commit);
	REPLACE(session_abort);
	REPLACE(session_destroy);
}

void session_before_start(void)
{
	use = (struct session_use){0};
	since = 0;
	start = PS(auto_start) ? now() : 0;
}

void session_after_start(void)
{
	if (start) {
		look(start, now());
	}
}

const struct session_use *session_of_request(void)
{
	if (since) {
		use.held_microseconds += now() - since;
		since = 0;
	}
	if (!use.name[0]) {
		use.held_microseconds = 0;
	}
	return &use;
}
