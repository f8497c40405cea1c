#!/bin/sh
# Builds PHP from Debian's source package, as small as the tests of weir-php allow: setup/php-source.sh FOLDER [PREFIX]
#
# FOLDER/prefix gets php-fpm, php-cgi and php, as in PHP's own images: in a place of their own, linked with what they need, and
# with names without a version. With PREFIX they are for that place in another system, and FOLDER/root/PREFIX gets them. Nothing
# outside of FOLDER changes.
set -eu

folder=$(realpath -m "$1")
prefix=${2:-$folder/prefix}
root=${2:+$folder/root}
[ ! -e "$folder/done" ] || exit 0
mkdir -p "$folder/lists/partial" "$folder/cache"

# Sources of the same places that packages come from.
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -e "$list" ] || sed -n 's/^deb /deb-src /p' "$list"
done >"$folder/sources.list"
rm -rf "$folder/sources.d"
mkdir "$folder/sources.d"
for list in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$folder/sources.d/$(basename "$list")"
done
cat >"$folder/apt.conf" <<END
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "$folder/sources.d";
Dir::State::Lists "$folder/lists";
Dir::Cache "$folder/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG="$folder/apt.conf"
package=$(dpkg-query -W -f '${Package}\n' 'php[0-9].[0-9]-fpm' | tail -n 1)
package=${package%-fpm}
echo "setup: building $package from its source"
cd "$folder"
apt-get -q update >"$folder/apt.log" 2>&1 || {
    cat "$folder/apt.log" >&2
    exit 1
}
# The newest version that can be had: mirrors do not have all that they list.
download() {
    for version in $(apt-cache showsrc "$package" | sed -n 's/^Version: //p' | sort -Vru); do
        ! apt-get -q source --download-only "$package=$version" >>"$folder/apt.log" 2>&1 || return 0
    done
    return 1
}
download || {
    cat "$folder/apt.log" >&2
    echo "setup: the source of $package was not downloaded" >&2
    exit 1
}
rm -rf source
mkdir source
tar -xf "$package"_*.orig.tar.[gx]z -C source --strip-components 1
cd source
{
    ./configure --prefix="$prefix" --disable-all --disable-phpdbg --enable-fpm --enable-cgi --enable-opcache --enable-session \
        --enable-filter --enable-ctype=shared --enable-posix=shared --with-ffi=shared
    make -j "$(nproc)"
    make install INSTALL_ROOT="$root"
} >"$folder/build.log" 2>&1 </dev/null || {
    tail -n 30 "$folder/build.log" >&2
    exit 1
}
cd ..
rm -rf source
touch "$folder/done"
