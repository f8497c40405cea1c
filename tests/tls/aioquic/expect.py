"""What checks expect, and the list of them."""

import client as c
from client import Connection

GROUPS = {}
TEXT = b"a text\n"


def check(group):
    """Puts a check into a group."""

    def add(function):
        GROUPS.setdefault(group, []).append(function)
        return function

    return add


def equal(found, wanted, what=""):
    assert found == wanted, f"{what}: {found!r}, not {wanted!r}"


def connect(target, **more):
    return Connection(target, **more).connect()


def raw(target, settings=b"", **more):
    """A connection that has sent what HTTP/3 needs and nothing else."""
    return Connection(target, http=False, **more).connect().begin(settings)


def still_serves(connection):
    """The connection serves another request."""
    if connection.h3 is not None:
        answer = connection.get("/text.txt")
    else:
        answer = connection.answer(connection.raw_request("GET", "/text.txt"))
    equal((answer.status, bytes(answer.body)), (200, TEXT), "another request")


def expect_end(connection, *codes, what=""):
    """The server ends the connection with one of these codes."""
    connection.wait(lambda: connection.ended, f"the end of the connection {what}")
    found = connection.ended.error_code
    wanted = " or ".join(hex(code) for code in codes)
    assert found in codes, f"{what}: ended with {found:#x} ({connection.ended.reason_phrase}), not {wanted}"


def expect_refusal(connection, stream, codes, statuses, what):
    """The server resets the stream with one of these codes, or answers with one of these statuses. The connection goes on."""
    answer = connection.answer_of(stream)
    connection.wait(lambda: answer.is_over or connection.ended, f"{what}: {answer}")
    assert connection.ended is None, f"{what}: {connection.ended}"
    is_right = answer.reset in codes or (answer.reset is None and answer.status in statuses)
    wanted = " or ".join([hex(code) for code in codes] + [str(status) for status in statuses])
    assert is_right, f"{what}: {answer}, not {wanted}"


def forbidden(target, what, codes, send, settings=b""):
    """What `send` sends on a new connection ends it with one of these codes."""
    connection = raw(target, settings)
    send(connection)
    expect_end(connection, *codes, what=what)
