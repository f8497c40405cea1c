/*
 * The channel to the manager. See channel.h.
 */
#include "channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bytes.h"
#include "say.h"

/* Maximum size of a packet. The configuration is the longest packet; the kernel's own limit is not much higher. */
#define MAX_PACKET (256 * 1024)

/* Maximum length of a text in a message. */
#define MAX_TEXT (16 * 1024)

/* Maximum length of the reason why a process cannot be forked. */
#define MAX_REASON 1024

enum told {
	TOLD_READY = 1,
	TOLD_FAILED = 2,
	TOLD_FORKED = 3,
	TOLD_EXITED = 4,
	TOLD_FORK_FAILED = 5,
	TOLD_BOOTED = 7,
	TOLD_OPCACHE_IS_FULL = 8,
	TOLD_DECLINED = 9,
};

static void take_descriptors(struct msghdr *message, struct packet *packet)
{
	int *places[] = {&packet->descriptor, &packet->output[0], &packet->output[1]};
	size_t taken = 0, room = sizeof places / sizeof *places;
	for (size_t at = 0; at < room; at++) {
		*places[at] = -1;
	}
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
			continue;
		}
		size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t at = 0; at < count; at++) {
			int descriptor;
			memcpy(&descriptor, CMSG_DATA(part) + at * sizeof(int), sizeof descriptor);
			if (taken < room) {
				*places[taken++] = descriptor;
			} else {
				close(descriptor);
			}
		}
	}
}

enum received channel_receive(int channel, struct packet *packet, int wait)
{
	static unsigned char buffer[MAX_PACKET];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec piece = {.iov_base = buffer, .iov_len = sizeof buffer};
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control,
	};
	ssize_t length;
	do {
		length = recvmsg(channel, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	} while (length < 0 && errno == EINTR);
	if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		return RECEIVED_NOTHING;
	}
	if (length <= 0) {
		return RECEIVED_END;
	}
	if (message.msg_flags & MSG_TRUNC) {
		die(EXIT_PROTOCOL, "weir-php: the manager sent a message of more than %d bytes", MAX_PACKET);
	}
	packet->type = buffer[0];
	packet->body = buffer + 1;
	packet->length = (size_t)length - 1;
	take_descriptors(&message, packet);
	return RECEIVED_PACKET;
}

static void tell(int channel, unsigned char type, const void *body, size_t length)
{
	struct iovec pieces[] = {
		{.iov_base = &type, .iov_len = 1},
		{.iov_base = (void *)body, .iov_len = length},
	};
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
	while (sendmsg(channel, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
	}
}

static void tell_text(int channel, unsigned char type, const char *text)
{
	tell(channel, type, text, strnlen(text, MAX_TEXT));
}

void tell_ready(int channel, const char *inputs)
{
	tell_text(channel, TOLD_READY, inputs);
}

void tell_failed(int channel, const char *why)
{
	tell_text(channel, TOLD_FAILED, why);
}

void tell_forked(int channel, uint32_t number, pid_t pid)
{
	unsigned char body[8];
	put_u32(body, number);
	put_u32(body + 4, (uint32_t)pid);
	tell(channel, TOLD_FORKED, body, sizeof body);
}

void tell_exited(int channel, uint32_t number, pid_t pid, int status)
{
	unsigned char body[13];
	put_u32(body, number);
	put_u32(body + 4, (uint32_t)pid);
	body[8] = WIFSIGNALED(status) ? 1 : 0;
	put_u32(body + 9, (uint32_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
	tell(channel, TOLD_EXITED, body, sizeof body);
}

void tell_fork_failed(int channel, uint32_t number, int error)
{
	unsigned char body[8];
	put_u32(body, number);
	put_u32(body + 4, (uint32_t)error);
	tell(channel, TOLD_FORK_FAILED, body, sizeof body);
}

void tell_booted(int channel, uint32_t number)
{
	unsigned char body[4];
	put_u32(body, number);
	tell(channel, TOLD_BOOTED, body, sizeof body);
}

void tell_opcache_is_full(int channel)
{
	tell(channel, TOLD_OPCACHE_IS_FULL, "", 0);
}

void tell_declined(int channel, uint32_t number, const char *why)
{
	unsigned char body[4 + MAX_REASON];
	size_t length = strnlen(why, MAX_REASON);
	put_u32(body, number);
	memcpy(body + 4, why, length);
	tell(channel, TOLD_DECLINED, body, 4 + length);
}
