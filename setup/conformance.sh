#!/bin/sh
# Runs at full length what `make test` runs in short: attacks of ten seconds each with the waiting times of others beside
# them, and many reloads under load.
set -eu

cargo=${CARGO:-cargo}
export WEIR_CONFORMANCE=1
for program in tls front; do
    "$cargo" test --locked --package weir --test "$program" http2 -- --test-threads 1 --nocapture
done
