/*
 * What belongs to a request, in a process that keeps its application: set at the start of a request, and taken away at its
 * end. See booted.h.
 *
 * PHP itself does this together with the start and the end of all else: code, objects, settings. So this follows
 * php_request_startup() and php_request_shutdown() of PHP's main/main.c, without what the application must keep.
 */
#include "booted.h"

#include "SAPI.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/url_scanner_ex.h"
#include "php_ini.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "zend_exceptions.h"
#include "zend_list.h"

#include "disabled.h"
#include "input_errors.h"
#include "sapi.h"

/* ---- limits ---- */

/* Settings that PHP's functions change, and whose values must not pass from one request to another. */
static const char *const LIMITS[] = {"memory_limit", "max_execution_time", "ignore_user_abort"};
enum { LIMIT_COUNT = sizeof LIMITS / sizeof *LIMITS };
static struct {
	zend_ini_entry *entry;
	zend_string *value;
} limits[LIMIT_COUNT];

void booted_note_limits(void)
{
	for (size_t at = 0; at < LIMIT_COUNT; at++) {
		zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), LIMITS[at], strlen(LIMITS[at]));
		if (entry && entry->value) {
			limits[at].entry = entry;
			limits[at].value = zend_string_init(ZSTR_VAL(entry->value), ZSTR_LEN(entry->value), 1);
		}
	}
}

static bool has_changed(size_t at)
{
	const zend_ini_entry *entry = limits[at].entry;
	return entry && entry->value && !zend_string_equals(entry->value, limits[at].value);
}

static void restore_limit(size_t at)
{
	zend_ini_entry *entry = limits[at].entry;
	/*
	 * PHP warns if the application keeps more memory than the limit allows. An error handler of the application must
	 * not turn this warning into an exception, because nothing could catch it.
	 */
	zval handler;
	ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	zend_try {
		zend_alter_ini_entry_chars(entry->name, ZSTR_VAL(limits[at].value), ZSTR_LEN(limits[at].value), ZEND_INI_SYSTEM,
					   ZEND_INI_STAGE_RUNTIME);
	} zend_end_try();
	ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
}

static void restore_limits(void)
{
	for (size_t at = 0; at < LIMIT_COUNT; at++) {
		if (has_changed(at)) {
			restore_limit(at);
		}
	}
}

/* ---- input ---- */

static void import_globals(void)
{
	/* The other superglobals are replaced when they are imported. */
	zval *files = &PG(http_globals)[TRACK_VARS_FILES];
	zval_ptr_dtor_nogc(files);
	ZVAL_UNDEF(files);
	if (PG(register_argc_argv)) {
		php_build_argv(SG(request_info).query_string, NULL);
	}
	zend_auto_global *global;
	ZEND_HASH_FOREACH_PTR(CG(auto_globals), global) {
		bool is_server = zend_string_equals_literal(global->name, "_SERVER");
		if (!global->auto_global_callback || zend_string_equals_literal(global->name, "_ENV")) {
			continue;
		}
		/*
		 * With auto_globals_jit, code that uses such a variable has it made when it is compiled. It is compiled once, so
		 * after that it must be made for each request.
		 */
		if (is_server || !global->jit || zend_hash_exists(&EG(symbol_table), global->name)) {
			global->armed = global->auto_global_callback(global->name);
		}
	} ZEND_HASH_FOREACH_END();
}

/* Resources with lower numbers are of the boot, and stay. */
static zend_long first_of_requests;

/* An open php://input; NULL: there is none. */
static zend_resource *open_input(void)
{
	int kind = php_file_le_stream();
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		bool is_stream = resource->type == kind && resource->handle >= first_of_requests;
		php_stream *stream = is_stream ? resource->ptr : NULL;
		if (stream && strcmp(stream->ops->label, "Input") == 0) {
			return resource;
		}
	} ZEND_HASH_FOREACH_END();
	return NULL;
}

/* Closes php://input, even if the application has kept it, and then the stream below it. */
static void close_input(void)
{
	php_stream *body = SG(request_info).request_body;
	if (!body) {
		return;
	}
	zend_resource *input;
	while ((input = open_input())) {
		zend_list_close(input);
	}
	SG(request_info).request_body = NULL;
	php_stream_close(body);
}

/*
 * A stream that the boot has opened stays open: it contains no client's data, and the application may have kept it.
 */
static void leave_input_of_boot(void)
{
	if (open_input()) {
		/* The stream below it stays open, too. */
		SG(request_info).request_body = NULL;
	}
	close_input();
	first_of_requests = zend_hash_next_free_element(&EG(regular_list));
}

/* ---- sessions ---- */

/* The handlers of session_set_save_handler() stay. Everything else of the session is removed after it was written. */
static void end_session(void)
{
	zend_try {
		if (PS(session_status) == php_session_active) {
			php_session_flush(1);
		}
	} zend_end_try();
	if (!Z_ISUNDEF(PS(http_session_vars))) {
		zval_ptr_dtor(&PS(http_session_vars));
		ZVAL_UNDEF(&PS(http_session_vars));
	}
	zend_string *name = zend_string_init("_SESSION", sizeof "_SESSION" - 1, 0);
	zend_delete_global_variable(name);
	zend_string_release(name);
	if (PS(mod) && (PS(mod_data) || PS(mod_user_implemented))) {
		zend_try {
			PS(mod)->s_close(&PS(mod_data));
		} zend_end_try();
	}
	if (PS(id)) {
		zend_string_release(PS(id));
	}
	if (PS(session_vars)) {
		zend_string_release(PS(session_vars));
	}
	PS(id) = NULL;
	PS(session_vars) = NULL;
	PS(session_status) = php_session_none;
	PS(in_save_handler) = false;
	PS(set_handler) = false;
	PS(mod_data) = NULL;
	PS(mod_user_is_open) = false;
	PS(define_sid) = true;
	/* The entry must not be removed: compiled code has its address. */
	zval *sid = zend_get_constant_str("SID", sizeof "SID" - 1);
	if (sid && Z_TYPE_P(sid) == IS_STRING) {
		zval_ptr_dtor_str(sid);
		ZVAL_EMPTY_STRING(sid);
	}
	php_url_scanner_reset_session_vars();
}

/* ---- what scripts leave behind ---- */

static void forget_last_error(void)
{
	PG(last_error_type) = 0;
	PG(last_error_lineno) = 0;
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
}

static void forget_small_things(void)
{
	forget_last_error();
	php_url_scanner_reset_vars();
	php_clear_stat_cache(0, NULL, 0);
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
	sapi_request_info *info = &SG(request_info);
	info->auth_user = info->auth_password = info->auth_digest = NULL;
	info->cookie_data = NULL;
	info->content_type_dup = NULL;
	info->current_user = NULL;
	info->query_string = NULL;
	info->request_uri = NULL;
	info->content_type = NULL;
	info->request_method = NULL;
}

/* The functions of register_shutdown_function() that were registered at the boot. They run when the process ends. */
static HashTable *shutdown_functions_of_boot;

/* An exception may keep an object whose destructor throws the next one. Some scripts would do so for ever. */
#define MAX_EXCEPTIONS 100

void booted_settle_exception(void)
{
	for (int count = 0; EG(exception) && count < MAX_EXCEPTIONS; count++) {
		if (zend_is_unwind_exit(EG(exception)) || zend_is_graceful_exit(EG(exception))) {
			zend_clear_exception();
		} else {
			zend_exception_error(EG(exception), E_ERROR);
		}
	}
}

void booted_call_shutdown_functions(void)
{
	if (BG(user_shutdown_function_names)) {
		php_call_shutdown_functions();
		booted_settle_exception();
		php_free_shutdown_functions();
	}
}

void booted_give_up_request(void)
{
	booted_call_shutdown_functions();
	BG(user_shutdown_function_names) = shutdown_functions_of_boot;
	shutdown_functions_of_boot = NULL;
}

/* ---- between requests ---- */

void booted_open_gap(void)
{
	php_output_activate();
	/* As after fastcgi_finish_request(). */
	SG(headers_sent) = 1;
	SG(request_info).no_headers = 1;
}

static void end_output(void)
{
	zend_try {
		php_output_end_all();
	} zend_end_try();
	booted_settle_exception();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	booted_settle_exception();
}

void booted_close_gap(void)
{
	end_output();
	/* Scripts also write to $_SESSION where there is no session. */
	bool has_values = zend_hash_str_exists(&EG(symbol_table), "_SESSION", sizeof "_SESSION" - 1);
	if (PS(session_status) == php_session_active || PS(id) || has_values) {
		end_session();
		booted_settle_exception();
	}
	close_input();
	booted_settle_exception();
	booted_forget_headers();
	forget_small_things();
	booted_forget_results();
	restore_limits();
	zend_unset_timeout();
}

/* ---- start and end ---- */

static void open_output(void)
{
	php_output_activate();
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	sapi_activate();
	zend_set_timeout(PG(max_input_time) == -1 ? EG(timeout_seconds) : PG(max_input_time), 1);
	if (PG(expose_php)) {
		sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof SAPI_PHP_VERSION_HEADER - 1, 1);
	}
	if (PG(output_handler) && PG(output_handler)[0]) {
		zval handler;
		ZVAL_STRING(&handler, PG(output_handler));
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0,
				      PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
}

bool booted_open_request(void)
{
	volatile bool opened = true;
	/*
	 * While PHP reads the input, there is no code that could catch what an error handler of the application throws. As
	 * in any request, its errors are PHP's.
	 */
	zval handler;
	ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	shutdown_functions_of_boot = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
	input_errors_begin(true);
	zend_try {
		open_output();
		import_globals();
		booted_start_extensions();
		if (PS(auto_start)) {
			php_session_start();
		}
	} zend_catch {
		opened = false;
	} zend_end_try();
	input_errors_end();
	ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
	SG(sapi_started) = 1;
	if (EG(exception)) {
		/* For example, a session handler has thrown it. */
		booted_settle_exception();
		opened = false;
	}
	if (PG(max_input_time) != -1) {
		zend_set_timeout(EG(timeout_seconds), 0);
	}
	return opened;
}

void booted_close_request(void)
{
	if (booted_keeps_settings()) {
		booted_give_up_request();
	}
	zend_try {
		php_output_end_all();
	} zend_end_try();
	booted_settle_exception();
	booted_end_extensions();
	end_session();
	booted_settle_exception();
	end_output();
	/* Functions of a filter on php://input may throw, too. */
	if (booted_keeps_settings()) {
		close_input();
	} else {
		leave_input_of_boot();
	}
	booted_settle_exception();
	if (SG(request_info).path_translated) {
		efree(SG(request_info).path_translated);
		SG(request_info).path_translated = NULL;
	}
	booted_forget_headers();
	zend_try {
		sapi_deactivate();
	} zend_end_try();
	forget_small_things();
	if (booted_keeps_settings()) {
		restore_limits();
		zend_unset_timeout();
	}
}
