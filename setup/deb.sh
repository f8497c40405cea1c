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

main() {
    # Before dh, whose flags for compilers would have everything compiled again.
    make --no-print-directory CARGO_TARGET_DIR="$target" build
    clean
    if [ -z "$suite" ]; then
        package
    else
        [ "$(id -u)" -eq 0 ] || die "a package for another release takes root; run this as root"
        [ -e "$root/installed" ] || install
        build_in_root
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

build_in_root() {
    # The mounts end with the last process of the command.
    unshare --mount --propagation private sh -c '
        root=$1 source=$2 target=$3
        # This comes first: the source may be below /tmp.
        mount -t tmpfs tmpfs "$root/tmp"
        mkdir -p "$root$source" "$root$target" "$root/php"
        mount --bind "$source" "$root$source"
        mount --bind "$target" "$root$target"
        # Objects for other versions of PHP are elsewhere.
        mkdir -p "$target/php"
        mount --bind "$root/php" "$root$target/php"
        mount --bind /dev "$root/dev"
        mount -t proc proc "$root/proc"
        # cargo: the program is there.
        exec chroot "$root" env -i -C "$source" PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO=true \
            CARGO_TARGET_DIR="$target" PACKAGES="$target/deb" debian/rules binary
    ' sh "$root" "$source" "$target"
}

install() {
    echo "setup: installing Debian $suite with its PHP"
    rm -rf "$root"
    # The mirror from which this system has its packages.
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(SUITE) $(REPO_URI)' 'Created-By: Packages' |
        sed -n 's/^Debian [^ -]* //p' | head -n 1)
    mmdebstrap --quiet --variant=minbase --include=debhelper,gcc,libc6-dev,make,php-dev,systemd "$suite" "$root" "deb $mirror $suite main"
    touch "$root/installed"
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main
