#!/bin/sh
# Builds the programs that tests need and Debian has not: those of setup/go, written in Go, with the versions in their go.mod.
#
#   setup/tools.sh TARGET
#
# They are put into TARGET/tools. A program that is there is built again only if its go.mod or go.sum has changed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/tools"
tools=$(cd "$1/tools" && pwd)

# Only one at a time.
exec 9>"$tools/.lock"
flock 9
for module in "$here"/go/*/; do
    name=$(basename "$module")
    versions=$(cat "$module/go.mod" "$module/go.sum" | sha256sum)
    if [ -x "$tools/$name" ] && [ "$(cat "$tools/$name.versions" 2>/dev/null)" = "$versions" ]; then
        continue
    fi
    package=$(sed -n 's/^import _ "\(.*\)"$/\1/p' "$module/tools.go")
    echo "setup: building $name"
    (cd "$module" && go build -mod=readonly -trimpath -o "$tools/$name" "$package")
    echo "$versions" >"$tools/$name.versions"
done
