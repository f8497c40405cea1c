/*
 * The control thread of a worker: hears what the master orders while PHP runs, or waits for the gateway, and never
 * disturbs a script. No system call of a script is interrupted by it: sleep() sleeps as long as it should.
 */
#ifndef WEIR_CONTROL_H
#define WEIR_CONTROL_H

#include <stdbool.h>

#include "config.h"

/* What the master writes to a worker's pipe, one byte each. */
enum control_order { CONTROL_TRACE = 't', CONTROL_STOP = 's' };

/* Starts the thread, and takes the signals that others may send; `orders` is the pipe's end to read. */
void control_start(const struct pool_config *config, int orders);

/*
 * The worker is about to wait for a request, and there is no script to be traced; false: it shall end instead. When it
 * is told to end while it waits, the stream ends for it, but what has come already is still to be answered.
 */
bool control_may_wait(void);

/* The worker has a request. */
void control_has_request(void);

#endif
