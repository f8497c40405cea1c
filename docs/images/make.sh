#!/bin/bash
# Draws the pictures of the operator's page in this folder: a busy pool, a pool whose workers are all stuck, and many pools, each
# in light and dark. Needs weir and its PHP (make build php), and chromium-headless-shell (setup/test.packages). Takes three minutes.
#
#     docs/images/make.sh [PATH OF weir]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
weir=$(realpath "${1:-$here/../../target/release/weir}")
work=$(mktemp -d /tmp/weir.XXXX)
chmod 755 "$work"
started=()

finish() {
    # Only what this script has started.
    kill "${started[@]}" 2>/dev/null || true
    wait || true
    rm -rf "$work"
}
trap finish EXIT

mkdir -p "$work/public" "$work/spool"
chmod 1777 "$work/spool"
cat >"$work/public/index.php" <<'PHP'
<?php
usleep(random_int(20, 60) * 1000);
echo "a page of the shop\n";
PHP
echo '<?php sleep(600);' >"$work/public/report.php"
user=
[ "$(id -u)" != 0 ] || user='user = "nobody"'
cat >"$work/weir.toml" <<TOML
[server]
$user
admin = "unix:$work/admin.sock"
admin_tcp = "127.0.0.1:9280"
spool_dir = "$work/spool"
shutdown_timeout = "0"

[listen.web]
address = "127.0.0.1:9281"

[site.shop]
root = "$work/public"
pool = "shop"

[pool.shop]
runtime = "php"
$user
pm = "dynamic"
max_children = 8
start_servers = 4
min_spare_servers = 2
max_spare_servers = 6

[pool.shop.queue]
timeout = "30s"

[log]
access = "off"
error = "$work/error.log"
TOML

"$weir" serve -c "$work/weir.toml" &
first=$!
started+=($first)
serves() {
    for _ in $(seq 300); do
        curl -fs -o "$work/answer" http://127.0.0.1:9281/ && return
        sleep 0.1
    done
}
serves

# The browser is told what to do over a pipe: JSON, each message ended by a zero byte (Chrome DevTools Protocol).
mkfifo "$work/orders" "$work/answers"
chromium-headless-shell --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --no-proxy-server \
    --hide-scrollbars --remote-debugging-pipe --user-data-dir="$work/profile" 3<"$work/orders" 4>"$work/answers" \
    2>"$work/browser.err" &
started+=($!)
exec 5>"$work/orders" 6<"$work/answers"
number=0
session=
# Sends one order and prints its answer. Events between them are skipped.
order() {
    number=$((number + 1))
    printf '{"id":%d,%s"method":"%s","params":%s}\0' $number "$session" "$1" "$2" >&5
    local answer
    while IFS= read -r -d '' -u 6 -t 60 answer; do
        case $answer in *"\"id\":$number,"*)
            printf '%s' "$answer"
            return
            ;;
        esac
    done
    echo "make.sh: the browser does not answer: $1" >&2
    exit 1
}
# What a key has in an answer.
value() { sed 's/.*"'"$1"'":"\([^"]*\)".*/\1/'; }

order Target.createTarget '{"url":"http://127.0.0.1:9280/"}' >"$work/answer"
target=$(value targetId <"$work/answer")
order Target.attachToTarget "{\"targetId\":\"$target\",\"flatten\":true}" >"$work/answer"
session="\"sessionId\":\"$(value sessionId <"$work/answer")\","

# A picture in each colour scheme, as tall as what it shows.
picture() {
    local scheme
    order Emulation.setDeviceMetricsOverride "{\"width\":940,\"height\":$2,\"deviceScaleFactor\":1,\"mobile\":false}" \
        >"$work/answer"
    for scheme in light dark; do
        order Emulation.setEmulatedMedia \
            "{\"features\":[{\"name\":\"prefers-color-scheme\",\"value\":\"$scheme\"}]}" >"$work/answer"
        sleep 1
        order Page.captureScreenshot '{"format":"png"}' >"$work/answer"
        value data <"$work/answer" | base64 -d >"$here/$1-$scheme.png"
    done
}

# Two bursts over a steady load.
"$weir" bench http://127.0.0.1:9281/ -r 90 --poisson -t 75s --json >"$work/bench" &
started+=($!)
for _ in 1 2; do
    sleep 20
    "$weir" bench http://127.0.0.1:9281/ -c 14 -t 6s --json >"$work/burst"
done
sleep 15
picture busy 690

# Every worker runs a report that does not end; visitors wait.
for _ in $(seq 8); do
    curl -s -o "$work/stuck" http://127.0.0.1:9281/report.php &
    started+=($!)
done
sleep 25
"$weir" bench http://127.0.0.1:9281/ -r 2 --no-probe -t 25s --json >"$work/waiting" &
started+=($!)
sleep 8
picture stuck 780

# Many pools; one of them is stuck.
kill "$first"
wait "$first" || true
for name in blog wiki news api mail; do
    cp "$work/public/index.php" "$work/public/$name.php"
done
for name in blog wiki news api mail report; do
    cat >>"$work/weir.toml" <<TOML
[[site.shop.route]]
path = "/$name.php"
pool = "$name"
[pool.$name]
runtime = "php"
$user
pm = "static"
max_children = 2
TOML
done
"$weir" serve -c "$work/weir.toml" &
started+=($!)
serves
rate=4
for name in index blog wiki news api mail; do
    "$weir" bench "http://127.0.0.1:9281/$name.php" -r "$rate" --poisson -t 40s --json >"$work/bench-$name" &
    started+=($!)
    rate=$((rate + 5))
done
for _ in 1 2 3; do
    curl -s -o "$work/stuck" http://127.0.0.1:9281/report.php &
    started+=($!)
done
sleep 25
order Page.reload '{}' >"$work/answer"
sleep 3
picture many 760
ls -l "$here"/*.png
