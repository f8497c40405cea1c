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
# Windows before the server says something else, and the largest frame (RFC 9113 §6.9.2, §4.2).
FIRST_WINDOW, MOST_FRAME = 65_535, 16_384
# HPACK's indices (RFC 7541, appendix A), with the bit that adds the field to the table.
AUTHORITY, PATH, USER_AGENT = 0x41, 0x44, 0x7A
# What Firefox sends for an image of a page, and a session's cookie.
BROWSER = ((USER_AGENT, "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
           (0x53, "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"), (0x51, "en-US,en;q=0.5"),
           (0x50, "gzip, deflate, br, zstd"), (0x73, "https://bench.example/"),
           (0x60, "PHPSESSID=5u9n3kq0b1h8j2m4v6c7x8z9a1; theme=dark; consent=1700000000"), ("sec-fetch-dest", "image"),
           ("sec-fetch-mode", "no-cors"), ("sec-fetch-site", "same-origin"), ("priority", "u=5, i"), ("te", "trailers"))


class Connection:
    """A connection that asks for one path again and again. `body`: of each request, bytes. `fields`: besides those that say what is asked
    for; each is a name, or its index in HPACK's table, and a value."""

    def __init__(self, address, authority, path, fields=((USER_AGENT, "bench"),), body=b""):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(socket.create_connection(address, timeout=60), server_hostname=authority)
        if self.socket.selected_alpn_protocol() != "h2":
            raise processes.Failed("the server does not offer HTTP/2")
        self.next_stream, self.received = 1, b""
        # As browsers and h2load do, fields that repeat are added to HPACK's table (RFC 7541 §6.2.1), and named by their numbers
        # from the second request on.
        fields = ((PATH, path), (AUTHORITY, authority), *fields)
        # Method and scheme.
        begin = b"\x83\x87" if body else b"\x82\x87"
        self.first = begin + b"".join(literal(name, value) for name, value in fields)
        self.later = begin + bytes(0xBD + len(fields) - number for number in range(len(fields)))
        self.body, self.window, self.stream_window, self.allowed, self.answered = body, FIRST_WINDOW, FIRST_WINDOW, {}, 0
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack("!HI", INITIAL_WINDOW, MOST))
                            + frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", MOST - 65535)))

    def send(self, count):
        """Sends so many requests at once, and then their bodies, one after the other, as the server allows."""
        frames, end = [], 0 if self.body else END_STREAM
        streams = range(self.next_stream, self.next_stream + 2 * count, 2)
        for stream in streams:
            block = self.first if stream == 1 else self.later
            frames.append(frame(HEADERS, END_HEADERS | end, stream, block))
        self.next_stream += 2 * count
        self.socket.sendall(b"".join(frames))
        for stream in streams if self.body else ():
            self.upload(stream)

    def upload(self, stream):
        at, self.allowed = 0, {stream: self.stream_window}
        while at < len(self.body):
            length = min(len(self.body) - at, self.window, self.allowed[stream], MOST_FRAME)
            if length <= 0:
                self.take()
                continue
            is_last = at + length == len(self.body)
            self.socket.sendall(frame(DATA, END_STREAM if is_last else 0, stream, self.body[at:at + length]))
            at += length
            self.window -= length
            self.allowed[stream] -= length

    def receive(self, count):
        """Waits for so many whole answers."""
        while self.answered < count:
            self.take()
        self.answered -= count

    def take(self):
        """Takes a frame."""
        kind, flags, stream, payload = self.frame()
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack("!HI", payload[at:at + 6])
                if name == INITIAL_WINDOW:
                    self.allowed = {one: allowed + value - self.stream_window for one, allowed in self.allowed.items()}
                    self.stream_window = value
            self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
        elif kind in (RST_STREAM, GOAWAY):
            raise processes.Failed(f"the server ended stream {stream} or the connection: {payload!r}")
        # Index 8 of HPACK's table: status 200.
        elif kind == HEADERS and b"\x88" not in payload[:4]:
            raise processes.Failed(f"the answer begins with {payload!r}")
        elif kind == WINDOW_UPDATE and not stream:
            self.window += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE and stream in self.allowed:
            self.allowed[stream] += int.from_bytes(payload, "big")
        self.answered += kind in (DATA, HEADERS) and bool(flags & END_STREAM)

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


def literal(name, value):
    """A field that is added to the table, without the Huffman code."""
    text = lambda text: bytes([len(text)]) + text.encode()
    return (bytes([name]) if isinstance(name, int) else b"\x40" + text(name)) + text(value)


class Client:
    """Requests over HTTP/2, `at_once` on each connection; fields and body as those of Connection."""

    is_tls = True

    def __init__(self, authority, at_once, **what):
        self.authority, self.at_once, self.what = authority, at_once, what

    def ask(self, address, path, connections, count):
        """Sends `count` requests on kept connections; each connection sends its own in a round."""
        clients = [Connection(address, self.authority, path, **self.what) for _ in range(connections)]
        for _ in range(count // (connections * self.at_once)):
            for client in clients:
                client.send(self.at_once)
            for client in clients:
                client.receive(self.at_once)
        for client in clients:
            client.close()
