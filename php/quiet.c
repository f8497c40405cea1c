/*
 * Omits system calls that change nothing. See quiet.h.
 */
#include "quiet.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int sigaction_function(int, const struct sigaction *, struct sigaction *);
typedef int mask_function(int, const sigset_t *, sigset_t *);
typedef int setitimer_function(int, const struct itimerval *, struct itimerval *);
typedef sighandler_t signal_function(int, sighandler_t);

static bool quiet;

/* ---- signal handlers ---- */

/* SA_RESTORER is internal to the kernel and the C library. */
#define RESTORER 0x04000000

static struct sigaction handlers[NSIG];
static bool is_known[NSIG];

static bool is_same(const struct sigaction *one, const struct sigaction *other)
{
	return one->sa_sigaction == other->sa_sigaction && (one->sa_flags & ~RESTORER) == other->sa_flags &&
	       memcmp(&one->sa_mask, &other->sa_mask, sizeof one->sa_mask) == 0;
}

/* Whether the call can be answered without the kernel: it only asks for the handler, or sets the current one again. */
static bool is_answered(int number, const struct sigaction *wanted, struct sigaction *before)
{
	if (wanted && !is_same(wanted, &handlers[number])) {
		return false;
	}
	if (before) {
		*before = handlers[number];
	}
	return true;
}

EXPORTED int sigaction(int number, const struct sigaction *wanted, struct sigaction *before)
{
	static sigaction_function *real;
	if (!real) {
		real = (sigaction_function *)dlsym(RTLD_NEXT, "sigaction");
	}
	bool can_know = quiet && number > 0 && number < NSIG;
	if (can_know && is_known[number] && is_answered(number, wanted, before)) {
		return 0;
	}
	struct sigaction found;
	int result = real(number, wanted, before ? before : &found);
	if (can_know && result == 0) {
		handlers[number] = wanted ? *wanted : before ? *before : found;
		/* glibc adds this flag and shows it in the result. */
		handlers[number].sa_flags &= ~RESTORER;
		/* The kernel removes a one-shot handler after its signal. */
		is_known[number] = !(handlers[number].sa_flags & (int)SA_RESETHAND);
	}
	return result;
}

EXPORTED sighandler_t signal(int number, sighandler_t handler)
{
	static signal_function *real;
	if (!real) {
		real = (signal_function *)dlsym(RTLD_NEXT, "signal");
	}
	if (number > 0 && number < NSIG) {
		is_known[number] = false;
	}
	return real(number, handler);
}

/* ---- blocked signals ---- */

static sigset_t blocked;
static bool blocked_is_known;

static bool changes_nothing(int how, const sigset_t *set)
{
	if (!blocked_is_known || how != SIG_UNBLOCK) {
		return false;
	}
	sigset_t both;
	sigandset(&both, set, &blocked);
	return sigisemptyset(&both);
}

static int change_mask(mask_function *real, int how, const sigset_t *set, sigset_t *before)
{
	if (quiet && set && !before && changes_nothing(how, set)) {
		return 0;
	}
	int result = real(how, set, before);
	if (quiet && set) {
		blocked_is_known = real(SIG_BLOCK, NULL, &blocked) == 0;
	}
	return result;
}

EXPORTED int sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
	static mask_function *real;
	if (!real) {
		real = (mask_function *)dlsym(RTLD_NEXT, "sigprocmask");
	}
	return change_mask(real, how, set, before);
}

EXPORTED int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
	static mask_function *real;
	if (!real) {
		real = (mask_function *)dlsym(RTLD_NEXT, "pthread_sigmask");
	}
	return change_mask(real, how, set, before);
}

/* ---- the timer of max_execution_time ---- */

/*
 * off      no limit
 * wanted   a limit is set, but the kernel timer is not started
 * starting the control thread starts the kernel timer
 * running  the kernel timer runs
 *
 * PHP's thread changes the state to off, wanted or running, but waits while it is `starting`. The control thread
 * changes it from wanted to starting to running.
 */
enum timer { TIMER_OFF, TIMER_WANTED, TIMER_STARTING, TIMER_RUNNING };

static _Atomic enum timer timer;
static struct itimerval limit;

static int real_setitimer(int which, const struct itimerval *value, struct itimerval *before)
{
	static setitimer_function *real;
	if (!real) {
		real = (setitimer_function *)dlsym(RTLD_NEXT, "setitimer");
	}
	return real(which, value, before);
}

/* Takes the timer from the control thread. Returns its previous state. */
static enum timer take_timer(void)
{
	enum timer was = TIMER_WANTED;
	while (!atomic_compare_exchange_weak(&timer, &was, TIMER_OFF)) {
		if (was == TIMER_STARTING) {
			/* The control thread is in a short system call. */
			sched_yield();
			was = TIMER_WANTED;
		}
	}
	return was;
}

EXPORTED int setitimer(__itimer_which_t which, const struct itimerval *value, struct itimerval *before)
{
	if (!quiet || which != ITIMER_PROF || !value || before || timerisset(&value->it_interval)) {
		return real_setitimer((int)which, value, before);
	}
	enum timer was = take_timer();
	if (was == TIMER_RUNNING) {
		/* The timer's signal may have arrived, and a handler may have left it blocked. */
		blocked_is_known = false;
		int result = real_setitimer(ITIMER_PROF, value, NULL);
		atomic_store(&timer, timerisset(&value->it_value) ? TIMER_RUNNING : TIMER_OFF);
		return result;
	}
	if (timerisset(&value->it_value)) {
		limit = *value;
		atomic_store(&timer, TIMER_WANTED);
	}
	return 0;
}

void quiet_tick(void)
{
	enum timer was = TIMER_WANTED;
	if (atomic_compare_exchange_strong(&timer, &was, TIMER_STARTING)) {
		real_setitimer(ITIMER_PROF, &limit, NULL);
		atomic_store(&timer, TIMER_RUNNING);
	}
}

/* ---- all ---- */

void quiet_start(void)
{
	quiet = true;
}

void quiet_stop(void)
{
	quiet = false;
	atomic_store(&timer, TIMER_OFF);
}
