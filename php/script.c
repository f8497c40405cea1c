/*
 * Finds the script of a request. See script.h.
 *
 * Front ends send different parameters for a URL like /info.php/more. Some know where the script's name ends, others
 * send all of it as SCRIPT_FILENAME. Apache adds the server's address as a prefix, or repeats the script's name in
 * PATH_INFO. With cgi.fix_pathinfo, which is the default, the existing file decides, and the variables are set to match
 * it; the original values are kept under ORIG_ names. All results are the same as in PHP-FPM, because applications
 * depend on them.
 */
#include "script.h"

#include <sys/stat.h>

#include "php.h"
#include "SAPI.h"
#include "ext/standard/url.h"
#include "php_main.h"
#include "zend_virtual_cwd.h"

#include "booted.h"
#include "folder.h"
#include "params.h"
#include "sapi.h"
#include "say.h"

/* The front end's parameters, and the result. */
struct search {
	/* The parameters as received. */
	char *script_filename;
	char *path_translated;
	char *path_info;
	char *script_name;
	char *redirect_url;
	/* The file to run; NULL: none. */
	char *file;
	/* The part of the URL that names the script. */
	char *name;
	/* SG(request_info).request_uri, the basis of PHP_SELF; NULL: not known yet. */
	char *uri;
	/* SCRIPT_FILENAME was a URL of Apache's mod_proxy. */
	bool from_proxy;
};

/* Sets a variable, and keeps its old value, if any, under its ORIG_ name. */
static char *replace(const char *original_name, const char *original, const char *name, const char *value)
{
	if (original) {
		params_set(original_name, original);
	}
	return params_set(name, value);
}
#define REPLACE(name, original, value) replace("ORIG_" name, original, name, value)

/* ---- corrections for certain front ends ---- */

/* IIS repeats the script's name in PATH_INFO. */
static void mend_iis(struct search *search)
{
	const char *server = PARAM("SERVER_SOFTWARE");
	if (!server || !search->script_name || !search->path_info || strncmp(server, "Microsoft-IIS", 13) != 0) {
		return;
	}
	size_t length = strlen(search->script_name);
	if (strncmp(search->path_info, search->script_name, length) == 0) {
		const char *rest = search->path_info + length;
		search->path_info = REPLACE("PATH_INFO", search->path_info, *rest ? rest : NULL);
	}
}

/* "proxy:fcgi://127.0.0.1:9000/srv/info.php/more?a=b" means /srv/info.php/more. */
static void mend_proxy(struct search *search, const char *prefix)
{
	char *url = search->script_filename;
	size_t length = strlen(prefix);
	if (!url || strncasecmp(url, prefix, length) != 0) {
		return;
	}
	char *path = strchr(url + length, '/');
	if (path) {
		memmove(url, path, strlen(path) + 1);
		search->from_proxy = true;
	}
	char *query = strchr(url, '?');
	if (query) {
		*query = 0;
	}
	params_measure("SCRIPT_FILENAME");
}

/*
 * Since 8.5 PHP-FPM decodes the whole path that Apache's proxy sends, if fastcgi.script_path_encoded is switched off. Else,
 * and before, it leaves it encoded.
 */
static bool path_stays_encoded(void)
{
#if PHP_VERSION_ID >= 80500
	return sapi_settings.script_path_encoded;
#else
	return true;
#endif
}

static void decode_path_of_proxy(struct search *search)
{
	if (search->from_proxy && !path_stays_encoded()) {
		php_raw_url_decode(search->script_filename, strlen(search->script_filename));
		params_measure("SCRIPT_FILENAME");
	}
}

/* Whether PHP-FPM decodes the PATH_INFO that it takes from such a path: since 8.3.19 and 8.4.5. */
static bool decodes_path_info(void)
{
#if PHP_VERSION_ID >= 80300
	/* weir-php may run in another PHP than it was compiled with, of the same API. */
	unsigned version = php_version_id();
	return version >= 80405 || (version >= 80319 && version < 80400);
#else
	return false;
#endif
}

/* ---- with cgi.fix_pathinfo ---- */

/* Whether the path exists. The name of a file does not end with a slash. */
static bool exists(const char *path)
{
	size_t length = strlen(path);
	if (length == 0) {
		return true;
	}
	if (path[length - 1] == '/') {
		return false;
	}
	/* An application that stays booted is in memory: its script need not be looked for in each request. */
	static char *of_application;
	if (of_application && strcmp(path, of_application) == 0) {
		return true;
	}
	char *real = tsrm_realpath(path, NULL);
	if (!real) {
		return false;
	}
	efree(real);
	if (booted_has_application()) {
		free(of_application);
		of_application = take_text(path, length);
	}
	return true;
}

/* The longest part of the path, cut at a slash, that is a file; NULL: none. The caller must free it. */
static char *file_within(const char *path)
{
	char *part = estrdup(path);
	char *cut;
	while ((cut = strrchr(part, '/')) || (cut = strrchr(part, '\\'))) {
		struct stat about;
		*cut = 0;
		if (stat(part, &about) == 0 && S_ISREG(about.st_mode)) {
			return part;
		}
	}
	efree(part);
	return NULL;
}

/* Concatenates `first` bytes of one text and all of another. */
static char *joined(const char *start, size_t first, const char *end)
{
	char *text;
	spprintf(&text, 0, "%.*s%s", (int)first, start, end ? end : "");
	return text;
}

/*
 * Sets SCRIPT_NAME to PATH_INFO without the part after the file's name, if it differs.
 */
static void name_by_path_info(struct search *search, const char *info)
{
	params_set("ORIG_PATH_INFO", search->path_info);
	/* With a proxy, nothing is cut off PATH_INFO. */
	size_t length = search->from_proxy ? strlen(search->path_info) : (size_t)(info - search->path_info);
	char *name = joined(search->path_info, length, NULL);
	if (search->script_name && strcmp(search->script_name, name) == 0) {
		search->uri = search->script_name;
	} else {
		search->uri = REPLACE("SCRIPT_NAME", search->script_name, name);
	}
	efree(name);
}

/* Removes a suffix from a text. Returns false if the text does not have the suffix, or has nothing before it. */
static bool cut_off(char *text, const char *ending)
{
	size_t whole = strlen(text), length = strlen(ending);
	if (whole <= length || strcmp(text + whole - length, ending) != 0) {
		return false;
	}
	text[whole - length] = 0;
	return true;
}

/* Apache's proxy leaves the path-info in SCRIPT_NAME too, decoded. Sets PATH_INFO, and removes it there. */
static char *take_info_of_proxy(struct search *search, const char *info)
{
	char *name = estrdup(search->name), *decoded = estrdup(info);
	if (path_stays_encoded()) {
		php_raw_url_decode(decoded, strlen(decoded));
	}
	if (cut_off(name, info) || cut_off(name, decoded)) {
		search->uri = search->name = REPLACE("SCRIPT_NAME", search->script_name, name);
	}
	char *set = params_set("PATH_INFO", decodes_path_info() ? decoded : info);
	efree(decoded);
	efree(name);
	return set;
}

/* Sets PATH_INFO to the part after the file's name, if it is not already set so. */
static char *set_path_info(struct search *search, size_t file_length)
{
	char *rest = search->file + file_length;
	size_t length = strlen(rest);
	char *info = NULL;
	if (search->from_proxy) {
		bool known = search->path_info && strcmp(search->path_info, rest) == 0;
		info = length && !known ? rest : NULL;
	} else if (search->path_info && strlen(search->path_info) > length) {
		info = search->path_info + strlen(search->path_info) - length;
	}
	if (!info) {
		return search->path_info;
	}
	if (search->path_info) {
		name_by_path_info(search, info);
	} else if (search->from_proxy && search->name) {
		return take_info_of_proxy(search, info);
	}
	return params_set("PATH_INFO", info);
}

/* Sets PATH_TRANSLATED: PATH_INFO as the path of a file. */
static void set_path_translated(struct search *search, const char *file, const char *info)
{
	const char *root = PARAM("DOCUMENT_ROOT");
	char *path;
	if (root) {
		size_t length = strlen(root);
		path = joined(root, length && root[length - 1] == '/' ? length - 1 : length, info);
	} else if (search->name && strstr(file, search->name)) {
		path = joined(file, strlen(file) - strlen(search->name), info);
	} else {
		return;
	}
	REPLACE("PATH_TRANSLATED", search->path_translated, path);
	efree(path);
}

static void use_file_within(struct search *search)
{
	char *file = file_within(search->file);
	if (file) {
		char *info = set_path_info(search, strlen(file));
		if (!search->script_filename || strcmp(search->script_filename, file) != 0) {
			search->file = REPLACE("SCRIPT_FILENAME", search->script_filename, file);
		}
		set_path_translated(search, file, info);
		efree(file);
	} else {
		search->file = REPLACE("SCRIPT_FILENAME", search->script_filename, NULL);
		SG(sapi_headers).http_response_code = 404;
	}
	if (search->uri) {
		return;
	}
	if (search->script_name && strcmp(search->script_name, search->name) == 0) {
		search->uri = search->script_name;
	} else {
		search->uri = REPLACE("SCRIPT_NAME", search->script_name, search->name);
	}
}

static void use_file(struct search *search)
{
	if (!search->script_filename || strcmp(search->file, search->script_filename) != 0) {
		search->file = REPLACE("SCRIPT_FILENAME", search->script_filename, search->file);
	}
	if (!search->from_proxy && search->redirect_url) {
		if (search->path_info) {
			REPLACE("PATH_INFO", search->path_info, NULL);
		}
		if (search->path_translated) {
			REPLACE("PATH_TRANSLATED", search->path_translated, NULL);
		}
	}
	if (search->name != search->script_name) {
		search->uri = REPLACE("SCRIPT_NAME", search->script_name, search->name);
	} else {
		search->uri = search->name;
	}
}

static void find_by_file(struct search *search)
{
	search->redirect_url = PARAM("REDIRECT_URL");
	if (!PARAM("DOCUMENT_ROOT") && PG(doc_root)) {
		params_set("DOCUMENT_ROOT", PG(doc_root));
	}
	/* Action of Apache: PATH_TRANSLATED is the requested file, and SCRIPT_FILENAME is the interpreter. */
	if (!search->from_proxy && search->path_translated && search->redirect_url &&
	    strcmp(search->path_translated, search->file) != 0) {
		search->file = search->path_translated;
		search->name = search->redirect_url;
	}
	if (exists(search->file)) {
		use_file(search);
	} else {
		use_file_within(search);
	}
}

/* ---- entry points ---- */

/* Whether the path has no ".." part. */
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

static void find(struct search *search)
{
	mend_iis(search);
	mend_proxy(search, "proxy:fcgi://");
	mend_proxy(search, "proxy:balancer://");
	decode_path_of_proxy(search);
	if (sapi_settings.fix_pathinfo) {
		find_by_file(search);
		return;
	}
	search->uri = search->path_info ? search->path_info : search->script_name;
	if (!sapi_settings.discard_path && search->path_translated) {
		search->file = search->path_translated;
	}
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

	struct search search = {
		.script_filename = PARAM("SCRIPT_FILENAME"),
		.path_translated = PARAM("PATH_TRANSLATED"),
		.path_info = PARAM("PATH_INFO"),
		.script_name = PARAM("SCRIPT_NAME"),
	};
	search.name = search.script_name;
	search.file = search.script_filename ? search.script_filename : search.path_translated;
	if (!search.file) {
		return;
	}
	if (*search.file != '/') {
		folder_leave();
	}
	find(&search);
	info->request_uri = search.uri;
	if (search.file && stays_below(search.file)) {
		info->path_translated = estrdup(search.file);
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
