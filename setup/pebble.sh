#!/bin/sh
# Builds Pebble, a certificate authority for tests, and its name server: setup/pebble.sh FOLDER
#
# They are Go modules of a fixed version, whose checksums the Go command verifies.
set -eu

version=v2.10.0
folder=$(realpath -m "$1")

[ ! -x "$folder/pebble" ] || [ ! -x "$folder/pebble-challtestsrv" ] || [ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
. "$(dirname "$0")/newer-go.sh"
echo "setup: building Pebble $version"
mkdir -p "$folder"
for program in pebble pebble-challtestsrv; do
    GOBIN="$folder" GOFLAGS=-modcacherw go install "github.com/letsencrypt/pebble/v2/cmd/$program@$version"
done
echo "$version" >"$folder/version"
