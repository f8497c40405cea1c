/*
 * Stack trace of the running script, in the format of PHP-FPM's slow log.
 */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

/* Sets the target of traces, and their maximum number of lines. */
void trace_start(int slow_log, unsigned depth);

/*
 * Writes the stack of the running script. The control thread calls it. First it asks PHP to stop at a safe point and to
 * write the stack itself. If PHP does not reach a safe point, because it waits in a system call or runs an internal
 * function, the thread reads PHP's memory as it is. Unmapped memory ends the trace, never the process.
 */
void trace_write(void);

#endif
