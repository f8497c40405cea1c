/*
 * FrankenPHP's functions, and their names in weir. All pools have them; only applications that stay booted can handle requests. See
 * booted.h.
 */
#include "booted.h"

#include "SAPI.h"
#include "ext/json/php_json.h"
#include "zend_constants.h"
#include "zend_smart_str.h"

#include "functions.h"
#include "input_errors.h"
#include "log.h"
#include "sapi.h"
#include "say.h"

/* frankenphp_handle_request(callable $callback): bool */
static PHP_FUNCTION(frankenphp_handle_request)
{
	zend_fcall_info function;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(function, cache)
	ZEND_PARSE_PARAMETERS_END();
	RETVAL_BOOL(booted_handle_request(&function, &cache));
}

/* Adds "Name: value" to an array. */
static void add_header(void *element, void *result)
{
	const sapi_header_struct *header = element;
	const char *colon = memchr(header->header, ':', header->header_len);
	size_t name = colon ? (size_t)(colon - header->header) : 0;
	while (name && (header->header[name - 1] == ' ' || header->header[name - 1] == '\t')) {
		name--;
	}
	if (!name) {
		return;
	}
	const char *value = colon + 1, *end = header->header + header->header_len;
	while (value < end && (*value == ' ' || *value == '\t')) {
		value++;
	}
	char *key = estrndup(header->header, name);
	add_assoc_stringl_ex(result, key, name, value, (size_t)(end - value));
	efree(key);
}

/* frankenphp_response_headers(): array|bool, and apache_response_headers() */
static PHP_FUNCTION(frankenphp_response_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	zend_llist_apply_with_argument(&SG(sapi_headers).headers, add_header, return_value);
}

/* headers_send(int $status = 200): int. An informational status (103) may be followed by others. */
static PHP_FUNCTION(headers_send)
{
	zend_long status = 200;
	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status >= 100 && status < 200) {
		RETURN_LONG(sapi_send_interim((int)status));
	}
	SG(sapi_headers).http_response_code = (int)status;
	RETURN_LONG(sapi_send_headers());
}

/* frankenphp_request_parse_errors(): array */
static PHP_FUNCTION(frankenphp_request_parse_errors)
{
	ZEND_PARSE_PARAMETERS_NONE();
	input_errors_list(return_value);
}

/* The levels of FrankenPHP, which are those of Go's log/slog. */
enum { LEVEL_DEBUG = -4, LEVEL_INFO = 0, LEVEL_WARN = 4, LEVEL_ERROR = 8 };

/* frankenphp_log(string $message, int $level = 0, array $context = []): void */
static PHP_FUNCTION(frankenphp_log)
{
	zend_string *message;
	zend_long level = LEVEL_INFO;
	zval *context = NULL;
	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_STR(message)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(level)
		Z_PARAM_ARRAY(context)
	ZEND_PARSE_PARAMETERS_END();
	/*
	 * PHP itself fills the text: security updates of PHP 8.2 changed what the functions of zend_smart_str.h call, and this
	 * object must also run in a PHP without them.
	 */
	smart_str json = {0};
	if (context && zend_hash_num_elements(Z_ARRVAL_P(context))) {
		if (php_json_encode(&json, context, PHP_JSON_PARTIAL_OUTPUT_ON_ERROR) != SUCCESS || EG(exception)) {
			smart_str_free(&json);
			return;
		}
		smart_str_0(&json);
	}
	char *line;
	spprintf(&line, 0, "%s%s%s", ZSTR_VAL(message), json.s ? " " : "", json.s ? ZSTR_VAL(json.s) : "");
	smart_str_free(&json);
	if (booted_is_outside()) {
		say("%s", line);
	} else if (level < LEVEL_INFO) {
		log_event(MESSAGE_DEBUG, "%s", line);
	} else if (level < LEVEL_WARN) {
		log_event(MESSAGE_NOTICE, "%s", line);
	} else if (level < LEVEL_ERROR) {
		log_event(MESSAGE_WARNING, "%s", line);
	} else {
		log_event(MESSAGE_ERROR, "%s", line);
	}
	efree(line);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_handle, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_request, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arguments_of_response, 0, 0, MAY_BE_ARRAY | MAY_BE_BOOL)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_send, 0, 0, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_log, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	PHP_FE(frankenphp_handle_request, arguments_of_handle)
	PHP_FALIAS(weir_handle_request, frankenphp_handle_request, arguments_of_handle)
	PHP_FALIAS(frankenphp_finish_request, fastcgi_finish_request, arguments_of_finish)
	PHP_FALIAS(weir_finish_request, fastcgi_finish_request, arguments_of_finish)
	PHP_FALIAS(frankenphp_request_headers, apache_request_headers, arguments_of_request)
	PHP_FALIAS(weir_request_headers, apache_request_headers, arguments_of_request)
	PHP_FE(frankenphp_response_headers, arguments_of_response)
	PHP_FALIAS(apache_response_headers, frankenphp_response_headers, arguments_of_response)
	PHP_FALIAS(weir_response_headers, frankenphp_response_headers, arguments_of_response)
	PHP_FE(frankenphp_request_parse_errors, arguments_of_request)
	PHP_FALIAS(weir_request_parse_errors, frankenphp_request_parse_errors, arguments_of_request)
	PHP_FE(headers_send, arguments_of_send)
	PHP_FE(frankenphp_log, arguments_of_log)
	PHP_FALIAS(weir_log, frankenphp_log, arguments_of_log)
	PHP_FE_END
};

/* As REGISTER_MAIN_LONG_CONSTANT, which needs the number of a module. */
static void add_constant(const char *name, zend_long value)
{
	zend_register_long_constant(name, strlen(name), value, CONST_PERSISTENT, 0);
}

void booted_add_functions(void)
{
	zend_register_functions(NULL, functions, NULL, MODULE_PERSISTENT);
	add_constant("FRANKENPHP_LOG_LEVEL_DEBUG", LEVEL_DEBUG);
	add_constant("FRANKENPHP_LOG_LEVEL_INFO", LEVEL_INFO);
	add_constant("FRANKENPHP_LOG_LEVEL_WARN", LEVEL_WARN);
	add_constant("FRANKENPHP_LOG_LEVEL_ERROR", LEVEL_ERROR);
}
