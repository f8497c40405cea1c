#!/bin/sh
# Installs weir from this folder: ./install.sh [PREFIX]      default: /usr/local
#          and removes it again: ./install.sh --remove [PREFIX]
#
# DESTDIR=/image installs below that folder. Nothing is started. An existing /etc/weir/weir.toml is kept, also when weir is removed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
DESTDIR=${DESTDIR:-}

main() {
    action=install
    case ${1:-} in
    --remove) action=remove && shift ;;
    -*) usage ;;
    esac
    [ "$#" -le 1 ] || usage
    prefix=${1:-/usr/local}
    case $prefix in /*) ;; *) die "PREFIX must begin with a slash: $prefix" ;; esac
    # What was installed, one file a line.
    list=$DESTDIR$prefix/share/weir/installed
    "$action"
}

install() {
    fits
    mkdir -p "$DESTDIR$prefix/share/weir" 2>/dev/null || die "$DESTDIR$prefix cannot be written: run this as root, or give another PREFIX"
    (cd "$here/files" && find . -type f) | sed 's|^\./||' | while read -r file; do
        put "$here/files/$file" "$DESTDIR$prefix/$file"
    done
    php
    "$here/service/service" "$DESTDIR" "$prefix"
    (cd "$here/files" && find . -type f) | sed "s|^\.|$prefix|" >"$list"
    for object in "$DESTDIR$prefix"/lib/weir/weir-php*; do
        [ ! -e "$object" ] || echo "${object#"$DESTDIR"}"
    done >>"$list"
    lib=/etc
    [ "$prefix" != /usr ] || lib=/usr/lib
    for file in systemd/system/weir.service systemd/system/weir@.service sysusers.d/weir.conf tmpfiles.d/weir.conf; do
        echo "$lib/$file"
    done >>"$list"
    echo /etc/logrotate.d/weir >>"$list"
    sort -u -o "$list" "$list"
    cat <<SAY

  weir is installed: $prefix/bin/weir
  try it                 weir serve FOLDER
  a configuration        sudo weir init /srv/shop --domain shop.example
  as a service           sudo systemd-sysusers && sudo systemctl daemon-reload && sudo systemctl enable --now weir
  remove it              $here/install.sh --remove $prefix
SAY
}

# Another program may be running from this file: the new one takes its place under the same name.
put() {
    mkdir -p "$(dirname "$2")"
    cp -p "$1" "$2.new"
    mv -f "$2.new" "$2"
}

# This machine has the processor and the C library that weir was built for.
fits() {
    built=$(cat "$here/machine")
    [ "$(uname -sm)" = "Linux $built" ] || die "this archive is for Linux on $built, not for $(uname -sm)"
    # musl has no getconf GNU_LIBC_VERSION.
    have=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')
    need=$(cat "$here/glibc")
    lowest=$(printf '%s\n%s\n' "${have:-0}" "$need" | sort -V | head -n 1)
    [ "$lowest" = "$need" ] || die "weir needs glibc $need or later; this machine has ${have:-another C library}"
}

# weir-php for PHPs of this machine that are not those of the archive: it is compiled from PHP's headers.
php() {
    configs=
    for folder in $(echo "$PATH" | tr : ' '); do
        for config in "$folder"/php-config "$folder"/php-config[0-9]*; do
            [ ! -x "$config" ] || configs="$configs $config"
        done
    done
    [ -z "$configs" ] || command -v cc >/dev/null || {
        echo "weir-php is not compiled for the PHP of$configs, because there is no C compiler" >&2
        return 0
    }
    # shellcheck disable=SC2086
    [ -z "$configs" ] || "$here/php/build" cc "$DESTDIR$prefix/lib/weir" $configs
}

remove() {
    [ -e "$list" ] || die "there is no list of what was installed: $list"
    while read -r file; do
        rm -f "$DESTDIR$file"
    done <"$list"
    rm -f "$list"
    for folder in share/weir share/doc/weir lib/weir; do
        [ ! -d "$DESTDIR$prefix/$folder" ] || find "$DESTDIR$prefix/$folder" -depth -type d -empty -delete
    done
    echo "weir is removed. /etc/weir, /var/log/weir and /var/lib/weir are kept."
}

usage() {
    echo "usage: install.sh [--remove] [PREFIX]" >&2
    exit 64
}

die() {
    echo "install: $*" >&2
    exit 1
}

main "$@"
