"""What QUIC asks of a server (RFC 9000, RFC 9001), beside HTTP/3."""

import copy
import os
import socket
import time

from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import AlertDescription, Epoch

import client as c
from attacks import Initials, sockets
from client import Connection
from expect import check, connect, equal, raw, still_serves

# The first 0x100 codes after this are alerts of TLS (RFC 9001 §4.8).
CRYPTO_ERROR = 0x100
UNRECOGNIZED_NAME = 112
# RFC 9001 §5.8 and RFC 9000 §10.3
SMALLEST_RESET = 21


def asked(target, data, seconds=1.0, most=1):
    """Sends a datagram from a port of its own, and returns what comes back in this time, at most so many."""
    with socket.socket(target.family(), socket.SOCK_DGRAM) as one:
        one.connect(target.address)
        one.send(data)
        answers = []
        until = time.monotonic() + seconds
        while len(answers) < most and (left := until - time.monotonic()) > 0:
            one.settimeout(left)
            try:
                answers.append(one.recv(65536))
            except TimeoutError:
                break
        return answers


def long_header(version, other, own, rest=b"", kind=0xC0):
    return bytes([kind]) + version.to_bytes(4, "big") + bytes([len(other)]) + other + bytes([len(own)]) + own + rest


@check("transport")
def floods_of_small_frames_end_the_connection(target):
    for payload in (b"\x01" * 1000, (b"\x1a" + bytes(8)) * 100):
        connection = raw(target)
        still_serves(connection)
        sent = 0
        while sent < 10_000 and not connection.ended:
            connection.send_raw(connection.packet(payload))
            sent += 1000 if payload[0] == 1 else 100
            connection.turn(0.01)
        connection.wait(lambda: connection.ended, "the end of the connection")
        equal(connection.ended.error_code, c.EXCESSIVE_LOAD, f"after {sent} frames")
        assert sent > 1000, f"after {sent} frames"


@check("transport")
def unknown_versions_are_answered_with_a_list(target):
    other, own = os.urandom(8), os.urandom(20)
    packet = long_header(0x1A2A3A4A, other, own).ljust(1200, b"\0")
    (answer,) = asked(target, packet)
    assert answer[0] & 0x80, answer
    equal(answer[1:5], b"\0\0\0\0", "the version of the answer")
    equal(answer[5:26], bytes([20]) + own, "the ID of the client")
    equal(answer[26:35], bytes([8]) + other, "the ID of the server")
    versions = [answer[at : at + 4] for at in range(35, len(answer), 4)]
    assert b"\0\0\0\1" in versions, versions
    assert packet[1:5] not in versions, versions
    # RFC 9000 §6.1: no answer to less than 1,200 bytes, which would be an amplification; and none to an answer of this kind.
    equal(asked(target, packet[:1100], 0.5), [])
    equal(asked(target, long_header(0, other, own, b"\x1a\x2a\x3a\x4a").ljust(1200, b"\0"), 0.5), [])


@check("transport")
def a_client_may_begin_with_another_version(target):
    connection = connect(target, supported_versions=[0x1A2A3A4A, QuicProtocolVersion.VERSION_1], original_version=0x1A2A3A4A)
    still_serves(connection)
    connection.close()


@check("transport")
def small_first_datagrams_are_dropped(target):
    initials = Initials(target)
    assert asked(target, initials.datagram(1200)), "no answer to 1,200 bytes"
    equal(asked(target, initials.datagram(1199), 0.5), [])


@check("transport")
def a_client_that_does_not_answer_gets_three_times_its_bytes(target):
    connection = Connection(target, http=False).start()
    sent = connection.sent
    # The server sends again what is not acknowledged.
    until = time.monotonic() + 4
    received = 0
    connection.socket.setblocking(True)
    while (left := until - time.monotonic()) > 0:
        connection.socket.settimeout(left)
        try:
            received += len(connection.socket.recv(65536))
        except TimeoutError:
            break
    connection.drop()
    print(f"  {received} bytes for {sent}")
    assert 0 < received <= 3 * sent, f"{received} bytes for {sent}"


@check("transport")
def nobody_is_told_of_ids_that_were_never_given(target):
    """IDs that the server did not make itself may be dropped. What is sent is smaller than what it answers (RFC 9000 §10.3.3)."""
    for size in (1200, 200, 60, SMALLEST_RESET):
        for answer in asked(target, b"\x40" + os.urandom(size - 1), 0.2):
            assert SMALLEST_RESET <= len(answer) < size, f"{len(answer)} bytes for {size}"
    # Long headers belong to handshakes.
    equal(asked(target, long_header(1, os.urandom(8), os.urandom(8), os.urandom(1000), 0xE0), 0.5), [])


@check("transport")
def an_ended_connection_is_reset_with_its_token(target):
    """A stateless reset is smaller than what it answers, and not to be told from other packets (RFC 9000 §10.3)."""
    connection = connect(target)
    still_serves(connection)
    ids = [connection.quic._peer_cid, *connection.quic._peer_cid_available]
    assert len(ids) >= 2, "the server gives no spare IDs"
    equal(len({one.cid for one in ids}), len(ids), "the number of different IDs")
    connection.close()

    def reset_of(one, size):
        (answer,) = asked(target, (b"\x40" + one.cid).ljust(size, b"x"), 0.2) or [b""]
        return answer if answer[-16:] == one.stateless_reset_token else None

    for one in ids:
        # The server remembers an ended connection for a moment (RFC 9000 §10.2).
        until = time.monotonic() + c.LIMIT
        while not (answer := reset_of(one, 200)):
            assert time.monotonic() < until, f"no stateless reset for the ID {one.cid.hex()}"
        assert SMALLEST_RESET <= len(answer) < 200, f"{len(answer)} bytes for 200"
        equal(answer[0] & 0xC0, 0x40, "the form of the answer")
        time.sleep(0.05)
        small = reset_of(one, 40)
        assert small is None or len(small) < 40, f"{len(small)} bytes for 40"
        equal(reset_of(one, SMALLEST_RESET), None, "an answer to a packet that is as small as the smallest")


def wait_until_keys_are_known(connection):
    """Waits until the server has acknowledged a packet with the newest keys. Before that a client may not update them (RFC 9001
    §6.1), and aioquic does not see to it. The server updates its keys, too."""
    keys = connection.quic._cryptos[Epoch.ONE_RTT].send
    phase = None
    while phase != keys.key_phase:
        phase = keys.key_phase
        connection.quic.send_ping(ping := object())
        connection.wait(lambda: ping in connection.pings, "an answer to PING")


@check("transport")
def keys_may_be_updated(target):
    connection = connect(target)
    phases = set()
    # Each time while a file is on its way.
    for count in range(4):
        stream = connection.request("GET", "/ten.bin")
        answer = connection.answer_of(stream)
        connection.wait(lambda: len(answer.body) > 100_000, "the beginning of a file")
        wait_until_keys_are_known(connection)
        connection.quic.request_key_update()
        connection.quic.send_ping(count)
        connection.wait(lambda: count in connection.pings, "an answer to PING with new keys")
        phases.add(connection.quic._cryptos[Epoch.ONE_RTT].send.key_phase)
        equal(len(connection.answer(stream).body), 10_000_000)
    equal(phases, {0, 1}, "the phases of keys")
    connection.close()


@check("transport")
def a_client_s_port_may_change(target):
    connection = connect(target)
    still_serves(connection)
    before = connection.socket.getsockname()
    for is_told in (False, True):
        large = connection.request("GET", "/ten.bin")
        answer = connection.answer_of(large)
        connection.wait(lambda: len(answer.body) > 500_000, "the beginning of a large file")
        body = b"b" * 500_000
        upload = connection.request("POST", "/back.php", body=body)
        connection.turn(0)
        # As behind a router that has forgotten the client; and as a client that moves on purpose (RFC 9000 §9.5).
        if is_told:
            connection.quic.change_connection_id()
        connection.new_socket()
        connection.quic.send_ping(7)
        equal(bytes(connection.answer(upload, limit=60).body), body)
        equal(len(connection.answer(large, limit=60).body), 10_000_000)
        still_serves(connection)
    assert connection.socket.getsockname() != before
    connection.close()


@check("transport")
def ids_are_given_as_they_are_used(target):
    connection = connect(target)
    seen = set()
    for _ in range(20):
        seen.add(connection.quic._peer_cid.cid)
        connection.wait(lambda: connection.quic._peer_cid_available, "a spare ID")
        connection.quic.change_connection_id()
        still_serves(connection)
    equal(len(seen), 20, "different IDs")
    connection.close()


@check("transport")
def nothing_is_taken_before_the_handshake(target):
    """No 0-RTT: tickets do not offer it, and what a client sends all the same is not a request."""
    first = connect(target)
    still_serves(first)
    first.wait(lambda: first.tickets, "a ticket")
    ticket = first.tickets[-1]
    assert not ticket.max_early_data_size, f"the ticket allows {ticket.max_early_data_size} bytes of 0-RTT"
    first.close()
    second = connect(target, ticket=copy.copy(ticket))
    assert second.handshake.session_resumed, "a full handshake"
    assert not second.handshake.early_data_accepted
    still_serves(second)
    second.close()
    greedy = copy.copy(ticket)
    greedy.max_early_data_size = 0xFFFFFFFF
    third = Connection(target, http=False, ticket=greedy)
    third.quic.connect(target.address, now=time.monotonic())
    third.begin()
    stream = third.raw_request("GET", "/echo.php?early")
    third.wait(lambda: third.handshake or third.ended, "the handshake")
    if third.ended is None:
        assert not third.handshake.early_data_accepted, "0-RTT was accepted"
        # Sent again after the handshake, it is served.
        equal(third.answer(stream).status, 200)
    third.drop()


@check("transport")
def names_and_protocols_that_are_unknown(target):
    def alert_of(change, **more):
        connection = Connection(target, change=change, **more).start()
        connection.wait(lambda: connection.handshake or connection.ended, "the end of a handshake")
        assert connection.ended, "the handshake was accepted"
        connection.drop()
        return connection.ended.error_code - CRYPTO_ERROR

    def other_name(quic):
        quic.configuration.server_name = "unknown.example"

    def other_protocol(quic):
        quic.configuration.alpn_protocols = ["h2", "other"]

    equal(alert_of(other_name), UNRECOGNIZED_NAME, "the alert for an unknown name")
    equal(
        alert_of(other_protocol, http=False), AlertDescription.no_application_protocol, "the alert for an unknown protocol"
    )


@check("transport")
def tokens_are_optional(target):
    """A token that is wrong is as good as none (RFC 9000 §8.1.3)."""
    first = connect(target)
    still_serves(first)
    first.run_for(0.1)
    tokens = first.tokens[-1:]
    first.close()
    for token in [os.urandom(50), b"\0", *tokens]:
        connection = connect(target, token=token)
        still_serves(connection)
        connection.close()


@check("transport")
def more_streams_than_allowed_end_the_connection(target):
    connection = Connection(target, http=False).connect().begin()
    connection.flush()
    stream = 4 * connection.quic._remote_max_streams_bidi
    connection.send_raw(connection.packet(c.stream_frame(stream, b"x")))
    connection.wait(lambda: connection.ended, "the end of the connection")
    equal(connection.ended.error_code, 0x04, "STREAM_LIMIT_ERROR")
    connection = Connection(target, http=False).connect().begin()
    connection.flush()
    most = connection.quic._remote_max_stream_data_bidi_remote
    connection.send_raw(connection.packet(c.stream_frame(0, b"x", most + 1)))
    connection.wait(lambda: connection.ended, "the end of the connection")
    equal(connection.ended.error_code, 0x03, "FLOW_CONTROL_ERROR")


@check("retry")
def addresses_are_validated_while_many_handshakes_are_half_done(target):
    """Then a client must show that it gets what is sent to its address (RFC 9000 §8.1.2)."""
    before = connect(target)
    equal(before.quic._retry_count, 0, "Retry packets without need")
    initials = Initials(target)
    ports = sockets(target, 64)
    for _ in range(10):
        for port in ports:
            port.send(initials.datagram())
    connection = connect(target)
    equal(connection.quic._retry_count, 1, "Retry packets")
    still_serves(connection)
    still_serves(before)
    # The token is for one address and one handshake.
    thief = Connection(target, http=False, token=connection.quic._peer_token).start()
    try:
        thief.wait(lambda: thief.handshake or thief.ended, "an answer to another one's token", limit=3)
    except c.Late:
        pass
    assert thief.handshake is None, "another one's token was accepted"
    thief.drop()
    before.close()
    connection.close()
    for port in ports:
        port.close()
