"""Requests and answers as any client sends and wants them."""

import hashlib
import random
import time

import client as c
from client import frame, section
from expect import TEXT, check, connect, equal, expect_refusal, raw, still_serves

@check("requests")
def a_file(target):
    connection = connect(target)
    equal(connection.handshake.alpn_protocol, "h3")
    answer = connection.get("/text.txt")
    equal((answer.statuses, bytes(answer.body)), ([200], TEXT))
    equal(answer.field("content-length"), "7")
    for name in ("date", "etag", "server"):
        assert answer.field(name), f"no {name}: {answer.heads}"
    for name in ("connection", "alt-svc", "transfer-encoding"):
        assert answer.field(name) is None, f"{name}: {answer.heads}"
    answer = connection.get("/text.txt", ("range", "bytes=2-5"))
    equal((answer.status, bytes(answer.body)), (206, b"text"))
    equal(connection.get("/none.txt").status, 404)
    connection.close()


@check("requests")
def head_has_no_body(target):
    # aioquic's own HTTP/3 does not expect a length without a body.
    connection = raw(target)
    answer = connection.answer(connection.raw_request("HEAD", "/text.txt"))
    equal((answer.status, answer.field("content-length"), bytes(answer.body)), (200, "7", b""))
    connection.close()


@check("requests")
def scripts_see_the_length_of_a_body(target):
    connection = connect(target)
    body = b"a" * 300_000
    for more in ([("content-length", str(len(body)))], []):
        answer = connection.answer(connection.request("POST", "/echo.php", *more, body=body))
        assert answer.text().startswith("POST HTTP/3.0 length=300000 body=300000 "), answer
    answer = connection.answer(connection.request("POST", "/echo.php", body=b""))
    assert answer.text().startswith("POST HTTP/3.0 length=0 body=0 "), answer
    connection.close()


@check("requests")
def cookies_are_joined_and_trailers_read(target):
    connection = connect(target)
    fields = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers")]
    stream = connection.request("POST", "/echo.php", *fields, body=b"abc", is_last=False)
    connection.turn(0)
    connection.h3.send_data(stream, b"de", end_stream=False)
    connection.h3.send_headers(stream, [(b"x-sum", b"1")], end_stream=True)
    answer = connection.answer(stream)
    wanted = f"POST HTTP/3.0 length=5 body=5 host={target.name}:{target.address[1]} cookie=a=1; b=2"
    equal(answer.text(), wanted)
    connection.close()


@check("requests")
def large_bodies_in_both_directions(target):
    connection = connect(target)
    body = random.Random(1).randbytes(4_000_000)
    answer = connection.answer(connection.request("POST", "/back.php", body=body), limit=120)
    equal(hashlib.sha256(answer.body).hexdigest(), hashlib.sha256(body).hexdigest())
    answer = connection.answer(connection.request("GET", "/ten.bin"), limit=120)
    equal((answer.status, len(answer.body)), (200, 10_000_000))
    equal(answer.body.count(b"x"), 10_000_000)
    connection.close()


@check("requests")
def many_streams(target):
    connection = connect(target)
    allowed = connection.quic._remote_max_streams_bidi
    assert allowed >= 100, f"{allowed} streams"
    streams = [connection.request("GET", "/text.txt") for _ in range(100)]
    streams += [connection.request("POST", "/echo.php", body=b"abc") for _ in range(20)]
    for stream in streams[:100]:
        equal(bytes(connection.answer(stream).body), TEXT)
    for stream in streams[100:]:
        assert connection.answer(stream).text().startswith("POST HTTP/3.0 length=3 body=3 ")
    # One after the other: the server allows more streams as others end.
    for _ in range(5):
        for stream in [connection.request("GET", "/text.txt") for _ in range(100)]:
            equal(bytes(connection.answer(stream).body), TEXT)
    connection.close()


@check("requests")
def early_hints(target):
    connection = connect(target)
    answer = connection.get("/hint.php")
    equal(answer.statuses, [103, 200])
    equal(dict(answer.heads[0]).get(b"link"), b"</style.css>; rel=preload")
    equal(answer.text(), "a page")
    connection.close()


@check("requests")
def connect_is_refused(target):
    connection = raw(target)
    fields = [(b":method", b"CONNECT"), (b":authority", b"other.test:443")]
    stream = connection.bytes_on_request(frame(c.HEADERS, section(fields)), is_last=False)
    expect_refusal(connection, stream, (c.MESSAGE_ERROR,), (400, 405, 501), "CONNECT")
    still_serves(connection)
    connection.close()


@check("requests")
def other_hosts_are_misdirected(target):
    connection = connect(target)
    stream = connection.quic.get_next_available_stream_id()
    fields = [(name, b"other.test" if name == b":authority" else value) for name, value in connection.head("GET", "/")]
    connection.h3.send_headers(stream, fields, end_stream=True)
    equal(connection.answer(stream).status, 421)
    still_serves(connection)
    connection.close()


@check("requests")
def a_small_window_holds_no_other(target):
    connection = connect(target, max_stream_data=20_000)
    # Nobody gives this stream more room.
    large = connection.request("GET", "/large.bin")
    connection.wait(lambda: len(connection.answer_of(large).body) >= 19_000, "a full window")
    still_serves(connection)
    connection.quic.stop_stream(large, c.REQUEST_CANCELLED)
    connection.wait(lambda: connection.answer_of(large).is_over, "a reset after STOP_SENDING")
    still_serves(connection)
    connection.close()


@check("requests")
def an_urgent_answer_overtakes_a_large_one(target):
    connection = connect(target)
    large = connection.request("GET", "/large.bin", ("priority", "u=7"))
    connection.wait(lambda: len(connection.answer_of(large).body) > 500_000, "the beginning of the large one")
    before = len(connection.answer_of(large).body)
    began = time.monotonic()
    urgent = connection.request("GET", "/text.txt", ("priority", "u=0"))
    equal(bytes(connection.answer(urgent).body), TEXT)
    # What was on its way may come before.
    between = len(connection.answer_of(large).body) - before
    assert between < 10_000_000, f"{between} bytes of the large one came before the urgent one"
    print(f"  an urgent answer came after {(time.monotonic() - began) * 1000:.1f} ms and {between} bytes of another")
    connection.quic.stop_stream(large, c.REQUEST_CANCELLED)
    connection.close()


@check("requests")
def urgent_answers_come_first(target):
    # What is sent first is decided when all three can be sent: the client allows nothing until then.
    connection = connect(target, max_data=1000)
    size = 2_000_000
    streams = [
        connection.request("GET", "/ten.bin", ("range", f"bytes=0-{size - 1}"), ("priority", priority))
        for priority in ("u=5", "u=1", "u=3")
    ]
    connection.run_for(0.3)
    connection.quic._local_max_data.value = 1 << 30
    answers = [connection.answer(stream) for stream in streams]
    equal([answer.status for answer in answers], [206] * 3)
    order = sorted(streams, key=lambda stream: connection.answer_of(stream).last_at)
    equal(order, [streams[1], streams[2], streams[0]])
    connection.close()


@check("late")
def a_head_that_does_not_come_is_answered_408(target):
    connection = raw(target)
    head = frame(c.HEADERS, section(connection.head("GET", "/text.txt")))
    for begun in (head[:1], head[:10], head[:-1]):
        stream = connection.bytes_on_request(begun, is_last=False)
        equal(connection.answer(stream).status, 408, f"{len(begun)} of {len(head)} bytes")
    still_serves(connection)
    connection.close()


@check("requests")
def random_heads_are_understood_in_both_directions(target):
    # aioquic compresses with ls-qpack: static table and Huffman's code. What weir has read comes back in fields of its answer.
    connection = connect(target)
    chance = random.Random(2)
    visible = "".join(map(chr, range(0x21, 0x7F))) + "äß€𝄞 "
    for turn in range(100):
        fields = []
        for number in range(chance.randrange(1, 12)):
            letters = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=chance.randrange(0, 20)))
            value = "".join(chance.choices(visible, k=chance.randrange(0, 80))).strip()
            fields.append((f"x-{number}-{letters}".encode(), value.encode()))
        for name, value in ((b"accept", b"*/*"), (b"accept-language", b"de"), (b"user-agent", b"a client"), (b"priority", b"u=3")):
            if chance.random() < 0.5:
                fields.append((name, value))
        stream = connection.quic.get_next_available_stream_id()
        connection.h3.send_headers(stream, connection.head("GET", "/fields.php") + fields, end_stream=True)
        answer = connection.answer(stream)
        equal(answer.status, 200, f"turn {turn}, {fields}")
        came = dict(answer.heads[-1])
        for name, value in fields:
            equal(came.get(b"x-of-" + name), value, f"turn {turn}, {name}")
    connection.close()


@check("alive")
def others_are_served(target):
    connection = connect(target)
    still_serves(connection)
    answer = connection.answer(connection.request("POST", "/echo.php", body=b"abc"))
    assert answer.text().startswith("POST HTTP/3.0 length=3 body=3 "), answer
    connection.close()
