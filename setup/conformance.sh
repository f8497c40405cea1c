#!/bin/sh
# Runs at full length what `make test` runs in short: attacks of ten seconds each with the waiting times of others beside
# them, many reloads and upgrades under load, very many certificates and handshakes, scanners of TLS, h3i, nodes that share
# certificates, and pools that share a load of PHP, both killed at random; weir-php in php-cgi and php, and in other versions of
# PHP; weir in containers, the files for Kubernetes at its API server, and packages in machines that are booted; the cache's store,
# caches with many users, and many WebSockets. It takes root:
#
#   setup/conformance.sh TARGET [STEP]
#
# TARGET is cargo's target folder. It has the release build, for what measures times. STEP: only the steps whose name contains this.
# A step that fails does not keep the others from running; the last lines name it.
set -eu

cargo=${CARGO:-cargo}
target=$1
only=${2:-}
export WEIR_CONFORMANCE=1

. "$(dirname "$0")/steps.sh"

failures=
found=
failed() {
    failures="$failures
=== FAILED: $1"
}

# check NAME COMMAND...: a step, if it was asked for.
check() {
    case $1 in
    *"$only"*)
        found=yes
        step "$@"
        ;;
    esac
}

# tests PROGRAM FILTER...: these tests of a program one after another, because they measure time, with what they print.
tests() {
    program=$1
    shift
    "$cargo" test --locked --package weir --test "$program" -- --test-threads 1 --nocapture "$@"
}

# Those of applications that stay booted, where no process is forked from a booted one.
tests_without_zygote() {
    (
        export WEIR_TEST_ZYGOTE=false
        tests php_booted
    )
}

# The same as `tests`, with the release build.
tests_of_release() {
    (
        WEIR_UNDER_TEST=$(realpath "$target/release/weir")
        export WEIR_UNDER_TEST
        tests "$@"
    )
}

# The tests of weir-php in the programs of the system's PHP that `make test` runs only a few of them in.
tests_of_hosts() {
    result=0
    for host in cgi cli; do
        WEIR_TEST_HOST=$host "$cargo" test --locked --package weir --test php_worker || result=1
    done
    return "$result"
}

# The tests of weir-php with php-fpm and php-cgi of that PHP, side by side with the same php-fpm. weir-php is built with its
# headers, and afterwards with those of the system again.
tests_of_source() {
    prefix=$(realpath "$target/php-source/prefix")
    result=0
    for host in fpm cgi; do
        rm -f "$target"/php/weir-php*
        PATH="$prefix/bin:$PATH" WEIR_TEST_PREFIX=$prefix WEIR_TEST_HOST=$host \
            "$cargo" test --locked --package weir --test php_worker || result=1
    done
    rm -f "$target"/php/weir-php*
    make --no-print-directory php TARGET="$target" || result=1
    return "$result"
}

packages() {
    "$(dirname "$0")/install.sh" build deb
    "$(dirname "$0")/packages.sh" "$target" "$1"
}

# With 2 GB of small answers.
killed_cache() {
    "$cargo" run --locked --release --package weir-cache --example restart -- "$target/killed-cache" 2
}

started=$(date +%s)
check "nodes that share certificates" tests tls nodes::
check "HTTP/2 over TLS" tests tls http2
check "HTTP/2 without TLS" tests_of_release front http2
check "HTTP/3" tests tls http3
check "upgrades" tests tls upgrade
check "upgrades that are disturbed" tests manager upgrade_races::
check "many certificates and handshakes" tests_of_release tls many::
check "all tests of the manager, as an ordinary user" tests manager ordinary_user::all_that_root_is_promised
check "uploads to an application that stays booted" tests php_booted uploads
check "applications that stay booted, each process with a boot of its own" tests_without_zygote
check "pools that share a load of PHP, killed at random" tests_of_release php_pools shared_kills::
check "weir-php in php-cgi and php" tests_of_hosts
check "PHP is built from source" setup/php-source.sh "$target/php-source"
check "weir-php in a PHP that was built from source" tests_of_source
check "weir-php in PHP 8.4" setup/debian.sh "$target" trixie 8.4
check "weir-php in PHP 8.5" setup/debian.sh "$target" sid 8.5
check "containers" setup/container.sh "$target"
check "the dashboard for Grafana" setup/grafana.sh
check "Kubernetes" setup/kubernetes.sh "$target"
check "packages of Debian 12" packages bookworm
check "packages of Debian 13" packages trixie
check "the cache's store and its files" "$cargo" test --locked --release --package weir-cache -- --nocapture store:: disk::
check "a cache that is killed" killed_cache
check "a cache with many users" tests cache personal::
check "WordPress with a cache" tests applications wordpress_with_a_cache
check "WebSockets" tests_of_release fastcgi websockets::
check "h3i is built" "$cargo" build --locked --manifest-path setup/h3i/Cargo.toml --target-dir "$target/h3i"
check "scanners of TLS, h3i" tests_of_release tls conformance::
echo
if [ -z "$found" ]; then
    echo "no step has this in its name: $only" >&2
    exit 1
fi
if [ -n "$failures" ]; then
    echo "${failures#?}" >&2
    exit 1
fi
echo "=== all fine, $(($(date +%s) - started)) s"
