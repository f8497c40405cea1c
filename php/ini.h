/*
 * Settings of php.ini that come from elsewhere: from the pool, from the front end with a request, from the folders a
 * script lies in.
 */
#ifndef WEIR_INI_H
#define WEIR_INI_H

#include "config.h"

/* Sets the pool's php_value and php_admin_value for good. After PHP has been started, before the first fork. */
void ini_set_for_pool(const struct pool_config *config);

/*
 * Sets what the parameters PHP_VALUE and PHP_ADMIN_VALUE say, until the end of the request. NULL, or why the request must
 * not run.
 */
const char *ini_set_for_request(void);

/*
 * Sets what [HOST=] and [PATH=] sections and .user.ini files say of the script, until the end of the request. As PHP
 * starts a request; gives SUCCESS or FAILURE.
 */
int ini_activate_for_script(void);

#endif
