#!/bin/sh
# Runs every check. The last lines have the time of each step, and the slowest tests.
#
# The test programs run in two lanes, beside each other. The output of a program is shown when it ends; until then it is in the
# file that is named when the program begins. WEIR_TEST_LANES: the number of lanes. RUST_TEST_THREADS: how many tests of a program
# run at once.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cargo=${CARGO:-cargo}
lanes=${WEIR_TEST_LANES:-2}
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
# More than there are processors, because most tests wait most of the time.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}"

# Seconds after which a test program is ended, with what it started.
limit=1800

. "$here/steps.sh"

failed() {
    exit 1
}

# The tests of a program that others would disturb: they measure times of less than a second, or wait for weir to be idle. They
# run when no other program does.
alone() {
    case $1 in
    fpm_command) echo service_manager:: ;;
    front) echo reactors::a_second_reactor reactors::a_reload ;;
    manager) echo stuck:: ;;
    php_pools) echo self_calls:: ;;
    tls) echo http3_checks::aioquic_gets_right_answers ;;
    esac
}

# run NAME [TEST...]: runs a test program of the list below, all of it or these tests alone. It fails if a test does, or if the
# program leaves processes behind.
run() {
    run=$1
    shift
    program=${run%-alone}
    case $run in
    # No other step compiles examples in the documentation.
    documentation)
        output_of "$run" "$cargo" test --locked --workspace --doc
        return
        ;;
    units) set -- --workspace --lib --bins ;;
    # The crates' own integration tests: properties, case files, the pool's simulator.
    crates) set -- --workspace --exclude weir --test '*' ;;
    php-in-*)
        export WEIR_TEST_HOST="${run#php-in-}"
        [ "$#" -gt 0 ] || set -- answers::
        set -- --package weir --test php_worker -- "$@"
        ;;
    *)
        if [ "$#" -eq 0 ] && [ "$run" = "$program" ]; then
            for filter in $(alone "$program"); do
                set -- "$@" --skip "$filter"
            done
        elif [ "$#" -eq 0 ]; then
            set -- $(alone "$program")
        fi
        set -- --package weir --test "$program" -- "$@"
        ;;
    esac
    output_of "$run" "$cargo" --config "target.'cfg(unix)'.runner=['$here/timed.sh']" test --locked "$@"
}

# output_of NAME COMMAND...: runs a command with a limit, and shows its output when it has ended.
output_of() {
    output=$work/$1
    shift
    status=0
    began=$(date +%s)
    echo "=== $run: begins; output: $output"
    # Colours would hide the names of tests. A program gets a process group of its own from `timeout`, which ends it as a whole.
    CARGO_TERM_COLOR=never timeout --kill-after 10 "$limit" "$@" >"$output" 2>&1 &
    echo "$!" >"$output.pid"
    wait "$!" || status=$?
    # This script was ended.
    [ -d "$work" ] || exit 1
    rm -f "$output.pid"
    [ "$status" -ne 124 ] || echo "=== $run: ended, because it took longer than $limit s" >>"$output"
    left_behind "$run" "$output" >"$output.left" || status=1
    result=fine
    [ "$status" -eq 0 ] || result=FAILED
    # Of one program at a time.
    (
        flock 9
        echo
        cat "$output" "$output.left"
        took "$run" "$result" "$began"
    ) 9>"$work/.lock"
    return "$status"
}

# left_behind PROGRAM OUTPUT: names and ends the processes that still write to the output of a test program that has ended.
# Fails if there are any: a test must end what it starts.
left_behind() {
    left=$(find /proc/[0-9]*/fd -lname "$2" 2>/dev/null | cut -d / -f 3 | sort -u)
    [ -n "$left" ] || return 0
    echo "=== $1: its tests left these processes behind:"
    for pid in $left; do
        echo "$pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
        kill -9 "$pid" || true
    done
    return 1
}

# lane PROGRAM...: runs those that no other lane has taken, one after another.
lane() {
    for program in "$@"; do
        mkdir "$work/$program.taken" 2>/dev/null || continue
        (run "$program") || echo "$program" >>"$work/.failed"
    done
}

# lanes_of PROGRAM...: runs all, so many at once as there are lanes.
lanes_of() {
    pids=
    for _ in $(seq "$lanes"); do
        lane "$@" &
        pids="$pids $!"
    done
    wait $pids
    pids=
}

# Tests that failed beside others run once more, alone. The whole run fails in any case; its last lines say of each test whether
# it needs the others to fail: then its cause is a race, or a limit that is too short for a busy machine.
again() {
    mv "$work/.failed" "$work/.first"
    while read -r program; do
        failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED\( <.*>\)\{0,1\}$/\1/p' "$work/$program")
        count=$(echo "$failed" | grep -c .) || true
        # None: it did not compile, or ended before its tests did. Many: this is no accident. Nor is a unit test that fails.
        if [ "$count" -eq 0 ] || [ "$count" -gt 3 ] || [ -s "$work/$program.left" ] ||
            [ "$program" = units ] || [ "$program" = crates ]; then
            echo "$program" >>"$work/.failed"
            continue
        fi
        echo
        echo "=== $program: $count failed beside the other tests; once more, alone:" $failed
        mv "$work/$program" "$work/$program.first"
        if (run "$program" --exact --test-threads 1 $failed); then
            for test in $failed; do
                echo "$program $test" >>"$work/.unsteady"
            done
        else
            echo "$program" >>"$work/.failed"
        fi
    done <"$work/.first"
}

# The slowest tests of all programs, from what `timed.sh` lets them print.
slowest() {
    for output in "$work"/*; do
        [ -f "$output" ] || continue
        run=$(basename "$output" .first)
        awk -v run="$run" '
            BEGIN { name = run }
            # These are many programs.
            /^ *Running / && run ~ /^(units|crates)$/ { name = $NF; gsub(/^.*\/|-[0-9a-f]+\)$/, "", name) }
            /^test .* <[0-9.]+s>$/ { time = $NF; gsub(/[<>s]/, "", time); printf "%8.1f s  %s %s\n", time, name, $2 }
        ' "$output"
    done | sort -rn | head -20
}

# Ends what still runs, if this script ends early.
finish() {
    for pid in $pids; do
        kill "$pid" 2>/dev/null || true
    done
    for running in "$work"/*.pid; do
        [ -f "$running" ] || continue
        kill "$(cat "$running")" 2>/dev/null || true
        echo "=== $(basename "${running%.pid}"): did not end; the end of its output:"
        tail -n 20 "${running%.pid}"
    done
    rm -rf "$work"
}

pids=
work=$(mktemp -d)
steps=$work/.steps
trap finish EXIT
trap 'exit 1' HUP INT TERM
started=$(date +%s)
: >"$work/.failed"
: >"$work/.unsteady"
step formatting "$cargo" fmt --all --check
step lints "$cargo" clippy --locked --workspace --all-targets -- -D warnings
# No other step compiles them, so only this step notices a target that no longer fits the code.
step "fuzz targets" "$cargo" check --locked --quiet --manifest-path fuzz/Cargo.toml --no-default-features --target-dir target
step "weir-php" make --no-print-directory php
# All are compiled first, so that no test waits for a processor because another program is linked.
step "programs of the tests" "$cargo" test --locked --workspace --tests --no-run --quiet
# The longest first, so that the lanes end at the same time. The tests of weir-php run with PHP-FPM, and some of them with the
# other programs that it may run in; the rest of them: setup/conformance.sh.
programs=
for program in units tls fpm_command manager php_pools front fastcgi cache egress applications operators php_booted crates queue php_worker php-in-cgi php-in-cli tidy documentation; do
    programs="$programs $program"
done
began=$(date +%s)
lanes_of $programs
took "test programs in $lanes lanes" ended "$began"
lanes=1
lanes_of fpm_command-alone front-alone manager-alone php_pools-alone tls-alone
[ ! -s "$work/.failed" ] || again
echo
echo "=== the slowest tests"
slowest
echo
echo "=== the steps and programs"
cat "$steps"
echo
while read -r test; do
    echo "=== UNSTEADY: $test failed beside others and passed alone. Find the cause." >&2
done <"$work/.unsteady"
if [ -s "$work/.failed" ]; then
    echo "=== FAILED:" $(cat "$work/.failed") >&2
fi
[ ! -s "$work/.failed" ] && [ ! -s "$work/.unsteady" ] || exit 1
echo "=== all fine, $(($(date +%s) - started)) s"
