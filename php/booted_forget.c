/*
 * Clears what functions of PHP and its extensions keep after a request, in an application that stays booted: data of one client that
 * functions would return in the next request, and settings that were made for one client. See booted.h.
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

/* An extension that PHP may have. It is looked up once: this happens in each request. */
struct extension {
	const char *name;
	const zend_module_entry *entry;
	bool is_known;
};
static struct extension random_numbers = {.name = "random"}, filter = {.name = "filter"};
static struct extension zlib = {.name = "zlib"}, intl = {.name = "intl"};

static const zend_module_entry *entry_of(struct extension *extension)
{
	if (!extension->is_known) {
		extension->entry = zend_hash_str_find_ptr(&module_registry, extension->name, strlen(extension->name));
		extension->is_known = true;
	}
	return extension->entry;
}

/* Does what the extension does at the start of a request. */
static void start_extension(struct extension *extension)
{
	const zend_module_entry *entry = entry_of(extension);
	if (entry && entry->request_startup_func) {
		entry->request_startup_func(entry->type, entry->module_number);
	}
}

/* Does what the extension does at the end of a request. */
static void end_extension(struct extension *extension)
{
	const zend_module_entry *entry = entry_of(extension);
	if (entry && entry->request_shutdown_func) {
		entry->request_shutdown_func(entry->type, entry->module_number);
	}
}

/* A function that PHP may have; looked up once, too. */
struct function {
	const char *name;
	zend_function *entry;
	bool is_known;
};

static void call_function(struct function *function, uint32_t count, zval *arguments)
{
	if (!function->is_known) {
		zend_function *entry = zend_hash_str_find_ptr(CG(function_table), function->name, strlen(function->name));
		function->entry = entry && entry->type == ZEND_INTERNAL_FUNCTION ? entry : NULL;
		function->is_known = true;
	}
	if (!function->entry) {
		return;
	}
	zval result;
	ZVAL_UNDEF(&result);
	zend_call_known_function(function->entry, NULL, NULL, &result, count, arguments, NULL);
	zval_ptr_dtor(&result);
}

void booted_forget_seeds(void)
{
#if PHP_VERSION_ID >= 80200
	start_extension(&random_numbers);
#else
	BG(mt_rand_is_seeded) = 0;
	LCG(seeded) = 0;
#endif
}

void booted_start_extensions(void)
{
	start_extension(&filter);
	/* Which compression the client accepts; zlib.output_compression. */
	start_extension(&zlib);
	booted_forget_seeds();
}

void booted_end_extensions(void)
{
	end_extension(&filter);
	end_extension(&zlib);
}

void booted_forget_results(void)
{
	if (CG(unclean_shutdown)) {
		/* After a fatal error the process ends. */
		return;
	}
	JSON_G(error_code) = PHP_JSON_ERROR_NONE;
	PCRE_G(error_code) = PHP_PCRE_NO_ERROR;
	/* This clears the last error of intl, and closes a collator and an iterator that intl keeps for speed. */
	end_extension(&intl);
	/* Messages about documents of a client. */
	static struct function clear_errors = {.name = "libxml_clear_errors"};
	call_function(&clear_errors, 0, NULL);
	/* The text in which mb_ereg_search() has searched. */
	static struct function init_search = {.name = "mb_ereg_search_init"};
	zval nothing;
	ZVAL_EMPTY_STRING(&nothing);
	call_function(&init_search, 1, &nothing);
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
