/*
 * The life of a worker: one request after another. See worker.h.
 */
#include "worker.h"

#include <unistd.h>

#include "php.h"
#include "SAPI.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "php_main.h"
#include "php_output.h"

#include "booted.h"
#include "control.h"
#include "disabled.h"
#include "engine.h"
#include "fastcgi.h"
#include "folder.h"
#include "ini.h"
#include "input_errors.h"
#include "log.h"
#include "note.h"
#include "opcache.h"
#include "params.h"
#include "request.h"
#include "sapi.h"
#include "say.h"
#include "script.h"
#include "session.h"

/* Whether a function of the script may be called with its output. php.ini's output_buffering alone has none. */
static bool has_output_function(void)
{
	php_output_handler *handler = php_output_get_active_handler();
	return php_output_get_level() > 1 || (handler && handler->flags & PHP_OUTPUT_HANDLER_USER);
}

/*
 * Whether code of the script may still run at the end of the request. It must then see the folder in which the worker
 * started.
 */
static bool may_look_around(void)
{
	return BG(user_shutdown_function_names) || EG(objects_store).top > 1 || has_output_function() ||
	       Z_TYPE(SG(callback_func)) != IS_UNDEF || PS(session_status) == php_session_active;
}

static void run_script(void)
{
	zend_file_handle script;
	char *path = estrdup(SG(request_info).path_translated);
	volatile bool opened = false;
	errno = 0;
	zend_try {
		opened = php_fopen_primary_script(&script) == SUCCESS;
		if (!opened) {
			log_event(MESSAGE_ERROR, "Unable to open primary script: %s (%s)", path, strerror(errno));
		}
	} zend_end_try();
	if (opened) {
		EG(exit_status) = 0;
		SG(options) |= SAPI_OPTION_NO_CHDIR;
		folder_enter(path);
		php_execute_script(&script);
		if (may_look_around()) {
			folder_leave();
		}
		zend_destroy_file_handle(&script);
	} else if (errno == EACCES) {
		request_refuse(403, "Access denied.\n");
	} else {
		request_refuse(404, "No input file specified.\n");
	}
	efree(path);
}

static void answer(const struct pool_config *config, const char *impossible)
{
	const char *path = SG(request_info).path_translated;
	if (!SG(request_info).request_method) {
		return;
	}
	if (impossible) {
		zend_try {
			log_event(MESSAGE_ERROR, "%s", impossible);
		} zend_end_try();
		request_refuse(500, "Internal Server Error.\n");
		return;
	}
	/* An empty path has no allowed ending. If all endings are allowed, PHP-FPM's child crashes. */
	if (!path || (!*path && script_is_allowed(config, path))) {
		zend_try {
			log_event(MESSAGE_DEBUG, "Primary script unknown");
		} zend_end_try();
		request_refuse(404, "File not found.\n");
		return;
	}
	if (!script_is_allowed(config, path)) {
		zend_try {
			log_event(MESSAGE_NOTICE, "Access to the script '%s' has been denied (see security.limit_extensions)", path);
		} zend_end_try();
		request_refuse(403, "Access denied.\n");
		return;
	}
	run_script();
}

/* Reports that the worker is idle. Returns false if the worker must end instead. */
static bool leave_request(const struct figures *figures)
{
	if (control_may_wait()) {
		stream_ready(figures, session_of_request());
		return true;
	}
	/* Do not report idle: the gateway must not send another request. */
	stream_end();
	stream_flush();
	return false;
}

/* Exit status of the last script. */
static int last_exit_status;

/* Handles the request whose parameters have arrived. Returns false if it was the last one. */
static bool serve_one(const struct pool_config *config)
{
	/* The CPU time that earlier requests took. */
	static struct figures before;
	SG(server_context) = (void *)config;
	sapi_begin_request();
	if (!PARAM_IS_EMPTY("CONTENT_LENGTH")) {
		/* Data of the request may be written to files before the script runs. */
		folder_leave();
	}
	script_find();
	note_begin(config);
	const char *impossible = ini_set_for_request();
	session_before_start();
	input_errors_begin(false);
	if (php_request_startup() == FAILURE) {
		die(EXIT_INTERNAL, "weir-php: PHP cannot start a request");
	}
	input_errors_end();
	session_after_start();
	struct figures figures = {.opcache = opcache_look()};
	if (request_has_body()) {
		answer(config, impossible);
	}
	last_exit_status = EG(exit_status);
	request_mark_failure();
	if (config->figures) {
		figures.peak_memory = zend_memory_peak_usage(1);
	}
	if (config->notes) {
		request_measure(&figures);
		request_subtract(&figures, &before);
		note_request(config, &figures);
	}
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	php_request_shutdown(NULL);
	log_end_request();
	disabled_clear();
	SG(server_context) = NULL;
	if (config->figures) {
		request_measure(&figures);
		struct figures until_now = figures;
		request_subtract(&figures, &before);
		before = until_now;
	}
	return leave_request(&figures);
}

/* What a worker and a zygote (zygote.h) do before they run a script. */
static void prepare(const struct pool_config *config)
{
	sapi_serve();
	log_start(config);
	folder_start();
	control_take_signals();
}

void worker_start(const struct pool_config *config, int stream, int orders)
{
	stream_open(stream);
	control_start(config, orders);
}

int worker_boot(const struct pool_config *config)
{
	prepare(config);
	return booted_run(config);
}

int worker_run(const struct pool_config *config, int stream, int orders)
{
	volatile int code = EXIT_FINE;
	prepare(config);
	worker_start(config, stream, orders);
	if (config->worker) {
		return booted_run(config);
	}
	zend_first_try {
		/* A new worker is idle without a report: its first request may have arrived before the order to stop. */
		if (!control_may_wait()) {
			stream_stop();
		}
		bool more = true;
		while (more) {
			control_await(stream);
			if (!stream_next_request()) {
				break;
			}
			control_has_request();
			more = serve_one(config);
		}
	} zend_catch {
		code = EXIT_INTERNAL;
	} zend_end_try();
	/* A process that a script forked exits with the script's exit code. */
	if (stream_is_disowned()) {
		code = last_exit_status;
	}
	engine_stop();
	return code;
}
