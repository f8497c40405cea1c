/*
 * The control thread. See control.h.
 */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "php.h"
#include "zend_signal.h"

#include "fastcgi.h"
#include "quiet.h"
#include "say.h"
#include "trace.h"

/* The thread uses only a few pages of it; libraries may need some for thread-local variables. */
#define STACK_SIZE (256 * 1024)

/* With this signal, sent to this thread only, the kernel reports that the process has used some CPU. */
#define TICK (SIGRTMIN + 7)

/*
 * After this time the control thread checks whether the end of a response is still to be sent, ns. A process that
 * answers requests all the time is disturbed this often: with 1 ms, that was a tenth of its CPU time for short
 * requests.
 */
#define LATE_END_NS 5000000

static int orders, ticks = -1, slow_log;
/* A timer; -1: there is none. */
static int late = -1;
static atomic_bool stopping, waiting, late_is_set;
/* Whether this process is a worker, and has the control thread. */
static bool is_worker, has_thread;

/* Returns false if the master is gone. */
static bool hear_orders(void)
{
	char bytes[64];
	ssize_t count = read(orders, bytes, sizeof bytes);
	if (count < 0) {
		return errno == EINTR || errno == EAGAIN;
	}
	for (ssize_t at = 0; at < count; at++) {
		if (bytes[at] == CONTROL_TRACE && !atomic_load(&waiting)) {
			trace_write();
		}
	}
	return count > 0;
}

static void hear_ticks(void)
{
	struct signalfd_siginfo info;
	if (read(ticks, &info, sizeof info) == sizeof info) {
		quiet_tick();
	}
}

static void set_late(void)
{
	struct itimerspec once = {.it_value.tv_nsec = LATE_END_NS};
	atomic_store(&late_is_set, true);
	timerfd_settime(late, 0, &once, NULL);
}

void control_send_end_soon(void)
{
	if (late < 0) {
		stream_flush();
	} else if (!atomic_load(&late_is_set)) {
		set_late();
	}
}

static void hear_late(void)
{
	uint64_t times;
	if (read(late, &times, sizeof times) < 0) {
		return;
	}
	/* This comes first: the end of a response that is stored after the check below sets the timer itself. */
	atomic_store(&late_is_set, false);
	if (stream_send_late_end()) {
		set_late();
	}
}

/* Asks the kernel for a signal to this thread after every QUIET_TICK_MS of CPU time of the process. */
static bool start_ticks(void)
{
	sigset_t wanted;
	sigemptyset(&wanted);
	sigaddset(&wanted, TICK);
	ticks = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = TICK};
	event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	struct itimerspec every = {
		.it_interval.tv_nsec = QUIET_TICK_MS * 1000000L,
		.it_value.tv_nsec = QUIET_TICK_MS * 1000000L,
	};
	timer_t timer;
	return ticks >= 0 && timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0 &&
	       timer_settime(timer, 0, &every, NULL) == 0;
}

static void *run(void *started)
{
	if (!start_ticks()) {
		die(EXIT_SYSTEM, "weir-php: cannot create the timer for max_execution_time: %s", strerror(errno));
	}
	pthread_barrier_wait(started);
	struct pollfd events[] = {
		{.fd = orders, .events = POLLIN},
		{.fd = ticks, .events = POLLIN},
		{.fd = late, .events = POLLIN},
	};
	for (;;) {
		if (poll(events, sizeof events / sizeof *events, -1) < 0) {
			continue;
		}
		if (events[2].revents) {
			hear_late();
		}
		if (events[1].revents) {
			hear_ticks();
		}
		if (events[0].revents && !hear_orders()) {
			/* Nobody waits for this worker any more. */
			_exit(EXIT_FINE);
		}
	}
	return NULL;
}

/* ---- signals from other processes to the worker ---- */

/* SIGQUIT as in PHP-FPM: the worker ends after its request. */
static void on_quit(int number)
{
	(void)number;
	/* A zygote has no request, and its workers must not inherit the order. */
	if (!is_worker) {
		return;
	}
	atomic_store(&stopping, true);
	if (atomic_load(&waiting)) {
		stream_stop();
	}
}

/*
 * SIGUSR1 and SIGUSR2 are for the manager. If a user sends them to all processes of the service, no request must end.
 */
static void on_nothing(int number)
{
	(void)number;
}

static void handle(int number, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(number, &action, NULL);
}

/* The master ignores all of them. */
void control_take_signals(void)
{
	handle(SIGQUIT, on_quit);
	handle(SIGUSR1, on_nothing);
	handle(SIGUSR2, on_nothing);
	handle(SIGTERM, SIG_DFL);
	handle(SIGINT, SIG_DFL);
	handle(SIGHUP, SIG_DFL);
	/* PHP installs its own handlers over these in each request, so it must know them. */
	zend_signal_startup();
}

/* Runs in a process that a script forked. That process must not use the worker's resources any more. */
static void in_fork(void)
{
	quiet_stop();
	signal(SIGQUIT, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
	stream_disown();
	close(orders);
	close(ticks);
	if (late >= 0) {
		close(late);
		late = -1;
	}
	if (slow_log >= 0) {
		close(slow_log);
	}
}

/* Returns 0, or an error: the user may have as many processes as he may. */
static int start_thread(void)
{
	/* Static: the last thread that leaves the barrier uses it after the other thread has returned. */
	static pthread_barrier_t started;
	pthread_barrier_init(&started, NULL, 2);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	/* Signals to the process must go to PHP's thread. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_t thread;
	int error = pthread_create(&thread, &attributes, run, &started);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (!error) {
		pthread_barrier_wait(&started);
		has_thread = true;
		quiet_start();
	}
	return error;
}

void control_start(const struct pool_config *config, int pipe)
{
	orders = pipe;
	is_worker = true;
	slow_log = config->slow_log;
	trace_start(slow_log, config->trace_depth);
	pthread_atfork(NULL, NULL, in_fork);
	/* An application boots before its first request. */
	if (config->worker) {
		late = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		int error = start_thread();
		if (error) {
			die(EXIT_SYSTEM, "weir-php: cannot start the control thread: %s", strerror(error));
		}
	}
}

void control_await(int stream)
{
	if (has_thread || atomic_load(&stopping)) {
		return;
	}
	struct pollfd events[] = {
		{.fd = stream, .events = POLLIN},
		{.fd = orders, .events = POLLIN},
	};
	for (;;) {
		int count = poll(events, sizeof events / sizeof *events, -1);
		/* Orders that come with a request are for the thread: they may be about it. */
		if (count > 0 && events[0].revents) {
			return;
		}
		if (count > 0 && !hear_orders()) {
			_exit(EXIT_FINE);
		}
	}
}

bool control_may_wait(void)
{
	/* on_quit() uses the opposite order, so at least one of the two sees the other's change. */
	atomic_store(&waiting, true);
	return !atomic_load(&stopping);
}

void control_has_request(void)
{
	/* This comes first: an order that has already arrived is about this request. */
	atomic_store(&waiting, false);
	int error = has_thread ? 0 : start_thread();
	if (error) {
		say("weir-php: cannot start the control thread: %s; the slow log cannot tell where this request is",
		    strerror(error));
	}
}
