#!/bin/sh
# Runs at full length what `make test` runs in short: attacks of ten seconds each with the waiting times of others beside
# them, many reloads and upgrades under load, very many certificates and handshakes, scanners of TLS, h3i, and nodes that
# share certificates and are killed at random:
#
#   setup/conformance.sh TARGET
#
# TARGET is cargo's target folder. It has the release build, whose start with 10,000 certificates is measured.
set -eu

cargo=${CARGO:-cargo}
export WEIR_CONFORMANCE=1
"$cargo" test --locked --package weir --test tls -- --nocapture nodes::
for program in tls front; do
    "$cargo" test --locked --package weir --test "$program" http2 -- --test-threads 1 --nocapture
done
"$cargo" test --locked --package weir --test tls http3 -- --test-threads 1 --nocapture
"$cargo" test --locked --package weir --test tls upgrade -- --test-threads 1 --nocapture
"$cargo" build --locked --manifest-path setup/h3i/Cargo.toml --target-dir "$1/h3i"
WEIR_UNDER_TEST=$(realpath "$1/release/weir")
export WEIR_UNDER_TEST
"$cargo" test --locked --package weir --test tls -- --test-threads 1 --nocapture many:: conformance::
