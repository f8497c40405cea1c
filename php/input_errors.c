/*
 * Errors of PHP while it reads a request. See input_errors.h.
 */
#include "input_errors.h"

#include "zend_observer.h"

static bool is_reading;
/* An array in the request's memory; undefined: there was no error. */
static zval errors;

/* PHP calls this for each error, whoever handles it. */
static void note(int type, zend_string *file, uint32_t line, zend_string *message)
{
	/* After a fatal error nobody asks. */
	if (!is_reading || type & E_FATAL_ERRORS) {
		return;
	}
	if (Z_ISUNDEF(errors)) {
		array_init(&errors);
	}
	zval error;
	array_init(&error);
	add_assoc_long(&error, "type", type & E_ALL);
	add_assoc_stringl(&error, "message", ZSTR_VAL(message), ZSTR_LEN(message));
	add_assoc_string(&error, "file", file ? ZSTR_VAL(file) : "");
	add_assoc_long(&error, "line", (zend_long)line);
	add_next_index_zval(&errors, &error);
}

void input_errors_watch(void)
{
	zend_observer_error_register(note);
}

void input_errors_begin(bool has_memory)
{
	if (has_memory) {
		zval_ptr_dtor(&errors);
	}
	ZVAL_UNDEF(&errors);
	is_reading = true;
}

void input_errors_end(void)
{
	is_reading = false;
}

void input_errors_list(zval *result)
{
	if (Z_ISUNDEF(errors)) {
		array_init(result);
	} else {
		ZVAL_COPY(result, &errors);
	}
}
