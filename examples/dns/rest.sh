#!/bin/sh
# A dns_command for a provider with an API over HTTP: examples/dns/rest.sh add|remove NAME VALUE
#
# Each provider has paths and fields of its own, so change these lines to those of yours. As it is, it works with Pebble's
# name server for tests (pebble-challtestsrv), whose API needs no token.
#
#   DNS_API          URL of the API
#   DNS_TOKEN_FILE   file with the token for it, which only root can read [no token]
set -eu

action=$1
name=$2
value=$3

case $action in
add)
    path=/set-txt
    body="{\"host\": \"$name.\", \"value\": \"$value\"}"
    ;;
remove)
    path=/clear-txt
    body="{\"host\": \"$name.\"}"
    ;;
*)
    echo "add or remove is expected, not $action" >&2
    exit 64
    ;;
esac

# The token comes by standard input, so that other users do not see it in the list of processes.
token() {
    if [ -n "${DNS_TOKEN_FILE:-}" ]; then
        printf 'header = "Authorization: Bearer %s"\n' "$(cat "$DNS_TOKEN_FILE")"
    fi
}

token | curl --config - --silent --show-error --fail --max-time 30 --header 'Content-Type: application/json' --data "$body" "$DNS_API$path"
