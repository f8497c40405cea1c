/*
 * The life of a process whose application stays booted. See booted.h. In a zygote (zygote.h), workers are forked at the first
 * handle_request.
 *
 *   boot ── the first handle_request ──► waiting ── a request ──► its function runs ── END_REQUEST ──► the script goes on
 *                                           ▲                                                              │
 *                                           └───────────────── READY, at the next handle_request ──────────┘
 *
 * So what the script does after handle_request has returned is not part of the client's time, and the gateway sends no
 * request until that is done.
 *
 * An exception that the function does not catch, and exit(), end the request only. But if nothing was answered before exit(),
 * the script ends too: the output of its destructors is then the answer. After a fatal error PHP cannot continue:
 * the process ends after the answer, and the pool starts another one.
 */
#include "booted.h"

#include <sys/stat.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/spl/spl_exceptions.h"
#include "ext/standard/basic_functions.h"
#include "php_main.h"
#include "php_output.h"
#include "zend_exceptions.h"

#include "control.h"
#include "disabled.h"
#include "engine.h"
#include "fastcgi.h"
#include "folder.h"
#include "log.h"
#include "note.h"
#include "opcache.h"
#include "params.h"
#include "request.h"
#include "sapi.h"
#include "say.h"
#include "script.h"
#include "session.h"
#include "zygote.h"

/* How often a process checks whether OPcache waits until no process uses its memory, s. */
#define OPCACHE_LOOK 1

static const struct pool_config *pool;
static int reports = -1;
static uint32_t own_number;

/* Whether the script has called handle_request. */
static bool is_booted;
/* Whether a fatal error has ended the boot when the script had called handle_request. */
static bool boot_has_failed;
/* Whether a request is being answered. */
static bool in_request;
/* Whether the process is about to wait for a request. The preparation may call functions of the script. */
static bool is_busy;
/* Whether there are no more requests. */
static bool is_over;
/* The last request was answered. READY is still to be sent, with these figures. */
static bool owes_ready;
static struct figures last_figures, figures_before;
static const struct session_use *last_session;

void booted_start(const struct pool_config *config)
{
	pool = config;
}

void booted_report_to(int pipe, uint32_t number)
{
	reports = pipe;
	own_number = number;
}

void booted_report(int kind)
{
	struct booted_report report = {.number = own_number, .kind = kind};
	bool is_own = reports >= 0 && !stream_is_disowned();
	if (is_own && write(reports, &report, sizeof report) < 0) {
		say("weir-php: cannot report to the pool's master: %s", strerror(errno));
	}
}

bool booted_has_application(void)
{
	return pool && pool->worker;
}

bool booted_is_outside(void)
{
	return booted_has_application() && !in_request;
}

bool booted_keeps_settings(void)
{
	return is_booted;
}

/* ---- one request ---- */

/* The name of the request's script below the document root. */
static const char *script_name(void)
{
	const char *file = SG(request_info).path_translated;
	const char *root = PARAM("DOCUMENT_ROOT");
	size_t length = root ? strlen(root) : 0;
	if (length && root[length - 1] == '/') {
		length--;
	}
	if (file && length && strncmp(file, root, length) == 0 && file[length] == '/') {
		return file + length;
	}
	return PARAM("SCRIPT_NAME");
}

static bool is_for_application(void)
{
	const char *file = SG(request_info).path_translated, *name = script_name();
	if (file && strcmp(file, pool->worker) == 0) {
		return true;
	}
	for (size_t at = 0; name && at < pool->worker_script_count; at++) {
		if (strcmp(name, pool->worker_scripts[at]) == 0) {
			return true;
		}
	}
	return false;
}

/* Answers a request that is not for the application. Returns false if it is. */
static bool is_refused(void)
{
	const char *file = SG(request_info).path_translated;
	if (!PARAM_IS_EMPTY("PHP_VALUE") || !PARAM_IS_EMPTY("PHP_ADMIN_VALUE")) {
		log_event(MESSAGE_ERROR,
			  "PHP_VALUE and PHP_ADMIN_VALUE cannot change the settings of an application that stays booted: write "
			  "them as php_value and php_admin_value of [pool.%s]",
			  pool->pool);
		request_refuse(500, "Internal Server Error.\n");
		return true;
	}
	if (!is_for_application()) {
		log_event(MESSAGE_ERROR,
			  "%s is not run: the processes of pool %s run only %s, which stays booted; give other scripts a route with "
			  "a pool of their own",
			  file && *file ? file : "(no script)", pool->pool, pool->worker);
		request_refuse(404, "File not found.\n");
		return true;
	}
	if (file && !script_is_allowed(pool, file)) {
		log_event(MESSAGE_NOTICE, "Access to the script '%s' has been denied (see security.limit_extensions)", file);
		request_refuse(403, "Access denied.\n");
		return true;
	}
	return false;
}

/* Starts the request whose parameters have arrived. Returns false after a fatal error. */
static bool begin_request(void)
{
	in_request = true;
	owes_ready = true;
	SG(server_context) = (void *)pool;
	sapi_begin_request();
	opcache_adapt();
	folder_return();
	script_find();
	folder_return();
	note_begin(pool);
	session_before_start();
#if PHP_VERSION_ID >= 80200
	zend_memory_reset_peak_usage();
#endif
	EG(exit_status) = 0;
	bool opened = booted_open_request();
	session_after_start();
	return opened;
}

/* Notes the cost of the request. */
static void count_cost(void)
{
	/*
	 * The exact size, not the large pieces that PHP takes from the kernel: it shows how much memory the application
	 * keeps.
	 */
	last_figures = (struct figures){.peak_memory = zend_memory_peak_usage(0)};
	if (pool->notes) {
		request_measure(&last_figures);
		request_subtract(&last_figures, &figures_before);
		note_request(pool, &last_figures);
	}
}

/*
 * What the script does between two requests must not keep the client waiting. But where it does nothing, the end of the
 * response is better sent together with READY: one system call and one wakeup of the gateway less. So this looks at how
 * long the script took the last times. If it takes longer now, another thread sends the end.
 */
#define SHORT_GAP_NS 200000
#define SHORT_GAPS 4

static uint64_t gap_began;
static unsigned short_gaps;

static uint64_t nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void note_gap(void)
{
	bool is_short = nanoseconds() - gap_began < SHORT_GAP_NS;
	short_gaps = is_short ? short_gaps + 1 : 0;
}

/* After PHP has ended the request. */
static void send_end(void)
{
	last_session = session_of_request();
	log_end_request();
	gap_began = nanoseconds();
	if (short_gaps >= SHORT_GAPS && !CG(unclean_shutdown)) {
		stream_end_soon();
	} else {
		stream_end();
		stream_flush();
	}
	in_request = false;
	SG(server_context) = NULL;
}

static void end_request(void)
{
	request_mark_failure();
	count_cost();
	booted_close_request();
	send_end();
	if (CG(unclean_shutdown)) {
		/* There was a fatal error. */
		zend_bailout();
	}
	booted_open_gap();
}

static bool has_output(void)
{
	for (int at = 0; at < zend_stack_count(&OG(handlers)); at++) {
		php_output_handler **handlers = zend_stack_base(&OG(handlers));
		if (handlers[at]->buffer.used) {
			return true;
		}
	}
	return SG(headers_sent);
}

/*
 * Whether exit() ends the request without an answer. In a script that does not stay, destructors come next, and tools
 * like Symfony's dump() show their page there. Here, objects stay for the next request, unless the script ends.
 */
static bool has_left_without_answer(void)
{
	int status = SG(sapi_headers).http_response_code;
	return (status == 200 || status >= 500) && !SG(request_info).headers_only && !has_output();
}

/* After the function. Returns false if the script is to end with the request. */
static bool leave_function(void)
{
	if (EG(exception) && zend_is_unwind_exit(EG(exception)) && has_left_without_answer()) {
		booted_settle_exception();
		booted_call_shutdown_functions();
		if (has_left_without_answer()) {
			zend_throw_unwind_exit();
			return false;
		}
	}
	booted_settle_exception();
	return true;
}

/* ---- the loop ---- */

/*
 * OPcache clears its memory only when no process uses it. Processes with a booted application use it as long as they
 * live.
 */
static void look_at_opcache(void)
{
	static time_t last;
	time_t now = time(NULL);
	if (now - last < OPCACHE_LOOK) {
		return;
	}
	last = now;
	if (opcache_waits()) {
		booted_report(OPCACHE_IS_FULL);
	}
}

/* The application is booted: ends what is like a request for PHP, and reports. */
static void end_boot(void)
{
	zend_unset_timeout();
	booted_note_limits();
	booted_close_request();
	booted_forget_results();
	if (CG(unclean_shutdown)) {
		/* The script calls this from its output callback, or from a session handler. */
		boot_has_failed = true;
		zend_bailout();
	}
	folder_keep();
	is_booted = true;
	/* A zygote stays in this function, and its workers leave it. */
	zygote_serve();
	request_measure(&figures_before);
	booted_report(BOOTED);
}

/* Waits for a request. Returns false if there are no more. */
static bool next_request(void)
{
	if (is_booted) {
		booted_close_gap();
		if (CG(unclean_shutdown)) {
			/* There was a fatal error between the requests. */
			zend_bailout();
		}
	} else {
		end_boot();
	}
	look_at_opcache();
	bool may_wait = control_may_wait();
	if (owes_ready) {
		note_gap();
	}
	if (owes_ready && may_wait) {
		if (pool->figures) {
			struct figures now = last_figures;
			request_measure(&now);
			last_figures = now;
			request_subtract(&last_figures, &figures_before);
			figures_before = now;
		}
		last_figures.opcache = opcache_look();
		stream_ready(&last_figures, last_session);
	}
	owes_ready = false;
	if (!may_wait) {
		stream_flush();
		/* The order to end may have come before the first request. That request may have arrived meanwhile. */
		stream_stop();
	}
	is_over = stream_is_disowned() || !stream_next_request();
	if (is_over) {
		/* The script may still run and print something. */
		booted_open_gap();
	} else {
		control_has_request();
	}
	return !is_over;
}

bool booted_handle_request(zend_fcall_info *function, zend_fcall_info_cache *cache)
{
	if (!booted_has_application()) {
		zend_throw_exception_ex(spl_ce_RuntimeException, 0,
					"frankenphp_handle_request() called while not in worker mode: write this script as `worker` of "
					"[pool.%s]",
					pool->pool);
		return false;
	}
	if (in_request) {
		zend_throw_exception(spl_ce_RuntimeException,
				     "frankenphp_handle_request() was called while it answers a request", 0);
		return false;
	}
	if (is_busy) {
		zend_throw_exception(spl_ce_RuntimeException,
				     "frankenphp_handle_request() was called while another call of it waits", 0);
		return false;
	}
	if (is_over) {
		return false;
	}
	for (;;) {
		is_busy = true;
		bool is_there = next_request();
		is_busy = false;
		if (!is_there) {
			return false;
		}
		bool opened = begin_request();
		if (!opened || !request_has_body() || is_refused()) {
			end_request();
			continue;
		}
		zval result;
		ZVAL_UNDEF(&result);
		function->retval = &result;
		function->param_count = 0;
		zend_call_function(function, cache);
		/* This comes first: it may call a destructor, which may throw. */
		zval_ptr_dtor(&result);
		if (!leave_function()) {
			return true;
		}
		end_request();
		return true;
	}
}

/* ---- the process ---- */

static void set_boot_param(const char *name, const char *value)
{
	params_set(name, value ? value : "");
}

/*
 * As in FrankenPHP, a client that leaves does not end the script, and with it the process: other clients need it. Not if the pool says
 * otherwise.
 */
static void ignore_clients_that_leave(void)
{
	static const char setting[] = "ignore_user_abort";
	for (size_t at = 0; at < pool->ini_count; at++) {
		if (strcmp(pool->ini[at].name, setting) == 0) {
			return;
		}
	}
	zend_string *name = zend_string_init(setting, sizeof setting - 1, 0);
	zend_alter_ini_entry_chars(name, "1", 1, ZEND_INI_SYSTEM, ZEND_INI_STAGE_ACTIVATE);
	zend_string_release(name);
}

/*
 * The boot is like a request for PHP. It has no more than the variables that all requests have: applications copy them into
 * $_SERVER of later requests.
 */
static void begin_boot(void)
{
	const char *slash = strrchr(pool->worker, '/');
	char *folder = take_text(pool->worker, slash ? (size_t)(slash - pool->worker) : 0);
	const char *name = slash ? slash : pool->worker;
	params_clear();
	set_boot_param("FCGI_ROLE", "RESPONDER");
	set_boot_param("GATEWAY_INTERFACE", "CGI/1.1");
	set_boot_param("SERVER_PROTOCOL", "HTTP/1.1");
	set_boot_param("SERVER_SOFTWARE", "weir");
	set_boot_param("REQUEST_METHOD", "GET");
	set_boot_param("QUERY_STRING", "");
	set_boot_param("DOCUMENT_ROOT", folder);
	set_boot_param("SCRIPT_FILENAME", pool->worker);
	set_boot_param("SCRIPT_NAME", name);
	set_boot_param("DOCUMENT_URI", name);
	set_boot_param("REQUEST_URI", name);
	/* Scripts that can also run without `worker` ask for it. As in FrankenPHP, requests do not have it. */
	set_boot_param("FRANKENPHP_WORKER", "1");
	free(folder);
	SG(server_context) = NULL;
	sapi_begin_request();
	folder_leave();
	script_find();
	if (php_request_startup() == FAILURE) {
		die(EXIT_INTERNAL, "weir-php: PHP cannot start");
	}
	/* The output of the boot goes to the log, without headers. */
	SG(request_info).no_headers = 1;
	opcache_begin_boot();
	ignore_clients_that_leave();
}

static void run_script(void)
{
	zend_file_handle script;
	zend_stream_init_filename(&script, pool->worker);
	script.primary_script = 1;
	EG(exit_status) = 0;
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	folder_enter(pool->worker);
	php_execute_script(&script);
	zend_destroy_file_handle(&script);
}

/* The script has ended, perhaps by a fatal error within a request. */
static void end_script(void)
{
	bool was_in_request = in_request;
	stream_flush();
	if (was_in_request) {
		request_mark_failure();
		count_cost();
		booted_give_up_request();
	}
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	php_request_shutdown(NULL);
	if (was_in_request) {
		send_end();
		stream_flush();
	}
	SG(server_context) = NULL;
}

int booted_run(const struct pool_config *config)
{
	volatile int code = EXIT_FINE;
	(void)config;
	zend_first_try {
		begin_boot();
		run_script();
		end_script();
	} zend_catch {
		code = EXIT_INTERNAL;
	} zend_end_try();
	if (stream_is_disowned()) {
		/* A process that the script forked. */
		code = EG(exit_status);
	} else if (boot_has_failed) {
		say("weir-php: %s: a fatal error at its first frankenphp_handle_request(), so the application is not booted",
		    pool->worker);
		code = EXIT_INTERNAL;
	} else if (!is_booted) {
		say("weir-php: %s ended without a call of frankenphp_handle_request(), so the application is not booted",
		    pool->worker);
		code = EXIT_INTERNAL;
	}
	engine_stop();
	return code;
}
