#!/bin/sh
# Installs the Python programs that tests need and Debian has not, in the versions of setup/python/requirements.txt:
#
#   setup/python.sh TARGET
#
# They are put into TARGET/python, an environment of their own.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
target=$(cd "$1" && pwd)

# Only one at a time.
exec 9>"$target/.python.lock"
flock 9
if ! cmp -s "$here/python/requirements.txt" "$target/python/requirements.txt"; then
    echo 'setup: installing Python programs for the tests'
    rm -rf "$target/python"
    python3 -m venv "$target/python"
    "$target/python/bin/pip" install --quiet --no-deps --disable-pip-version-check -r "$here/python/requirements.txt"
    cp "$here/python/requirements.txt" "$target/python/"
fi
