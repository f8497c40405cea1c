#!/bin/sh
# Runs the tests of weir-php, of applications that stay booted, and of pools that share a load of PHP in another Debian, with its PHP:
# setup/debian.sh TARGET SUITE PHP
#
#   setup/debian.sh target trixie 8.4
#   setup/debian.sh target sid 8.5        PHP 8.5 comes from experimental, while sid has none
#
# TARGET is cargo's target folder. TARGET/SUITE gets the system: a folder in which the test program runs with chroot(1), so this
# needs root. The test programs are compiled here; weir-php is compiled there.
set -eu

target=$(realpath "$1") suite=$2 php=$3
root=$target/$suite
source=$(realpath "$(dirname "$0")/..")
cargo=${CARGO:-cargo}

. "$source/setup/roots.sh"

main() {
    [ "$(id -u)" -eq 0 ] || {
        echo "setup: another Debian takes root; run this as root" >&2
        exit 1
    }
    [ -e "$root/installed" ] || install
    result=0
    for name in php_worker php_booted; do
        run "$name" || result=1
    done
    run php_pools shared_ || result=1
    return "$result"
}

# run NAME [FILTER]: the test program of that name, or only these tests of it.
run() {
    filter=${2:-}
    program=$("$cargo" test --locked --package weir --test "$1" --no-run --message-format=short 2>&1 |
        sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
    # shellcheck disable=SC2086
    in_root "$root" "$source" "$target" WEIR_TEST_HOST="${WEIR_TEST_HOST:-fpm}" "$(realpath "$program")" --test-threads 2 $filter
}

install() {
    echo "setup: installing Debian $suite with PHP $php"
    rm -rf "$root"
    mirror=$(mirror)
    others=
    [ "$suite" != sid ] || others="deb $mirror experimental main"
    packages=gcc,make,libc6-dev,libjemalloc2,procps,libcap2-bin
    for part in fpm cgi cli mbstring sqlite3 intl xml mysql dev; do
        packages=$packages,php$php-$part
    done
    # OPcache is part of PHP since 8.5.
    [ "$php" != 8.4 ] || packages=$packages,php$php-opcache
    # The lists of suites that change every day expire; a mirror may be older than that.
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include="$packages" \
        "$suite" "$root" "deb $mirror $suite main" ${others:+"$others"}
    touch "$root/installed"
}

main
