#!/bin/sh
# Serves a folder and says what to try: setup/run.sh WEIR FOLDER ADDRESS
set -eu
weir=$1 folder=$2 listen=$3

cat <<SAY

  What to try, in a browser or another terminal:
    http://$listen/                               the page: forms, an upload, a stream, a slow script
    curl -i http://$listen/hello.php/a/b?c=d      what a script is told of its request
    curl -r 0-63 -i http://$listen/weir.svg       a part of a static file
    curl -N http://$listen/stream.php             events as they happen

SAY
exec "$weir" serve "$folder" --listen "$listen" --workers 4
