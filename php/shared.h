/*
 * The memory that all processes of a pool share besides OPcache's. Any of them can write to it, also a hostile script: nothing here may
 * decide more than what the pool's own requests could decide anyway.
 */
#ifndef WEIR_SHARED_H
#define WEIR_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

struct shared {
	/* What the requests that fill OPcache disable, as a hash of the names (disabled.c); 0: no request yet. */
	_Atomic uint64_t filled_with;
	/* How often a script was compiled (opcache.c). */
	_Atomic uint32_t compiled;
};

extern struct shared *shared;

/* Makes it. Call this once, in the master. */
void shared_make(void);

#endif
