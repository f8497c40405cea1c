#!/bin/sh
# Builds the package for Debian, and checks it with lintian: setup/deb.sh TARGET [SUITE]
#
# TARGET is cargo's target folder: TARGET/deb gets the package. Without SUITE, it is for the Debian that this runs on. With it, for
# that release: weir-php is compiled in a root with its PHP, which takes root; the program itself is the one that is built here, and
# runs there if the C library is not older.
set -eu

source=$(realpath "$(dirname "$0")/..")
mkdir -p "$1/deb"
target=$(realpath "$1") suite=${2:-}
root=$target/deb-$suite
cd "$source"

. "$source/setup/roots.sh"

main() {
    # Before dh, whose flags for compilers would have everything compiled again.
    make --no-print-directory CARGO_TARGET_DIR="$target" build
    clean
    if [ -z "$suite" ]; then
        package
    else
        [ "$(id -u)" -eq 0 ] || die "a package for another release takes root; run this as root"
        [ -e "$root/installed" ] || install
        # cargo has built the program already.
        in_root "$root" "$source" "$target" CARGO=true PACKAGES="$target/deb" debian/rules binary
    fi
    clean
    file=$(find "$target/deb" -name 'weir_*.deb' -printf '%T@ %p\n' | sort -n | sed -n '$s/^[^ ]* //p')
    lintian --fail-on error,warning "$file"
    echo
    echo "  $file, $(dpkg-deb --field "$file" Installed-Size) KB when installed"
    echo "  to install it: sudo apt install $file"
}

# What a build has left. dh_clean would look into cargo's target folder, too.
clean() {
    rm -rf debian/.debhelper debian/weir debian/files debian/weir.triggers debian/debhelper-build-stamp debian/*.debhelper* debian/*.substvars
}

package() {
    CARGO=true CARGO_TARGET_DIR=$target PACKAGES=$target/deb debian/rules binary
}

install() {
    echo "setup: installing Debian $suite with its PHP"
    rm -rf "$root"
    mirror=$(mirror)
    mmdebstrap --quiet --variant=minbase --include=debhelper,gcc,libc6-dev,make,php-dev,systemd "$suite" "$root" "deb $mirror $suite main"
    touch "$root/installed"
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main
