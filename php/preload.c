/*
 * How weir-php gets into a PHP program: the manager starts php-fpm, php-cgi or php with this
 * object in LD_PRELOAD. Its __libc_start_main gets control before the program's main function, and calls ours instead.
 *
 * The manager also gives an argument that the program's own main function refuses. So a program that was started
 * without this object, because the loader ignored LD_PRELOAD, ends at once and serves nothing.
 *
 * Without the manager's variable and argument this object changes nothing, so that it does no harm in a program that
 * inherits LD_PRELOAD.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli.h"
#include "confine.h"
#include "host.h"
#include "master.h"
#include "say.h"

#define EXPORTED __attribute__((visibility("default")))

/* The variable with the LD_PRELOAD that weir had; crates/machine/src/php/program.rs has the same name. */
#define VARIABLE "WEIR_PHP_PRELOAD"

/* The first argument; crates/machine/src/php/program.rs has the same text. No PHP program knows such an option. */
#define ARGUMENT "--weir-php"

typedef int main_function(int, char **, char **);
typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

const char *host_file(void)
{
	Dl_info info;
	return dladdr((const void *)host_file, &info) && info.dli_fname ? info.dli_fname : "weir-php";
}

char *host_binary(void)
{
	static char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	path[length > 0 ? length : 0] = '\0';
	return path;
}

bool host_is_fpm(void)
{
	const char *slash = strrchr(host_binary(), '/');
	return slash && strncmp(slash + 1, "php-fpm", 7) == 0;
}

/* Whether the manager has started this process. */
static bool is_ours;

/*
 * Runs before the constructors of all other libraries (php/build, initfirst). So they cannot change what this reads,
 * and nobody can inspect the process before this.
 */
__attribute__((constructor)) static void begin(int argc, char **argv, char **environment)
{
	for (char **at = environment; *at; at++) {
		is_ours |= strncmp(*at, VARIABLE "=", sizeof VARIABLE) == 0;
	}
	is_ours = is_ours && argc > 1 && strcmp(argv[1], ARGUMENT) == 0;
	if (is_ours && argc == 2) {
		confine_start();
	}
}

/* Programs that a script starts must get the LD_PRELOAD that weir was started with, and not this object. */
static void restore_environment(void)
{
	const char *now = getenv("LD_PRELOAD"), *own = host_file();
	size_t length = strlen(own);
	/* A library may have changed it at its start. */
	if (now && strncmp(now, own, length) == 0) {
		now += length + (now[length] == ':');
		if (*now ? setenv("LD_PRELOAD", now, 1) : unsetenv("LD_PRELOAD")) {
			die(EXIT_SYSTEM, "weir-php: there is no memory");
		}
	}
	unsetenv(VARIABLE);
}

/* In the place of the program's main function. */
static int run(int argc, char **argv, char **environment)
{
	(void)environment;
	restore_environment();
	/*
	 * The process gets a name of its own, for process lists and for killall(1), which must not confuse it with
	 * PHP-FPM.
	 */
	prctl(PR_SET_NAME, "weir-php" PHP_BRANCH);
	memset(argv[1], 0, strlen(argv[1]));
	argv[1] = argv[0];
	return argc > 2 ? cli_run(argc - 1, argv + 1) : master_run(STDIN_FILENO);
}

EXPORTED int __libc_start_main(main_function *own, int argc, char **argv, void (*init)(void), void (*fini)(void),
			       void (*end_of_loader)(void), void *end_of_stack)
{
	start_function *start = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
	if (!start) {
		die(EXIT_SYSTEM, "weir-php: the C library has no __libc_start_main");
	}
	return start(is_ours ? run : own, argc, argv, init, fini, end_of_loader, end_of_stack);
}
