/*
 * The command line of weir-php: -v, -m, -i with -l, with -n, -c and -d, as in PHP-FPM.
 */
#ifndef WEIR_CLI_H
#define WEIR_CLI_H

/* Handles the arguments. Returns the exit code of the process. */
int cli_run(int argc, char **argv);

#endif
