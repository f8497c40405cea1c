#!/bin/sh
# Builds the images of docs/containers.md without root's rights, runs them as the page says, and tries what an operator does with them:
#
#   setup/container.sh TARGET
#
# TARGET is cargo's target folder. TARGET/container has the images. The base images are not fetched: they are made from Debian's packages,
# this machine's Rust, and a PHP that is built from source, and get the names that the Containerfile uses.
#
# It takes root to make the base images, and to become another user: one without rights, who exists only in namespaces that end with this
# script. podman and buildah run as this user.
set -eu

source=$(realpath "$(dirname "$0")/..")
page=$source/docs/containers.md
cargo=${CARGO:-cargo}
user=54321
# The user's own ids, for those of a container.
first_id=2000000000
world=/mnt
# podman's default limits may be higher than this machine allows.
options="--runtime runc --cgroup-manager cgroupfs --ulimit nofile=4096:4096 --ulimit nproc=4096:4096"

. "$source/setup/roots.sh"

main() {
    [ "$(id -u)" -eq 0 ] || die "base images take root; run this as root"
    mkdir -p "$1/container"
    folder=$(realpath "$1/container")
    case ${2:-} in
    inside) in_namespaces ;;
    *)
        "$source/setup/php-source.sh" "$folder/php" /usr/local
        "$source/setup/python.sh" "$folder/.."
        "$cargo" fetch --locked --quiet --manifest-path "$source/Cargo.toml"
        rust=$(rustc --print sysroot)
        export rust
        unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$0" "$folder/.." inside
        ;;
    esac
}

in_namespaces() {
    make_world
    make_bases
    image weir
    image weir-of-php --build-arg BASE=php:fpm
    files_of_page
    build shop "$work/shop"

    has_the_size
    serves
    reloads
    drains
    serves_with_php_from_source
    serves_the_page
    accepts_the_compose_file
    serves_with_a_database
    is_replaced_under_load
    echo "=== containers: fine"
}

# What the user may see: podman's store, the source, Rust and its crates, and an entry in the lists of users.
make_world() {
    mount --make-rshared /
    mount -t tmpfs -o mode=755 tmpfs "$world"
    # podman's locks.
    mount -t tmpfs tmpfs /dev/shm
    mkdir -p "$folder/home" "$folder/target" "$world/run" "$world/home" "$world/target" "$world/source" "$world/rust" "$world/crates" "$world/python"
    chown "$user:$user" "$folder/home" "$folder/target" "$world/run"
    mount --bind "$folder/home" "$world/home"
    mount --bind "$folder/target" "$world/target"
    mount --bind "$source" "$world/source"
    mount --bind "$rust" "$world/rust"
    mount --bind "${CARGO_HOME:-$HOME/.cargo}/registry" "$world/crates"
    mount --bind "$folder"/../python/lib/python3*/site-packages "$world/python"
    # With this, podman makes networks without root.
    mknod -m 666 "$world/tun" c 10 200
    mount --bind "$world/tun" /dev/net/tun
    for list in passwd group; do
        cp "/etc/$list" "$world/$list"
    done
    echo "container:x:$user:$user::$world/home:/bin/sh" >>"$world/passwd"
    echo "container:x:$user:" >>"$world/group"
    echo "container:$first_id:65536" | tee "$world/subuid" >"$world/subgid"
    for list in passwd group subuid subgid; do
        [ -e "/etc/$list" ] || touch "/etc/$list"
        mount --bind "$world/$list" "/etc/$list"
    done
    # Logs, configurations and scripts of the tests.
    work=$world/home/work
    rm -rf "$work"
    as_user mkdir "$work"
    cd "$world"
    printf '[storage]\ndriver = "overlay"\nrunroot = "%s"\ngraphroot = "%s"\n' "$world/run/storage" "$world/home/storage" >"$world/storage.conf"
    # What $options say, for podman-compose.
    cat >"$world/containers.conf" <<END
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
END
    # What a run has left that was ended.
    remove_all
    as_user podman volume rm --all --force >"$work/podman"
}

as_user() {
    setpriv --reuid "$user" --regid "$user" --clear-groups env -i PATH="$PATH" HOME="$world/home" XDG_RUNTIME_DIR="$world/run" \
        CONTAINERS_STORAGE_CONF="$world/storage.conf" LC_ALL=C.UTF-8 "$@"
}

# Images with the names of Docker's official ones, and with what those have.
make_bases() {
    as_user podman image exists php:fpm && return
    . /etc/os-release
    for suite in trixie bookworm $VERSION_CODENAME; do
        as_user podman image exists "debian:$suite-slim" || make_debian "$suite"
    done
    mkdir "$work/rust" "$work/php"
    cat >"$work/rust/Containerfile" <<END
FROM debian:bookworm-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev make
ENV PATH=/usr/local/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=/usr/local/cargo CARGO_NET_OFFLINE=true
END
    build docker.io/library/rust:1-bookworm "$work/rust"
    cp -R "$folder/php/root/usr" "$work/php/"
    cat >"$work/php/Containerfile" <<END
FROM debian:$VERSION_CODENAME-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev
COPY usr /usr
WORKDIR /var/www/html
STOPSIGNAL SIGQUIT
EXPOSE 9000
CMD ["php-fpm"]
END
    build docker.io/library/php:fpm "$work/php"
}

make_debian() {
    mirror=$(mirror)
    tar=$world/home/base.tar
    # Debian's images have no manuals and no translations. They keep no packages, no cache of them and no older files of dpkg, and do not wait
    # for the disk.
    cat >"$work/docker-clean" <<'END'
DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
END
    mmdebstrap --quiet --variant=minbase --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/lintian/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --customize-hook="upload $work/docker-clean /etc/apt/apt.conf.d/docker-clean" \
        --customize-hook='echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/docker-apt-speedup"' \
        --customize-hook='rm -f "$1"/var/cache/apt/*.bin "$1"/var/cache/debconf/*-old "$1"/var/lib/dpkg/*-old' \
        "$1" "$tar" "deb $mirror $1 main"
    chmod 644 "$tar"
    as_user podman import --quiet "$tar" "docker.io/library/debian:$1-slim"
    rm "$tar"
}

# image NAME [ARGUMENT...]: an image of weir, from crates that cargo has fetched here. What cargo builds stays in TARGET/container.
image() {
    build "$@" -f "$world/source/packaging/container/Containerfile" --volume "$world/rust:/usr/local/rust:ro" \
        --volume "$world/crates:/usr/local/cargo/registry:ro" --volume "$world/target:/usr/src/weir/target" "$world/source"
}

build() {
    name=$1
    shift
    as_user buildah build --quiet --isolation chroot --pull-never --layers --format docker --tag "$name" "$@" >"$work/build.log" 2>&1 </dev/null || {
        tail -n 40 "$work/build.log" >&2
        die "the image $name was not built"
    }
    echo "=== image $name: $(($(as_user podman image inspect --format '{{.Size}}' "$name") / 1000000)) MB"
}

# What the page's own image is built from: its files, and a site of one script.
files_of_page() {
    as_user mkdir -p "$work/shop/public"
    block dockerfile >"$work/shop/Dockerfile"
    block toml >"$work/shop/weir.toml"
    echo '<?php echo session_start() ? "Hello from a container" : "no session";' >"$work/shop/public/index.php"
}

# The first block of the page in this language.
block() {
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$page" | sed -e 1d -e '/^```$/,$d' | grep . || die "no $1 in $page"
}

has_the_size() {
    all=$(as_user podman image inspect --format '{{.Size}}' weir)
    extensions=$(as_user podman run --rm --network none $options --entrypoint sh weir -c \
        'du -sb "$(php -r "echo ini_get(\"extension_dir\");")"' 2>/dev/null | cut -f 1)
    echo "=== the image without PHP's extensions: $((all - extensions)) bytes; these: $extensions"
    [ "$((all - extensions))" -le 120000000 ] || die "the image is larger than 120 MB"
}

# start NAME ARGUMENT...: a container that may do as little as the page says, with podman's arguments.
start() {
    name=$1
    shift
    as_user podman run --detach --name "$name" $options --read-only --cap-drop ALL --security-opt no-new-privileges "$@" >"$work/podman" 2>&1 || {
        cat "$work/podman" >&2
        die "podman does not start $name"
    }
    process=$(as_user podman inspect --format '{{.State.Pid}}' "$name")
}

serves() {
    start tested --network none --volume "$world/source/examples/site:/srv/site:ro" weir
    expect_page http://127.0.0.1:8080/hello.php REQUEST_METHOD
    as_user podman exec tested weir status | grep --quiet "PHP" || die "weir status has no PHP"
    expect_health healthy
    is_one_tree_without_root
    as_user podman logs tested 2>/dev/null | grep --quiet '^{"time_iso":.*"uri":"/hello.php".*}$' || die "the log has no line of JSON"
    grep --quiet '^[^ ]* / [^ ]* ro,' "/proc/$process/mounts" || die "the root is not read-only"
    stop tested
}

# Each process but weir itself is the child of another one, and none runs as root.
is_one_tree_without_root() {
    as_user podman top tested pid ppid user args >"$work/processes"
    awk 'NR > 1 { user[$1] = $3; parent[$1] = $2; if ($1 == 1) main = $4 }
        END { for (pid in parent) if (user[pid] == "root" || (pid != 1 && !(parent[pid] in parent))) exit 1; if (main != "weir") exit 1 }' \
        "$work/processes" || die "not one tree of processes without root: $(cat "$work/processes")"
}

reloads() {
    configure changing 0.0.0.0
    start tested --network none --volume "$work/changing:/etc/weir:ro" --volume "$world/source/examples/site:/srv/site:ro" weir
    expect_page http://127.0.0.1:8080/hello.php REQUEST_METHOD
    sed -i 's|^\[pool.php\]|[[site.default.route]]\npath = "/reloaded"\nreply = { status = 200, body = "after the reload" }\n\n&|' "$work/changing/weir.toml"
    as_user podman kill --signal HUP tested >/dev/null
    expect_page http://127.0.0.1:8080/reloaded "after the reload"
    stop tested
}

# SIGTERM lets a request finish that runs longer than shutdown_delay, and weir is not healthy meanwhile.
drains() {
    start tested --network none --volume "$world/source/examples/site:/srv/site:ro" weir
    expect_page http://127.0.0.1:8080/hello.php REQUEST_METHOD
    expect_health healthy
    in_container curl --silent --show-error --fail --max-time 60 'http://127.0.0.1:8080/slow.php?ms=6000' >"$work/slow" &
    slow=$!
    until as_user podman exec tested weir status --json | grep --quiet '"/slow.php'; do
        kill -0 "$slow" || die "the slow request has ended: $(cat "$work/slow")"
    done
    as_user podman kill --signal TERM tested >/dev/null
    expect_health unhealthy
    wait "$slow" || die "the slow request was not answered"
    expect_end tested
}

serves_with_php_from_source() {
    as_user mkdir -p "$work/source"
    echo '<?php echo PHP_SAPI, " of ", PHP_BINDIR;' >"$work/source/index.php"
    start tested --network none --volume "$work/source:/srv/site:ro" weir-of-php
    expect_page http://127.0.0.1:8080/ "fpm-fcgi of /usr/local/bin"
    expect_health healthy
    stop tested
}

serves_the_page() {
    start tested --network none shop
    expect_page http://shop.example:8080/ "Hello from a container"
    expect_page http://127.0.0.1:9180/readyz "ready"
    stop tested
}

# The parser is that of docker compose.
accepts_the_compose_file() {
    . "$source/setup/newer-go.sh"
    [ -x "$folder/compose/cmd" ] || GOBIN=$folder/compose go install github.com/compose-spec/compose-go/v2/cmd@v2.9.1
    "$folder/compose/cmd" -no-interpolation "$source/packaging/container/compose.yaml" >"$work/compose" || die "compose.yaml is wrong"
    echo "=== compose.yaml: accepted"
}

# The compose file as it is, with podman-compose: a page asks the database, `down` lets a slow page finish, and the data is there at the next
# `up`. It has a network namespace of its own, because it takes port 80.
serves_with_a_database() {
    cp -R "$source/setup/mariadb" "$work/mariadb"
    build docker.io/library/mariadb:11 "$work/mariadb"
    image shop_web --build-arg "PACKAGES=$(sed -n 's/^ *PACKAGES: //p' "$source/packaging/container/compose.yaml")"
    as_user mkdir -p "$work/database/site/wp-content/uploads" "$work/database/uploads"
    cp "$source/packaging/container/compose.yaml" "$work/database/"
    echo DB_PASSWORD=something-long >"$work/database/.env"
    as_user podman unshare chown 33:33 "$work/database/uploads"
    visits >"$work/database/site/index.php"

    unshare --net sh -ec "ip link set lo up; sysctl --quiet net.ipv4.ip_unprivileged_port_start=0; touch $work/network; exec sleep infinity" &
    process=$!
    until [ -e "$work/network" ]; do
        kill -0 "$process" || die "there is no network namespace"
        sleep 0.1
    done
    compose up --detach --no-build
    name=shop_web_1
    expect_page http://127.0.0.1/ '^visit 1$'
    in_container curl --silent --show-error --fail --max-time 60 'http://127.0.0.1/?seconds=6' >"$work/slow" &
    slow=$!
    until [ "$(cat "$work/database/uploads/visits")" = 2 ]; do
        kill -0 "$slow" || die "the slow request has ended: $(cat "$work/slow")"
    done
    compose down
    wait "$slow" || die "the slow request was not answered"
    grep --quiet '^visit 2$' "$work/slow" || die "the slow page says: $(cat "$work/slow")"
    compose up --detach --no-build
    expect_page http://127.0.0.1/ '^visit 3$'
    # The order that the page advises for podman-compose.
    compose stop web
    as_user podman healthcheck run shop_database_1 || die "the database was stopped, too, or is not healthy"
    compose down --volumes
    kill "$process"
}

# podman-compose with this network, in the folder of the compose file.
compose() {
    in_container setpriv --reuid "$user" --regid "$user" --clear-groups env -i -C "$work/database" PATH="$PATH" HOME="$world/home" XDG_RUNTIME_DIR="$world/run" \
        CONTAINERS_STORAGE_CONF="$world/storage.conf" CONTAINERS_CONF="$world/containers.conf" PYTHONPATH="$world/python" LC_ALL=C.UTF-8 \
        timeout 120 python3 -m podman_compose "$@" >"$work/compose.log" 2>&1 || {
        cat "$work/compose.log" >&2
        die "podman-compose $*"
    }
}

# A page that counts its visits in the database.
visits() {
    cat <<'END'
<?php
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$database = new mysqli(getenv('DB_HOST'), getenv('DB_USER'), getenv('DB_PASSWORD'), getenv('DB_NAME'));
$database->query('CREATE TABLE IF NOT EXISTS visits (number INT AUTO_INCREMENT PRIMARY KEY)');
$database->query('INSERT INTO visits VALUES ()');
file_put_contents('wp-content/uploads/visits', $database->insert_id) || exit('no place for uploads');
sleep((int) ($_GET['seconds'] ?? 0));
echo "visit $database->insert_id\n";
END
}

# Two containers behind HAProxy, which asks each whether it is ready, are replaced one after the other: all requests are answered.
is_replaced_under_load() {
    start network --network none --entrypoint sleep weir infinity
    network=$process
    for number in 1 2 3 4; do
        configure "replica$number" "127.0.0.1$number"
    done
    proxy >"$work/haproxy.cfg"
    start_replica 1
    start_replica 2
    in_container haproxy -f "$work/haproxy.cfg" >"$work/haproxy.log" 2>&1 &
    # HAProxy takes servers for ready until it has asked them.
    for number in 3 4; do
        expect_page 'http://127.0.0.1:8001/;csv' "weir,replica$number,.*,DOWN,"
    done
    expect_page http://127.0.0.1:8000/hello.php REQUEST_METHOD

    as_user podman run --rm --name load $options --network container:network weir \
        bench -r 200 -t 60s --fail-below 100 http://127.0.0.1:8000/hello.php >"$work/load" 2>&1 &
    load=$!
    replace 1 3
    replace 2 4
    kill -0 "$load" 2>/dev/null || die "the load ended before the last container was replaced"
    wait "$load" || die "requests failed: $(cat "$work/load" "$work/haproxy.log")"
    grep -iE 'transactions|availability' "$work/load"
    remove_all
}

start_replica() {
    start "replica$1" --network container:network --volume "$work/replica$1:/etc/weir:ro" --volume "$world/source/examples/site:/srv/site:ro" weir
    process=$network
    expect_page "http://127.0.0.1$1:9180/readyz" ready
}

# replace OLD NEW: as an operator does it.
replace() {
    start_replica "$2"
    # HAProxy has to see it.
    expect_page 'http://127.0.0.1:8001/;csv' "weir,replica$2,.*,UP,"
    as_user podman kill --signal TERM "replica$1" >/dev/null
    expect_end "replica$1"
}

proxy() {
    cat <<END
global
    log stdout format raw local0
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
frontend web
    bind 127.0.0.1:8000
    default_backend weir
frontend numbers
    bind 127.0.0.1:8001
    stats enable
    stats uri /
backend weir
    option httpchk GET /readyz
    default-server check port 9180 inter 500ms fall 1 rise 1
    server replica1 127.0.0.11:8080
    server replica2 127.0.0.12:8080
    server replica3 127.0.0.13:8080
    server replica4 127.0.0.14:8080
END
}

# configure NAME ADDRESS: a folder with the image's configuration, for this address.
configure() {
    as_user mkdir "$work/$1"
    sed "s/0\.0\.0\.0/$2/" "$source/packaging/container/weir.toml" >"$work/$1/weir.toml"
}

# expect_health healthy|unhealthy: what the health check of the image says, within 30 s.
expect_health() {
    waited=0
    until { as_user podman healthcheck run tested >/dev/null 2>&1 && said=healthy || said=unhealthy; } && [ "$said" = "$1" ]; do
        waited=$((waited + 1))
        [ "$waited" -le 150 ] || die "the health check says $said"
        sleep 0.2
    done
    echo "=== health check: $said"
}

# expect_page URL TEXT: waits for at most 60 s until the page has this text.
expect_page() {
    waited=0
    until said=$(in_container curl --silent --show-error --max-time 5 --connect-to "shop.example::127.0.0.1:" "$1" 2>&1) &&
        echo "$said" | grep --quiet "$2"; do
        waited=$((waited + 1))
        [ "$waited" -le 300 ] || {
            as_user podman logs "$name" >&2
            die "$1 answers: $said"
        }
        sleep 0.2
    done
    echo "=== $1: $2"
}

in_container() {
    nsenter --net --target "$process" "$@"
}

stop() {
    as_user podman kill --signal TERM "$1" >/dev/null
    expect_end "$1"
}

# weir is process 1. It ends by itself after it was asked to, with 0.
expect_end() {
    ended=$(as_user timeout 60 podman wait "$1") || die "weir does not end"
    [ "$ended" -eq 0 ] || die "weir ended with $ended"
    # It says that there is no systemd, which would run the health checks.
    as_user podman rm --volumes "$1" >"$work/podman" 2>&1 || die "podman does not remove $1: $(cat "$work/podman")"
}

# The second time removes a container whose network others used.
remove_all() {
    as_user podman rm --all --force --volumes >"$work/podman" 2>&1 || as_user podman rm --all --force --volumes >"$work/podman" 2>&1
}

die() {
    echo "setup: $*" >&2
    exit 1
}

main "$@"
