/*
 * The callbacks of PHP's SAPI. See sapi.h.
 */
#include "sapi.h"

#include <fcntl.h>
#include <unistd.h>

#include "ext/standard/info.h"
#include "http_status_codes.h"
#include "php_ini.h"
#include "php_main.h"
#include "php_open_temporary_file.h"
#include "php_variables.h"

#include "booted.h"
#include "disabled.h"
#include "engine.h"
#include "fastcgi.h"
#include "functions.h"
#include "ini.h"
#include "input_errors.h"
#include "log.h"
#include "params.h"
#include "session.h"

/* Maximum length of a status line, as in PHP-FPM. */
#define MAX_STATUS_LINE 1024

/*
 * Freeing more memory than this takes longer than a write, so the response is sent before. With less memory, the end of
 * the response and the READY record are sent in one write.
 */
#define MUCH_MEMORY ((size_t)8 * 1024 * 1024)

struct sapi_settings sapi_settings;

static bool serving;
/* File with the request's body, if the front end sent its path, or if it is long; -1: not yet looked up. */
static int body_file = -1;

static void (*import_process_environment)(zval *variables);

/* The function behind getenv() without a name. Older versions of PHP 8.1 may not have it. */
extern void (*php_load_environment_variables)(zval *variables) __attribute__((weak));

/* ---- output ---- */

static size_t write_out(const char *bytes, size_t length)
{
	if (!serving || booted_is_outside()) {
		ssize_t written = write(STDOUT_FILENO, bytes, length);
		return written > 0 ? (size_t)written : 0;
	}
	if (!stream_write(RECORD_STDOUT, bytes, length)) {
		php_handle_aborted_connection();
		return 0;
	}
	return length;
}

static void flush_out(void *server_context)
{
	if (!serving || !server_context) {
		return;
	}
#if PHP_VERSION_ID >= 80400
	sapi_send_headers();
#endif
	if (!stream_flush() || stream_client_gone()) {
		php_handle_aborted_connection();
	}
}

static bool is_header(const sapi_header_struct *header, const char *name, size_t name_length)
{
	return header->header_len > name_length && strncasecmp(header->header, name, name_length) == 0;
}
#define IS_HEADER(header, name) is_header(header, name, sizeof(name) - 1)

static void write_header_line(const char *line, size_t length)
{
	stream_write(RECORD_STDOUT, line, length);
	stream_write(RECORD_STDOUT, "\r\n", 2);
}

static bool has_status_header(sapi_headers_struct *headers)
{
	zend_llist_position at;
	sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &at);
	for (; header; header = zend_llist_get_next_ex(&headers->headers, &at)) {
		if (IS_HEADER(header, "Status:")) {
			return true;
		}
	}
	return false;
}

static const char *reason_of(int code)
{
	for (const http_response_status_code_pair *known = http_status_map; known->code; known++) {
		if (known->code == code) {
			return known->str;
		}
	}
	return NULL;
}

/* A head before the final one is being sent. */
static bool is_interim;

/*
 * Writes the status line if one is needed. Returns its length, else 0. A line that the script set with header("HTTP/1.1
 * 404 Gone fishing") sets the reason; a "Status:" header is sent unchanged.
 */
static size_t status_line(sapi_headers_struct *headers, char *line, size_t size, int *code)
{
	const char *given = SG(sapi_headers).http_status_line;
	const char *space = given ? strchr(given, ' ') : NULL;
	if (!sapi_settings.nph && *code == 200) {
		return 0;
	}
	int length;
	if (given && sapi_settings.rfc2616_headers) {
		length = snprintf(line, size, "%s", given);
		*code = space ? atoi(space + 1) : *code;
	} else if (space && space - given >= 5 && strncasecmp(given, "HTTP/", 5) == 0) {
		length = snprintf(line, size, "Status:%s", space);
		*code = atoi(space + 1);
	} else if (!is_interim && has_status_header(headers)) {
		return 0;
	} else {
		const char *reason = reason_of(*code);
		length = reason ? snprintf(line, size, "Status: %d %s", *code, reason)
				: snprintf(line, size, "Status: %d", *code);
	}
	return length < (int)size ? (size_t)length : size - 1;
}

static int send_headers(sapi_headers_struct *headers)
{
	if (SG(request_info).no_headers) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	char line[MAX_STATUS_LINE];
	int code = SG(sapi_headers).http_response_code;
	if (code >= 100 && code < 200 && !is_interim && booted_has_application()) {
		/* Such a head does not end the answer: it comes before the answer. */
		code = 200;
	}
	size_t length = status_line(headers, line, sizeof line, &code);
	bool status_sent = length > 0;
	if (status_sent) {
		write_header_line(line, length);
	}
	zend_llist_position at;
	sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &at);
	for (; header; header = zend_llist_get_next_ex(&headers->headers, &at)) {
		if (header->header_len == 0 || (code == 304 && IS_HEADER(header, "Content-Type:"))) {
			continue;
		}
		if (IS_HEADER(header, "Status:")) {
			if (status_sent) {
				continue;
			}
			status_sent = true;
		}
		write_header_line(header->header, header->header_len);
	}
	stream_write(RECORD_STDOUT, "\r\n", 2);
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

int sapi_send_interim(int status)
{
	sapi_headers_struct *headers = &SG(sapi_headers);
	int final_status = headers->http_response_code;
	char *final_line = headers->http_status_line;
	if (SG(headers_sent)) {
		return SAPI_HEADER_SEND_FAILED;
	}
	/* The status that the script has set is for the final head, not for this one. */
	headers->http_response_code = status;
	headers->http_status_line = NULL;
	is_interim = true;
	int result = send_headers(headers);
	is_interim = false;
	headers->http_response_code = final_status;
	headers->http_status_line = final_line;
	/* An informational head is useful only if it arrives before the answer. */
	stream_flush();
	return result;
}

/* ---- input ---- */

/* Opens the file with the request's body if the front end names one. Returns false if it cannot be read. */
static bool find_body_file(void)
{
	const char *path = PARAM("REQUEST_BODY_FILE");
	if (body_file != -1 || !path || !*path) {
		return true;
	}
	body_file = open(path, O_RDONLY | O_CLOEXEC);
	if (body_file < 0) {
		php_error(E_WARNING, "REQUEST_BODY_FILE: open('%s') failed: %s (%d)", path, strerror(errno), errno);
		return false;
	}
	return true;
}

static size_t read_body(char *bytes, size_t size)
{
	size_t left = (size_t)(SG(request_info).content_length - SG(read_post_bytes));
	size_t wanted = left < size ? left : size;
	if (!wanted || !find_body_file()) {
		return 0;
	}
	if (body_file < 0) {
		return stream_read_body(bytes, wanted);
	}
	size_t done = 0;
	while (done < wanted) {
		ssize_t got = read(body_file, bytes + done, wanted - done);
		if (got <= 0) {
			break;
		}
		done += (size_t)got;
	}
	return done;
}

/* Makes an empty file without a name. Returns -1 if that fails. */
static int unnamed_file(void)
{
	zend_string *path;
	int file = php_open_temporary_fd(PG(upload_tmp_dir), "php", &path);
	if (file >= 0) {
		unlink(ZSTR_VAL(path));
		zend_string_release(path);
		fcntl(file, F_SETFD, FD_CLOEXEC);
	}
	return file;
}

/* Copies what PHP may still read of the body. Returns false if the file does not take it. */
static bool keep_body(int file)
{
	char bytes[16 * 1024];
	size_t left = (size_t)(SG(request_info).content_length - SG(read_post_bytes)), length;
	while (left && (length = stream_read_body(bytes, left < sizeof bytes ? left : sizeof bytes))) {
		left -= length;
		for (size_t at = 0; at < length;) {
			ssize_t written = write(file, bytes + at, length - at);
			if (written < 0 && errno != EINTR) {
				return false;
			}
			at += written > 0 ? (size_t)written : 0;
		}
	}
	return lseek(file, 0, SEEK_SET) == 0;
}

enum body_state sapi_take_body(void)
{
	enum body_state state = stream_await_body();
	if (state != BODY_IS_LONG) {
		return state;
	}
	if (body_file < 0 && SG(read_post_bytes) < SG(request_info).content_length) {
		int file = unnamed_file();
		if (file < 0 || !keep_body(file)) {
			log_event(MESSAGE_ERROR, "The request's body cannot be kept in a temporary file: %s", strerror(errno));
			if (file >= 0) {
				close(file);
			}
			return BODY_IS_LONG;
		}
		body_file = file;
	}
	stream_drain();
	return stream_await_body();
}

static char *read_cookies(void)
{
	return PARAM("HTTP_COOKIE");
}

static char *get_variable(const char *name, size_t length)
{
	return serving ? params_get(name, length) : getenv(name);
}

/* ---- variables ---- */

/*
 * The names of parameters as PHP's strings, by their hash: nearly all requests have the same names. They stay for ever,
 * because scripts keep $_SERVER as long as they like. So the place of a name is not given to another one, and longer names
 * are not kept: clients cannot make this grow.
 */
enum { NAME_COUNT = 256, LONGEST_NAME = 64 };
static zend_string *names[NAME_COUNT];

/* Whether PHP takes the name as it is: without brackets, dots and spaces, and not as a number. */
static bool is_plain(const struct param *param)
{
	const char *name = param->name;
	if (param->name_length == 0 || param->name_length > LONGEST_NAME || (*name >= '0' && *name <= '9')) {
		return false;
	}
	for (size_t at = 0; at < param->name_length; at++) {
		bool is_letter = name[at] >= 'A' && name[at] <= 'Z';
		bool is_digit = name[at] >= '0' && name[at] <= '9';
		if (!is_letter && !is_digit && name[at] != '_') {
			return false;
		}
	}
	return true;
}

/* The name as PHP's string; NULL: PHP must look at it. */
static zend_string *name_of(const struct param *param)
{
	zend_string **place = &names[param->hash % NAME_COUNT];
	if (*place && ZSTR_LEN(*place) == param->name_length &&
	    memcmp(ZSTR_VAL(*place), param->name, param->name_length) == 0) {
		return *place;
	}
	if (*place || !is_plain(param)) {
		return NULL;
	}
	*place = zend_string_init(param->name, param->name_length, 1);
	zend_string_hash_val(*place);
	/* As strings of PHP's own that are made before the first request. */
	GC_ADD_FLAGS(*place, IS_STR_INTERNED | IS_STR_PERMANENT);
	return *place;
}

/* The same as php_register_variable_safe(), which would make a new string of each name. */
static void register_param(const struct param *param, const char *value, size_t length, zval *variables)
{
	zend_string *name = name_of(param);
	if (!name) {
		php_register_variable_safe(param->name, value, length, variables);
		return;
	}
	zval text;
	ZVAL_STRINGL_FAST(&text, value, length);
	zend_hash_update(Z_ARRVAL_P(variables), name, &text);
}

static void import_params(zval *variables, int filter)
{
	size_t count;
	const struct param *params = params_all(&count);
	/* Room for all variables at once, and for those that PHP adds. */
	zend_hash_extend(Z_ARRVAL_P(variables), zend_hash_num_elements(Z_ARRVAL_P(variables)) + (uint32_t)count + 8, 0);
	/* The last parameter comes first, as in PHP-FPM. */
	for (size_t at = count; at-- > 0;) {
		char *value = params[at].value;
		if (!value) {
			continue;
		}
		size_t length = filter < 0 ? params[at].value_length : strlen(value);
		if (filter < 0 || sapi_module.input_filter(filter, params[at].name, &value, length, &length)) {
			register_param(&params[at], value, length, variables);
		}
	}
}

static bool copy_of(zval *variables, zval *others)
{
	if (Z_TYPE_P(others) != IS_ARRAY || Z_ARR_P(variables) == Z_ARR_P(others) ||
	    zend_hash_num_elements(Z_ARRVAL_P(others)) == 0) {
		return false;
	}
	zend_array_destroy(Z_ARR_P(variables));
	ZVAL_ARR(variables, zend_array_dup(Z_ARR_P(others)));
	return true;
}

/* $_ENV and the base of $_SERVER: the process's environment and the request's parameters. */
static void import_variables(zval *variables)
{
	zval *env = &PG(http_globals)[TRACK_VARS_ENV], *server = &PG(http_globals)[TRACK_VARS_SERVER];
	/* In an application that stays booted, $_ENV is that of the boot. */
	if (!booted_has_application() && (copy_of(variables, env) || copy_of(variables, server))) {
		return;
	}
	import_process_environment(variables);
	bool is_env = Z_TYPE_P(env) == IS_ARRAY && Z_ARR_P(variables) == Z_ARR_P(env);
	import_params(variables, is_env ? PARSE_ENV : PARSE_SERVER);
}

/* getenv() without a name. */
static void load_variables(zval *variables)
{
	import_process_environment(variables);
	import_params(variables, -1);
}

static void register_default(const char *name, const char *value, zval *variables)
{
	if (!zend_hash_str_exists(Z_ARRVAL_P(variables), name, strlen(name))) {
		php_register_variable_safe(name, value, strlen(value), variables);
	}
}

/* FrankenPHP has these in each request. Its REMOTE_USER is not verified: nobody has checked the password. */
static void register_as_in_worker_mode(zval *variables)
{
	register_default("PATH_INFO", "", variables);
	register_default("AUTH_TYPE", "", variables);
	register_default("REMOTE_IDENT", "", variables);
	register_default("REMOTE_HOST", PARAM_IS_EMPTY("REMOTE_ADDR") ? "" : PARAM("REMOTE_ADDR"), variables);
}

static void register_server_variables(zval *variables)
{
	php_import_environment_variables(variables);
	const char *script = SG(request_info).request_uri;
	const char *path_info = sapi_settings.fix_pathinfo ? get_variable("PATH_INFO", 9) : NULL;
	char *self;
	size_t length = spprintf(&self, 0, "%s%s", script ? script : "", path_info ? path_info : "");
	if (sapi_module.input_filter(PARSE_SERVER, "PHP_SELF", &self, length, &length)) {
		php_register_variable_safe("PHP_SELF", self, length, variables);
	}
	efree(self);
	if (booted_has_application() && !booted_is_outside()) {
		register_as_in_worker_mode(variables);
	}
}

static void log_message(const char *message, int syslog_type)
{
	(void)syslog_type;
	log_php(message);
}

/* ---- life of a request ---- */

static int activate(void)
{
	return serving && !booted_keeps_settings() ? ini_activate_for_script() : SUCCESS;
}

/* The whole response has been written; PHP has not freed its memory yet. */
static int deactivate(void)
{
	if (body_file >= 0) {
		close(body_file);
	}
	body_file = -1;
	const struct pool_config *config = SG(server_context);
	/*
	 * Not if resource usage is measured: it is sent with the end of the response, so that a log line about both has
	 * both. And an application that stays booted keeps its memory.
	 */
	bool frees_much = !booted_has_application() && zend_memory_usage(1) > MUCH_MEMORY;
	if (serving && config && !config->figures && frees_much) {
		stream_end();
		stream_flush();
	}
	return SUCCESS;
}

void sapi_begin_request(void)
{
	log_begin_request();
	body_file = -1;
}

void sapi_serve(void)
{
	serving = true;
	import_process_environment = php_import_environment_variables;
	php_import_environment_variables = import_variables;
	if (&php_load_environment_variables) {
		php_load_environment_variables = load_variables;
	}
}

static int start_up(sapi_module_struct *module)
{
#if PHP_VERSION_ID >= 80200
	return php_module_startup(module, &weir_module);
#else
	return php_module_startup(module, &weir_module, 1);
#endif
}

sapi_module_struct weir_sapi = {
	.name = "fpm-fcgi",
	.pretty_name = "FPM/FastCGI",
	.startup = start_up,
	.shutdown = php_module_shutdown_wrapper,
	.activate = activate,
	.deactivate = deactivate,
	.ub_write = write_out,
	.flush = flush_out,
	.getenv = get_variable,
	.sapi_error = php_error,
	.send_headers = send_headers,
	.read_post = read_body,
	.read_cookies = read_cookies,
	.register_server_variables = register_server_variables,
	.log_message = log_message,
	.php_ini_ignore_cwd = 1,
};

/* ---- the module: settings of php.ini, functions, a section of phpinfo() ---- */

#define SETTING_BOOL(name, value, access, field) \
	STD_PHP_INI_BOOLEAN(name, value, access, OnUpdateBool, field, struct sapi_settings, sapi_settings)
#define SETTING_TEXT(name, field) \
	STD_PHP_INI_ENTRY(name, NULL, PHP_INI_SYSTEM, OnUpdateString, field, struct sapi_settings, sapi_settings)

PHP_INI_BEGIN()
	SETTING_BOOL("cgi.rfc2616_headers", "0", PHP_INI_ALL, rfc2616_headers)
	SETTING_BOOL("cgi.nph", "0", PHP_INI_ALL, nph)
	SETTING_BOOL("cgi.fix_pathinfo", "1", PHP_INI_SYSTEM, fix_pathinfo)
	SETTING_BOOL("cgi.discard_path", "0", PHP_INI_SYSTEM, discard_path)
#if PHP_VERSION_ID >= 80500
	SETTING_BOOL("fastcgi.script_path_encoded", "1", PHP_INI_SYSTEM, script_path_encoded)
#else
	SETTING_BOOL("cgi.force_redirect", "1", PHP_INI_SYSTEM, force_redirect)
	SETTING_TEXT("cgi.redirect_status_env", redirect_status_env)
#endif
	SETTING_BOOL("fastcgi.logging", "1", PHP_INI_SYSTEM, logging)
	SETTING_TEXT("fastcgi.error_header", error_header)
	SETTING_TEXT("fpm.config", fpm_config)
PHP_INI_END()

static PHP_MINIT_FUNCTION(weir)
{
	(void)type;
	EG(current_module)->version = engine_version();
	REGISTER_INI_ENTRIES();
	disabled_add_for_pool();
	engine_name_folders();
	session_watch();
	if (!engine_is_fpm()) {
		booted_add_functions();
	}
	input_errors_watch();
	engine_watch_extensions();
	return SUCCESS;
}

static PHP_MSHUTDOWN_FUNCTION(weir)
{
	(void)type;
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

static PHP_MINFO_FUNCTION(weir)
{
	php_info_print_table_start();
	php_info_print_table_row(2, "php-fpm", "active");
	php_info_print_table_end();
	DISPLAY_INI_ENTRIES();
}

/* It has the name of PHP-FPM's module, which applications check with extension_loaded(). */
zend_module_entry weir_module = {
	STANDARD_MODULE_HEADER,
	"cgi-fcgi",
	weir_functions,
	PHP_MINIT(weir),
	PHP_MSHUTDOWN(weir),
	NULL,
	NULL,
	PHP_MINFO(weir),
	PHP_VERSION,
	STANDARD_MODULE_PROPERTIES,
};
