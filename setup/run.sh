#!/bin/sh
# Serves a folder and prints what to try: setup/run.sh WEIR FOLDER ADDRESS [ADDRESS FOR HTTPS]
set -eu
weir=$1 folder=$2 listen=$3 https=${4:-}

# If root starts it, weir serves as an ordinary user (the folder's owner, else www-data). That user may have no access
# to the checkout: then the script serves a copy in a folder that every user may read.
readable() {
    [ "$(id -u)" -eq 0 ] || return 0
    user=$(stat -c %U "$folder")
    case $user in root | UNKNOWN) user=www-data ;; esac
    id "$user" >/dev/null 2>&1 || user=nobody
    runuser -u "$user" -- test -r "$(realpath "$folder")/index.php"
}

if ! readable; then
    copy=$(mktemp -d /tmp/weir-site.XXXXXX)
    cp -R "$folder/." "$copy/"
    chmod -R u=rwX,go=rX "$copy"
    # Removed when this process has ended. This process becomes weir.
    (
        trap '' INT TERM HUP
        tail --pid=$$ -f /dev/null
        rm -rf "$copy"
    ) </dev/null >/dev/null 2>&1 &
    echo "$user may not read $(realpath "$folder"): serving a copy of it, $copy"
    folder=$copy
fi

cat <<SAY

  This weir was built quickly, not to be fast (make build is for that).
  What to try, in a browser or another terminal:
    http://$listen/                               the page: forms, an upload, a stream, a slow script
    curl -i http://$listen/hello.php/a/b?c=d      what a script is told of its request
    curl -r 0-63 -i http://$listen/weir.svg       a part of a static file
    curl -N http://$listen/stream.php             events as they happen

SAY
if [ -n "$https" ]; then
    cat <<SAY
    https://localhost:${https##*:}/                       the same page; $weir trust
                                                  says how to make browsers accept its certificate

SAY
    set -- --domain localhost --listen-https "$https"
else
    set --
fi
exec "$weir" serve "$folder" --listen "$listen" --workers 4 "$@"
