/*
 * The life of a zygote: it boots the application, and then forks workers when the master orders it. See zygote.h.
 *
 *   boot ── the first handle_request ──► may it be forked? ── yes ──► waits for orders ── the master or the manager is gone ──► ends
 *                                                └── no: says why, and ends
 *
 * A worker must be a child of the master, because workers outlive the zygote, and the kernel must end them with the master
 * (adopt.h).
 */
#include "zygote.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "php.h"

#include "adopt.h"
#include "booted.h"
#include "fastcgi.h"
#include "opcache.h"
#include "say.h"
#include "worker.h"

/* ---- messages ---- */

/* Room for the descriptors of one message. */
union descriptors {
	struct cmsghdr header;
	char space[CMSG_SPACE(ZYGOTE_DESCRIPTORS * sizeof(int))];
};

int zygote_order(int socket, uint32_t number, const int descriptors[ZYGOTE_DESCRIPTORS])
{
	union descriptors control = {0};
	struct iovec piece = {.iov_base = &number, .iov_len = sizeof number};
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control,
	};
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	part->cmsg_level = SOL_SOCKET;
	part->cmsg_type = SCM_RIGHTS;
	part->cmsg_len = CMSG_LEN(ZYGOTE_DESCRIPTORS * sizeof(int));
	memcpy(CMSG_DATA(part), descriptors, ZYGOTE_DESCRIPTORS * sizeof(int));
	ssize_t sent;
	do {
		sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? errno : 0;
}

int zygote_hear(int socket, struct zygote_message *message)
{
	ssize_t length;
	do {
		length = recv(socket, message, sizeof *message, MSG_DONTWAIT);
	} while (length < 0 && errno == EINTR);
	if (length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		return 0;
	}
	if (length != (ssize_t)sizeof *message) {
		return -1;
	}
	message->text[sizeof message->text - 1] = '\0';
	return 1;
}

static const struct pool_config *pool;
static int to_master = -1, manager_life = -1, report_pipe = -1;
static pid_t master_pid;

static void tell_master(struct zygote_message message)
{
	while (send(to_master, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
	}
}

/* An order, with descriptors that are the caller's. */
struct order {
	uint32_t number;
	int descriptors[ZYGOTE_DESCRIPTORS];
};

/* Waits for an order. Returns false at the end of the master or the manager. */
static bool next_order(struct order *order)
{
	struct pollfd events[] = {
		{.fd = to_master, .events = POLLIN},
		{.fd = manager_life, .events = POLLIN},
	};
	if (poll(events, 2, -1) < 0) {
		return errno == EINTR;
	}
	if (events[1].revents) {
		return false;
	}
	union descriptors control = {0};
	struct iovec piece = {.iov_base = &order->number, .iov_len = sizeof order->number};
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control,
	};
	ssize_t length = recvmsg(to_master, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (length < 0) {
		return errno == EINTR || errno == EAGAIN;
	}
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);
	bool has_all = length == (ssize_t)sizeof order->number && part && part->cmsg_type == SCM_RIGHTS &&
		       part->cmsg_len == CMSG_LEN(sizeof order->descriptors);
	if (!has_all) {
		/* Probably this process has no free descriptor. It ends, and the master notices that. */
		return false;
	}
	memcpy(order->descriptors, CMSG_DATA(part), sizeof order->descriptors);
	return true;
}

/* ---- start ---- */

/* Whether this process is a zygote, and whether it forks a worker now. */
static bool is_zygote, forks_worker;

/* Runs in a process that the application's script forks during the boot: it must not act as a zygote. */
static void in_fork(void)
{
	if (is_zygote && !forks_worker) {
		is_zygote = false;
		stream_disown();
		close(to_master);
		close(manager_life);
	}
}

void zygote_start(const struct pool_config *config, int socket, int life, int reports, pid_t master)
{
	pool = config;
	to_master = socket;
	manager_life = life;
	report_pipe = reports;
	master_pid = master;
	is_zygote = true;
	pthread_atfork(NULL, NULL, in_fork);
	zygote_look_before();
}

/* ---- fork ---- */

static void close_all(const struct order *order)
{
	for (size_t at = 0; at < ZYGOTE_DESCRIPTORS; at++) {
		close(order->descriptors[at]);
	}
}

/* PHP's own work after a fork; see master.c. */
extern void php_child_init(void) __attribute__((weak));

/* In the new worker, which is the master's child. */
static void become_worker(const struct order *order)
{
	is_zygote = false;
	close(to_master);
	close(manager_life);
	dup2(order->descriptors[ZYGOTE_OUTPUT], STDOUT_FILENO);
	dup2(order->descriptors[ZYGOTE_ERROR], STDERR_FILENO);
	close(order->descriptors[ZYGOTE_OUTPUT]);
	close(order->descriptors[ZYGOTE_ERROR]);
	if (php_child_init) {
		php_child_init();
	}
	opcache_lock_again();
	if (!zygote_reopen()) {
		die(EXIT_SYSTEM, "weir-php: cannot open a file again that the application has opened in its boot: %s", strerror(errno));
	}
	/* Random numbers of workers must differ. */
	booted_forget_seeds();
	booted_report_to(report_pipe, order->number);
	worker_start(pool, order->descriptors[ZYGOTE_STREAM], order->descriptors[ZYGOTE_ORDERS]);
}

static void tell_forked_worker(void *order, pid_t pid)
{
	tell_master((struct zygote_message){
		.event = ZYGOTE_FORKED,
		.number = ((const struct order *)order)->number,
		.value = pid,
	});
}

/* Returns true in the worker. */
static bool fork_worker(struct order *order)
{
	forks_worker = true;
	int forked = fork_for(master_pid, tell_forked_worker, order);
	int error = errno;
	forks_worker = false;
	if (forked == 0) {
		become_worker(order);
		return true;
	}
	close_all(order);
	if (forked < 0) {
		tell_master((struct zygote_message){.event = ZYGOTE_FORK_FAILED, .number = order->number, .value = error});
	}
	return false;
}

void zygote_serve(void)
{
	if (!is_zygote) {
		return;
	}
	struct zygote_message message = {.event = ZYGOTE_BOOTED};
	/* This comes first: it may call destructors. */
	zygote_prepare_memory();
	if (!zygote_may_fork(message.text, sizeof message.text)) {
		message.event = ZYGOTE_DECLINED;
		tell_master(message);
		_exit(EXIT_FINE);
	}
	tell_master(message);
	for (;;) {
		struct order order = {.descriptors = {-1, -1, -1, -1}};
		if (!next_order(&order)) {
			/* The script's shutdown code must not run here: each worker runs it at its own end. */
			_exit(EXIT_FINE);
		}
		if (order.descriptors[0] >= 0 && fork_worker(&order)) {
			return;
		}
	}
}
