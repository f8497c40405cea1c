/*
 * weir-php: PHP for weir. When weir's manager starts it, with the channel as file descriptor 0, it is the master of a
 * pool. With options it prints information about PHP.
 */
#include <unistd.h>

#include "cli.h"
#include "environment.h"
#include "master.h"

int main(int argc, char **argv)
{
	environment_start();
	return argc > 1 ? cli_run(argc, argv) : master_run(STDIN_FILENO);
}
