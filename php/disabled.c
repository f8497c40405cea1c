/*
 * Functions and classes that are disabled for one request. See disabled.h.
 *
 * To remove an internal function from PHP's table and to put it back would move it behind the scripts' own, which are
 * thrown away at the end of each request. So it stays where it is, under another name and another hash: nobody who
 * looks for it finds it. Given back, it gets both again, and the table's chains are made anew.
 */
#include "disabled.h"

#include "say.h"

struct hidden {
	struct hidden *next;
	HashTable *table;
	zend_string *name;
	zend_ulong hash;
	/* Its name meanwhile: one that begins with NUL is not listed either. */
	zend_string *alias;
};

static struct hidden *hidden_ones;

static Bucket *bucket_of(HashTable *table, const zend_string *name)
{
	for (uint32_t at = 0; at < table->nNumUsed; at++) {
		Bucket *bucket = &table->arData[at];
		if (Z_TYPE(bucket->val) != IS_UNDEF && bucket->key == name) {
			return bucket;
		}
	}
	return NULL;
}

static void hide(HashTable *table, const char *name, size_t length)
{
	zend_string *lower = zend_string_alloc(length, 0);
	zend_str_tolower_copy(ZSTR_VAL(lower), name, length);
	zval *found = zend_hash_find(table, lower);
	zend_string_release(lower);
	if (!found) {
		return;
	}
	Bucket *bucket = (Bucket *)((char *)found - offsetof(Bucket, val));
	struct hidden *hidden = take_memory(sizeof *hidden);
	*hidden = (struct hidden){
		.next = hidden_ones,
		.table = table,
		.name = bucket->key,
		.hash = bucket->h,
		.alias = zend_string_init("\0disabled", sizeof "\0disabled" - 1, 1),
	};
	hidden_ones = hidden;
	bucket->key = hidden->alias;
	bucket->h = ~bucket->h;
}

void disabled_add(const char *setting, const char *names)
{
	HashTable *table;
	if (strcmp(setting, "disable_functions") == 0) {
		table = CG(function_table);
	} else if (strcmp(setting, "disable_classes") == 0) {
		table = CG(class_table);
	} else {
		return;
	}
	while (*names) {
		names += strspn(names, " ,");
		size_t length = strcspn(names, " ,");
		if (length) {
			hide(table, names, length);
		}
		names += length;
	}
}

void disabled_clear(void)
{
	if (!hidden_ones) {
		return;
	}
	while (hidden_ones) {
		struct hidden *hidden = hidden_ones;
		Bucket *bucket = bucket_of(hidden->table, hidden->alias);
		if (bucket) {
			bucket->key = hidden->name;
			bucket->h = hidden->hash;
		}
		zend_string_release_ex(hidden->alias, 1);
		hidden_ones = hidden->next;
		free(hidden);
	}
	zend_hash_rehash(CG(function_table));
	zend_hash_rehash(CG(class_table));
}
