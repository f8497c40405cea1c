# shellcheck shell=sh
# What the scripts share that use another system: setup/debian.sh, deb.sh, packages.sh, container.sh and kubernetes.sh read this file.

# The mirror from which this system has its packages.
mirror() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN) $(SUITE) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian [^ -]* //p' | head -n 1
}

# in_root ROOT SOURCE TARGET [NAME=VALUE...] COMMAND...: runs a command in the system ROOT, in weir's folder SOURCE. It sees that folder
# and cargo's folder TARGET, but with a folder of its own for weir-php, which is another one for each PHP.
in_root() {
    # The mounts end with the last process of the command.
    # shellcheck disable=SC2016
    unshare --mount --propagation private sh -euc '
        root=$1 source=$2 target=$3
        shift 3
        # This comes first: the source may be below /tmp.
        mount -t tmpfs tmpfs "$root/tmp"
        mkdir -p "$root$source" "$root$target" "$root/php" "$target/php"
        mount --bind "$source" "$root$source"
        mount --bind "$target" "$root$target"
        mount --bind "$root/php" "$root$target/php"
        mount --bind /dev "$root/dev"
        mount -t proc proc "$root/proc"
        exec chroot "$root" env -i -C "$source" PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CARGO_TARGET_DIR="$target" "$@"
    ' sh "$@"
}
