#!/bin/sh
# Builds the images of docs/containers.md, runs them as the page says, and asks each for a page. It takes root:
#
#   setup/container.sh TARGET
#
# TARGET is cargo's target folder. TARGET/container has the images. The base images are not fetched: they are made from
# Debian's packages and this machine's Rust, and get the names that the Dockerfiles use.
set -eu

source=$(realpath "$(dirname "$0")/..")
page=$source/docs/containers.md
cargo=${CARGO:-cargo}
mkdir -p "$1/container/target"
folder=$(realpath "$1/container")
export CONTAINERS_STORAGE_CONF="$folder/storage.conf"

main() {
    [ "$(id -u)" -eq 0 ] || die "containers take root; run this as root"
    printf '[storage]\ndriver = "overlay"\nrunroot = "%s"\ngraphroot = "%s"\n' "$folder/run" "$folder/store" >"$CONTAINERS_STORAGE_CONF"
    buildah inspect --type image rust:1-bookworm >/dev/null 2>&1 || make_bases
    build_weir
    build_application
    trap 'podman rm --force --ignore tested >/dev/null' EXIT

    start --volume "$source/examples/site:/srv/site:ro" weir
    expect_page http://127.0.0.1:8080/hello.php REQUEST_METHOD
    podman exec tested weir status | grep --quiet "PHP" || die "weir status has no PHP"
    stop

    start --volume weir-state:/var/lib/weir shop
    expect_page http://shop.example/ "Hello from a container"
    expect_page http://127.0.0.1:9180/readyz "ready"
    stop
    echo "=== containers: fine"
}

# Images with the names of Docker's official ones.
make_bases() {
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(SUITE) $(REPO_URI)' 'Created-By: Packages' |
        sed -n 's/^Debian [^ -]* //p' | head -n 1)
    mmdebstrap --quiet --variant=minbase bookworm "$folder/base.tar" "deb $mirror bookworm main"
    base=$(buildah from scratch)
    buildah add --quiet "$base" "$folder/base.tar" /
    buildah commit --quiet "$base" docker.io/library/debian:bookworm-slim
    run_in_base apt-get update --quiet
    run_in_base apt-get install --quiet --yes --no-install-recommends ca-certificates gcc libc6-dev make
    buildah config --env PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin --env CARGO_HOME=/usr/local/cargo \
        --env CARGO_NET_OFFLINE=true "$base"
    buildah commit --quiet --rm "$base" docker.io/library/rust:1-bookworm
}

run_in_base() {
    buildah run --isolation chroot "$base" "$@"
}

# The image `weir`, from crates that cargo has fetched here. What cargo builds stays in TARGET/container.
build_weir() {
    "$cargo" fetch --locked --quiet --manifest-path "$source/Cargo.toml"
    build weir -f "$source/examples/Dockerfile" \
        --volume "$(rustc --print sysroot):/usr/local/rust:ro" \
        --volume "${CARGO_HOME:-$HOME/.cargo}/registry:/usr/local/cargo/registry" \
        --volume "$folder/target:/usr/src/weir/target" \
        "$source"
}

# The image `shop`: the files of the page, and a site of one script.
build_application() {
    rm -rf "$folder/shop"
    mkdir -p "$folder/shop/public"
    block dockerfile >"$folder/shop/Dockerfile"
    block toml >"$folder/shop/weir.toml"
    echo '<?php echo "Hello from a container\n";' >"$folder/shop/public/index.php"
    build shop "$folder/shop"
}

# The first block of the page in this language.
block() {
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$page" | sed -e 1d -e '/^```$/,$d' | grep . || die "no $1 in $page"
}

build() {
    name=$1
    shift
    buildah build --quiet --isolation chroot --pull-never --tag "$name" "$@"
}

# start ARGUMENT...: podman's arguments. The container has a network of its own, in which nobody else listens. podman's default
# limits may be higher than this machine allows.
start() {
    podman rm --force --ignore tested >/dev/null
    podman run --detach --name tested --runtime runc --cgroup-manager cgroupfs --network none \
        --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 "$@" >/dev/null
    process=$(podman inspect --format '{{.State.Pid}}' tested)
}

# expect_page URL TEXT: waits for at most 30 s until the page has this text.
expect_page() {
    waited=0
    until said=$(in_container curl --silent --show-error --max-time 5 --connect-to "shop.example::127.0.0.1:" "$1" 2>&1) &&
        echo "$said" | grep --quiet --fixed-strings "$2"; do
        waited=$((waited + 1))
        [ "$waited" -le 150 ] || {
            podman logs tested >&2
            die "$1 answers: $said"
        }
        sleep 0.2
    done
    echo "=== $1: $2"
}

in_container() {
    nsenter --net --target "$process" "$@"
}

# weir is process 1. It must end by itself when it is asked to.
stop() {
    podman stop --time 40 tested >/dev/null
    ended=$(podman inspect --format '{{.State.ExitCode}}' tested)
    [ "$ended" -eq 0 ] || die "weir ended with $ended"
    podman rm tested >/dev/null
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main
