#!/bin/sh
# A dns_command for name servers that take updates (RFC 2136), as BIND, Knot and PowerDNS do: examples/dns/nsupdate.sh add|remove NAME VALUE
#
#   NSUPDATE_SERVER   the zone's primary name server [127.0.0.1]
#   NSUPDATE_PORT     its port [53]
#   NSUPDATE_KEY      file of a TSIG key, as tsig-keygen writes it [no key]
#
# It needs nsupdate (Debian: bind9-dnsutils).
set -eu

action=$1
name=$2
value=$3

case $action in
add) change="update add $name. 60 TXT \"$value\"" ;;
remove) change="update delete $name. TXT \"$value\"" ;;
*)
    echo "add or remove is expected, not $action" >&2
    exit 64
    ;;
esac

exec nsupdate -t 30 ${NSUPDATE_KEY:+-k "$NSUPDATE_KEY"} <<END
server ${NSUPDATE_SERVER:-127.0.0.1} ${NSUPDATE_PORT:-53}
$change
send
END
