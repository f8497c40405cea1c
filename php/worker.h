/*
 * A worker: a fork of the master that answers requests one after another until its stream ends.
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
