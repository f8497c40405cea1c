/*
 * The SAPI: what PHP asks of its server, answered from the stream. Its name is PHP-FPM's, "fpm-fcgi", which OPcache
 * and applications know.
 */
#ifndef WEIR_SAPI_H
#define WEIR_SAPI_H

#include "php.h"
#include "SAPI.h"

extern sapi_module_struct weir_sapi;
extern zend_module_entry weir_module;

/* Settings of php.ini that are the SAPI's own. */
struct sapi_settings {
	bool rfc2616_headers;
	bool nph;
	bool fix_pathinfo;
	bool discard_path;
	bool logging;
	char *error_header;
	char *fpm_config;
	/* Without effect, as under PHP-FPM, which has them from php-cgi. */
	bool force_redirect;
	char *redirect_status_env;
};
extern struct sapi_settings sapi_settings;

/* From now on PHP speaks to the gateway, no longer to standard output. */
void sapi_serve(void);

/* Forgets what belongs to the request before. */
void sapi_begin_request(void);

#endif
