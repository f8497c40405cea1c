"""A client of HTTP/3 for tests: aioquic's QUIC with a socket and a clock of its own.

A connection with `http=True` reads answers with aioquic's strict HTTP/3, which ends the connection if the server breaks a rule. A
connection with `http=False` opens no stream by itself and takes answers apart with as few rules as possible, so that a test may send
what no client should.
"""

import os
import select
import socket
import ssl
import time

import pylsqpack
from aioquic import tls
from aioquic.buffer import Buffer, BufferReadError, encode_uint_var
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

# How long a test waits at most for what must come.
LIMIT = float(os.environ.get("WEIR_TEST_LIMIT", "20"))

# RFC 9114 §8.1, RFC 9204 §8.3
NO_ERROR = 0x100
GENERAL_PROTOCOL_ERROR = 0x101
STREAM_CREATION_ERROR = 0x103
CLOSED_CRITICAL_STREAM = 0x104
FRAME_UNEXPECTED = 0x105
FRAME_ERROR = 0x106
EXCESSIVE_LOAD = 0x107
ID_ERROR = 0x108
SETTINGS_ERROR = 0x109
MISSING_SETTINGS = 0x10A
REQUEST_REJECTED = 0x10B
REQUEST_CANCELLED = 0x10C
REQUEST_INCOMPLETE = 0x10D
MESSAGE_ERROR = 0x10E
QPACK_DECOMPRESSION_FAILED = 0x200
QPACK_ENCODER_STREAM_ERROR = 0x201
QPACK_DECODER_STREAM_ERROR = 0x202

# Types of frames (RFC 9114 §7.2, RFC 9218 §7.2)
DATA = 0x0
HEADERS = 0x1
CANCEL_PUSH = 0x3
SETTINGS = 0x4
PUSH_PROMISE = 0x5
GOAWAY = 0x7
MAX_PUSH_ID = 0xD
PRIORITY_UPDATE = 0xF0700

# Types of streams (RFC 9114 §6.2, RFC 9204 §4.2)
CONTROL = 0x0
PUSH = 0x1
QPACK_ENCODER = 0x2
QPACK_DECODER = 0x3


class Late(Exception):
    """What had to come did not come in time."""


class Target:
    """The server: its address, the name of its site, and the file of its authority."""

    def __init__(self, address, name, ca):
        host, port = address.rsplit(":", 1)
        self.address = (host.strip("[]"), int(port))
        self.name = name
        self.ca = ca

    def family(self):
        return socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET


class Answer:
    """What came on a stream so far."""

    def __init__(self):
        self.heads = []
        self.body = bytearray()
        self.is_over = False
        # The code of RESET_STREAM, and the one of STOP_SENDING.
        self.reset = None
        self.stopped = None
        # When its first part and its last part came.
        self.first_at = None
        self.last_at = None

    @property
    def statuses(self):
        """Of the heads, in order; trailers have none."""
        found = (dict(head).get(b":status") for head in self.heads)
        return [int(status) for status in found if status is not None]

    @property
    def status(self):
        return self.statuses[-1] if self.statuses else None

    def field(self, name):
        for head in reversed(self.heads):
            for key, value in head:
                if key == name.encode():
                    return value.decode()
        return None

    def text(self):
        return self.body.decode()

    def __repr__(self):
        return (
            f"statuses {self.statuses}, {len(self.body)} bytes {bytes(self.body[:200])!r}, over {self.is_over}, "
            f"reset {self.reset}, stopped {self.stopped}"
        )


class Connection:
    """A connection. `change` may change the QUIC connection before its first byte."""

    def __init__(self, target, http=True, ticket=None, token=b"", change=None, **settings):
        settings.setdefault("max_data", 1 << 30)
        settings.setdefault("max_stream_data", 1 << 30)
        configuration = QuicConfiguration(alpn_protocols=["h3"], server_name=target.name, **settings)
        configuration.load_verify_locations(target.ca)
        configuration.verify_mode = ssl.CERT_REQUIRED
        configuration.session_ticket = ticket
        configuration.token = token
        self.target = target
        self.tickets = []
        self.tokens = []
        self.quic = QuicConnection(
            configuration=configuration,
            session_ticket_handler=self.tickets.append,
            token_handler=self.tokens.append,
        )
        if change:
            change(self.quic)
        self.answers = {}
        self.handshake = None
        # The event that says why it has ended.
        self.ended = None
        self.pings = set()
        # Of the server's control stream: its SETTINGS, the numbers of its GOAWAYs, and all types in order.
        self.settings = None
        self.goaways = []
        self.control = []
        self.unidirectional = {}
        self.sent = 0
        self.received = 0
        self.datagrams = 0
        self.socket = None
        self.old_sockets = []
        self.new_socket()
        self.h3 = H3Connection(self.quic) if http else None
        self.partial = {}
        self.decoder = pylsqpack.Decoder(0, 0)
        self.own = {}

    # The socket

    def new_socket(self):
        """Uses another port from now on. The old socket stays open, so that the port is not given to another."""
        if self.socket is not None:
            self.old_sockets.append(self.socket)
        self.socket = socket.socket(self.target.family(), socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.setblocking(False)
        any_address = "::1" if self.target.family() == socket.AF_INET6 else "127.0.0.1"
        self.socket.bind((any_address, 0))

    def start(self):
        """Sends the first datagrams and waits for nothing."""
        self.quic.connect(self.target.address, now=time.monotonic())
        self.flush()
        return self

    def connect(self):
        """Shakes hands."""
        self.start()
        self.wait(lambda: self.handshake or self.ended, "the handshake")
        if self.ended:
            raise AssertionError(f"no handshake: {self.ended}")
        return self

    def flush(self):
        """Sends what is to be sent."""
        for data, address in self.quic.datagrams_to_send(now=time.monotonic()):
            self.send_raw(data, address)

    def send_raw(self, data, address=None):
        """Sends bytes as a datagram."""
        self.sent += len(data)
        try:
            self.socket.sendto(data, address or self.target.address)
        except (BlockingIOError, ConnectionRefusedError):
            # As if it was lost.
            pass

    def receive(self):
        """Takes all datagrams that are there."""
        while True:
            try:
                data, address = self.socket.recvfrom(65536)
            except (BlockingIOError, ConnectionRefusedError):
                return
            self.received += len(data)
            self.datagrams += 1
            self.quic.receive_datagram(data, address[:2], now=time.monotonic())
            self.take_events()

    def turn(self, most):
        """Sends, waits for at most `most` seconds for a datagram or a timer, and takes what came."""
        self.flush()
        timer = self.quic.get_timer()
        wait = most
        if timer is not None:
            wait = min(wait, max(0, timer - time.monotonic()))
        select.select([self.socket], [], [], wait)
        self.receive()
        timer = self.quic.get_timer()
        if timer is not None and timer <= time.monotonic():
            self.quic.handle_timer(now=time.monotonic())
        self.take_events()
        self.flush()

    def wait(self, is_there, what, limit=None):
        """Goes on until `is_there()`."""
        until = time.monotonic() + (limit or LIMIT)
        while not is_there():
            left = until - time.monotonic()
            if left <= 0:
                raise Late(f"{what}; ended: {self.ended}")
            self.turn(min(left, 1))

    def run_for(self, seconds):
        """Goes on for a fixed time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.turn(left)

    def close(self):
        """Says that it has ended, and closes its sockets."""
        self.quic.close(error_code=NO_ERROR)
        self.flush()
        self.drop()

    def drop(self):
        """Leaves without a word."""
        for one in [self.socket, *self.old_sockets]:
            one.close()

    # What comes

    def take_events(self):
        while (event := self.quic.next_event()) is not None:
            self.take_event(event)

    def take_event(self, event):
        if isinstance(event, events.HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, events.ConnectionTerminated):
            self.ended = event
        elif isinstance(event, events.PingAcknowledged):
            self.pings.add(event.uid)
        elif isinstance(event, events.StreamReset):
            answer = self.answer_of(event.stream_id)
            answer.reset = event.error_code
            answer.is_over = True
        elif isinstance(event, events.StopSendingReceived):
            self.answer_of(event.stream_id).stopped = event.error_code
        elif isinstance(event, events.StreamDataReceived) and event.stream_id % 4 == 3:
            self.take_unidirectional(event)
        elif isinstance(event, events.StreamDataReceived) and self.h3 is None:
            self.take_frames(event)
        if self.h3 is not None:
            for http_event in self.h3.handle_event(event):
                self.take_http(http_event)

    def answer_of(self, stream):
        return self.answers.setdefault(stream, Answer())

    def take_http(self, event):
        answer = self.answer_of(event.stream_id)
        answer.last_at = time.monotonic()
        answer.first_at = answer.first_at or answer.last_at
        if isinstance(event, HeadersReceived):
            answer.heads.append(event.headers)
        elif isinstance(event, DataReceived):
            answer.body += event.data
        answer.is_over = answer.is_over or event.stream_ended

    def take_unidirectional(self, event):
        """Reads SETTINGS and GOAWAY from the server's control stream."""
        kind, data = self.unidirectional.get(event.stream_id, (None, b""))
        data += event.data
        buf = Buffer(data=data)
        done = 0
        try:
            if kind is None:
                kind = buf.pull_uint_var()
                done = buf.tell()
            while kind == CONTROL:
                frame = buf.pull_uint_var()
                payload = buf.pull_bytes(buf.pull_uint_var())
                done = buf.tell()
                self.control.append(frame)
                if frame == SETTINGS:
                    self.settings = numbers(payload)
                elif frame == GOAWAY:
                    self.goaways.append(Buffer(data=payload).pull_uint_var())
        except BufferReadError:
            pass
        self.unidirectional[event.stream_id] = (kind, data[done:])

    def take_frames(self, event):
        """Reads the frames of an answer."""
        answer = self.answer_of(event.stream_id)
        answer.last_at = time.monotonic()
        answer.first_at = answer.first_at or answer.last_at
        data = self.partial.pop(event.stream_id, b"") + event.data
        buf = Buffer(data=data)
        done = 0
        try:
            while True:
                frame = buf.pull_uint_var()
                payload = buf.pull_bytes(buf.pull_uint_var())
                done = buf.tell()
                if frame == HEADERS:
                    answer.heads.append(self.decoder.feed_header(event.stream_id, payload)[1])
                elif frame == DATA:
                    answer.body += payload
        except BufferReadError:
            self.partial[event.stream_id] = data[done:]
        answer.is_over = answer.is_over or event.end_stream

    # What is sent with strict HTTP/3

    def head(self, method, path, *more):
        """The fields of a request."""
        name = self.target.name
        port = self.target.address[1]
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", f"{name}:{port}".encode()),
            (b":path", path.encode()),
        ]
        return fields + [(key.encode(), value.encode()) for key, value in more]

    def request(self, method, path, *more, body=None, is_last=True):
        """Sends a request, and returns its stream."""
        stream = self.quic.get_next_available_stream_id()
        fields = self.head(method, path, *more)
        self.h3.send_headers(stream, fields, end_stream=is_last and body is None)
        if body is not None:
            self.h3.send_data(stream, body, end_stream=is_last)
        return stream

    def answer(self, stream, limit=None):
        """Waits for the end of the answer on a stream."""
        answer = self.answer_of(stream)
        self.wait(lambda: answer.is_over or self.ended, f"an answer on stream {stream}: {answer}", limit)
        assert answer.is_over, f"the connection has ended before the answer: {self.ended}, {answer}"
        return answer

    def get(self, path, *more):
        """Sends a GET and waits for its answer."""
        return self.answer(self.request("GET", path, *more))

    # What is sent byte for byte

    def own_stream(self, kind):
        """Opens a stream of this type."""
        stream = self.quic.get_next_available_stream_id(is_unidirectional=True)
        self.quic.send_stream_data(stream, encode_uint_var(kind))
        self.own[kind] = stream
        return stream

    def begin(self, settings=b""):
        """Opens the three streams that HTTP/3 needs, with these SETTINGS."""
        self.own_stream(CONTROL)
        self.send_control(frame(SETTINGS, settings))
        self.own_stream(QPACK_ENCODER)
        self.own_stream(QPACK_DECODER)
        return self

    def send_control(self, data):
        self.quic.send_stream_data(self.own[CONTROL], data)

    def bytes_on_request(self, data, is_last=True):
        """Sends bytes on a new stream for requests, and returns it."""
        stream = self.quic.get_next_available_stream_id()
        self.quic.send_stream_data(stream, data, end_stream=is_last)
        return stream

    def raw_request(self, method, path, *more, data=b"", is_last=True):
        """Sends HEADERS and then these bytes."""
        head = frame(HEADERS, section(self.head(method, path, *more)))
        return self.bytes_on_request(head + data, is_last)

    def packet(self, frames):
        """A datagram of one packet with these frames, whose loss nobody looks after."""
        crypto = self.quic._cryptos[tls.Epoch.ONE_RTT]
        number = self.quic._packet_number
        self.quic._packet_number += 1
        head = bytes([0x41 | crypto.key_phase << 2]) + self.quic._peer_cid.cid
        head += (number & 0xFFFF).to_bytes(2, "big")
        return crypto.encrypt_packet(head, frames, number)


def section(fields):
    """A field section of literals, without Huffman's code (RFC 9204 §4.5.6): it can have what no encoder would write."""
    parts = [b"\0\0"]
    for name, value in fields:
        parts += [prefixed(len(name), 3, 0x20), name, prefixed(len(value), 7, 0), value]
    return b"".join(parts)


def prefixed(number, bits, first):
    """A number with a prefix of so many bits (RFC 7541 §5.1)."""
    most = (1 << bits) - 1
    if number < most:
        return bytes([first | number])
    data = bytearray([first | most])
    number -= most
    while number >= 128:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes(data) + bytes([number])


def frame(kind, payload=b""):
    """A frame of HTTP/3."""
    return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload


def numbers(data):
    """The pairs of a SETTINGS frame."""
    buf = Buffer(data=data)
    found = {}
    while not buf.eof():
        key = buf.pull_uint_var()
        found[key] = buf.pull_uint_var()
    return found


def stream_frame(stream, data, offset=0, is_last=False):
    """A STREAM frame of QUIC (RFC 9000 §19.8)."""
    kind = 0x0E | int(is_last)
    head = [encode_uint_var(number) for number in (kind, stream, offset, len(data))]
    return b"".join(head) + data


def reset_frame(stream, code, size):
    """A RESET_STREAM frame of QUIC (RFC 9000 §19.4)."""
    return b"".join(encode_uint_var(number) for number in (0x04, stream, code, size))
