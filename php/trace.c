/*
 * The stack of the running script. See trace.h.
 */
#include "trace.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "php.h"
#include "php_main.h"
#include "SAPI.h"
#include "zend_exceptions.h"
#include "zend_execute.h"
#include "zend_vm.h"
#if PHP_VERSION_ID >= 80200
#include "zend_atomic.h"
#endif

#include "bytes.h"

enum {
	/* How long PHP may take to reach a safe point. */
	SAFE_POINT_MS = 50,
	/* Maximum size of a trace, which is one packet. */
	MAX_TRACE = 64 * 1024,
	/* Maximum length of the name of a function or file. */
	MAX_NAME = 1024,
	/* Maximum number of frames: a longer or cyclic stack is cut. */
	MAX_FRAMES = 100000,
};

/* Which thread writes the requested trace: the first one that takes the request. */
enum request { REQUEST_NONE, REQUEST_OPEN, REQUEST_TAKEN };

static int slow_log = -1;
static unsigned depth;
static _Atomic enum request request;
static sem_t written;

static char text[MAX_TRACE];
static size_t length;
static bool is_full;

/* ---- reading memory that may be unmapped ---- */

static bool read_memory(const void *from, void *to, size_t size)
{
	struct iovec here = {.iov_base = to, .iov_len = size};
	struct iovec there = {.iov_base = (void *)from, .iov_len = size};
	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}
#define READ(from, to) read_memory(from, to, sizeof *(to))

/* Reads a text of `size` bytes, cut at MAX_NAME and at a NUL. */
static bool read_text(const char *from, size_t size, char *to)
{
	size_t taken = size < MAX_NAME - 1 ? size : MAX_NAME - 1;
	to[taken] = 0;
	return read_memory(from, to, taken);
}

static bool read_string(const zend_string *from, char *to)
{
	size_t size;
	return read_memory((const char *)from + offsetof(zend_string, len), &size, sizeof size) &&
	       read_text((const char *)from + offsetof(zend_string, val), size, to);
}

/* Reads a text that ends with a NUL. It may end just before unmapped memory. */
static bool read_c_string(const char *from, char *to)
{
	for (size_t size = MAX_NAME - 1; size > 0; size /= 2) {
		if (read_text(from, size, to)) {
			return true;
		}
	}
	return false;
}

/* ---- frames ---- */

static void write_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* If there is no room for the whole text, this call and all later calls write nothing. */
static void write_text(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int added = is_full ? 0 : vsnprintf(text + length, sizeof text - length, format, arguments);
	va_end(arguments);
	is_full |= added < 0 || (size_t)added >= sizeof text - length;
	length += is_full ? 0 : (size_t)added;
}

/* The function of a frame. Returns false if there is none, or it cannot be read. */
static bool function_of(const zend_execute_data *frame, zend_function *function)
{
	if (!frame->func || (uintptr_t)frame->func % sizeof(void *) != 0) {
		return false;
	}
	memset(function, 0, sizeof *function);
	size_t size = sizeof function->common;
	if (!read_memory(frame->func, function, size)) {
		return false;
	}
	return !ZEND_USER_CODE(function->type) || read_memory(frame->func, function, sizeof function->op_array);
}

/* Writes file and line of the first script frame, beginning at `start`. */
static void write_position(const zend_execute_data *start)
{
	zend_execute_data frame;
	zend_function function;
	char file[MAX_NAME] = "unknown";
	uint32_t line = 0;
	for (int count = 0; start && count < MAX_FRAMES; count++, start = frame.prev_execute_data) {
		if (!READ(start, &frame) || !function_of(&frame, &function)) {
			break;
		}
		if (ZEND_USER_CODE(function.type)) {
			zend_op opline;
			if (!read_string(function.op_array.filename, file)) {
				strcpy(file, "unknown");
			} else if (frame.opline && READ(frame.opline, &opline)) {
				line = opline.lineno;
			}
			break;
		}
	}
	write_text(" %s:%u\n", file, line);
}

/* Writes one line. Returns false if it was the last one, or the next frame cannot be read. */
static bool write_frame(const zend_execute_data **next, bool first)
{
	const zend_execute_data *at = *next;
	zend_execute_data frame;
	zend_function function;
	char name[MAX_NAME] = "???";
	if (!READ(at, &frame)) {
		return false;
	}
	bool is_main = false;
	if (function_of(&frame, &function)) {
		if (function.common.function_name) {
			read_string(function.common.function_name, name);
		} else if (ZEND_CALL_KIND_EX(frame.This.u1.type_info) == ZEND_CALL_TOP_CODE) {
			is_main = true;
		} else {
			strcpy(name, "[INCLUDE_OR_EVAL]");
		}
	}
	/*
	 * PHP-FPM writes no line for the script's main code, so its trace of slow main code is empty. Here it is written as
	 * the first line.
	 */
	if (is_main && !first) {
		return false;
	}
	size_t line = length;
	write_text("[0x%016lx] %s()", (unsigned long)(uintptr_t)at, is_main ? "{main}" : name);
	write_position(is_main ? at : frame.prev_execute_data);
	if (is_full) {
		length = line;
	}
	*next = frame.prev_execute_data;
	return !is_main && !is_full && *next;
}

/*
 * Writes the class of the innermost function, if it is a method of PHP's own: execute() alone says less than PDOStatement. The
 * manager takes this line out; PHP-FPM's log has none.
 */
static void write_class(const zend_execute_data *at)
{
	zend_execute_data frame;
	zend_function function;
	const zend_string *class_name;
	char name[MAX_NAME];
	if (READ(at, &frame) && function_of(&frame, &function) && !ZEND_USER_CODE(function.type) &&
	    function.common.function_name && function.common.scope &&
	    READ(&function.common.scope->name, &class_name) && read_string(class_name, name)) {
		write_text("class = %s\n", name);
	}
}

static void send_trace(void)
{
	char path[MAX_NAME];
	char *script;
	if (!READ(&SG(request_info).path_translated, &script) || !script || !read_c_string(script, path)) {
		strcpy(path, "unknown");
	}
	put_u32((unsigned char *)text, (uint32_t)getpid());
	length = 4;
	is_full = false;
	const zend_execute_data *frame;
	bool first = true;
	bool runs = READ(&EG(current_execute_data), &frame) && frame;
	if (runs) {
		write_class(frame);
	}
	write_text("script_filename = %s\n", path);
	if (runs) {
		for (unsigned lines = 0; !depth || lines < depth; lines++) {
			if (!write_frame(&frame, first)) {
				break;
			}
			first = false;
		}
	}
	send(slow_log, text, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- writing ---- */

static bool take_request(void)
{
	enum request open = REQUEST_OPEN;
	return atomic_compare_exchange_strong(&request, &open, REQUEST_TAKEN);
}

static void (*next_interrupt_function)(zend_execute_data *frame);

/* PHP is at a safe point. */
static void at_safe_point(zend_execute_data *frame)
{
	if (take_request()) {
		send_trace();
		sem_post(&written);
	}
	if (next_interrupt_function) {
		next_interrupt_function(frame);
	}
}

/*
 * Whether PHP can be asked to stop at a safe point. In PHP 8.5.0 to 8.5.6 the virtual machine with tail calls and the
 * tracing JIT may crash then; there, the memory of the running script is read instead, as it is if PHP does not stop.
 */
static bool may_interrupt(void)
{
#if PHP_VERSION_ID >= 80500 && PHP_VERSION_ID < 80600
	/* weir-php may run in a newer PHP than it was compiled with, within 8.5. */
	bool is_affected = php_version_id() <= 80506;
	const char *jit = zend_ini_string_ex("opcache.jit", sizeof "opcache.jit" - 1, 0, NULL);
	bool has_jit = jit && *jit && strcmp(jit, "disable") != 0 && strcmp(jit, "off") != 0 && strcmp(jit, "0") != 0;
	return !is_affected || (zend_vm_kind() != ZEND_VM_KIND_TAILCALL && !has_jit);
#else
	return true;
#endif
}

static void interrupt(void)
{
#if PHP_VERSION_ID >= 80200
	zend_atomic_bool_store(&EG(vm_interrupt), true);
#else
	EG(vm_interrupt) = 1;
#endif
}

static bool wait_for_safe_point(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += SAFE_POINT_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	int result;
	do {
		result = sem_timedwait(&written, &until);
	} while (result < 0 && errno == EINTR);
	return result == 0;
}

void trace_start(int socket, unsigned lines)
{
	slow_log = socket;
	depth = lines;
	if (slow_log < 0) {
		return;
	}
	sem_init(&written, 0, 0);
	next_interrupt_function = zend_interrupt_function;
	zend_interrupt_function = at_safe_point;
}

void trace_write(void)
{
	if (slow_log < 0) {
		return;
	}
	atomic_store(&request, REQUEST_OPEN);
	if (may_interrupt()) {
		interrupt();
		if (wait_for_safe_point()) {
			return;
		}
	}
	if (take_request()) {
		send_trace();
		return;
	}
	/* PHP has just reached a safe point, and writes the trace. */
	while (sem_wait(&written) < 0 && errno == EINTR) {
	}
}
