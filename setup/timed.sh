#!/bin/sh
# Runs a test program so that it prints the time of each test:
#
#   setup/timed.sh PROGRAM ARGUMENT...
#
# libtest has these times, but only as an unstable option. The variable lets the program of a stable toolchain accept it.
export RUSTC_BOOTSTRAP=1
exec "$@" -Z unstable-options --report-time
