/*
 * The process that weir-php runs in: an installed php-fpm, php-cgi or php. weir-php is a shared object that is loaded before the
 * program's own libraries (LD_PRELOAD), and takes the place of its main function (preload.c).
 */
#ifndef WEIR_HOST_H
#define WEIR_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "php_version.h"

#define TEXT_OF_TOKEN(token) #token
#define TEXT_OF(macro) TEXT_OF_TOKEN(macro)
/* The version in names of files: "8.2". */
#define PHP_BRANCH TEXT_OF(PHP_MAJOR_VERSION) "." TEXT_OF(PHP_MINOR_VERSION)

/* The file that weir-php was loaded from. */
const char *host_file(void);

/*
 * Checks that PHP in this process is the one that weir-php was compiled for: its API, its build, the sizes of its
 * structures. Call it before anything of PHP is used. Returns false, with the reason in `error`, if it is not.
 */
bool host_check(char *error, size_t size);

/* Whether PHP in this process contains this text, for example a path that was compiled into it. */
bool host_contains(const char *text);

/* The PHP program of this process, for PHP_BINARY. */
char *host_binary(void);

/* Whether the program of this process is php-fpm, which reads PHP-FPM's settings by itself. */
bool host_is_fpm(void);

#endif
