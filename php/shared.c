/*
 * The memory that all processes of a pool share. See shared.h.
 */
#include "shared.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "say.h"

struct shared *shared;

void shared_make(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		die(EXIT_SYSTEM, "weir-php: cannot allocate memory shared with workers: %s", strerror(errno));
	}
}
