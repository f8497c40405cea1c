/*
 * weir-php: PHP as weir runs it. Started by weir's manager, with its channel as file descriptor 0, it is the master of
 * a pool.
 */
#include <unistd.h>

#include "master.h"

int main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return master_run(STDIN_FILENO);
}
