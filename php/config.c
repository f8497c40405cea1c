/*
 * Reads the CONFIG message. See config.h.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bytes.h"
#include "say.h"

/* Maximum number of values of a repeated key. */
#define MAX_REPEATED 4096

/* A shorter line has no room for the prefix of a message. */
#define MIN_LOG_LIMIT 512

struct field {
	const char *key;
	size_t key_length;
	const char *value;
	size_t value_length;
};

static bool is_key(const struct field *field, const char *key)
{
	return field->key_length == strlen(key) && memcmp(field->key, key, field->key_length) == 0;
}

static bool is_yes(const struct field *field)
{
	return field->value_length == 1 && field->value[0] == '1';
}

static unsigned number(const struct field *field)
{
	char digits[16] = "";
	memcpy(digits, field->value, field->value_length < sizeof digits ? field->value_length : 0);
	return (unsigned)strtoul(digits, NULL, 10);
}

static void set_text(char **text, const struct field *field)
{
	free(*text);
	*text = field->value_length ? take_text(field->value, field->value_length) : NULL;
}

static bool add_text(char ***texts, size_t *count, const struct field *field)
{
	if (*count == MAX_REPEATED) {
		return false;
	}
	*texts = take_more_memory(*texts, (*count + 1) * sizeof **texts);
	(*texts)[(*count)++] = take_text(field->value, field->value_length);
	return true;
}

/* "user name=value" or "admin name=value". */
static bool add_ini(struct pool_config *config, const struct field *field)
{
	bool admin = field->value_length > 6 && memcmp(field->value, "admin ", 6) == 0;
	bool user = field->value_length > 5 && memcmp(field->value, "user ", 5) == 0;
	if ((!admin && !user) || config->ini_count == MAX_REPEATED) {
		return false;
	}
	size_t skipped = admin ? 6 : 5;
	const char *name = field->value + skipped;
	size_t rest = field->value_length - skipped;
	const char *equals = memchr(name, '=', rest);
	if (!equals || equals == name) {
		return false;
	}
	config->ini = take_more_memory(config->ini, (config->ini_count + 1) * sizeof *config->ini);
	config->ini[config->ini_count++] = (struct ini_value){
		.name = take_text(name, (size_t)(equals - name)),
		.value = take_text(equals + 1, rest - (size_t)(equals + 1 - name)),
		.admin = admin,
	};
	return true;
}

/* "files SOFT HARD". */
static bool add_limit(struct pool_config *config, const struct field *field)
{
	char text[80] = "", name[16];
	struct limit limit = {0};
	memcpy(text, field->value, field->value_length < sizeof text ? field->value_length : 0);
	if (config->limit_count == sizeof config->limits / sizeof *config->limits ||
	    sscanf(text, "%15s %llu %llu", name, &limit.soft, &limit.hard) != 3) {
		return false;
	}
	if (!strcmp(name, "files")) {
		limit.resource = RLIMIT_NOFILE;
	} else if (!strcmp(name, "core")) {
		limit.resource = RLIMIT_CORE;
	} else if (!strcmp(name, "processes")) {
		limit.resource = RLIMIT_NPROC;
	} else {
		return false;
	}
	config->limits[config->limit_count++] = limit;
	return true;
}

/* Returns false if the value is not valid. Ignores keys of a newer manager. */
static bool take(struct pool_config *config, const struct field *field)
{
	if (is_key(field, "protocol")) {
		config->protocol = number(field);
	} else if (is_key(field, "weir_version")) {
		set_text(&config->weir_version, field);
	} else if (is_key(field, "weir")) {
		set_text(&config->weir, field);
	} else if (is_key(field, "pool")) {
		set_text(&config->pool, field);
	} else if (is_key(field, "template")) {
		config->is_template = is_yes(field);
	} else if (is_key(field, "opcache_is_alike")) {
		config->opcache_is_alike = is_yes(field);
	} else if (is_key(field, "rlimit")) {
		return add_limit(config, field);
	} else if (is_key(field, "title")) {
		set_text(&config->title, field);
	} else if (is_key(field, "process_name")) {
		set_text(&config->process_name, field);
	} else if (is_key(field, "chroot")) {
		set_text(&config->chroot, field);
	} else if (is_key(field, "chdir")) {
		set_text(&config->chdir, field);
	} else if (is_key(field, "php_ini")) {
		set_text(&config->php_ini, field);
	} else if (is_key(field, "no_ini")) {
		config->no_ini = is_yes(field);
	} else if (is_key(field, "figures")) {
		config->figures = is_yes(field);
	} else if (is_key(field, "notes")) {
		config->notes = is_yes(field);
	} else if (is_key(field, "noted_param")) {
		return add_text(&config->noted_params, &config->noted_param_count, field);
	} else if (is_key(field, "noted_header")) {
		return add_text(&config->noted_headers, &config->noted_header_count, field);
	} else if (is_key(field, "apparmor_hat")) {
		set_text(&config->apparmor_hat, field);
	} else if (is_key(field, "dumpable")) {
		config->dumpable = is_yes(field);
	} else if (is_key(field, "clear_env")) {
		config->clear_env = is_yes(field);
	} else if (is_key(field, "env")) {
		return memchr(field->value, '=', field->value_length) &&
		       add_text(&config->environment, &config->environment_count, field);
	} else if (is_key(field, "define")) {
		return add_text(&config->defines, &config->define_count, field);
	} else if (is_key(field, "limit_extensions")) {
		return add_text(&config->extensions, &config->extension_count, field);
	} else if (is_key(field, "worker")) {
		set_text(&config->worker, field);
	} else if (is_key(field, "worker_script")) {
		return add_text(&config->worker_scripts, &config->worker_script_count, field);
	} else if (is_key(field, "ini")) {
		return add_ini(config, field);
	} else if (is_key(field, "trace_depth")) {
		config->trace_depth = number(field);
	} else if (is_key(field, "fpm")) {
		config->is_fpm = is_yes(field);
	} else if (is_key(field, "log_level")) {
		config->log_level = number(field);
	} else if (is_key(field, "log_limit")) {
		config->log_limit = number(field);
		return config->log_limit >= MIN_LOG_LIMIT;
	}
	return true;
}

bool config_read(struct pool_config *config, const unsigned char *body, size_t length, char *error, size_t size)
{
	*config = (struct pool_config){.trace_depth = 20, .slow_log = -1};
	const unsigned char *at = body, *end = body + length;
	while (at < end) {
		if (end - at < 6) {
			snprintf(error, size, "the manager's CONFIG message ends in the middle of a field");
			return false;
		}
		struct field field = {.key_length = get_u16(at), .value_length = get_u32(at + 2)};
		at += 6;
		if ((size_t)(end - at) < field.key_length || (size_t)(end - at) - field.key_length < field.value_length) {
			snprintf(error, size, "the manager's CONFIG message ends in the middle of a field");
			return false;
		}
		field.key = (const char *)at;
		field.value = (const char *)at + field.key_length;
		at += field.key_length + field.value_length;
		if (memchr(field.value, 0, field.value_length) || !take(config, &field)) {
			snprintf(error, size, "the manager's CONFIG message has a wrong value for %.*s", (int)field.key_length,
				 field.key);
			return false;
		}
	}
	return true;
}
