"""Idle clients with open connections: `idle.py PORT COUNT PATH`.

It opens COUNT connections from several loopback addresses, so that neither the ephemeral ports nor a limit per address
is reached. It sends one request on each connection and reads the answer. Then it prints a line of JSON and waits for
the end of standard input. At last it prints how many connections the server still keeps open.
"""

import json
import os
import resource
import select
import socket
import subprocess
import sys
import time

PER_ADDRESS = 100
AT_ONCE = 200


class Clients:
    """`count` idle clients of a server, in a process of their own."""

    def __init__(self, port, count, path):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(port), str(count), path],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.opened = json.loads(self.process.stdout.readline() or "{}")

    def close(self):
        """{"open": the number of clients that were still connected}"""
        try:
            output, _ = self.process.communicate(timeout=30)
            return json.loads(output or "{}")
        except subprocess.TimeoutExpired:
            return {}
        finally:
            self.process.kill()
            self.process.wait()


def main(port, count, path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begin = time.monotonic()
    connections, answered, failures = [], 0, {}
    while len(connections) < count and time.monotonic() - begin < 60:
        batch = [_connect(port, len(connections) + n) for n in range(min(AT_ONCE, count - len(connections)))]
        for connection in batch:
            try:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: bench.example\r\n\r\n".encode())
            except OSError as error:
                failures[str(error)] = failures.get(str(error), 0) + 1
        for connection in batch:
            status = _status(connection)
            if status == "200":
                answered += 1
            else:
                failures[status] = failures.get(status, 0) + 1
        connections += batch
    print(json.dumps({"connections": len(connections), "answered": answered, "failures": failures,
                      "seconds": time.monotonic() - begin}), flush=True)
    sys.stdin.read()
    print(json.dumps({"open": sum(_is_open(c) for c in connections)}), flush=True)


def _connect(port, number):
    address = f"127.0.{1 + number // PER_ADDRESS // 250}.{1 + number // PER_ADDRESS % 250}"
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(address, 0))


def _status(connection):
    """Reads a complete answer (of known length, or chunked); returns its status as text, or the error."""
    data = b""
    try:
        while not _whole(data):
            piece = connection.recv(65536)
            if not piece:
                return "closed"
            data += piece
    except OSError as error:
        return str(error)
    return data[9:12].decode("latin-1")


def _whole(data):
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return body.endswith(b"0\r\n\r\n")


def _is_open(connection):
    """A kept, silent connection has nothing to read; one that was closed reads as end of file or error."""
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLRDHUP)
    return not poll.poll(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
