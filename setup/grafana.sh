#!/bin/sh
# Checks the dashboard with the types of Grafana, from a Go module of a fixed version, whose checksums the Go command verifies.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/newer-go.sh"
dashboard=$(realpath "$here/../packaging/grafana/weir.json")
cd "$here/grafana"
go run -mod=readonly . "$dashboard"
# A check that accepts everything is none.
broken=$(mktemp)
trap 'rm -f "$broken"' EXIT
sed 's/"gridPos"/"gridPosition"/' "$dashboard" >"$broken"
if go run -mod=readonly . "$broken" 2>/dev/null; then
    echo "setup: an unknown field was accepted" >&2
    exit 1
fi
