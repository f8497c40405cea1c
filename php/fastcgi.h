/*
 * The worker's end of its stream to the gateway: FastCGI 1.0, one request after another, with management records of weir
 * (crates/gateway/src/scripts/fastcgi/finishing.rs has them all).
 *
 * A worker has one stream for its whole life. Input is buffered, so a request that fits into the buffer needs one read.
 * Output is buffered, so a response that fits needs one write. Invalid FastCGI ends the process: the gateway is part of
 * weir, so this is a bug.
 */
#ifndef WEIR_FASTCGI_H
#define WEIR_FASTCGI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session.h"

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
	RECORD_NOTE = 66,
	RECORD_LATE_STDERR = 67,
};

/* Resource usage of a request if it was measured, else zeros. */
struct figures {
	uint64_t cpu_microseconds;
	uint64_t peak_memory;
	uint64_t peak_resident;
	uint64_t user_microseconds;
	/* See opcache_look(). */
	uint64_t opcache;
};

/* Opens the stream, and stores what the process knows about the other end. */
void stream_open(int descriptor);

/* Marks this process as a fork of the worker. From now on the stream acts as if the other end had closed it. */
void stream_disown(void);
bool stream_is_disowned(void);

/*
 * Ends the stream for a worker that waits for a request, as if the gateway had closed it. Input that has already
 * arrived is still read and answered. Another thread may call this.
 */
void stream_stop(void);

/* Waits for a request and reads its parameters (params.h). Returns false if the gateway has closed the stream. */
bool stream_next_request(void);

/*
 * Waits until the rest of the body is in the buffer. The end of the stream, or an ABORT_REQUEST, in place of the
 * record that ends the body cuts it: the script must not take it for a complete body.
 */
enum body_state {
	BODY_IS_WHOLE,
	BODY_IS_CUT,
	/* The body is larger than the buffer. More of it must be read before the next call. */
	BODY_IS_LONG,
};
enum body_state stream_await_body(void);

/*
 * Reads up to `size` bytes of the request's body, and waits for them. Returns fewer only at the end of the body, or
 * where it is cut.
 */
size_t stream_read_body(char *bytes, size_t size);

/* Discards the rest of the body. */
void stream_drain(void);

/* Appends to the response, or to its error messages. Returns false if the client has disconnected. */
bool stream_write(enum record_type type, const char *bytes, size_t length);

/* Sends the buffered output. Returns false if the client has disconnected. */
bool stream_flush(void);

/* Whether the client has disconnected. Checks the input that has arrived, and does not wait. */
bool stream_client_gone(void);

/*
 * Ends the response, and sends the end together with the next output, but not much later: another thread calls the second
 * function a little later, again and again until it returns false.
 */
void stream_end_soon(void);
bool stream_send_late_end(void);

/* Ends the response; returns true the first time. Later output is discarded. */
bool stream_end(void);
bool stream_ended(void);

/* Appends to the error messages of a response that has ended: they are for the log only. */
void stream_write_late(const char *bytes, size_t length);

/* Adds a note about the request to the output, in as many records as it takes, and an empty one. */
void stream_note(const unsigned char *bytes, size_t length);

/* Reports that the worker is idle, and how the request used its session, and sends the buffered output. */
void stream_ready(const struct figures *figures, const struct session_use *session);

/*
 * Asks the gateway for the pool's status: JSON, allocated with malloc; NULL if there was no answer. The body must have
 * been read to its end, because the answer follows it.
 */
char *stream_ask_status(size_t *length);

#endif
