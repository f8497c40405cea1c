/*
 * Which script a request is for. See script.h.
 */
#include "script.h"

#include "php.h"
#include "SAPI.h"
#include "php_main.h"

#include "params.h"
#include "sapi.h"

/* Whether no part of the path is "..". */
static bool stays_below(const char *path)
{
	for (const char *at = path; (at = strstr(at, "..")); at++) {
		bool begins = at == path || at[-1] == '/';
		bool ends = at[2] == 0 || at[2] == '/';
		if (begins && ends) {
			return false;
		}
	}
	return true;
}

void script_find(void)
{
	sapi_request_info *info = &SG(request_info);
	info->path_translated = NULL;
	info->request_method = PARAM("REQUEST_METHOD");
	info->proto_num = 1000;
	info->query_string = NULL;
	info->request_uri = NULL;
	info->content_type = NULL;
	info->content_length = 0;
	SG(sapi_headers).http_response_code = 200;

	char *script = PARAM("SCRIPT_FILENAME");
	if (!script) {
		return;
	}
	info->request_uri = PARAM("SCRIPT_NAME");
	if (stays_below(script)) {
		info->path_translated = estrdup(script);
	}
	const char *content_type = PARAM("CONTENT_TYPE");
	const char *content_length = PARAM("CONTENT_LENGTH");
	info->query_string = PARAM("QUERY_STRING");
	info->content_type = content_type ? content_type : "";
	info->content_length = content_length ? atol(content_length) : 0;
	php_handle_auth_data(PARAM("HTTP_AUTHORIZATION"));
}

bool script_is_allowed(const struct pool_config *config, const char *path)
{
	size_t length = strlen(path);
	for (size_t at = 0; at < config->extension_count; at++) {
		size_t ending = strlen(config->extensions[at]);
		if (length > ending && strcmp(path + length - ending, config->extensions[at]) == 0) {
			return true;
		}
	}
	return config->extension_count == 0;
}
