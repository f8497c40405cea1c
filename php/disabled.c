/*
 * Functions and classes that are disabled for one request. See disabled.h.
 *
 * If an internal function were removed from PHP's table and added again, it would come after the functions of scripts,
 * which PHP removes at the end of each request. So the function stays in its place, under another name and another
 * hash: lookups do not find it. To enable it again, the code restores both and rebuilds the hash chains of the table.
 *
 * A class stays too, as in PHP-FPM: scripts can create objects of it, with a warning, but the objects have no methods.
 */
#include "disabled.h"

#include <stdatomic.h>

#include "zend_exceptions.h"
#include "zend_ini.h"
#include "zend_objects.h"

#include "say.h"
#include "shared.h"

struct hidden_function {
	struct hidden_function *next;
	zend_string *name;
	zend_ulong hash;
	/* Its temporary name. Names that begin with NUL are not listed either. */
	zend_string *alias;
};

struct hidden_class {
	struct hidden_class *next;
	zend_class_entry *class;
	zend_class_entry whole;
};

static struct hidden_function *functions;
static struct hidden_class *classes;

/* What this request disables, as a hash of the names. */
#define NOTHING UINT64_C(0xcbf29ce484222325)
static uint64_t disabled_here = NOTHING;

/* Names of functions that preloaded code calls without a lookup; created when first needed. */
static HashTable *called_by_preloaded;

static const char *impossible;

/* ---- of the pool ---- */

static const struct pool_config *pool;

void disabled_start(const struct pool_config *config)
{
	pool = config;
}

void disabled_add_for_pool(void)
{
	for (size_t at = 0; at < pool->ini_count; at++) {
		const struct ini_value *ini = &pool->ini[at];
		if (strcmp(ini->name, "disable_functions") != 0 && strcmp(ini->name, "disable_classes") != 0) {
			continue;
		}
		zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), ini->name, strlen(ini->name));
		if (!entry) {
			continue;
		}
		const char *before = entry->value ? ZSTR_VAL(entry->value) : "";
		size_t length = strlen(before) + 1 + strlen(ini->value);
		zend_string *both = zend_string_alloc(length, 1);
		snprintf(ZSTR_VAL(both), length + 1, "%s,%s", before, ini->value);
		GC_MAKE_PERSISTENT_LOCAL(both);
		entry->value = both;
	}
}

/* ---- to disable ---- */

/* FNV-1a. The names come from the web server's configuration, not from clients. */
static void note(const char *name, size_t length, char kind)
{
	disabled_here = (disabled_here ^ (unsigned char)kind) * UINT64_C(0x100000001b3);
	for (size_t at = 0; at < length; at++) {
		disabled_here = (disabled_here ^ (unsigned char)tolower((unsigned char)name[at])) * UINT64_C(0x100000001b3);
	}
}

static void note_calls_of(const zend_op_array *code)
{
	for (uint32_t at = 0; at < code->last; at++) {
		const zend_op *opline = &code->opcodes[at];
		if (opline->opcode == ZEND_INIT_FCALL) {
			const zval *name = RT_CONSTANT(opline, opline->op2);
			zend_hash_str_add_empty_element(called_by_preloaded, Z_STRVAL_P(name), Z_STRLEN_P(name));
		}
#if PHP_VERSION_ID >= 80400
		if (ZEND_OP_IS_FRAMELESS_ICALL(opline->opcode)) {
			zend_hash_add_empty_element(called_by_preloaded, ZEND_FLF_FUNC(opline)->common.function_name);
		}
#endif
	}
#if PHP_VERSION_ID >= 80100
	for (uint32_t at = 0; at < code->num_dynamic_func_defs; at++) {
		note_calls_of(code->dynamic_func_defs[at]);
	}
#endif
}

static void note_calls_of_all(HashTable *table, bool *any)
{
	zend_function *function;
	ZEND_HASH_FOREACH_PTR(table, function) {
		if (function->type == ZEND_USER_FUNCTION && function->common.fn_flags & ZEND_ACC_PRELOADED) {
			*any = true;
			note_calls_of(&function->op_array);
		}
	} ZEND_HASH_FOREACH_END();
}

/*
 * Call it before anything is hidden for the first time: the tables then contain only PHP's own and preloaded entries.
 */
static void look_at_preloaded(bool *any)
{
	called_by_preloaded = take_memory(sizeof *called_by_preloaded);
	zend_hash_init(called_by_preloaded, 64, NULL, NULL, 1);
	note_calls_of_all(CG(function_table), any);
	zend_class_entry *class;
	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (class->type == ZEND_USER_CLASS) {
			*any = true;
			note_calls_of_all(&class->function_table, any);
		}
	} ZEND_HASH_FOREACH_END();
}

/*
 * Whether there is preloaded code that calls this function without a lookup. NULL: only whether there is preloaded
 * code.
 */
static bool is_preloaded(const zend_string *function)
{
	static bool any;
	if (!called_by_preloaded) {
		look_at_preloaded(&any);
	}
	if (!function || !any) {
		return any;
	}
	return zend_hash_exists(called_by_preloaded, (zend_string *)function);
}

static void hide_function(zend_string *name)
{
	zval *found = zend_hash_find(CG(function_table), name);
	if (!found) {
		return;
	}
	if (is_preloaded(name)) {
		impossible = "disable_functions: preloaded code (opcache.preload) calls one of them; it can be disabled in "
			     "the pool's configuration only";
		return;
	}
	Bucket *bucket = (Bucket *)((char *)found - offsetof(Bucket, val));
	struct hidden_function *hidden = take_memory(sizeof *hidden);
	*hidden = (struct hidden_function){
		.next = functions,
		.name = bucket->key,
		.hash = bucket->h,
		.alias = zend_string_init("\0disabled", sizeof "\0disabled" - 1, 1),
	};
	functions = hidden;
	bucket->key = hidden->alias;
	bucket->h = ~bucket->h;
}

static zend_object *make_disabled(zend_class_entry *class)
{
	zend_object *object = zend_objects_new(class);
	object->handlers = &std_object_handlers;
	for (int at = 0; at < class->default_properties_count; at++) {
		ZVAL_UNDEF(&object->properties_table[at]);
	}
	zend_error(E_WARNING, "%s() has been disabled for security reasons", ZSTR_VAL(class->name));
	return object;
}

static void hide_class(zend_string *name)
{
	zend_class_entry *class = zend_hash_find_ptr(CG(class_table), name);
	if (!class || class->type != ZEND_INTERNAL_CLASS || class->create_object == make_disabled) {
		return;
	}
	if (is_preloaded(NULL)) {
		impossible = "disable_classes: with preloaded code (opcache.preload) classes can be disabled in the pool's "
			     "configuration only";
		return;
	}
	struct hidden_class *hidden = take_memory(sizeof *hidden);
	hidden->next = classes;
	hidden->class = class;
	hidden->whole = *class;
	classes = hidden;
	INIT_CLASS_ENTRY_INIT_METHODS((*class), NULL);
	class->create_object = make_disabled;
	zend_hash_init(&class->function_table, 8, NULL, NULL, 1);
}

void disabled_add(const char *setting, const char *names)
{
	bool of_functions = strcmp(setting, "disable_functions") == 0;
	if (!of_functions && strcmp(setting, "disable_classes") != 0) {
		return;
	}
	while (*names) {
		names += strspn(names, " ,");
		size_t length = strcspn(names, " ,");
		if (length) {
			zend_string *name = zend_string_alloc(length, 0);
			zend_str_tolower_copy(ZSTR_VAL(name), names, length);
			note(ZSTR_VAL(name), length, of_functions ? 'f' : 'c');
			if (of_functions) {
				hide_function(name);
			} else {
				hide_class(name);
			}
			zend_string_release(name);
		}
		names += length;
	}
}

/* ---- OPcache ---- */

/* Files of the file cache were compiled by processes with unknown settings. */
static bool has_files(void)
{
	const char *folder = zend_ini_string_ex("opcache.file_cache", sizeof "opcache.file_cache" - 1, 0, NULL);
	return folder && *folder;
}

static bool may_use_opcache(void)
{
	uint64_t filled = atomic_load_explicit(&shared->filled_with, memory_order_relaxed);
	if (disabled_here != NOTHING && has_files()) {
		return false;
	}
	if (!filled && atomic_compare_exchange_strong(&shared->filled_with, &filled, disabled_here)) {
		return true;
	}
	return filled == disabled_here;
}

const char *disabled_settle(void)
{
	if (!may_use_opcache()) {
		zend_string *name = zend_string_init("opcache.enable", sizeof "opcache.enable" - 1, 0);
		/* Without OPcache the setting does not exist. */
		zend_alter_ini_entry_chars(name, "0", 1, ZEND_INI_SYSTEM, ZEND_INI_STAGE_ACTIVATE);
		zend_string_release(name);
	}
	return impossible;
}

bool disabled_is_plain(void)
{
	uint64_t filled = atomic_load_explicit(&shared->filled_with, memory_order_relaxed);
	return !filled || filled == NOTHING;
}

/* ---- to enable again ---- */

static Bucket *bucket_of(const zend_string *name)
{
	HashTable *table = CG(function_table);
	for (uint32_t at = 0; at < table->nNumUsed; at++) {
		Bucket *bucket = &table->arData[at];
		if (Z_TYPE(bucket->val) != IS_UNDEF && bucket->key == name) {
			return bucket;
		}
	}
	return NULL;
}

static void give_functions_back(void)
{
	while (functions) {
		struct hidden_function *hidden = functions;
		Bucket *bucket = bucket_of(hidden->alias);
		if (bucket) {
			bucket->key = hidden->name;
			bucket->h = hidden->hash;
		}
		zend_string_release_ex(hidden->alias, 1);
		functions = hidden->next;
		free(hidden);
	}
	zend_hash_rehash(CG(function_table));
}

static void give_classes_back(void)
{
	while (classes) {
		struct hidden_class *hidden = classes;
		zend_hash_destroy(&hidden->class->function_table);
		*hidden->class = hidden->whole;
		classes = hidden->next;
		free(hidden);
	}
}

void disabled_clear(void)
{
	impossible = NULL;
	disabled_here = NOTHING;
	if (functions) {
		give_functions_back();
	}
	if (classes) {
		give_classes_back();
	}
}
