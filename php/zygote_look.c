/*
 * Whether a booted application may be forked, and what its files need after a fork. See zygote.h.
 *
 * Processes that are forked share what their parent has open. Two of them that talk through one connection to a database mix
 * their answers; a process has none of its parent's threads; SQLite forbids the use of a database that was opened before a
 * fork. So a process with such things is not forked. Files are opened again in each worker, because processes that share a
 * descriptor share its position.
 */
#include "zygote.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "opcache.h"
#include "say.h"

#define DESCRIPTORS "/proc/self/fd"
#define THREADS "/proc/self/task"

/* A descriptor: its number, and which file it is. */
struct open_file {
	int number;
	dev_t device;
	ino_t inode;
};

struct open_files {
	struct open_file *list;
	size_t count;
};

/* Descriptors from before the boot belong to weir and PHP. Files that were opened since are opened again. */
static struct open_files before_boot, again;

static void add(struct open_files *files, const struct open_file *file)
{
	files->list = take_more_memory(files->list, (files->count + 1) * sizeof *files->list);
	files->list[files->count++] = *file;
}

static bool has(const struct open_files *files, const struct open_file *file)
{
	for (size_t at = 0; at < files->count; at++) {
		const struct open_file *one = &files->list[at];
		if (one->number == file->number && one->device == file->device && one->inode == file->inode) {
			return true;
		}
	}
	return false;
}

/* The next open descriptor of the list; -1: there is none. */
static int next_descriptor(DIR *list)
{
	const struct dirent *entry;
	while ((entry = readdir(list))) {
		if (*entry->d_name != '.' && atoi(entry->d_name) != dirfd(list)) {
			return atoi(entry->d_name);
		}
	}
	return -1;
}

void zygote_look_before(void)
{
	DIR *list = opendir(DESCRIPTORS);
	int number;
	while (list && (number = next_descriptor(list)) >= 0) {
		struct stat about;
		if (fstat(number, &about) == 0) {
			struct open_file file = {.number = number, .device = about.st_dev, .inode = about.st_ino};
			add(&before_boot, &file);
		}
	}
	if (list) {
		closedir(list);
	}
}

/* ---- descriptors ---- */

/* The address of a socket's other end, for people. */
static void name_peer(int socket, char *text, size_t size)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un local;
	} peer = {0};
	char address[INET6_ADDRSTRLEN] = "?";
	/* One byte stays zero, because a path may have no terminating NUL. */
	socklen_t length = sizeof peer - 1;
	if (getpeername(socket, &peer.any, &length) < 0) {
		snprintf(text, size, "a socket without a connection");
	} else if (peer.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &peer.v4.sin_addr, address, sizeof address);
		snprintf(text, size, "a connection to %s:%u", address, ntohs(peer.v4.sin_port));
	} else if (peer.any.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &peer.v6.sin6_addr, address, sizeof address);
		snprintf(text, size, "a connection to [%s]:%u", address, ntohs(peer.v6.sin6_port));
	} else if (peer.any.sa_family == AF_UNIX && peer.local.sun_path[0]) {
		snprintf(text, size, "a connection to %s", peer.local.sun_path);
	} else {
		snprintf(text, size, "a socket");
	}
}

/* Whether it is a socket through which messages only leave, as to syslog: each is whole, and nobody answers. */
static bool only_sends(int socket)
{
	struct sockaddr_un own = {0};
	socklen_t length = sizeof own;
	int type = 0;
	socklen_t type_size = sizeof type;
	return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_DGRAM &&
	       getsockname(socket, (struct sockaddr *)&own, &length) == 0 && own.sun_family == AF_UNIX &&
	       length == sizeof own.sun_family;
}

static const char SQLITE[] = "SQLite format 3";

static bool is_sqlite(int number)
{
	char begin[sizeof SQLITE];
	return pread(number, begin, sizeof begin, 0) == (ssize_t)sizeof begin && memcmp(begin, SQLITE, sizeof begin) == 0;
}

static int open_again(int number)
{
	char path[64];
	snprintf(path, sizeof path, DESCRIPTORS "/%d", number);
	int flags = fcntl(number, F_GETFL);
	return flags < 0 ? -1 : open(path, (flags & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_DIRECT | O_SYNC)) | O_CLOEXEC);
}

/* A file or folder: it must be possible to open it again. */
static bool may_share_file(const struct open_file *file, mode_t mode, const char *name, char *why, size_t size)
{
	if (fcntl(file->number, F_GETFL) & O_PATH) {
		return true;
	}
	if (S_ISREG(mode) && is_sqlite(file->number)) {
		snprintf(why, size, "the SQLite database %.100s", name);
		return false;
	}
	int other = open_again(file->number);
	if (other < 0) {
		snprintf(why, size, "the file %.100s, which cannot be opened a second time (%.30s)", name, strerror(errno));
		return false;
	}
	close(other);
	add(&again, file);
	return true;
}

static bool may_share(int number, const struct stat *about, char *why, size_t size)
{
	char path[64], name[PATH_MAX];
	snprintf(path, sizeof path, DESCRIPTORS "/%d", number);
	ssize_t length = readlink(path, name, sizeof name - 1);
	name[length > 0 ? length : 0] = '\0';
	struct open_file file = {.number = number, .device = about->st_dev, .inode = about->st_ino};
	if (has(&before_boot, &file)) {
		return true;
	}
	if (S_ISSOCK(about->st_mode)) {
		if (!only_sends(number)) {
			name_peer(number, why, size);
			return false;
		}
		return true;
	}
	if (S_ISFIFO(about->st_mode)) {
		snprintf(why, size, "the pipe %.100s", name);
		return false;
	}
	if (S_ISREG(about->st_mode) || S_ISDIR(about->st_mode)) {
		return may_share_file(&file, about->st_mode, name, why, size);
	}
	if (strncmp(name, "anon_inode:", 11) == 0) {
		snprintf(why, size, "a descriptor of the kernel's kind %.100s", name + 11);
		return false;
	}
	return true;
}

static bool may_share_descriptors(char *why, size_t size)
{
	DIR *list = opendir(DESCRIPTORS);
	if (!list) {
		snprintf(why, size, "it cannot be seen what it has open: %s: %s", DESCRIPTORS, strerror(errno));
		return false;
	}
	bool may = true;
	int number;
	while (may && (number = next_descriptor(list)) >= 0) {
		struct stat about;
		char what[192] = "";
		if (fstat(number, &about) == 0 && !may_share(number, &about, what, sizeof what)) {
			snprintf(why, size, "the boot has opened %s (descriptor %d)", what, number);
			may = false;
		}
	}
	closedir(list);
	return may;
}

/* ---- threads ---- */

/* Whether this thread is the only one. If not, names another. */
static bool is_alone(char *why, size_t size)
{
	DIR *list = opendir(THREADS);
	if (!list) {
		snprintf(why, size, "it cannot be seen whether it has threads: %s: %s", THREADS, strerror(errno));
		return false;
	}
	const struct dirent *entry;
	bool alone = true;
	while (alone && (entry = readdir(list))) {
		if (*entry->d_name == '.' || atoi(entry->d_name) == getpid()) {
			continue;
		}
		char path[64], name[32] = "";
		snprintf(path, sizeof path, THREADS "/%.16s/comm", entry->d_name);
		int file = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t length = file < 0 ? -1 : read(file, name, sizeof name - 1);
		if (file >= 0) {
			close(file);
		}
		name[length > 0 ? length : 0] = '\0';
		name[strcspn(name, "\n")] = '\0';
		/* A thread that has just ended is gone. */
		if (length > 0) {
			snprintf(why, size, "the boot has started the thread \"%s\"", name);
			alone = false;
		}
	}
	closedir(list);
	return alone;
}

bool zygote_may_fork(char *why, size_t size)
{
	if (!opcache_may_fork()) {
		snprintf(why, size, "the file with OPcache's locks is not found");
		return false;
	}
	return is_alone(why, size) && may_share_descriptors(why, size);
}

bool zygote_reopen(void)
{
	for (size_t at = 0; at < again.count; at++) {
		int number = again.list[at].number;
		off_t place = lseek(number, 0, SEEK_CUR);
		int flags = fcntl(number, F_GETFD);
		int own = open_again(number);
		if (own < 0) {
			return false;
		}
		bool is_there = place < 0 || lseek(own, place, SEEK_SET) >= 0;
		if (!is_there || dup3(own, number, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0) {
			close(own);
			return false;
		}
		close(own);
	}
	return true;
}
