/*
 * The life of a template. See template.h.
 *
 *   PHP loads ── extensions have started ──► may masters share that? ── yes ──► READY ──► waits for orders ── the channel is closed ──► ends
 *                                                  └── no: DECLINED with the reason, and it ends
 *
 * Memory that is made before the fork is shared by all masters until one of them writes to it; the others do not see the change. Only
 * such private memory may be shared. Memory that stays shared after a fork, threads, connections and open files would connect pools of
 * different users: if PHP has any of these, each pool loads PHP for itself.
 */
#include "template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adopt.h"
#include "bytes.h"
#include "channel.h"
#include "confine.h"
#include "engine.h"
#include "opcache.h"
#include "opcache_start.h"
#include "say.h"

/* ---- what masters must not share ---- */

/* Memory that stays shared after a fork, such as APCu's. */
static bool has_shared_memory(char *why, size_t size)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL;
	size_t room = 0;
	bool is_found = false;
	if (!maps) {
		snprintf(why, size, "its memory cannot be looked at (/proc/self/maps: %s)", strerror(errno));
		return true;
	}
	while (!is_found && getline(&line, &room, maps) > 0) {
		char rights[5] = "", *end;
		unsigned long from = 0, to = 0;
		/* "BEGIN-END rw-s OFFSET DEVICE INODE  PATH" */
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3 && rights[3] == 's' && rights[1] == 'w' &&
		    (const char *)from != opcache_kept_memory()) {
			end = strchr(line, '/');
			line[strcspn(line, "\n")] = '\0';
			snprintf(why, size, "an extension makes shared memory of %lu KiB while it starts (%.80s)", (to - from) / 1024,
				 end ? end : "no file");
			is_found = true;
		}
	}
	free(line);
	fclose(maps);
	return is_found;
}

static bool has_threads(char *why, size_t size)
{
	struct stat about;
	/* A folder has a link for itself, one from the parent folder, and one from each thread's folder. */
	if (stat("/proc/self/task", &about) < 0 || about.st_nlink != 3) {
		snprintf(why, size, "an extension starts a thread");
		return true;
	}
	return false;
}

/* The descriptors that were there before PHP was loaded. */
static bool was_open[1024];

static bool is_older(int number)
{
	return number >= 0 && (size_t)number < sizeof was_open && was_open[number];
}

/* A file, or connection, that an extension keeps open. Devices have no state that masters could share. */
static bool has_open_files(char *why, size_t size)
{
	DIR *list = opendir("/proc/self/fd");
	const struct dirent *entry;
	bool is_found = !list;
	if (!list) {
		snprintf(why, size, "its open files cannot be looked at (/proc/self/fd: %s)", strerror(errno));
	}
	while (!is_found && (entry = readdir(list))) {
		int number = atoi(entry->d_name);
		struct stat about;
		if (*entry->d_name == '.' || number == dirfd(list) || number == opcache_lock() || is_older(number) || fstat(number, &about) < 0 ||
		    S_ISCHR(about.st_mode)) {
			continue;
		}
		char path[64], name[128];
		snprintf(path, sizeof path, "/proc/self/fd/%d", number);
		ssize_t length = readlink(path, name, sizeof name - 1);
		name[length > 0 ? length : 0] = '\0';
		snprintf(why, size, "an extension keeps %s open while it starts", name);
		is_found = true;
	}
	if (list) {
		closedir(list);
	}
	return is_found;
}

bool template_may_fork(char *why, size_t size)
{
	return engine_may_read(why, size) && !has_shared_memory(why, size) && !has_threads(why, size) && !has_open_files(why, size);
}

void template_begin(void)
{
	DIR *list = opendir("/proc/self/fd");
	const struct dirent *entry;
	while (list && (entry = readdir(list))) {
		int number = atoi(entry->d_name);
		if (*entry->d_name != '.' && number != dirfd(list) && (size_t)number < sizeof was_open) {
			was_open[number] = true;
		}
	}
	if (list) {
		closedir(list);
	}
}

/* ---- to become a master ---- */

/* An order: the user of the master, and the descriptors that it starts with. */
struct master_order {
	uint32_t number;
	bool has_user;
	uid_t user;
	gid_t group;
	gid_t *groups;
	size_t group_count;
	int channel;
	int output[2];
};

static bool read_order(const struct packet *packet, struct master_order *order)
{
	const unsigned char *at = packet->body;
	*order = (struct master_order){.channel = packet->descriptor, .output = {packet->output[0], packet->output[1]}};
	if (packet->type != ORDER_MASTER || packet->length < 4 || order->output[1] < 0) {
		return false;
	}
	order->number = get_u32(at);
	if (packet->length == 4) {
		return true;
	}
	if (packet->length < 12 || packet->length % 4) {
		return false;
	}
	order->has_user = true;
	order->user = get_u32(at + 4);
	order->group = get_u32(at + 8);
	order->group_count = (packet->length - 12) / 4;
	order->groups = take_memory((order->group_count + 1) * sizeof *order->groups);
	for (size_t index = 0; index < order->group_count; index++) {
		order->groups[index] = get_u32(at + 12 + 4 * index);
	}
	return true;
}

/* Becomes the pool's user for good. */
static void become_user(const struct master_order *order)
{
	if (!order->has_user) {
		return;
	}
	bool is_done = confine_use_all() && setgroups(order->group_count, order->groups) == 0 &&
		       setresgid(order->group, order->group, order->group) == 0 &&
		       setresuid(order->user, order->user, order->user) == 0 && confine_keep_user();
	if (!is_done) {
		die(EXIT_SYSTEM, "weir-php: cannot become user %u, group %u: %s", (unsigned)order->user, (unsigned)order->group,
		    strerror(errno));
	}
	if (setresuid(-1, 0, -1) == 0 || setresgid(-1, 0, -1) == 0) {
		die(EXIT_SYSTEM, "weir-php: the change to user %u can be undone", (unsigned)order->user);
	}
}

/* The master itself reports to the manager: it is the manager's child by then, and has its pool's user. */
static void become_master(const struct master_order *order, pid_t manager)
{
	/* This replaces the template's descriptors. */
	if (dup3(order->channel, STDIN_FILENO, O_CLOEXEC) < 0) {
		die(EXIT_SYSTEM, "weir-php: the channel to the manager: %s", strerror(errno));
	}
	close(order->channel);
	for (int at = 0; at < 2; at++) {
		dup2(order->output[at], STDOUT_FILENO + at);
		close(order->output[at]);
	}
	if (setsid() < 0) {
		die(EXIT_SYSTEM, "weir-php: cannot start a session: %s", strerror(errno));
	}
	become_user(order);
	end_with(manager);
	free(order->groups);
	tell_forked(STDIN_FILENO, order->number, getpid());
}

/* ---- in the template ---- */

void template_serve(int channel, const char *loaded)
{
	char why[256], name[16] = "";
	pid_t manager = getppid();
	if (!template_may_fork(why, sizeof why)) {
		tell_declined(channel, 0, why);
		_exit(EXIT_FINE);
	}
	/* Lists of processes, and killall(1), must not confuse it with masters. */
	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, "weir-template");
	tell_ready(channel, loaded);
	for (;;) {
		struct packet packet;
		struct master_order order;
		if (channel_receive(channel, &packet, 1) != RECEIVED_PACKET) {
			_exit(EXIT_FINE);
		}
		if (!read_order(&packet, &order)) {
			die(EXIT_PROTOCOL, "weir-php: the manager sent an invalid MASTER message");
		}
		switch (fork_for(manager, NULL, NULL)) {
		case 0:
			prctl(PR_SET_NAME, name);
			become_master(&order, manager);
			return;
		case -1:
			say("weir-php: a master cannot be forked: %s", strerror(errno));
			break;
		default:
			break;
		}
		/* If there is no process, the manager sees that its channel is closed. */
		free(order.groups);
		close(order.channel);
		close(order.output[0]);
		close(order.output[1]);
	}
}
