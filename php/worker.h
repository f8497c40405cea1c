/*
 * A worker: a fork of the master that answers requests one after another until its stream ends.
 *
 * A worker has two threads. One runs PHP. The other (control.h) waits for the master's orders. To end a waiting worker it stops reading
 * of the stream; a request that has already come is still answered. For a stack trace it asks PHP to stop at a safe point. If the
 * script reaches none within 50 ms, it reads the stack from memory with a system call that fails if the memory is not there.
 */
#ifndef WEIR_WORKER_H
#define WEIR_WORKER_H

#include "config.h"

/* The process is a worker from now on: it has a stream, and a pipe of orders. */
void worker_start(const struct pool_config *config, int stream, int orders);

/* Boots the application in a zygote. Returns the exit code of the process, also in the workers that are forked from it. */
int worker_boot(const struct pool_config *config);

/* Serves the stream, and receives orders from the pipe. Returns the exit code of the process. */
int worker_run(const struct pool_config *config, int stream, int orders);

#endif
