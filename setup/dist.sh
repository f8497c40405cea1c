#!/bin/sh
# Makes an archive of the release build for any Linux with the C library glibc: setup/dist.sh TARGET
#
# TARGET/dist gets weir-VERSION-linux-MACHINE.tar.gz and SHA256SUMS.
set -eu

source=$(realpath "$(dirname "$0")/..")
target=$(realpath "$1")
cd "$source"

# The oldest glibc that the archive is for: Debian 12 has 2.36, RHEL 9 has 2.34. It is what a build on Debian 12 needs.
oldest=2.34

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
name=weir-$version-linux-$machine
stage=$target/dist/$name
rm -rf "$target/dist"
mkdir -p "$stage/service" "$stage/php"

make --no-print-directory install-program PREFIX=/files DESTDIR="$stage" TARGET="$target"
for folder in docs examples; do
    mkdir -p "$stage/files/share/doc/weir"
    cp -R "$folder" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$stage/files/share/doc/weir/"
done
cp packaging/install.sh "$stage/"
cp -R packaging/service packaging/systemd packaging/weir.toml packaging/weir.sysusers packaging/weir.tmpfiles packaging/weir.logrotate "$stage/service/"
cp php/build php/*.c php/*.h "$stage/php/"
# php/build reads the version there.
printf 'version = "%s"\n' "$version" >"$stage/Cargo.toml"
echo "$machine" >"$stage/machine"

needs=$(find "$stage/files/bin" "$stage/files/lib" -type f -exec readelf --version-info {} + | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
[ "$(printf '%s\n%s\n' "$needs" "$oldest" | sort -V | tail -n 1)" = "$oldest" ] || {
    echo "dist: the program needs glibc $needs, and the archive is for $oldest: build it on an older system" >&2
    exit 1
}
echo "$needs" >"$stage/glibc"

(
    cd "$target/dist"
    # The same files give the same archive.
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct)}" "$name" |
        gzip --best --no-name >"$name.tar.gz"
    sha256sum "$name.tar.gz" >SHA256SUMS
)
rm -rf "$stage"
echo "  $target/dist/$name.tar.gz, $(du -k "$target/dist/$name.tar.gz" | cut -f 1) KB, for glibc $needs or later"
