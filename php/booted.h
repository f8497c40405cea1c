/*
 * An application that stays booted (`worker` of a pool): its script runs once, up to frankenphp_handle_request(). This
 * function waits for a request, sets superglobals and all else that belongs to a request, calls the application's
 * function, ends the request, and returns true; the script then calls it again. It returns false when the process is to
 * end.
 *
 * Names and behaviour are those of FrankenPHP's worker mode, so that drivers of frameworks run unchanged.
 */
#ifndef WEIR_BOOTED_H
#define WEIR_BOOTED_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "php.h"

/* What a worker reports to its master, through a pipe. */
struct booted_report {
	uint32_t number;
	enum { BOOTED = 1, OPCACHE_IS_FULL = 2 } kind;
};

/* Stores the pool's settings. Call it before PHP starts. */
void booted_start(const struct pool_config *config);

/* Stores the pipe to the master, and the worker's number. Call it in a new worker, or zygote. */
void booted_report_to(int pipe, uint32_t number);

/* Reports something. */
void booted_report(int kind);

/* Adds FrankenPHP's functions and constants. Call it in MINIT. */
void booted_add_functions(void);

/* Runs the application until its process is to end. Returns the exit code of the process. */
int booted_run(const struct pool_config *config);

/* frankenphp_handle_request(): waits for a request and has `function` answer it. Returns false if there are no more. */
bool booted_handle_request(zend_fcall_info *function, zend_fcall_info_cache *cache);

/* Whether the pool has such an application. */
bool booted_has_application(void);

/* Whether the script of such an application runs without a request, at the boot or between two: PHP's output goes to the log. */
bool booted_is_outside(void);

/* Whether the settings of the script's folder were applied at the boot. */
bool booted_keeps_settings(void);

/* ---- between two requests (booted_reset.c) ---- */

/* Notes what the application has set during its boot, which becomes the state at the start of each request. */
void booted_note_limits(void);

/* Reports an exception that nobody has caught. exit() is one, too, for PHP: it ends the request. */
void booted_settle_exception(void);

/*
 * Starts the parts of PHP that belong to a request. The parameters have arrived. Returns false after a fatal error.
 */
bool booted_open_request(void);

/* The script ends, in a request or after it. PHP handles again what the boot has registered. */
void booted_give_up_request(void);

/* Calls what the request has registered with register_shutdown_function(), once. */
void booted_call_shutdown_functions(void);

/* Ends what belongs to a request, with its output. */
void booted_close_request(void);

/*
 * The script's work between two requests belongs to no request: its output goes to the log, and its session ends
 * before the next request.
 */
void booted_open_gap(void);
void booted_close_gap(void);

/* ---- data of a request that PHP and its extensions keep (booted_forget.c) ---- */

/* Has PHP seed its generators of random numbers anew, at their next use. */
void booted_forget_seeds(void);

/* Runs what extensions do at the start and at the end of a request, as far as it concerns that request alone. */
void booted_start_extensions(void);
void booted_end_extensions(void);

/* Forgets errors and texts that functions have kept of their last call. */
void booted_forget_results(void);

/* Forgets headers that were not sent, and callbacks that PHP would call before sending them. */
void booted_forget_headers(void);

#endif
