/*
 * The working folder. See folder.h.
 */
#include "folder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

#define EXPORTED __attribute__((visibility("default")))

/*
 * Current folder of the process: the start folder, the folder in `entered`, that of folder_keep(), or unknown because a
 * script changed it.
 */
enum place { PLACE_START, PLACE_ENTERED, PLACE_KEPT, PLACE_UNKNOWN };

static int start = -1;
/* The folder of folder_keep(). */
static int kept = -1;
static enum place place;
static char entered[PATH_MAX];
static uint64_t entered_at;

/* ---- called by PHP ---- */

static int real_chdir(const char *path)
{
	static int (*real)(const char *);
	if (!real) {
		real = (int (*)(const char *))dlsym(RTLD_NEXT, "chdir");
	}
	return real(path);
}

static int real_fchdir(int folder)
{
	static int (*real)(int);
	if (!real) {
		real = (int (*)(int))dlsym(RTLD_NEXT, "fchdir");
	}
	return real(folder);
}

EXPORTED int chdir(const char *path)
{
	place = PLACE_UNKNOWN;
	return real_chdir(path);
}

EXPORTED int fchdir(int folder)
{
	place = PLACE_UNKNOWN;
	return real_fchdir(folder);
}

/* ---- called by the worker ---- */

static uint64_t milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void folder_start(void)
{
	start = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (start < 0) {
		die(EXIT_SYSTEM, "weir-php: cannot read the working folder: %s", strerror(errno));
	}
	place = PLACE_START;
}

void folder_leave(void)
{
	if (place != PLACE_START && real_fchdir(start) == 0) {
		place = PLACE_START;
	}
}

void folder_enter(const char *script)
{
	const char *slash = strrchr(script, '/');
	size_t length = slash == script ? 1 : slash ? (size_t)(slash - script) : 0;
	if (length == 0 || length >= sizeof entered) {
		/* A name without a folder: the script is in the start folder. */
		folder_leave();
		return;
	}
	uint64_t now = milliseconds();
	bool is_there = place == PLACE_ENTERED && now - entered_at < FOLDER_TRUST_MS && *script == '/' &&
			strncmp(entered, script, length) == 0 && entered[length] == 0;
	if (is_there) {
		return;
	}
	if (*script != '/') {
		folder_leave();
	}
	memcpy(entered, script, length);
	entered[length] = 0;
	entered_at = now;
	/* If the folder cannot be entered, the script runs in the current folder, as in PHP. */
	place = real_chdir(entered) == 0 ? PLACE_ENTERED : PLACE_UNKNOWN;
}

void folder_keep(void)
{
	kept = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	place = kept >= 0 ? PLACE_KEPT : PLACE_UNKNOWN;
}

void folder_return(void)
{
	if (place != PLACE_KEPT && kept >= 0 && real_fchdir(kept) == 0) {
		place = PLACE_KEPT;
	}
}
