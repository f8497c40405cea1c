# The steps of setup/test.sh and setup/conformance.sh, which read this file.

# step NAME COMMAND...: runs a check, and prints its time. If it fails: calls `failed NAME`, which each of the scripts has.
step() {
    name=$1
    shift
    echo
    echo "=== $name: $*"
    began=$(date +%s)
    if "$@" </dev/null; then
        took "$name" fine "$began"
    else
        took "$name" FAILED "$began" >&2
        failed "$name"
    fi
}

# took NAME RESULT BEGAN: prints how a step ended and its time, and keeps both for `times`.
took() {
    echo "=== $1: $2, $(($(date +%s) - $3)) s" | tee -a "${steps:-/dev/null}"
}
