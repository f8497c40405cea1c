/*
 * The worker's end of its stream to the gateway: FastCGI 1.0, one request after another, with two management records
 * of our own (READY and STATUS).
 *
 * A worker has one stream, for its whole life. What comes is buffered, so that a request that fits is one read; what
 * goes out is buffered, so that a response that fits is one write. Bytes that are no FastCGI end the process: the
 * gateway is our own, and has lost its way.
 */
#ifndef WEIR_FASTCGI_H
#define WEIR_FASTCGI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_type {
	RECORD_BEGIN_REQUEST = 1,
	RECORD_ABORT_REQUEST = 2,
	RECORD_END_REQUEST = 3,
	RECORD_PARAMS = 4,
	RECORD_STDIN = 5,
	RECORD_STDOUT = 6,
	RECORD_STDERR = 7,
	RECORD_DATA = 8,
	RECORD_READY = 64,
	RECORD_STATUS = 65,
};

/* What a request cost, where it was measured; else zeros. */
struct figures {
	uint64_t cpu_microseconds;
	uint64_t peak_memory;
	uint64_t peak_resident;
	uint64_t user_microseconds;
};

/* The stream, and what the process knows of its other end. */
void stream_open(int descriptor);

/* Says that this process is a fork of the worker: from now on the stream is silent, as if its other end had gone. */
void stream_disown(void);
bool stream_is_disowned(void);

/*
 * Ends the stream for a worker that waits for a request, as if the gateway had closed it. What has come already is
 * still read, and answered. May be called by another thread.
 */
void stream_stop(void);

/* Waits for a request and takes its parameters (params.h). False: the gateway has closed the stream. */
bool stream_next_request(void);

/* Up to `size` bytes of the request's body, waiting for them; less only at its end, or where the client has gone. */
size_t stream_read_body(char *bytes, size_t size);

/* Throws away what is left of the body. */
void stream_drain(void);

/* Appends to the response, or to the error messages beside it. False: nobody is there any more. */
bool stream_write(enum record_type type, const char *bytes, size_t length);

/* Sends what is buffered. False: nobody is there any more. */
bool stream_flush(void);

/* Whether the client has gone: looks at what has come, and does not wait. */
bool stream_client_gone(void);

/* Ends the response; true the first time. What is written afterwards is thrown away. */
bool stream_end(void);
bool stream_ended(void);

/* Says that the worker is free, and sends what is buffered. */
void stream_ready(const struct figures *figures);

/*
 * Asks the gateway for the pool's status: JSON, of malloc; NULL where it did not answer. The body must have been read
 * to its end, since the answer comes behind it.
 */
char *stream_ask_status(size_t *length);

#endif
