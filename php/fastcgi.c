/*
 * FastCGI 1.0 on the worker's stream. See fastcgi.h.
 */
#include "fastcgi.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bytes.h"
#include "control.h"
#include "params.h"
#include "say.h"

enum {
	HEADER = 8,
	MAX_CONTENT = 65535,
	/* Buffer for bytes that were received but not yet consumed. */
	IN_SIZE = 64 * 1024,
	/* Buffer for output. Data that does not fit is sent directly from its place. */
	OUT_SIZE = 64 * 1024,
	/* Maximum content of a record of weir's own that a worker sends (MAX_EXTENSION in crates/fcgi). */
	MAX_OWN = 112,
	/* Maximum size of the gateway's answer to STATUS. */
	MAX_STATUS = 4 * 1024 * 1024,
	/* Maximum number of parts of one write: the buffer, then records with a header and a content each. */
	MAX_RECORDS = 16,
};

static struct {
	int descriptor;
	/* This process is a fork of the worker. */
	bool disowned;
	/* The gateway closed the stream: nobody reads the output. */
	bool closed;
	/* This process reads no more because it is going to end; the gateway is still connected. */
	atomic_bool stopped;

	uint16_t id;
	bool aborted;
	bool body_ended;
	/* The body ended without the record that ends it. */
	bool body_is_cut;
	bool ended;

	unsigned char in[IN_SIZE];
	size_t in_at, in_end;
	/* Remaining bytes of the current record. */
	size_t content_left, padding_left;

	unsigned char out[OUT_SIZE];
	size_t out_end;
	/* The record that still grows: its type, and the position of its header; 0: none. */
	enum record_type open_type;
	size_t open_at;
} stream;

/*
 * The end of a response that is still in the output buffer, so that it is sent together with READY. Another thread sends
 * it if that takes too long (control.c). Until then the buffer is not PHP's: PHP's thread takes it back before it
 * changes it.
 */
enum late_end { LATE_END_NONE, LATE_END_WAITS, LATE_END_IS_SENT };
static _Atomic enum late_end late_end;
static atomic_uint late_ends;

/* Takes the output buffer back from the other thread. */
static void own_output(void)
{
	enum late_end was = LATE_END_WAITS;
	while (!atomic_compare_exchange_weak(&late_end, &was, LATE_END_NONE) && was != LATE_END_NONE) {
		if (was == LATE_END_IS_SENT) {
			/* The other thread is in a short system call, which does not wait. */
			sched_yield();
		}
		was = LATE_END_WAITS;
	}
}

struct header {
	unsigned char type;
	uint16_t id;
	uint16_t content;
	unsigned char padding;
};

void stream_open(int descriptor)
{
	stream.descriptor = descriptor;
	int flags = fcntl(descriptor, F_GETFL);
	if (flags >= 0 && flags & O_NONBLOCK) {
		fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK);
	}
}

void stream_stop(void)
{
	atomic_store(&stream.stopped, true);
	shutdown(stream.descriptor, SHUT_RD);
}

void stream_disown(void)
{
	atomic_store(&late_end, LATE_END_NONE);
	stream.disowned = true;
	stream.closed = true;
	stream.out_end = 0;
	stream.open_type = 0;
	/* A zygote has none. */
	if (stream.descriptor > 0) {
		close(stream.descriptor);
	}
}

bool stream_is_disowned(void)
{
	return stream.disowned;
}

/* ---- input ---- */

static _Noreturn void lost(const char *what)
{
	die(EXIT_PROTOCOL, "weir-php: the gateway sent invalid FastCGI data: %s", what);
}

/* Receives as much as fits. Returns 0 at the end of the stream, -1 if there is no input and it must not wait. */
static ssize_t receive(bool wait)
{
	if (stream.closed) {
		return 0;
	}
	if (stream.in_at == stream.in_end) {
		stream.in_at = stream.in_end = 0;
	}
	if (wait) {
		/*
		 * A unix socket notifies the writer each time the reader has read something, and this also wakes a process in
		 * recv(): one more wakeup for each response. It does not wake a process in poll().
		 */
		struct pollfd incoming = {.fd = stream.descriptor, .events = POLLIN};
		poll(&incoming, 1, -1);
	}
	ssize_t got;
	do {
		got = recv(stream.descriptor, stream.in + stream.in_end, IN_SIZE - stream.in_end, wait ? 0 : MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR && wait);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
		return -1;
	}
	if (got <= 0) {
		stream.closed = !(got == 0 && atomic_load(&stream.stopped));
		return 0;
	}
	stream.in_end += (size_t)got;
	return got;
}

static void move_to_front(void)
{
	if (stream.in_at) {
		memmove(stream.in, stream.in + stream.in_at, stream.in_end - stream.in_at);
		stream.in_end -= stream.in_at;
		stream.in_at = 0;
	}
}

static size_t buffered(void)
{
	return stream.in_end - stream.in_at;
}

/* Waits until `length` bytes (at most IN_SIZE) are available. */
static bool await(size_t length)
{
	while (buffered() < length) {
		if (IN_SIZE - stream.in_at < length) {
			move_to_front();
		}
		if (receive(true) == 0) {
			return false;
		}
	}
	return true;
}

static struct header header_at(size_t at)
{
	const unsigned char *bytes = stream.in + at;
	if (bytes[0] != 1) {
		lost("a record of another version");
	}
	return (struct header){
		.type = bytes[1],
		.id = get_u16(bytes + 2),
		.content = get_u16(bytes + 4),
		.padding = bytes[6],
	};
}

static bool skip(size_t *left)
{
	while (*left) {
		if (!await(1)) {
			return false;
		}
		size_t here = buffered() < *left ? buffered() : *left;
		stream.in_at += here;
		*left -= here;
	}
	return true;
}

/* Reads the header of the next record. Its content and padding remain to be read. */
static bool next_record(struct header *header)
{
	if (!skip(&stream.content_left) || !skip(&stream.padding_left) || !await(HEADER)) {
		return false;
	}
	*header = header_at(stream.in_at);
	stream.in_at += HEADER;
	stream.content_left = header->content;
	stream.padding_left = header->padding;
	return true;
}

/* A part of the current record's content, in the buffer; 0: the stream has ended. */
static size_t next_piece(const unsigned char **bytes)
{
	if (!await(1)) {
		return 0;
	}
	size_t length = buffered() < stream.content_left ? buffered() : stream.content_left;
	*bytes = stream.in + stream.in_at;
	stream.in_at += length;
	stream.content_left -= length;
	return length;
}

static const char *const ROLES[] = {NULL, "RESPONDER", "AUTHORIZER", "FILTER"};

static bool take_begin(const struct header *header)
{
	if (header->id == 0 || header->content != 8) {
		lost("a wrong BEGIN_REQUEST");
	}
	if (!await(8)) {
		return false;
	}
	uint16_t role = get_u16(stream.in + stream.in_at);
	if (role < 1 || role > 3) {
		lost("a BEGIN_REQUEST of an unknown role");
	}
	stream.id = header->id;
	stream.aborted = stream.body_ended = stream.body_is_cut = stream.ended = false;
	params_clear();
	params_set("FCGI_ROLE", ROLES[role]);
	return true;
}

/* Reads a PARAMS record. `more` is false for the record that ends the parameters. */
static bool take_params(const struct header *header, bool *more)
{
	*more = header->content > 0;
	if (!*more) {
		if (!params_read()) {
			lost("invalid parameters");
		}
		return true;
	}
	while (stream.content_left) {
		const unsigned char *bytes;
		size_t length = next_piece(&bytes);
		if (!length) {
			return false;
		}
		if (!params_feed(bytes, length)) {
			lost("too many parameters");
		}
	}
	return true;
}

bool stream_next_request(void)
{
	struct header header;
	bool begun = false;
	while (next_record(&header)) {
		switch (header.type) {
		case RECORD_BEGIN_REQUEST:
			if (begun) {
				lost("a request inside another request");
			}
			if (!take_begin(&header)) {
				return false;
			}
			begun = true;
			break;
		case RECORD_PARAMS: {
			bool more;
			if (!begun || header.id != stream.id) {
				lost("parameters without a request");
			}
			if (!take_params(&header, &more)) {
				return false;
			}
			if (!more) {
				return true;
			}
			break;
		}
		case RECORD_ABORT_REQUEST:
		case RECORD_STDIN:
		case RECORD_DATA:
		case RECORD_STATUS:
			/* The record arrived too late for the previous request. */
			if (begun) {
				lost("a request without its parameters");
			}
			break;
		default:
			lost("a record of an unknown type");
		}
	}
	return false;
}

static void cut_body(void)
{
	stream.body_ended = stream.body_is_cut = true;
}

/* Whether a record in place of the body's next one has content of it. If it has none, the record may end the body. */
static bool is_of_body(const struct header *header, bool *ends)
{
	*ends = false;
	switch (header->type) {
	case RECORD_STDIN:
		if (header->id != stream.id) {
			lost("a body of another request");
		}
		*ends = header->content == 0;
		return !*ends;
	case RECORD_ABORT_REQUEST:
		*ends = true;
		return false;
	case RECORD_DATA:
		return false;
	default:
		lost("a missing request body");
	}
}

/* Opens the next record of the body. Returns false if there is none. */
static bool next_of_body(void)
{
	struct header header;
	bool ends;
	while (!stream.body_ended) {
		if (!next_record(&header)) {
			cut_body();
		} else if (is_of_body(&header, &ends)) {
			return true;
		} else if (ends && header.type == RECORD_ABORT_REQUEST) {
			stream.aborted = true;
			cut_body();
		} else {
			stream.body_ended = ends;
		}
	}
	return false;
}

enum body_state stream_await_body(void)
{
	/* Where the next record begins, behind the bytes that were consumed. */
	size_t at = stream.content_left + stream.padding_left;
	while (!stream.body_ended) {
		if (at + HEADER > IN_SIZE) {
			return BODY_IS_LONG;
		}
		if (!await(at + HEADER)) {
			cut_body();
			break;
		}
		struct header header = header_at(stream.in_at + at);
		bool ends;
		if (!is_of_body(&header, &ends) && ends) {
			if (header.type == RECORD_STDIN) {
				return BODY_IS_WHOLE;
			}
			stream.aborted = true;
			cut_body();
		}
		at += HEADER + (size_t)header.content + header.padding;
	}
	if (stream.body_is_cut && !stream.aborted) {
		/* Nothing is sent any more, so that nobody takes it for an answer: the script has not run. */
		stream.closed = true;
	}
	return stream.body_is_cut ? BODY_IS_CUT : BODY_IS_WHOLE;
}

size_t stream_read_body(char *bytes, size_t size)
{
	size_t done = 0;
	while (done < size && !stream.body_ended) {
		if (!stream.content_left && !next_of_body()) {
			break;
		}
		const unsigned char *piece;
		size_t left = stream.content_left;
		size_t length = next_piece(&piece);
		if (!length) {
			cut_body();
			break;
		}
		if (length > size - done) {
			/* Put back for the next call. */
			stream.in_at -= length - (size - done);
			length = size - done;
			stream.content_left = left - length;
		}
		memcpy(bytes + done, piece, length);
		done += length;
	}
	return done;
}

void stream_drain(void)
{
	while (!stream.body_ended) {
		if (!skip(&stream.content_left)) {
			cut_body();
		} else {
			next_of_body();
		}
	}
}

/* Looks for an ABORT_REQUEST among the received records that are not yet consumed. */
static bool abort_has_come(void)
{
	size_t at = stream.in_at + stream.content_left + stream.padding_left;
	while (at + HEADER <= stream.in_end) {
		struct header header = header_at(at);
		if (header.type == RECORD_ABORT_REQUEST && header.id == stream.id) {
			return true;
		}
		at += HEADER + (size_t)header.content + header.padding;
	}
	return false;
}

bool stream_client_gone(void)
{
	if (stream.disowned) {
		return false;
	}
	if (stream.closed || stream.aborted || stream.ended) {
		return stream.closed || stream.aborted;
	}
	if (stream.in_end == IN_SIZE) {
		move_to_front();
	}
	if (stream.in_end < IN_SIZE || buffered() == 0) {
		if (receive(false) == 0) {
			return stream.closed;
		}
	} else {
		struct pollfd look = {.fd = stream.descriptor};
		if (poll(&look, 1, 0) == 1 && look.revents & (POLLHUP | POLLERR)) {
			stream.closed = true;
			return true;
		}
	}
	stream.aborted = abort_has_come();
	return stream.aborted;
}

/* ---- output ---- */

static void put_header(unsigned char *at, enum record_type type, uint16_t id, size_t content)
{
	at[0] = 1;
	at[1] = (unsigned char)type;
	put_u16(at + 2, id);
	put_u16(at + 4, (uint16_t)content);
	at[6] = at[7] = 0;
}

/* Writes all parts. If nobody reads, it discards them and returns false. */
static bool send_pieces(struct iovec *pieces, size_t count)
{
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
	while (!stream.closed && message.msg_iovlen) {
		ssize_t sent = sendmsg(stream.descriptor, &message, MSG_NOSIGNAL);
		if (sent < 0) {
			stream.closed = errno != EINTR;
			continue;
		}
		size_t left = (size_t)sent;
		while (message.msg_iovlen && left >= message.msg_iov->iov_len) {
			left -= message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen) {
			message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + left;
			message.msg_iov->iov_len -= left;
		}
	}
	return !stream.closed;
}

static void close_record(void)
{
	if (stream.open_type) {
		size_t content = stream.out_end - stream.open_at - HEADER;
		put_header(stream.out + stream.open_at, stream.open_type, stream.id, content);
		stream.open_type = 0;
	}
}

bool stream_flush(void)
{
	own_output();
	close_record();
	if (stream.out_end == 0) {
		return stream.disowned || !stream.closed;
	}
	struct iovec piece = {.iov_base = stream.out, .iov_len = stream.out_end};
	stream.out_end = 0;
	return send_pieces(&piece, 1);
}

/* Sends the buffer, followed by these bytes directly from their place. */
static bool send_through(enum record_type type, const char *bytes, size_t length)
{
	unsigned char headers[MAX_RECORDS][HEADER];
	close_record();
	while (length || stream.out_end) {
		struct iovec pieces[1 + 2 * MAX_RECORDS];
		size_t count = 0;
		if (stream.out_end) {
			pieces[count++] = (struct iovec){.iov_base = stream.out, .iov_len = stream.out_end};
			stream.out_end = 0;
		}
		for (size_t record = 0; record < MAX_RECORDS && length; record++) {
			size_t content = length < MAX_CONTENT ? length : MAX_CONTENT;
			put_header(headers[record], type, stream.id, content);
			pieces[count++] = (struct iovec){.iov_base = headers[record], .iov_len = HEADER};
			pieces[count++] = (struct iovec){.iov_base = (char *)bytes, .iov_len = content};
			bytes += content;
			length -= content;
		}
		if (!send_pieces(pieces, count)) {
			return false;
		}
	}
	return true;
}

bool stream_write(enum record_type type, const char *bytes, size_t length)
{
	if (stream.disowned || stream.ended || length == 0) {
		return true;
	}
	if (stream.closed) {
		return false;
	}
	own_output();
	if (stream.open_type != type) {
		close_record();
		if (OUT_SIZE - stream.out_end >= HEADER + length) {
			stream.open_type = type;
			stream.open_at = stream.out_end;
			stream.out_end += HEADER;
		}
	}
	if (stream.open_type == type && OUT_SIZE - stream.out_end >= length) {
		memcpy(stream.out + stream.out_end, bytes, length);
		stream.out_end += length;
		return true;
	}
	if (length >= OUT_SIZE / 2) {
		return send_through(type, bytes, length);
	}
	return stream_flush() && stream_write(type, bytes, length);
}

/* Reserves room for a record with `content` bytes at the end of the buffer. */
static unsigned char *append_record(enum record_type type, uint16_t id, size_t content)
{
	own_output();
	close_record();
	if (OUT_SIZE - stream.out_end < HEADER + content) {
		stream_flush();
	}
	unsigned char *at = stream.out + stream.out_end;
	put_header(at, type, id, content);
	stream.out_end += HEADER + content;
	return at + HEADER;
}

bool stream_end(void)
{
	if (stream.disowned || stream.ended) {
		return false;
	}
	stream_drain();
	memset(append_record(RECORD_END_REQUEST, stream.id, 8), 0, 8);
	stream.ended = true;
	return true;
}

void stream_end_soon(void)
{
	if (stream_end() && !stream.closed) {
		atomic_fetch_add(&late_ends, 1);
		atomic_store(&late_end, LATE_END_WAITS);
		control_send_end_soon();
	}
}

bool stream_send_late_end(void)
{
	static unsigned last;
	enum late_end waits = LATE_END_WAITS;
	unsigned now = atomic_load(&late_ends);
	if (atomic_load(&late_end) != LATE_END_WAITS) {
		return false;
	}
	if (now != last) {
		/* The buffered end may have been there for a moment only. */
		last = now;
		return true;
	}
	if (!atomic_compare_exchange_strong(&late_end, &waits, LATE_END_IS_SENT)) {
		return false;
	}
	ssize_t sent = send(stream.descriptor, stream.out, stream.out_end, MSG_NOSIGNAL | MSG_DONTWAIT);
	size_t left = sent > 0 ? stream.out_end - (size_t)sent : stream.out_end;
	memmove(stream.out, stream.out + stream.out_end - left, left);
	stream.out_end = left;
	atomic_store(&late_end, left ? LATE_END_WAITS : LATE_END_NONE);
	return left > 0;
}

bool stream_ended(void)
{
	return stream.ended;
}

/* Appends a text in as many records of weir's own as it takes. */
static void append_pieces(enum record_type type, const void *bytes, size_t length)
{
	for (size_t at = 0; at < length;) {
		size_t piece = length - at < MAX_OWN ? length - at : MAX_OWN;
		memcpy(append_record(type, 0, piece), (const char *)bytes + at, piece);
		at += piece;
	}
}

void stream_write_late(const char *bytes, size_t length)
{
	if (!stream.disowned && !stream.closed) {
		append_pieces(RECORD_LATE_STDERR, bytes, length);
	}
}

void stream_note(const unsigned char *bytes, size_t length)
{
	if (!stream.disowned) {
		append_pieces(RECORD_NOTE, bytes, length);
		append_record(RECORD_NOTE, 0, 0);
	}
}

void stream_ready(const struct figures *figures, const struct session_use *session)
{
	if (stream.disowned) {
		return;
	}
	stream_end();
	size_t name = session->held_microseconds ? strlen(session->name) : 0;
	unsigned char *content = append_record(RECORD_READY, 0, name ? 56 + name : 40);
	put_u64(content, figures->cpu_microseconds);
	put_u64(content + 8, figures->peak_memory);
	put_u64(content + 16, figures->peak_resident);
	put_u64(content + 24, figures->user_microseconds);
	put_u64(content + 32, figures->opcache);
	if (name) {
		put_u64(content + 40, session->held_microseconds);
		put_u64(content + 48, session->waited_microseconds);
		memcpy(content + 56, session->name, name);
	}
	stream_flush();
}

char *stream_ask_status(size_t *length)
{
	if (stream.disowned || stream.closed || stream.aborted || !stream.body_ended) {
		return NULL;
	}
	append_record(RECORD_STATUS, 0, 0);
	if (!stream_flush()) {
		return NULL;
	}
	char *json = take_memory(1);
	*length = 0;
	struct header header;
	while (next_record(&header)) {
		if (header.type == RECORD_ABORT_REQUEST) {
			stream.aborted = true;
			continue;
		}
		if (header.type != RECORD_STATUS) {
			lost("no answer to STATUS");
		}
		if (header.content == 0) {
			json[*length] = 0;
			return json;
		}
		if (*length + header.content > MAX_STATUS) {
			lost("a status that is too long");
		}
		json = take_more_memory(json, *length + header.content + 1);
		while (stream.content_left) {
			const unsigned char *bytes;
			size_t piece = next_piece(&bytes);
			if (!piece) {
				break;
			}
			memcpy(json + *length, bytes, piece);
			*length += piece;
		}
	}
	free(json);
	return NULL;
}
