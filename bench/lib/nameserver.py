"""A name server: `nameserver.py ADDRESS PORT SUFFIX=ADDRESS...`. A name that is SUFFIX or ends with .SUFFIX has this
address; the first match counts. It answers over UDP (RFC 1035, section 4). If there is no address of the family that was
asked for, the answer is empty."""

import socket
import struct
import sys

A, NO_SUCH_NAME, TTL = 1, 3, 300


def main():
    address, port, *names = sys.argv[1:]
    names = [name.split("=") for name in names]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, int(port)))
        while True:
            question, who = server.recvfrom(2048)
            reply = answer(question, names)
            if reply:
                server.sendto(reply, who)


def answer(question, names):
    """The message to send, or None."""
    labels, at = [], 12
    try:
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode("ascii", "replace").lower())
            at += 1 + question[at]
        kind, _ = struct.unpack_from("!HH", question, at + 1)
    except (IndexError, struct.error):
        return None
    name = ".".join(labels)
    addresses = [address for suffix, address in names if name == suffix or name.endswith(f".{suffix}")][:1]
    found = addresses if kind == A else []
    # An answer with the flags "recursion desired" and "recursion available", and one question.
    head = question[:2] + bytes([0x81, 0x80 | (0 if addresses else NO_SUCH_NAME)]) + struct.pack("!HHHH", 1, len(found), 0, 0)
    # The name of the question, class IN.
    records = [b"\xc0\x0c" + struct.pack("!HHIH", A, 1, TTL, 4) + socket.inet_aton(address) for address in found]
    return head + question[12:at + 5] + b"".join(records)


if __name__ == "__main__":
    main()
