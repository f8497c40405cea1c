#!/bin/sh
# Downloads the packages for Node that tests need, in the versions of setup/node/packages.sha512:
#
#   setup/node.sh TARGET
#
# They are unpacked into TARGET/node/node_modules. Nothing in them is run by that, and what they depend on stays away unless the list has it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
list=$here/node/packages.sha512
mkdir -p "$1"
target=$(cd "$1" && pwd)

# Only one at a time.
exec 9>"$target/.node.lock"
flock 9
cmp -s "$list" "$target/node/packages.sha512" && exit 0

echo 'setup: downloading packages for Node'
rm -rf "$target/node"
mkdir -p "$target/node/node_modules"
cd "$target/node"
while read -r hash file; do
    name=${file%.tgz}
    npm pack --silent "${name%-*}@${name##*-}" >/dev/null
    echo "$hash  $file" | sha512sum --quiet --check
    mkdir "node_modules/${name%-*}"
    tar --extract --gzip --strip-components 1 --file "$file" --directory "node_modules/${name%-*}"
done <"$list"
rm -- *.tgz
cp "$list" .
