/*
 * The stack of the running script, as PHP-FPM writes it to its slow log.
 */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

/* Where traces go, and how many lines one has at most. */
void trace_start(int slow_log, unsigned depth);

/*
 * Writes the stack of the running script. Of the control thread. PHP is asked first to stop at a safe point and to write
 * it itself; where it does not come there, because it waits in a system call or works in a function of its own, its
 * memory is read as it is. Memory that is not there ends the trace, never the process.
 */
void trace_write(void);

#endif
