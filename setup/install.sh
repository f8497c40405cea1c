#!/bin/sh
# Installs those of the Debian packages in setup/LIST.packages that are missing.
#
#   setup/install.sh LIST...
#
# If all packages are there, it installs nothing and needs no privileges. Otherwise it works as root, or with sudo. It
# neither starts nor enables services that come with the packages, and does not touch running ones.
set -eu

here=$(dirname "$0")

main() {
    wanted=
    for list in "$@"; do
        wanted="$wanted $(sed -e 's/#.*//' "$here/$list.packages" | tr '\n' ' ')"
    done
    missing=$(missing_of $wanted)
    [ -n "$missing" ] || return 0

    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "these packages are missing, and installing them takes root or sudo:$missing"
        echo "setup: installing with sudo:$missing"
        exec sudo "$here/install.sh" "$@"
    fi
    command -v apt-get >/dev/null || die "this is no Debian (apt-get is missing); install by hand:$missing"

    # Only one set-up at a time: the file that keeps services from starting exists once per machine.
    exec 9>/run/lock/weir-setup.lock
    flock 9
    missing=$(missing_of $wanted)
    [ -n "$missing" ] || return 0
    echo "setup: installing$missing"

    keep_services_from_starting
    before=$(mktemp)
    installed >"$before"
    if ! apt $missing; then
        echo "setup: the package lists may be old; updating them" >&2
        apt_update
        apt $missing || die "apt-get could not install$missing"
    fi
    installed | comm -13 "$before" - | disable_services
    rm -f "$before"
}

# The given names that are not installed, each after a space.
missing_of() {
    # Some packages of others have what Debian has in two: their nodejs also provides npm.
    provided=$(dpkg-query -W -f '${Provides}\n' | tr ',' '\n' | sed -e 's/^ *//' -e 's/ .*//')
    for package in "$@"; do
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || printf '%s\n' "$provided" | grep -qxF "$package" || printf ' %s' "$package"
    done
}

apt() {
    # Without lists apt knows no packages.
    ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 || apt_update
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=600 \
        -o Dpkg::Use-Pty=0 "$@" </dev/null
}

apt_update() {
    apt-get update -q -o DPkg::Lock::Timeout=600 </dev/null
}

installed() {
    dpkg-query -W -f '${binary:Package}\n' | LC_ALL=C sort
}

# Debian runs this program before it starts a service; 101 means no. An existing program stays.
keep_services_from_starting() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || return 0
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

# The newly installed servers (names on standard input) must not start with the machine either.
disable_services() {
    command -v systemctl >/dev/null || return 0
    while read -r package; do
        case $package in
        nginx* | php* | prometheus* | fcgiwrap* | mariadb* | apache2* | haproxy* | tt-rss* | podman*) ;;
        *) continue ;;
        esac
        dpkg -L "$package" | sed -n 's#^\(/usr\)\?/lib/systemd/system/\([^/@]*\.\(service\|socket\)\)$#\2#p'
    done | while read -r unit; do
        systemctl --quiet disable "$unit" 2>/dev/null || true
    done
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main "$@"
