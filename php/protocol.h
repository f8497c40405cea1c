/*
 * What weir and weir-php must agree on: the messages between manager and master (channel.h) and the records of a
 * worker's stream (fastcgi.h). Both programs are built from the same source, but weir-php of another build may be
 * installed beside weir.
 *
 * Records between gateway and worker: FastCGI 1.0 on one stream for the worker's whole life, one request at a time, and management
 * records (request 0) of types that FastCGI leaves free:
 *
 *   64 READY        worker -> gateway   The worker is free. CPU time (us), peak memory and peak resident set (bytes), CPU time that
 *                                       was not the kernel's (us), 64 bits each; 0 if nothing needs them. Then, in 64 bits, how
 *                                       full OPcache is: 1 + thousandths; 0: the worker has not looked. Then, if the request held
 *                                       the lock of its session: for how long and how long it waited (us), and the cookie's name.
 *                                       A new worker is free without READY.
 *   65 STATUS       worker -> gateway   fpm_get_status() asks. Empty.
 *   65 STATUS       gateway -> worker   The answer as JSON, and an empty record behind it.
 *   66 NOTE         worker -> gateway   Values for PHP-FPM's access log, as name-value pairs, and an empty record behind them.
 *   67 LATE_STDERR  worker -> gateway   A piece of what the script writes to the log after its response.
 *
 * ABORT_REQUEST from the gateway: the client has left. END_REQUEST ends the client's answer. READY may come later, after
 * fastcgi_finish_request() or in an application that stays booted. A worker that waits ends with code 0 when its stream ends.
 */
#ifndef WEIR_PROTOCOL_H
#define WEIR_PROTOCOL_H

/* The protocol number of this program. Increase it in protocol.c whenever a message or a record changes. */
unsigned protocol_number(void);

/* The version of this build. weir and weir-php of different versions refuse each other, also with the same protocol. */
const char *weir_version(void);

#endif
