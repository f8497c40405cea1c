/*
 * The control thread of a worker: receives the orders of the master while PHP runs or waits for the gateway. It never
 * disturbs a script, and does not interrupt its system calls: sleep() sleeps for the full time. It starts with the first request,
 * because most workers of many pools wait long for one.
 */
#ifndef WEIR_CONTROL_H
#define WEIR_CONTROL_H

#include <stdbool.h>

#include "config.h"

/* The only order that the master writes to a worker's pipe: write the stack to the slow log. */
#define CONTROL_TRACE 't'

/* Handles the signals that other processes may send. Call it before PHP starts a request. */
void control_take_signals(void);

/* `orders` is the read end of the pipe. */
void control_start(const struct pool_config *config, int orders);

/* Without the thread, waits until something of a request has arrived, or the stream has ended. Call it after control_may_wait(). */
void control_await(int stream);

/*
 * Call this before the worker waits for a request: there is no script to trace. Returns false if the worker should end
 * instead, because of SIGQUIT. If the signal arrives while the worker waits, the stream ends for the worker, but it still answers
 * requests that have already arrived.
 */
bool control_may_wait(void);

/* Lets the control thread check, a little later, whether the end of a response was sent (stream_end_soon). */
void control_send_end_soon(void);

/* Call this when the worker has a request. The first one starts the thread. */
void control_has_request(void);

#endif
