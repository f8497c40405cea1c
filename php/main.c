/*
 * weir-php as a program of its own, linked with PHP's embed library. When weir's manager starts it, with the channel as
 * file descriptor 0, it is the master of a pool. With options it prints information about PHP.
 *
 * It is used where no PHP program is installed that weir-php can be loaded into (preload.c).
 */
#include <limits.h>
#include <unistd.h>

#include "cli.h"
#include "confine.h"
#include "host.h"
#include "master.h"

const char *host_file(void)
{
	static char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	path[length > 0 ? length : 0] = '\0';
	return *path ? path : "weir-php";
}

char *host_binary(void)
{
	return NULL;
}

bool host_is_fpm(void)
{
	return false;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		return cli_run(argc, argv);
	}
	confine_start();
	return master_run(STDIN_FILENO);
}
