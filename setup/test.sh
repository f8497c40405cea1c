#!/bin/sh
# Runs every check, one after another, and prints the time of each. Stops at the first check that fails.
set -eu

cargo=${CARGO:-cargo}
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"

. "$(dirname "$0")/steps.sh"

failed() {
    exit 1
}

# Runs a test program. Tests that fail beside others run once more, alone: these tests start hundreds of real programs, and
# a busy machine can make one of them late. The last lines of the whole run name them, because each is a defect to fix.
tests() {
    output=$(mktemp)
    status=0
    # Into a file that is shown as it grows. A pipe would not end before the last process that a test left behind.
    "$cargo" test --locked --package weir --test "$1" >"$output" 2>&1 &
    run=$!
    tail --pid "$run" --lines +1 --sleep-interval 0.2 --follow "$output" &
    shown=$!
    wait "$run" || status=1
    wait "$shown" || true
    failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$output")
    left_behind "$1" "$output" || status=1
    rm -f "$output"
    [ "$status" -ne 0 ] || return 0
    # None: it did not compile, or ended before its tests did. Many: this is no accident.
    count=$(echo "$failed" | grep -c .) || true
    [ "$count" -gt 0 ] && [ "$count" -le 3 ] || return 1
    echo "=== $1: $count failed beside the other tests; once more, alone:" $failed
    "$cargo" test --locked --package weir --test "$1" -- --exact --test-threads 1 $failed || return 1
    for test in $failed; do
        echo "$1 $test" >>"$unsteady"
    done
}

# left_behind PROGRAM OUTPUT: names and ends the processes that still write to the output of a test program that has ended.
# Fails if there are any: a test must end what it starts.
left_behind() {
    left=$(find /proc/[0-9]*/fd -lname "$2" 2>/dev/null | cut -d / -f 3 | sort -u)
    [ -n "$left" ] || return 0
    echo "=== $1: its tests left these processes behind:" >&2
    for pid in $left; do
        echo "$pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")" >&2
        kill -9 "$pid" || true
    done
    return 1
}

unsteady=$(mktemp)
trap 'rm -f "$unsteady"' EXIT
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
# The real binary against real programs. All are compiled first, so that no processor waits while another links. They run one
# after another, because some measure time.
step "programs of the tests" "$cargo" test --locked --package weir --test '*' --no-run --quiet
# PHP-FPM first, then the other programs that weir-php may run in: the same tests.
php_hosts() {
    for host in cgi cli embed; do
        echo "=== weir-php in $host"
        export WEIR_TEST_HOST="$host"
        tests php || return 1
    done
    unset WEIR_TEST_HOST
}
for program in tidy front tls fastcgi queue own_php booted egress operators applications fpm manager php; do
    step "tests with real programs, $program" tests "$program"
done
step "tests of weir-php in other PHP programs" php_hosts
echo
while read -r test; do
    echo "=== UNSTEADY: $test failed beside others and passed alone. Find the cause."
done <"$unsteady"
echo "=== all fine, $(($(date +%s) - started)) s"
