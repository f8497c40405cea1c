/*
 * The template of masters: a process that loads PHP once for all pools that are started alike, and from which their masters are
 * forked. It stops where extensions have started and nothing has been made for a pool yet: OPcache's memory and lock are made in each
 * master, which is its pool's user for good by then. If no pool has settings of OPcache, that has started already (opcache_start.h), and each
 * master replaces memory and lock before it reads anything of its pool.
 *
 * It belongs to no pool, speaks to nobody but the manager, and never has a byte of a client or a secret of a pool.
 *
 * It waits for orders in the callback that extensions have for the end of the start (zend_post_startup_cb). Each master returns from that
 * callback, so a master continues the start of PHP where the template has stopped.
 */
#ifndef WEIR_TEMPLATE_H
#define WEIR_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Tells the manager that PHP is loaded, and forks masters as it orders. Returns in each new master, where the channel leads to
 * the manager, too, and the pool's configuration comes through it. `loaded`: the text of READY. Ends the process with the manager, or when the manager
 * closes the channel, or if PHP has something now that processes must not share.
 */
void template_serve(int channel, const char *loaded);

/* Notes what is open before PHP is loaded. */
void template_begin(void);

/*
 * Whether masters may share this PHP: it has opened nothing that they must not share, and could read all files that
 * the pools may read. If not, `why` gets the reason.
 */
bool template_may_fork(char *why, size_t size);

#endif
