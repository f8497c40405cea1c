#!/bin/sh
# Builds Pebble, a certificate authority for tests, and its name server: setup/pebble.sh FOLDER
#
# They are Go modules of a fixed version, whose checksums the Go command verifies. Pebble needs a newer Go than Debian 12 has. From 1.21
# on, Go gets a newer one by itself; an older one gets it here, as the same module.
set -eu

version=v2.10.0
folder=$(realpath -m "$1")

[ ! -x "$folder/pebble" ] || [ ! -x "$folder/pebble-challtestsrv" ] || [ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || exit 0
command -v go >/dev/null || {
    echo 'setup: go is missing; setup/install.sh test installs it' >&2
    exit 1
}
echo "setup: building Pebble $version"
mkdir -p "$folder"
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
if [ "${minor:-0}" -lt 21 ]; then
    module=golang.org/toolchain@v0.0.1-go1.24.4.$(go env GOOS)-$(go env GOARCH)
    toolchain=$(go mod download -json "$module" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
    chmod -R u+w "$toolchain"
    chmod -R +x "$toolchain/bin" "$toolchain/pkg/tool"
    PATH="$toolchain/bin:$PATH"
fi
for program in pebble pebble-challtestsrv; do
    GOBIN="$folder" GOFLAGS=-modcacherw go install "github.com/letsencrypt/pebble/v2/cmd/$program@$version"
done
echo "$version" >"$folder/version"
