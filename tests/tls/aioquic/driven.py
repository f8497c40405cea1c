"""Checks in which the test acts between the client's steps: the client says a word, and waits until the test says one.

    python driven.py ADDRESS NAME CA CHECK
"""

import sys

import client as c
from client import Target
from expect import connect, equal, still_serves

CHECKS = {}


def driven(function):
    CHECKS[function.__name__] = function
    return function


def tell(word):
    """Says a word, and waits for one."""
    print(word, flush=True)
    assert sys.stdin.readline(), "the test has ended"


@driven
def a_reset_leaves_the_queue(target):
    connection = connect(target)
    first = connection.request("GET", "/wait.php?first")
    connection.flush()
    tell("the first runs")
    second = connection.request("GET", "/wait.php?second")
    third = connection.request("GET", "/wait.php?third")
    connection.flush()
    tell("two wait")
    connection.quic.reset_stream(second, c.REQUEST_CANCELLED)
    connection.quic.stop_stream(second, c.REQUEST_CANCELLED)
    connection.flush()
    tell("one waits")
    for stream in (first, third):
        answer = connection.answer(stream)
        equal((answer.status, answer.text()), (200, "done"))
    # All of a connection that is closed leave it, too.
    connection.request("GET", "/wait.php?fourth")
    connection.request("GET", "/wait.php?fifth")
    connection.flush()
    tell("it is ended with requests")
    connection.close()
    tell("it is ended")


@driven
def a_reload_says_goaway(target):
    connection = connect(target)
    still_serves(connection)
    large = connection.request("GET", "/ten.bin")
    answer = connection.answer_of(large)
    connection.wait(lambda: len(answer.body) > 500_000, "the beginning of a large file")
    connection.flush()
    tell("requests run")
    connection.wait(lambda: connection.goaways, "GOAWAY")
    # Streams of a GOAWAY are the client's, and never more (RFC 9114 §5.2).
    equal(len(connection.answer(large, limit=60).body), 10_000_000)
    connection.wait(lambda: connection.ended, "the end of the connection", limit=60)
    equal(connection.ended.error_code, c.NO_ERROR, "how it has ended")
    equal([number % 4 for number in connection.goaways], [0] * len(connection.goaways), "the streams of GOAWAY")
    equal(connection.goaways, sorted(connection.goaways, reverse=True), "the numbers of GOAWAY")
    assert connection.goaways[-1] > large, f"{connection.goaways}, but stream {large} was served"
    fresh = connect(target)
    still_serves(fresh)
    fresh.close()


@driven
def a_stop_finishes_what_runs(target):
    connection = connect(target)
    idle = connect(target)
    still_serves(idle)
    running = connection.request("GET", "/wait.php?runs")
    connection.flush()
    tell("a request runs")
    connection.wait(lambda: connection.goaways, "GOAWAY")
    idle.wait(lambda: idle.ended, "the end of a connection without requests")
    equal(idle.ended.error_code, c.NO_ERROR, "how it has ended")
    tell("GOAWAY has come")
    answer = connection.answer(running)
    equal((answer.status, answer.text()), (200, "done"))
    connection.wait(lambda: connection.ended, "the end of the connection")
    equal(connection.ended.error_code, c.NO_ERROR, "how it has ended")


@driven
def a_stop_has_a_deadline(target):
    connection = connect(target)
    running = connection.request("GET", "/wait.php?runs")
    connection.flush()
    tell("a request runs")
    connection.wait(lambda: connection.ended, "the end of the connection")
    equal(connection.ended.error_code, c.NO_ERROR, "how it has ended")
    assert not connection.answer_of(running).is_over, connection.answer_of(running)


def main():
    address, name, ca, check = sys.argv[1:]
    CHECKS[check](Target(address, name, ca))
    print("fine", flush=True)


if __name__ == "__main__":
    main()
