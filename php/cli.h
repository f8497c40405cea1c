/*
 * What weir-php says of PHP on a command line, as PHP-FPM does with the same options: -v, -m, -i, with -n, -c and -d.
 */
#ifndef WEIR_CLI_H
#define WEIR_CLI_H

/* Does what the arguments say; gives the process's exit code. */
int cli_run(int argc, char **argv);

#endif
