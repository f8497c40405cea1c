"""What a server must ignore, what it must not accept, and how it refuses it (RFC 9114, RFC 9204)."""

import os

from aioquic.buffer import encode_uint_var

import client as c
from client import Connection, frame, prefixed, section
from expect import check, connect, equal, expect_end, expect_refusal, forbidden, raw, still_serves


def post_head(connection):
    return frame(c.HEADERS, section(connection.head("POST", "/echo.php")))


def expect_echo(connection, stream, length):
    answer = connection.answer(stream)
    assert answer.text().startswith(f"POST HTTP/3.0 length={length} body={length} "), answer


# What must be ignored


@check("unknown")
def unknown_frames_and_streams_are_ignored(target):
    grease = 0x1F * 7 + 0x21
    settings = encode_uint_var(grease) + encode_uint_var(5) + encode_uint_var(0x4D44) + encode_uint_var(1)
    connection = raw(target, settings)
    connection.send_control(frame(grease, b"ignored") + frame(0xF0F0F0, b"") + frame(0x4242, b"x" * 3000))
    for kind in (grease, 0x54, 0x4D4D4D):
        stream = connection.own_stream(kind)
        connection.quic.send_stream_data(stream, os.urandom(2000), end_stream=kind == grease)
    between = frame(grease, b"") + frame(0x2F0F, b"y" * 5000)
    body = frame(c.DATA, b"abc") + between + frame(c.DATA, b"") + frame(c.DATA, b"de")
    data = between + post_head(connection) + between + body + between
    expect_echo(connection, connection.bytes_on_request(data), 5)
    still_serves(connection)
    connection.close()


@check("unknown")
def frames_may_come_byte_by_byte(target):
    connection = raw(target)
    data = post_head(connection) + frame(c.DATA, b"abcde")
    stream = connection.quic.get_next_available_stream_id()
    for at in range(len(data)):
        connection.quic.send_stream_data(stream, data[at : at + 1], end_stream=at + 1 == len(data))
        connection.flush()
    expect_echo(connection, stream, 5)
    connection.close()


@check("unknown")
def parts_of_a_request_may_come_in_the_wrong_order(target):
    connection = raw(target)
    data = post_head(connection) + frame(c.DATA, b"a" * 3000)
    stream = connection.quic.get_next_available_stream_id()
    parts = [(at, data[at : at + 500]) for at in range(0, len(data), 500)]
    connection.quic._get_or_create_stream_for_send(stream)
    for at, part in reversed(parts):
        is_last = at + len(part) == len(data)
        connection.send_raw(connection.packet(c.stream_frame(stream, part, at, is_last)))
        # And once more.
        connection.send_raw(connection.packet(c.stream_frame(stream, part, at, is_last)))
    expect_echo(connection, stream, 3000)
    connection.close()


@check("unknown")
def priorities_may_be_wrong(target):
    connection = raw(target)
    for priority in ("u=9", "u=a", "i=?2", "", "=", "u=1, i, x=5", "u=-1", "i=5"):
        answer = connection.answer(connection.raw_request("GET", "/text.txt", ("priority", priority)))
        assert answer.status in (200, 400), f"{priority!r}: {answer}"
    update = encode_uint_var(connection.quic.get_next_available_stream_id()) + b"u=1, i"
    connection.send_control(frame(c.PRIORITY_UPDATE, update))
    still_serves(connection)
    connection.close()


# What must not be sent


@check("forbidden")
def frames_on_the_wrong_stream(target):
    unexpected = (c.FRAME_UNEXPECTED,)
    for name, kind, payload in (
        ("DATA", c.DATA, b"abc"),
        ("HEADERS", c.HEADERS, b"\0\0"),
        ("PUSH_PROMISE", c.PUSH_PROMISE, b"\0\0\0"),
        ("a second SETTINGS", c.SETTINGS, b""),
        ("PRIORITY of HTTP/2", 0x2, b"\0" * 5),
        ("PING of HTTP/2", 0x6, b"\0" * 8),
        ("WINDOW_UPDATE of HTTP/2", 0x8, b"\0" * 4),
        ("CONTINUATION of HTTP/2", 0x9, b""),
    ):
        forbidden(
            target, f"{name} on the control stream", unexpected, lambda one: one.send_control(frame(kind, payload))
        )
    for name, kind, payload in (
        ("SETTINGS", c.SETTINGS, b""),
        ("GOAWAY", c.GOAWAY, b"\0"),
        ("MAX_PUSH_ID", c.MAX_PUSH_ID, b"\0"),
        ("CANCEL_PUSH", c.CANCEL_PUSH, b"\0"),
        ("PUSH_PROMISE", c.PUSH_PROMISE, b"\0\0\0"),
        ("PRIORITY of HTTP/2", 0x2, b"\0" * 5),
        ("PING of HTTP/2", 0x6, b"\0" * 8),
        ("WINDOW_UPDATE of HTTP/2", 0x8, b"\0" * 4),
        ("CONTINUATION of HTTP/2", 0x9, b""),
    ):
        for where in ("before", "after"):
            data = frame(kind, payload)

            def send(one):
                one.bytes_on_request(data if where == "before" else post_head(one) + data, is_last=False)

            forbidden(target, f"{name} on a request's stream, {where} HEADERS", unexpected, send)
    forbidden(target, "DATA before HEADERS", unexpected, lambda one: one.bytes_on_request(frame(c.DATA, b"abc")))

    def after_trailers(kind):
        def send(one):
            trailers = frame(c.HEADERS, section([(b"x-sum", b"1")]))
            more = frame(kind, section([(b"x-sum", b"1")]))
            one.raw_request("POST", "/echo.php", data=frame(c.DATA, b"a") + trailers + more, is_last=False)

        return send

    forbidden(target, "DATA after trailers", unexpected, after_trailers(c.DATA))
    forbidden(target, "HEADERS after trailers", unexpected, after_trailers(c.HEADERS))


@check("forbidden")
def frames_of_a_wrong_size(target):
    wrong = (c.FRAME_ERROR,)
    for name, data in (
        ("a GOAWAY of nothing", frame(c.GOAWAY)),
        ("a GOAWAY with more", frame(c.GOAWAY, b"\0\0\0")),
        ("a MAX_PUSH_ID of nothing", frame(c.MAX_PUSH_ID)),
        ("a MAX_PUSH_ID with more", frame(c.MAX_PUSH_ID, b"\0\0")),
        ("a CANCEL_PUSH of nothing", frame(c.CANCEL_PUSH)),
    ):
        forbidden(target, name, wrong, lambda one: one.send_control(data))
    forbidden(
        target,
        "DATA that the end of the stream cuts",
        wrong,
        lambda one: one.raw_request("POST", "/echo.php", data=frame(c.DATA, b"a" * 50)[:20]),
    )
    forbidden(
        target,
        "HEADERS that the end of the stream cuts",
        wrong,
        lambda one: one.bytes_on_request(frame(c.HEADERS, section(one.head("GET", "/text.txt")))[:-5]),
    )


@check("forbidden")
def settings_missing_or_wrong(target):
    def first_is(data):
        def send(one):
            one.own_stream(c.CONTROL)
            one.send_control(data)

        return send

    def bare(what, codes, send):
        connection = Connection(target, http=False).connect()
        send(connection)
        expect_end(connection, *codes, what=what)

    bare("GOAWAY before SETTINGS", (c.MISSING_SETTINGS,), first_is(frame(c.GOAWAY, b"\0")))
    bare("an unknown frame before SETTINGS", (c.MISSING_SETTINGS,), first_is(frame(0x21, b"")))
    pair = encode_uint_var(0x6) + encode_uint_var(10_000)
    wrong = (c.SETTINGS_ERROR,)
    bare("a setting twice", wrong, first_is(frame(c.SETTINGS, pair + pair)))
    for reserved in (0x2, 0x3, 0x4, 0x5):
        data = encode_uint_var(reserved) + encode_uint_var(1)
        bare(f"HTTP/2's setting {reserved}", wrong, first_is(frame(c.SETTINGS, data)))
    cut = frame(c.SETTINGS, encode_uint_var(0x6) + b"\x80")
    bare("a setting that is cut", (c.FRAME_ERROR, c.SETTINGS_ERROR), first_is(cut))


@check("forbidden")
def critical_streams(target):
    twice = (c.STREAM_CREATION_ERROR,)
    for name, kind in (("control", c.CONTROL), ("encoder", c.QPACK_ENCODER), ("decoder", c.QPACK_DECODER)):
        forbidden(target, f"a second {name} stream", twice, lambda one: one.own_stream(kind))
    forbidden(target, "a push stream of a client", twice, lambda one: one.own_stream(c.PUSH))
    closed = (c.CLOSED_CRITICAL_STREAM,)
    for name, kind in (("control", c.CONTROL), ("encoder", c.QPACK_ENCODER), ("decoder", c.QPACK_DECODER)):
        forbidden(
            target,
            f"the end of the {name} stream",
            closed,
            lambda one: one.quic.send_stream_data(one.own[kind], b"", end_stream=True),
        )

        def reset(one):
            # A stream that is reset at once has no type yet.
            still_serves(one)
            one.quic.reset_stream(one.own[kind], 0)

        forbidden(target, f"a reset of the {name} stream", closed, reset)
    forbidden(
        target,
        "a MAX_PUSH_ID that is smaller than the last",
        (c.ID_ERROR,),
        lambda one: one.send_control(frame(c.MAX_PUSH_ID, b"\x05") + frame(c.MAX_PUSH_ID, b"\x04")),
    )
    forbidden(
        target, "a CANCEL_PUSH of what was never allowed", (c.ID_ERROR,), lambda one: one.send_control(frame(c.CANCEL_PUSH, b"\x09"))
    )


@check("forbidden")
def the_dynamic_table_has_the_size_that_was_allowed(target):
    connection = raw(target)
    connection.wait(lambda: connection.settings is not None, "SETTINGS")
    allowed = connection.settings.get(0x1, 0)
    wrong = (c.QPACK_ENCODER_STREAM_ERROR,)

    def on_encoder(data):
        return lambda one: one.quic.send_stream_data(one.own[c.QPACK_ENCODER], data)

    # RFC 9204 §4.3.1
    forbidden(target, "a capacity above the allowed one", wrong, on_encoder(prefixed(allowed + 1, 5, 0x20)))
    # RFC 9204 §4.3.3: an entry with a name of its own; there is no table yet.
    forbidden(target, "an entry in a table of nothing", wrong, on_encoder(bytes([0x43]) + b"abc" + bytes([3]) + b"def"))
    # RFC 9204 §4.5.2: the first entry of the dynamic table, which has none.
    failed = (c.QPACK_DECOMPRESSION_FAILED,)
    for name, section in (
        ("an entry that is not there", b"\0\0\x80"),
        ("an entry of the static table that is not there", b"\0\0\xff\x60"),
        ("a section that waits for entries", b"\x02\0\x80"),
        ("a section that is cut", b"\0\0\x51\x10abc"),
        ("a number that is too large", b"\0\0\x51\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    ):
        if name == "a section that waits for entries" and allowed > 0:
            continue
        forbidden(target, name, failed, lambda one: one.bytes_on_request(frame(c.HEADERS, section)))
    forbidden(
        target,
        "an acknowledgment of nothing",
        (c.QPACK_DECODER_STREAM_ERROR,),
        lambda one: one.quic.send_stream_data(one.own[c.QPACK_DECODER], b"\x3f\x05"),
    )
    still_serves(connection)
    connection.close()


# Requests that are refused, on a connection that goes on


@check("malformed")
def malformed_heads(target):
    connection = raw(target)

    def head(*changes, without=(), more=()):
        fields = [field for field in connection.head("GET", "/echo.php") if field[0] not in without]
        return list(changes) + fields + list(more)

    cases = [
        ("no :method", head(without=(b":method",))),
        ("no :scheme", head(without=(b":scheme",))),
        ("no :path", head(without=(b":path",))),
        ("no host", head(without=(b":authority",))),
        ("an empty :path", head((b":path", b""), without=(b":path",))),
        ("an empty host", head((b":authority", b""), without=(b":authority",))),
        ("a :path without a slash", head((b":path", b"text.txt"), without=(b":path",))),
        (":method twice", head((b":method", b"GET"))),
        (":path twice", head((b":path", b"/text.txt"))),
        (":status", head((b":status", b"200"))),
        ("an unknown pseudo-header field", head((b":other", b"a"))),
        ("a pseudo-header field after others", head(more=[(b"a", b"b")], without=(b":path",)) + [(b":path", b"/text.txt")]),
        ("two hosts", head(more=[(b"host", b"other.test")])),
        ("user information", head((b":authority", b"user@main.test"), without=(b":authority",))),
        *(
            (f"{name} {host}", head((b":authority", host), without=(b":authority",)) if name == "authority"
             else head(more=[(b"host", host)], without=(b":authority",)))
            for host in (b"[zz]", b"[::::]", b"[%]", b"a%zz", b"a:99999", b"[::1]x", b"a..b", b"[fe80::1%25eth0]")
            for name in ("authority", "host")
        ),
        ("If-None-Match twice", head(more=[(b"if-none-match", b'"a"'), (b"if-none-match", b'"b"')])),
        ("Authorization twice", head(more=[(b"authorization", b"Basic YTpi"), (b"authorization", b"Basic YTpi")])),
        ("a name in capital letters", head(more=[(b"X-Upper", b"a")])),
        ("an empty name", head(more=[(b"", b"a")])),
        ("a name with a space", head(more=[(b"a b", b"a")])),
        ("a name with a colon", head(more=[(b"a:b", b"a")])),
        ("a line feed in a value", head(more=[(b"a", b"b\nc: d")])),
        ("a carriage return in a value", head(more=[(b"a", b"b\rc")])),
        ("NUL in a value", head(more=[(b"a", b"b\0c")])),
        ("a line feed in :path", head((b":path", b"/a\r\nb: c"), without=(b":path",))),
        ("a space in :path", head((b":path", b"/a b"), without=(b":path",))),
        ("a space in :method", head((b":method", b"GET /x"), without=(b":method",))),
        ("content-length twice", head(more=[(b"content-length", b"0"), (b"content-length", b"1")])),
        ("a content-length that is none", head(more=[(b"content-length", b"+0")])),
    ]
    for name, value in (
        (b"connection", b"close"),
        (b"keep-alive", b"1"),
        (b"proxy-connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"te", b"gzip"),
    ):
        cases.append((name.decode(), head(more=[(name, value)])))
    problems = []
    for name, fields in cases:
        if connection.ended:
            connection = raw(target)
        stream = connection.bytes_on_request(frame(c.HEADERS, section(fields)))
        try:
            expect_refusal(connection, stream, (c.MESSAGE_ERROR,), (400, 421), name)
        except AssertionError as error:
            problems.append(str(error))
    assert not problems, "\n".join(problems)
    still_serves(connection)
    connection.close()


@check("malformed")
def bodies_of_another_length(target):
    connection = raw(target)
    length = ("content-length", "5")
    for name, data in (
        ("a body that is shorter than it says", frame(c.DATA, b"abc")),
        ("no body", b""),
        ("a body that is longer than it says", frame(c.DATA, b"abcdef")),
        ("a body that is longer in its second frame", frame(c.DATA, b"abcde") + frame(c.DATA, b"f")),
    ):
        stream = connection.raw_request("POST", "/echo.php", length, data=data)
        expect_refusal(connection, stream, (c.MESSAGE_ERROR,), (400,), name)
    still_serves(connection)
    connection.close()


@check("malformed")
def malformed_trailers(target):
    connection = raw(target)
    for name, fields in (
        ("a pseudo-header field", [(b":path", b"/")]),
        ("a name in capital letters", [(b"X-Sum", b"1")]),
        ("a line feed", [(b"x-sum", b"1\n2")]),
    ):
        data = frame(c.DATA, b"abc") + frame(c.HEADERS, section(fields))
        stream = connection.raw_request("POST", "/echo.php", data=data)
        expect_refusal(connection, stream, (c.MESSAGE_ERROR,), (400,), f"{name} in trailers")
    still_serves(connection)
    connection.close()


@check("malformed")
def requests_without_a_head(target):
    connection = raw(target)
    stream = connection.bytes_on_request(b"")
    expect_refusal(connection, stream, (c.REQUEST_INCOMPLETE,), (400,), "an empty stream")
    stream = connection.bytes_on_request(frame(0x21, b"abc"))
    expect_refusal(connection, stream, (c.REQUEST_INCOMPLETE,), (400,), "an unknown frame alone")
    stream = connection.bytes_on_request(frame(c.HEADERS, section(connection.head("GET", "/"))), is_last=False)
    connection.flush()
    connection.quic.reset_stream(stream, c.REQUEST_CANCELLED)
    still_serves(connection)
    connection.close()


@check("malformed")
def heads_that_are_too_large(target):
    too_large = (c.EXCESSIVE_LOAD, c.REQUEST_REJECTED, c.MESSAGE_ERROR)
    connection = raw(target)
    cases = [("one long field", [("x-long", "y" * 60_000)]), ("many fields", [(f"x-{n}", "y") for n in range(400)])]
    for name, more in cases:
        stream = connection.raw_request("GET", "/echo.php", *more)
        answer = connection.answer_of(stream)
        connection.wait(lambda: answer.is_over or connection.ended, f"{name}: {answer}")
        if connection.ended:
            expect_end(connection, c.EXCESSIVE_LOAD, what=name)
            connection = raw(target)
        else:
            assert answer.status == 431 or answer.reset in too_large, f"{name}: {answer}"
    for path in ("/" + "y" * 60_000, "/echo.php?" + "y" * 33_000):
        stream = connection.raw_request("GET", path)
        answer = connection.answer_of(stream)
        connection.wait(lambda: answer.is_over or connection.ended, f"a long target: {answer}")
        assert answer.status == 414, f"{len(path)}: {answer}"
    still_serves(connection)
    # One that never ends: what is announced is larger than any limit.
    for size in (1 << 20, 1 << 61):
        connection = raw(target)
        data = encode_uint_var(c.HEADERS) + encode_uint_var(size)
        stream = connection.bytes_on_request(data, is_last=False)
        answer = connection.answer_of(stream)
        filler = b"\0" * 60_000
        sent = 0
        while not (connection.ended or answer.is_over or answer.stopped is not None) and sent < 4 << 20:
            connection.quic.send_stream_data(stream, filler)
            sent += len(filler)
            connection.run_for(0.02)
        name = f"HEADERS of {size} bytes"
        refused = connection.ended or answer.is_over or answer.stopped is not None
        assert refused, f"{name}: weir took {sent} bytes of them"
        if connection.ended:
            expect_end(connection, c.EXCESSIVE_LOAD, c.FRAME_ERROR, c.QPACK_DECOMPRESSION_FAILED, what=name)
    still_serves(connect(target))
