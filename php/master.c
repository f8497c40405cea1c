/*
 * The master's loop: handles orders of the manager and exits of workers. See master.h.
 *
 * It never handles data of clients. When the manager closes the channel, the master kills all workers; when the master
 * dies, the kernel kills them.
 */
#include "master.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "booted.h"
#include "bytes.h"
#include "channel.h"
#include "config.h"
#include "confine.h"
#include "control.h"
#include "engine.h"
#include "environment.h"
#include "host.h"
#include "ini.h"
#include "opcache.h"
#include "opcache_start.h"
#include "protocol.h"
#include "say.h"
#include "template.h"
#include "worker.h"
#include "zygote.h"

/* A zygote (zygote.h), and a worker that a zygote forks, have an application that stays booted. */
enum child_kind { CHILD_WORKER = 0, CHILD_LIST = 1, CHILD_WARM = 2, CHILD_ZYGOTE = 3, CHILD_OF_ZYGOTE = 4 };

/* Zygotes at the same time: one for each configuration that still has requests. */
#define MAX_ZYGOTES 16

struct child {
	uint32_t number;
	enum child_kind kind;
	/* 0: a zygote has the order to fork the worker, and has not answered yet. */
	pid_t pid;
	/* The pipe to the worker's control thread, or the socket to the zygote; -1: there is none. */
	int orders;
	/* The zygote that forks it. */
	uint32_t zygote;
	/* A signal for a child that has no process id yet; -1: none. */
	int late_signal;
	/* A worker has reported that its application is booted, or a zygote that it cannot be forked. */
	bool has_booted;
};

static struct pool_config config;
static int channel;
static int child_signals;
/* Opened before chroot, because the new root may not have one. */
static int null_device;
static sigset_t mask_of_children;
/* Workers whose application stays booted report here (booted.h); -1: there are none. */
static int reports[2] = {-1, -1};
/* The text of READY. */
static char *loaded;

static struct child *children;
static size_t child_count, child_room;

static struct child *child_of(uint32_t number)
{
	for (size_t at = 0; at < child_count; at++) {
		if (children[at].number == number) {
			return &children[at];
		}
	}
	return NULL;
}

static void remember(struct child child)
{
	if (child_count == child_room) {
		child_room = child_room ? child_room * 2 : 16;
		children = take_more_memory(children, child_room * sizeof *children);
	}
	children[child_count++] = child;
}

static void forget(struct child *child)
{
	if (child->orders >= 0) {
		close(child->orders);
	}
	*child = children[--child_count];
}

/* ---- in the child ---- */

/* PHP's own work after a fork; PHP 8.2 and older have none. From main/php_main.h, which no header of 8.2 declares. */
extern void php_child_init(void) __attribute__((weak));

/* Detaches a child from the master: closes its channel and pipes, resets signals. The child dies with the master. */
static void become_child(pid_t master)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != master) {
		_exit(EXIT_SYSTEM);
	}
	for (size_t at = 0; at < child_count; at++) {
		if (children[at].orders >= 0) {
			close(children[at].orders);
		}
	}
	close(child_signals);
	if (reports[0] >= 0) {
		close(reports[0]);
	}
	if (dup2(null_device, channel) < 0) {
		die(EXIT_SYSTEM, "weir-php: /dev/null: %s", strerror(errno));
	}
	close(null_device);
	sigprocmask(SIG_SETMASK, &mask_of_children, NULL);
	if (php_child_init) {
		php_child_init();
	}
	confine_worker(&config);
}

/* The worker gets its own output pipes, so the manager knows which worker printed a line. */
static void take_output(const struct packet *packet)
{
	for (int at = 0; at < 2; at++) {
		if (packet->output[at] >= 0) {
			dup2(packet->output[at], STDOUT_FILENO + at);
			close(packet->output[at]);
		}
	}
}

/*
 * Ends this process. Not by exit(3): extensions have ended (engine_stop) where there was a request, and what the libraries' destructors
 * do only frees memory, by writing to pages that must be copied for it first.
 */
static _Noreturn void end_process(int code)
{
	fflush(NULL);
	_exit(code);
}

static int run_child(enum child_kind kind, const struct packet *packet, int orders, pid_t master)
{
	switch (kind) {
	case CHILD_WORKER:
		booted_report_to(reports[1], get_u32(packet->body));
		return worker_run(&config, packet->descriptor, orders);
	case CHILD_LIST:
		return opcache_write_list(packet->descriptor);
	case CHILD_WARM:
		return opcache_compile_list(packet->descriptor, packet->body + 5, packet->length - 5);
	case CHILD_ZYGOTE:
		zygote_start(&config, orders, packet->descriptor, reports[1], master);
		return worker_boot(&config);
	default:
		die(EXIT_PROTOCOL, "weir-php: the manager asked for a child of unknown kind %d", (int)kind);
	}
}

/* ---- orders ---- */

static void close_both(const int pair[2])
{
	for (int at = 0; at < 2; at++) {
		if (pair[at] >= 0) {
			close(pair[at]);
		}
	}
}

/* Orders a zygote to fork a worker. Its answer comes later. */
static void fork_from_zygote(const struct packet *packet)
{
	if (packet->length < 9 || packet->output[1] < 0) {
		die(EXIT_PROTOCOL, "weir-php: the manager sent an invalid FORK message");
	}
	uint32_t number = get_u32(packet->body);
	const struct child *zygote = child_of(get_u32(packet->body + 5));
	int pipe[2] = {-1, -1};
	int error = ESRCH;
	if (zygote && zygote->kind == CHILD_ZYGOTE && zygote->orders >= 0) {
		int descriptors[ZYGOTE_DESCRIPTORS] = {
			[ZYGOTE_STREAM] = packet->descriptor,
			[ZYGOTE_OUTPUT] = packet->output[0],
			[ZYGOTE_ERROR] = packet->output[1],
		};
		error = pipe2(pipe, O_CLOEXEC) < 0 ? errno : 0;
		descriptors[ZYGOTE_ORDERS] = pipe[0];
		if (!error) {
			/* A script of the same user may have stopped it. */
			kill(zygote->pid, SIGCONT);
			error = zygote_order(zygote->orders, number, descriptors);
		}
	}
	close(packet->descriptor);
	close_both(packet->output);
	if (error) {
		close_both(pipe);
		tell_fork_failed(channel, number, error);
		return;
	}
	close(pipe[0]);
	fcntl(pipe[1], F_SETFL, O_NONBLOCK);
	remember((struct child){
		.number = number,
		.kind = CHILD_OF_ZYGOTE,
		.orders = pipe[1],
		.zygote = zygote->number,
		.late_signal = -1,
	});
}

/* Opens the pipe or socket for orders to a child of this kind. The child gets the first end. */
static bool open_orders(enum child_kind kind, int ends[2])
{
	size_t zygotes = 0;
	switch (kind) {
	case CHILD_WORKER:
		return pipe2(ends, O_CLOEXEC) == 0;
	case CHILD_ZYGOTE:
		for (size_t at = 0; at < child_count; at++) {
			zygotes += children[at].kind == CHILD_ZYGOTE;
		}
		if (zygotes >= MAX_ZYGOTES) {
			errno = EAGAIN;
			return false;
		}
		/* The zygote's workers become this process's children, because the intermediate process ends. */
		return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 &&
		       socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
	default:
		return true;
	}
}

static void fork_child(const struct packet *packet)
{
	if (packet->length < 5 || packet->descriptor < 0) {
		die(EXIT_PROTOCOL, "weir-php: the manager sent an invalid FORK message");
	}
	uint32_t number = get_u32(packet->body);
	enum child_kind kind = packet->body[4];
	pid_t master = getpid();
	int pipe[2] = {-1, -1};
	pid_t pid = -1;
	if (kind == CHILD_OF_ZYGOTE) {
		fork_from_zygote(packet);
		return;
	}
	if (kind == CHILD_LIST && !opcache_is_worth_a_list()) {
		close(packet->descriptor);
		close_both(packet->output);
		tell_exited(channel, number, 0, 0);
		return;
	}
	if (open_orders(kind, pipe)) {
		pid = fork();
	}
	int error = errno;
	if (pid == 0) {
		take_output(packet);
		become_child(master);
		if (pipe[1] >= 0) {
			close(pipe[1]);
		}
		end_process(run_child(kind, packet, pipe[0], master));
	}
	close(packet->descriptor);
	close_both(packet->output);
	if (pid < 0) {
		close_both(pipe);
		tell_fork_failed(channel, number, error);
		return;
	}
	if (pipe[0] >= 0) {
		close(pipe[0]);
		/* The master must never wait for a worker. */
		fcntl(pipe[1], F_SETFL, O_NONBLOCK);
	}
	remember((struct child){.number = number, .kind = kind, .pid = pid, .orders = pipe[1], .late_signal = -1});
	tell_forked(channel, number, pid);
}

static void signal_child(const struct packet *packet)
{
	if (packet->length < 5) {
		die(EXIT_PROTOCOL, "weir-php: the manager sent an invalid SIGNAL message");
	}
	struct child *child = child_of(get_u32(packet->body));
	if (!child) {
		return;
	}
	int number = packet->body[4];
	if (child->pid) {
		kill(child->pid, number);
	} else {
		child->late_signal = number;
	}
}

static void trace_child(const struct packet *packet)
{
	if (packet->length < 4) {
		die(EXIT_PROTOCOL, "weir-php: the manager sent an invalid TRACE message");
	}
	struct child *child = child_of(get_u32(packet->body));
	if (!child || child->orders < 0 || child->kind == CHILD_ZYGOTE) {
		return;
	}
	char order = CONTROL_TRACE;
	if (write(child->orders, &order, 1) < 0 && errno != EAGAIN && errno != EPIPE) {
		say("weir-php: cannot send a command to worker %d: %s", (int)child->pid, strerror(errno));
	}
}

static void obey(const struct packet *packet)
{
	switch (packet->type) {
	case ORDER_FORK:
		fork_child(packet);
		return;
	case ORDER_SIGNAL:
		signal_child(packet);
		break;
	case ORDER_TRACE:
		trace_child(packet);
		break;
	default:
		break;
	}
	if (packet->descriptor >= 0) {
		close(packet->descriptor);
	}
	close_both(packet->output);
}

/* ---- zygotes ---- */

static void hear_fork(uint32_t zygote, const struct zygote_message *message)
{
	struct child *child = child_of(message->number);
	if (!child || child->pid || child->kind != CHILD_OF_ZYGOTE || child->zygote != zygote) {
		return;
	}
	if (message->event == ZYGOTE_FORK_FAILED || message->value <= 1) {
		tell_fork_failed(channel, message->number, message->value);
		forget(child);
		return;
	}
	child->pid = message->value;
	tell_forked(channel, child->number, child->pid);
	if (child->late_signal >= 0) {
		kill(child->pid, child->late_signal);
	}
}

/* Maximum number of messages that are read from one zygote at a time. A zygote has fewer workers to report. */
#define MAX_MESSAGES 1024

/* Reads all messages that a zygote has sent so far. */
static void hear_zygote(uint32_t number)
{
	struct zygote_message message;
	for (int count = 0; count < MAX_MESSAGES; count++) {
		/* Handling a message may move the other children in memory. */
		struct child *zygote = child_of(number);
		int heard = zygote->orders < 0 ? 0 : zygote_hear(zygote->orders, &message);
		if (heard < 0) {
			/* It is ending, or should be. */
			close(zygote->orders);
			zygote->orders = -1;
			kill(zygote->pid, SIGKILL);
		}
		if (heard <= 0) {
			return;
		}
		bool is_first = !zygote->has_booted;
		switch (message.event) {
		case ZYGOTE_BOOTED:
		case ZYGOTE_DECLINED:
			zygote->has_booted = true;
			if (is_first && message.event == ZYGOTE_BOOTED) {
				tell_booted(channel, number);
			} else if (is_first) {
				tell_declined(channel, number, message.text);
			}
			break;
		default:
			hear_fork(number, &message);
		}
	}
}

/* Call this before anything that a worker does is handled: what a zygote tells of a worker comes first. */
static void hear_zygotes(void)
{
	uint32_t zygotes[MAX_ZYGOTES];
	size_t count = 0;
	for (size_t at = 0; at < child_count && count < MAX_ZYGOTES; at++) {
		if (children[at].kind == CHILD_ZYGOTE) {
			zygotes[count++] = children[at].number;
		}
	}
	for (size_t at = 0; at < count; at++) {
		hear_zygote(zygotes[at]);
	}
}

/* A zygote has ended. Workers that it had to fork and has not reported will never exist. */
static void give_up_forks(uint32_t zygote)
{
	for (size_t at = 0; at < child_count;) {
		if (children[at].kind == CHILD_OF_ZYGOTE && children[at].zygote == zygote && !children[at].pid) {
			tell_fork_failed(channel, children[at].number, ESRCH);
			forget(&children[at]);
		} else {
			at++;
		}
	}
}

/* ---- reports ---- */

/*
 * Passes a report of a worker on to the manager. A script can open the pipe, too, at /proc/self/fd, and write as much
 * as it likes: the manager serves all pools, and must not get more work because of one script.
 */
static void pass_report(const struct booted_report *report)
{
	static time_t last_look;
	time_t now = time(NULL);
	struct child *child = child_of(report->number);
	if (report->kind == BOOTED && child && child->kind != CHILD_ZYGOTE && !child->has_booted) {
		child->has_booted = true;
		tell_booted(channel, report->number);
	} else if (report->kind == OPCACHE_IS_FULL && now != last_look) {
		/* Workers look once a second (booted.c), and report as long as it is so. */
		last_look = now;
		tell_opcache_is_full(channel);
	}
}

static void pass_reports(void)
{
	struct booted_report some[64];
	ssize_t length = read(reports[0], some, sizeof some);
	/* Each report was one write, and pipes do not split such writes. */
	for (ssize_t at = 0; at < length / (ssize_t)sizeof *some; at++) {
		pass_report(&some[at]);
	}
}

/* ---- exits ---- */

static void reap(void)
{
	struct signalfd_siginfo info;
	while (read(child_signals, &info, sizeof info) > 0) {
	}
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		/* This may be a worker that its zygote has reported only now. */
		hear_zygotes();
		for (size_t at = 0; at < child_count; at++) {
			if (children[at].pid == pid) {
				struct child ended = children[at];
				forget(&children[at]);
				if (ended.kind == CHILD_ZYGOTE) {
					give_up_forks(ended.number);
				}
				tell_exited(channel, ended.number, pid, status);
				break;
			}
		}
	}
}

static _Noreturn void leave(void)
{
	/* First the processes that fork others. */
	for (int zygotes = 1; zygotes >= 0; zygotes--) {
		for (size_t at = 0; at < child_count; at++) {
			bool is_zygote = children[at].kind == CHILD_ZYGOTE;
			if (is_zygote == zygotes && children[at].pid) {
				kill(children[at].pid, SIGKILL);
			}
		}
	}
	/* Other processes may be children, too: those that scripts have left behind. */
	for (size_t at = 0; at < child_count; at++) {
		while (children[at].pid && waitpid(children[at].pid, NULL, 0) < 0 && errno == EINTR) {
		}
	}
	end_process(EXIT_FINE);
}

/* ---- start ---- */

/*
 * The loaded libraries, one line each: "library DEV INODE PATH". NULL: out of memory. The master reports them because the manager may
 * not be allowed to inspect this process. A library that was replaced after loading has another inode than the file at its path.
 * "gone": its file was removed, as by an upgrade.
 */
static char *libraries_text(void)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out = open_memstream(&text, &length);
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL;
	size_t size = 0;
	char last[PATH_MAX] = "";
	if (!out) {
		if (maps) {
			fclose(maps);
		}
		return NULL;
	}
	while (maps && getline(&line, &size, maps) > 0) {
		char *path = strchr(line, '/');
		if (!path || !strstr(path, ".so")) {
			continue;
		}
		path[strcspn(path, "\n")] = '\0';
		if (strlen(path) >= sizeof last || !strcmp(path, last)) {
			continue;
		}
		strcpy(last, path);
		char *deleted = strstr(path, " (deleted)");
		struct stat stat_now;
		if (deleted) {
			*deleted = '\0';
			fprintf(out, "library gone %s\n", path);
		} else if (stat(path, &stat_now) < 0) {
			fprintf(out, "library gone %s\n", path);
		} else {
			fprintf(out, "library %llu %llu %s\n", (unsigned long long)stat_now.st_dev,
				(unsigned long long)stat_now.st_ino, path);
		}
	}
	free(line);
	if (maps) {
		fclose(maps);
	}
	return fclose(out) == 0 ? text : (free(text), NULL);
}

/* The libraries that were loaded before this process was forked from a template; NULL: it was not. */
static char *libraries;

/* The text of READY: the inputs of PHP's configuration, the protocol number, our version, and libraries. NULL: out of memory. */
static char *ready_text(const char *inputs)
{
	char *own = libraries ? NULL : libraries_text();
	const char *loaded_ones = libraries ? libraries : own;
	char *text = NULL;
	if (loaded_ones && asprintf(&text, "%s\nprotocol %u\nversion %s\n%s", inputs, protocol_number(), weir_version(), loaded_ones) < 0) {
		text = NULL;
	}
	free(own);
	return text;
}

/* Whether the manager has the same protocol number and version. If not, reports to it both files and what to do. */
static bool agree(void)
{
	char why[2 * PATH_MAX + 512], theirs[32] = "an unknown version";
	bool same_protocol = config.protocol == protocol_number();
	const char *version = config.weir_version ? config.weir_version : "unknown";
	if (same_protocol && !strcmp(version, weir_version())) {
		return true;
	}
	const char *own = host_file();
	if (config.protocol) {
		snprintf(theirs, sizeof theirs, "%u", config.protocol);
	}
	if (same_protocol) {
		snprintf(why, sizeof why,
			 "weir-php is version %s (%s), weir is version %s (%s): install both from one build, then run `weir upgrade`",
			 weir_version(), own, version, config.weir ? config.weir : "weir");
		tell_failed(channel, why);
		return false;
	}
	snprintf(why, sizeof why,
		 "weir and weir-php are from different builds: %s uses protocol %u, %s uses protocol %s; install both from one "
		 "build (in weir's source: make, make install; for a weir that runs from there: make php), then run `weir upgrade`",
		 own, protocol_number(), config.weir ? config.weir : "weir", theirs);
	tell_failed(channel, why);
	return false;
}

/* Receives the configuration, which comes first. */
static bool receive_config(void)
{
	struct packet packet;
	char error[512];
	if (channel_receive(channel, &packet, 1) != RECEIVED_PACKET) {
		return false;
	}
	if (packet.type != ORDER_CONFIG) {
		tell_failed(channel, "the manager's first message is not CONFIG");
		return false;
	}
	bool is_read = config_read(&config, packet.body, packet.length, error, sizeof error);
	/* This is checked first: messages of another build may be invalid. */
	if (!agree()) {
		return false;
	}
	if (is_read && packet.output[0] >= 0) {
		is_read = environment_receive(packet.output[0]);
		snprintf(error, sizeof error, "the environment cannot be read: %s", strerror(errno));
	}
	close_both(packet.output);
	config.slow_log = packet.descriptor;
	if (!is_read) {
		tell_failed(channel, error);
	}
	return is_read;
}

/* Extensions have started. In a template it returns in each master that is forked from it. */
static void extensions_have_started(const struct pool_config *started)
{
	if (started->is_template) {
		close(config.slow_log);
		libraries = libraries_text();
		char *text = ready_text(engine_inputs());
		if (!text) {
			die(EXIT_SYSTEM, "weir-php: there is no memory");
		}
		template_serve(channel, text);
		free(text);
		opcache_renew_start();
		if (!receive_config()) {
			_exit(EXIT_INTERNAL);
		}
		if (config.title) {
			environment_set_title(config.title);
		}
		confine_limit(&config);
		engine_take_pool(&config);
	}
	environment_become(&config);
}

static bool configure(void)
{
	char error[512];
	if (!receive_config()) {
		return false;
	}
	template_begin();
	if (!engine_start(&config, extensions_have_started, error, sizeof error)) {
		tell_failed(channel, error);
		return false;
	}
	if (config.process_name) {
		prctl(PR_SET_NAME, config.process_name);
	}
	ini_set_for_pool(&config);
	/*
	 * Do this with the pool's settings applied, and before a chroot, because the new root has neither /proc nor the
	 * libraries.
	 */
	opcache_find_lock();
	loaded = ready_text(engine_inputs());
	if (!loaded) {
		tell_failed(channel, "there is no memory");
		return false;
	}
	if (!confine_master(&config, error, sizeof error)) {
		tell_failed(channel, error);
		return false;
	}
	return true;
}

/* Neither end waits: if the master does not read, a worker drops its report. */
static bool open_reports(void)
{
	return !config.worker || pipe2(reports, O_CLOEXEC | O_NONBLOCK) == 0;
}

static bool watch_children(void)
{
	sigset_t wanted;
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &wanted, &mask_of_children) < 0) {
		return false;
	}
	child_signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	return child_signals >= 0;
}

/*
 * The master ignores signals to all processes of a service, as systemd sends them (KillSignal=, KillMode=). The manager
 * handles them, and tells the master when to end.
 */
static void ignore_signals(void)
{
	static const int numbers[] = {SIGTERM, SIGQUIT, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
	for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
		signal(numbers[at], SIG_IGN);
	}
}

int master_run(int descriptor)
{
	channel = descriptor;
	ignore_signals();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fcntl(channel, F_SETFD, FD_CLOEXEC);
	null_device = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_device < 0) {
		tell_failed(channel, "cannot open /dev/null");
		return EXIT_SYSTEM;
	}
	if (!configure()) {
		return EXIT_INTERNAL;
	}
	if (!open_reports() || !watch_children()) {
		tell_failed(channel, strerror(errno));
		return EXIT_SYSTEM;
	}
	tell_ready(channel, loaded);
	free(loaded);
	loaded = NULL;
	struct pollfd events[3 + MAX_ZYGOTES] = {
		{.fd = channel, .events = POLLIN},
		{.fd = child_signals, .events = POLLIN},
		{.fd = reports[0], .events = POLLIN},
	};
	for (;;) {
		nfds_t count = 3;
		for (size_t at = 0; at < child_count; at++) {
			if (children[at].kind == CHILD_ZYGOTE) {
				events[count++] = (struct pollfd){.fd = children[at].orders, .events = POLLIN};
			}
		}
		if (poll(events, count, -1) < 0 && errno != EINTR) {
			die(EXIT_SYSTEM, "weir-php: poll: %s", strerror(errno));
		}
		hear_zygotes();
		if (events[2].revents) {
			pass_reports();
		}
		if (events[1].revents) {
			reap();
		}
		if (events[0].revents) {
			struct packet packet;
			enum received received = channel_receive(channel, &packet, 0);
			if (received == RECEIVED_END) {
				leave();
			}
			if (received == RECEIVED_PACKET) {
				obey(&packet);
			}
		}
	}
}
