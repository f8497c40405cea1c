/*
 * Forks a process that becomes the child of another process above this one.
 *
 * The process above takes orphans (PR_SET_CHILD_SUBREAPER). So this one forks a process that forks the wanted one and ends. clone(2)
 * with CLONE_PARENT would need no intermediate process, but nobody would call what libraries have to do after a fork
 * (pthread_atfork(3)), such as OpenSSL for its random numbers. The intermediate process uses this one's memory while this one waits
 * (vfork(2)), so memory is copied only once.
 */
#ifndef WEIR_ADOPT_H
#define WEIR_ADOPT_H

#include <sys/types.h>

/*
 * Forks a process that becomes the child of `parent`, and that the kernel kills with `parent`. Returns 0 in the new
 * process, and 1 or -1, with errno, in this one. `tell` is called with the new process id, before anybody can notice
 * the end of the new process. NULL: no call.
 */
int fork_for(pid_t parent, void (*tell)(void *context, pid_t pid), void *context);

/*
 * Has the kernel kill this process when its parent ends, which must be `parent`. A change of user resets this. Ends
 * the process if the parent is gone.
 */
void end_with(pid_t parent);

#endif
