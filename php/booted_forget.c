/*
 * What PHP and its extensions keep of a request's functions, in a process that keeps its application: data of one client that
 * functions of the next request would return, and what was decided for one client. See booted.h.
 *
 * PHP clears this at the end of a request, by a function of each extension. They also clear what the application must keep (the
 * time zone, mb_internal_encoding()), so only some of them are called.
 */
#include "booted.h"

#include "SAPI.h"
#include "ext/json/php_json.h"
#include "ext/pcre/php_pcre.h"
#if PHP_VERSION_ID < 80200
#include "ext/standard/basic_functions.h"
#include "ext/standard/php_lcg.h"
#endif

/* Calls what an extension does at the start or the end of a request, if PHP has it. */
static void call_extension(const char *name, bool at_start)
{
	zend_module_entry *extension = zend_hash_str_find_ptr(&module_registry, name, strlen(name));
	if (extension && at_start && extension->request_startup_func) {
		extension->request_startup_func(extension->type, extension->module_number);
	} else if (extension && !at_start && extension->request_shutdown_func) {
		extension->request_shutdown_func(extension->type, extension->module_number);
	}
}

/* Calls a function of PHP, if PHP has it. */
static void call_function(const char *name, uint32_t count, zval *arguments)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return;
	}
	zval result;
	ZVAL_UNDEF(&result);
	zend_call_known_function(function, NULL, NULL, &result, count, arguments, NULL);
	zval_ptr_dtor(&result);
}

void booted_forget_seeds(void)
{
#if PHP_VERSION_ID >= 80200
	call_extension("random", true);
#else
	BG(mt_rand_is_seeded) = 0;
	LCG(seeded) = 0;
#endif
}

void booted_start_extensions(void)
{
	call_extension("filter", true);
	/* Which compression the client accepts; zlib.output_compression. */
	call_extension("zlib", true);
	booted_forget_seeds();
}

void booted_end_extensions(void)
{
	call_extension("filter", false);
	call_extension("zlib", false);
}

void booted_forget_results(void)
{
	if (CG(unclean_shutdown)) {
		/* After a fatal error the process ends. */
		return;
	}
	JSON_G(error_code) = PHP_JSON_ERROR_NONE;
	PCRE_G(error_code) = PHP_PCRE_NO_ERROR;
	/* It clears the last error, and closes a collator and an iterator that it keeps for speed. */
	call_extension("intl", false);
	/* Messages about documents of a client. */
	call_function("libxml_clear_errors", 0, NULL);
	/* The text in which mb_ereg_search() has searched. */
	zval nothing;
	ZVAL_EMPTY_STRING(&nothing);
	call_function("mb_ereg_search_init", 1, &nothing);
}

void booted_forget_headers(void)
{
	zend_llist_destroy(&SG(sapi_headers).headers);
	if (SG(sapi_headers).http_status_line) {
		efree(SG(sapi_headers).http_status_line);
		SG(sapi_headers).http_status_line = NULL;
	}
	if (SG(sapi_headers).mimetype) {
		efree(SG(sapi_headers).mimetype);
		SG(sapi_headers).mimetype = NULL;
	}
	zval_ptr_dtor(&SG(callback_func));
	ZVAL_UNDEF(&SG(callback_func));
}
