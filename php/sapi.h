/*
 * The SAPI: answers PHP's questions to its server from the stream. It has the name of PHP-FPM's SAPI, "fpm-fcgi", which
 * OPcache and applications know.
 */
#ifndef WEIR_SAPI_H
#define WEIR_SAPI_H

#include "php.h"
#include "SAPI.h"

#include "fastcgi.h"

extern sapi_module_struct weir_sapi;
extern zend_module_entry weir_module;

/* The SAPI's own settings in php.ini. */
struct sapi_settings {
	bool rfc2616_headers;
	bool nph;
	bool fix_pathinfo;
	bool discard_path;
	bool script_path_encoded;
	bool logging;
	char *error_header;
	char *fpm_config;
	/* No effect, as in PHP-FPM, which has this setting from php-cgi. */
	bool force_redirect;
	char *redirect_status_env;
};
extern struct sapi_settings sapi_settings;

/* From now on PHP's output goes to the gateway, not to standard output. */
void sapi_serve(void);

/* Resets the state of the previous request. */
void sapi_begin_request(void);

/* Sends the headers so far with an informational status, which others may follow. Returns as SAPI_HEADER_*. */
int sapi_send_interim(int status);

/*
 * Waits for the whole body before its script runs. PHP itself has read that of most POST requests. Of others, what does not
 * fit into the stream's buffer goes to a temporary file; BODY_IS_LONG: it could not be written.
 */
enum body_state sapi_take_body(void);

#endif
