/*
 * A worker: a fork of the master that answers requests one after another until its stream ends.
 */
#ifndef WEIR_WORKER_H
#define WEIR_WORKER_H

#include "config.h"

/* Serves the stream, and receives orders from the pipe. Returns the exit code of the process. */
int worker_run(const struct pool_config *config, int stream, int orders);

#endif
