/*
 * PHP-FPM's functions. See functions.h.
 */
#include "functions.h"

#include <stdlib.h>

#include "SAPI.h"
#include "ext/json/php_json.h"
#include "php_main.h"
#include "ext/standard/head.h"
#include "php_output.h"
#include "php_streams.h"
#include "SAPI.h"

#include "booted.h"
#include "fastcgi.h"
#include "params.h"

/* fastcgi_finish_request(): bool. Ends the response; the script continues. */
PHP_FUNCTION(fastcgi_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (booted_is_outside() || stream_ended()) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	bool first = stream_end();
	stream_flush();
	RETURN_BOOL(first);
}

/* apache_request_headers(): array, and getallheaders(). */
PHP_FUNCTION(apache_request_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	size_t count;
	const struct param *params = params_all(&count);
	for (size_t at = count; at-- > 0;) {
		if (params[at].value) {
			sapi_add_request_header(params[at].name, params[at].name_length, params[at].value,
						params[at].value_length, return_value);
		}
	}
}

/*
 * Makes PHP read the request's body to its end and keep it for the script, because the answer to STATUS follows the
 * body.
 */
static void read_whole_body(void)
{
	php_stream *input = php_stream_open_wrapper("php://input", "rb", 0, NULL);
	if (!input) {
		return;
	}
	char bytes[8192];
	while (php_stream_read(input, bytes, sizeof bytes) > 0) {
	}
	php_stream_close(input);
	stream_drain();
}

/* fpm_get_status(): array|false. */
static PHP_FUNCTION(fpm_get_status)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (booted_is_outside()) {
		RETURN_FALSE;
	}
	read_whole_body();
	size_t length;
	char *json = stream_ask_status(&length);
	if (!json) {
		RETURN_FALSE;
	}
	php_json_decode_ex(return_value, json, length, PHP_JSON_OBJECT_AS_ARRAY, PHP_JSON_PARSER_DEFAULT_DEPTH);
	free(json);
	if (Z_TYPE_P(return_value) != IS_ARRAY) {
		zval_ptr_dtor(return_value);
		RETURN_FALSE;
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arguments_of_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_MASK_EX(arguments_of_status, 0, 0, MAY_BE_ARRAY | MAY_BE_FALSE)
ZEND_END_ARG_INFO()

const zend_function_entry weir_functions[] = {
	PHP_FE(fastcgi_finish_request, arguments_of_finish)
	PHP_FE(apache_request_headers, arguments_of_headers)
	PHP_FALIAS(getallheaders, apache_request_headers, arguments_of_headers)
	PHP_FE(fpm_get_status, arguments_of_status)
	PHP_FE_END
};
