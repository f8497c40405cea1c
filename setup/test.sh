#!/bin/sh
# Runs every check, one after another, and prints the time of each. Stops at the first check that fails.
set -eu

cargo=${CARGO:-cargo}
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"

step() {
    name=$1
    shift
    echo
    echo "=== $name: $*"
    began=$(date +%s)
    if "$@" </dev/null; then
        echo "=== $name: fine, $(($(date +%s) - began)) s"
    else
        echo "=== $name: FAILED after $(($(date +%s) - began)) s" >&2
        exit 1
    fi
}

started=$(date +%s)
step formatting "$cargo" fmt --all --check
step lints "$cargo" clippy --locked --workspace --all-targets -- -D warnings
# No other step compiles them, so only this step notices a target that no longer fits the code.
step "fuzz targets" "$cargo" check --locked --quiet --manifest-path fuzz/Cargo.toml --no-default-features --target-dir target
step "unit tests" "$cargo" test --locked --workspace --lib --bins --quiet
step "examples in the documentation" "$cargo" test --locked --workspace --doc --quiet
# The crates' own integration tests: properties, case files, the pool's simulator.
step "crates and simulator" "$cargo" test --locked --workspace --exclude weir --test '*' --quiet
step "weir-php" make --no-print-directory php
# The real binary against real programs.
step "integration tests" "$cargo" test --locked --package weir --test '*'
echo
echo "=== all fine, $(($(date +%s) - started)) s"
