/*
 * The process that weir-php runs in. See host.h.
 *
 * Before its start, PHP has no function that tells its version. But the text of its build ("API20220829,NTS") is in each
 * of its modules, so it is searched for in PHP's constants.
 */
#include "host.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "php.h"
#include "SAPI.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "php_main.h"
#include "zend_extensions.h"
#include "zend_modules.h"

#include "say.h"

/* ---- texts in PHP ---- */

struct search {
	/* An address in the object that is searched. */
	uintptr_t inside;
	const char *text;
	/* With the NUL at its end. */
	size_t length;
	bool is_found;
};

static bool is_within(const struct dl_phdr_info *object, uintptr_t address)
{
	for (int at = 0; at < object->dlpi_phnum; at++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[at];
		uintptr_t begin = object->dlpi_addr + part->p_vaddr;
		if (part->p_type == PT_LOAD && address >= begin && address - begin < part->p_memsz) {
			return true;
		}
	}
	return false;
}

static int search_object(struct dl_phdr_info *object, size_t size, void *context)
{
	struct search *search = context;
	if (!is_within(object, search->inside)) {
		return 0;
	}
	for (int at = 0; at < object->dlpi_phnum && !search->is_found; at++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[at];
		/* Constants are never in writable parts, but with some linkers they are beside the code. */
		if (part->p_type == PT_LOAD && part->p_flags & PF_R && !(part->p_flags & PF_W)) {
			const void *begin = (const void *)(object->dlpi_addr + part->p_vaddr);
			search->is_found = memmem(begin, part->p_filesz, search->text, search->length);
		}
	}
	return 1;
}

static bool contains(const char *text, size_t length)
{
	struct search search = {.inside = (uintptr_t)php_module_startup, .text = text, .length = length};
	dl_iterate_phdr(search_object, &search);
	return search.is_found;
}

bool host_contains(const char *text)
{
	return contains(text, strlen(text));
}

/* ---- sizes of PHP's variables ---- */

struct variable {
	const char *name;
	const void *address;
	size_t size;
	/* How many bytes more, and how many fewer, it may have in the PHP of this process. */
	size_t more, fewer;
};
#define EXACT(name) {#name, &(name), sizeof(name), 0, 0}
/*
 * Patch versions of PHP add fields to these, at the end only: extensions are not compiled again for a patch version. 8.2.36 of
 * Debian added 24 bytes to executor_globals. weir-php uses no such new field, and never the size of one of these.
 */
#define MAY_GROW(name) {#name, &(name), sizeof(name), 256, 256}
/* The same, but with -pthread (_REENTRANT) PHP's headers add fields in the middle, so the object must not have more. */
#define MAY_ONLY_GROW(name) {#name, &(name), sizeof(name), 256, 0}

/* Returns the size that the loader knows; 0: none. */
static size_t size_of(const void *address)
{
	Dl_info info;
	const ElfW(Sym) *symbol = NULL;
	if (!dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol) {
		return 0;
	}
	return symbol->st_size;
}

static bool sizes_fit(char *error, size_t size)
{
	const struct variable variables[] = {
		MAY_GROW(executor_globals),
		MAY_GROW(compiler_globals),
		MAY_GROW(core_globals),
		MAY_GROW(sapi_globals),
		MAY_ONLY_GROW(basic_globals),
		MAY_GROW(ps_globals),
		EXACT(sapi_module),
		EXACT(module_registry),
		EXACT(zend_extensions),
		EXACT(std_object_handlers),
	};
	for (size_t at = 0; at < sizeof variables / sizeof *variables; at++) {
		const struct variable *variable = &variables[at];
		size_t there = size_of(variable->address);
		size_t wanted = variable->size;
		if (there && (there > wanted + variable->more || there + variable->fewer < wanted)) {
			snprintf(error, size,
				 "%s was compiled for another PHP than this one: %s has %zu bytes here, but %zu are expected; build it "
				 "with the headers of this PHP (make php)",
				 host_file(), variable->name, there, variable->size);
			return false;
		}
	}
	return true;
}

bool host_check(char *error, size_t size)
{
	/* The compiler must not assume that the file has the text of the source: tests change it. */
	static const volatile char build[] = ZEND_MODULE_BUILD_ID;
	char wanted[sizeof build];
	for (size_t at = 0; at < sizeof build; at++) {
		wanted[at] = build[at];
	}
	if (!contains(wanted, sizeof wanted)) {
		snprintf(error, size,
			 "%s is for PHP " PHP_BRANCH " (%s), but the PHP in this process is of another build; build it with the headers of "
			 "this PHP (make php)",
			 host_file(), wanted);
		return false;
	}
	return sizes_fit(error, size);
}
