"""A client of HTTP/2 over TLS whose load is the same in each run: requests that are sent together, in one record, and then all of their
answers. h2load sends a request as soon as one is answered, so how many come together depends on the machine."""

import socket
import ssl
import struct

from . import processes

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS = 4
INITIAL_WINDOW = 4
MOST = (1 << 31) - 1


class Connection:
    """A connection that asks for one path again and again."""

    def __init__(self, address, authority, path):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(socket.create_connection(address, timeout=60), server_hostname=authority)
        if self.socket.selected_alpn_protocol() != "h2":
            raise processes.Failed("the server does not offer HTTP/2")
        self.next_stream, self.received = 1, b""
        # As browsers and h2load do, fields that repeat are added to HPACK's table (RFC 7541 §6.2.1), and named by their numbers
        # from the second request on.
        fields = ((0x44, path), (0x41, authority), (0x7A, "bench"))
        self.first = b"\x82\x87" + b"".join(bytes([index, len(value)]) + value.encode() for index, value in fields)
        self.later = b"\x82\x87\xc0\xbf\xbe"
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", INITIAL_WINDOW, MOST))
                            + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", MOST - 65535)))

    def send(self, count):
        """Sends so many requests at once."""
        frames = []
        for _ in range(count):
            block = self.first if self.next_stream == 1 else self.later
            frames.append(frame(HEADERS, END_HEADERS | END_STREAM, self.next_stream, block))
            self.next_stream += 2
        self.socket.sendall(b"".join(frames))

    def receive(self, count):
        """Waits for so many whole answers."""
        while count:
            kind, flags, stream, payload = self.frame()
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
            elif kind in (RST_STREAM, GOAWAY):
                raise processes.Failed(f"the server ended stream {stream} or the connection: {payload!r}")
            # Index 8 of HPACK's table: status 200.
            elif kind == HEADERS and b"\x88" not in payload[:4]:
                raise processes.Failed(f"the answer begins with {payload!r}")
            count -= stream > 0 and bool(flags & END_STREAM)

    def frame(self):
        while len(self.received) < 9 or len(self.received) < 9 + length(self.received):
            piece = self.socket.recv(65536)
            if not piece:
                raise processes.Failed("the server closed a connection")
            self.received += piece
        end = 9 + length(self.received)
        kind, flags, stream = struct.unpack("!BBI", self.received[3:9])
        payload, self.received = self.received[9:end], self.received[end:]
        return kind, flags, stream, payload

    def close(self):
        self.socket.close()


def length(head):
    return int.from_bytes(head[:3], "big")


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


def ask(address, authority, path, connections, streams, count):
    """Sends `count` requests, `streams` at once on each connection; each connection sends its own in a round."""
    clients = [Connection(address, authority, path) for _ in range(connections)]
    for _ in range(count // (connections * streams)):
        for client in clients:
            client.send(streams)
        for client in clients:
            client.receive(streams)
    for client in clients:
        client.close()
