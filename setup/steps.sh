# The steps of setup/test.sh and setup/conformance.sh, which read this file.

# step NAME COMMAND...: runs a check, and prints its time. If it fails: calls `failed NAME`, which each of the scripts has.
step() {
    name=$1
    shift
    echo
    echo "=== $name: $*"
    began=$(date +%s)
    if "$@" </dev/null; then
        echo "=== $name: fine, $(($(date +%s) - began)) s"
    else
        echo "=== $name: FAILED after $(($(date +%s) - began)) s" >&2
        failed "$name"
    fi
}
