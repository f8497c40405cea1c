/*
 * System calls that PHP makes at every request although nothing changes: handlers of signals are set to what they are,
 * signals unblocked that are not blocked, and the timer of max_execution_time started and stopped. This program puts
 * functions of its own in the place of the C library's sigaction, signal, sigprocmask, pthread_sigmask and setitimer:
 * in a worker they go to the kernel only where it makes a difference.
 *
 * The timer is started late. While a time limit is set, nothing is told to the kernel until the control thread has seen
 * the process use QUIET_TICK_MS of CPU; only then the timer is started, with the whole limit. A limit is so overstepped
 * by QUIET_TICK_MS at most, and a request that is shorter, as nearly all are, costs no call.
 */
#ifndef WEIR_QUIET_H
#define WEIR_QUIET_H

#define QUIET_TICK_MS 100

/* From now on, in this process and its one thread that runs PHP. */
void quiet_start(void);

/* The process has used QUIET_TICK_MS of CPU since the last time. Of the control thread. */
void quiet_tick(void);

/* All calls go to the kernel again: this process is a fork of a worker and has no control thread. */
void quiet_stop(void);

#endif
