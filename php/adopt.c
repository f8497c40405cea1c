/*
 * Forks a process for another parent. See adopt.h.
 */
#include "adopt.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

/*
 * How long the new process waits for the end of the intermediate process, s. The intermediate process does nothing
 * but end.
 */
#define PARENT_LIMIT 10

/* The kernel sends this to the new process when the intermediate process has ended. */
#define ORPHANED SIGUSR1

struct fork {
	pid_t parent;
	void (*tell)(void *context, pid_t pid);
	void *context;
	const sigset_t *orphaned;
	/* Written by the intermediate process, which shares this memory; 0: the new process was made. */
	int error;
};

void end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) {
		_exit(EXIT_SYSTEM);
	}
}

/* Waits until the wanted process is the parent of this one. */
static void wait_for_parent(const struct fork *wanted, pid_t between)
{
	prctl(PR_SET_PDEATHSIG, ORPHANED);
	struct timespec limit = {.tv_sec = PARENT_LIMIT};
	while (getppid() == between) {
		if (sigtimedwait(wanted->orphaned, NULL, &limit) < 0 && errno == EAGAIN) {
			_exit(EXIT_SYSTEM);
		}
	}
	end_with(wanted->parent);
	/* The signal may have arrived after the parent was checked. */
	struct timespec now = {0};
	while (sigtimedwait(wanted->orphaned, NULL, &now) > 0 || errno == EINTR) {
	}
}

/* In the intermediate process. Returns in the new process. */
static __attribute__((noinline)) void fork_and_end(struct fork *wanted)
{
	pid_t between = getpid();
	pid_t pid = fork();
	if (pid == 0) {
		wait_for_parent(wanted, between);
		return;
	}
	if (pid > 0 && wanted->tell) {
		wanted->tell(wanted->context, pid);
	}
	wanted->error = pid < 0 ? errno : 0;
	_exit(EXIT_FINE);
}

/*
 * Starts the intermediate process. Returns its process id, -1 if there is none, and 0 in the new process. A function of its own: until
 * that process has ended, it uses this stack.
 */
static __attribute__((noinline)) pid_t start_between(struct fork *wanted)
{
	pid_t between = vfork();
	if (between == 0) {
		fork_and_end(wanted);
	}
	return between;
}

int fork_for(pid_t parent, void (*tell)(void *context, pid_t pid), void *context)
{
	sigset_t orphaned, before;
	sigemptyset(&orphaned);
	sigaddset(&orphaned, ORPHANED);
	sigprocmask(SIG_BLOCK, &orphaned, &before);
	/* For an intermediate process that is killed before it has forked. */
	struct fork wanted = {.parent = parent, .tell = tell, .context = context, .orphaned = &orphaned, .error = ENOMEM};
	pid_t between = start_between(&wanted);
	int error = between < 0 ? errno : wanted.error;
	if (between == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		return 0;
	}
	while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR) {
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return error ? -1 : 1;
}
