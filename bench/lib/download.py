"""Downloads a file again and again: `download.py URL CONNECTIONS SECONDS SIZE`. Prints its figures as JSON.

It reads in large pieces and throws them away, so that the server is the limit and not the reader.
"""

import json
import socket
import sys
import threading
import time
import urllib.parse

PIECE = 1 << 20


def main(url, connections, seconds, size):
    times, errors = [], []
    begin = time.monotonic()
    threads = [threading.Thread(target=_client, args=(url, begin + seconds, size, times, errors), daemon=True)
               for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 25)
    elapsed = time.monotonic() - begin
    times.sort()
    at = lambda share: times[min(len(times) - 1, int(len(times) * share))] * 1e3 if times else None
    print(json.dumps({
        "requests": len(times), "bytes": len(times) * size, "seconds": elapsed,
        "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "longest_ms": at(1.0),
        "errors": {error: errors.count(error) for error in set(errors)},
    }))


def _client(url, deadline, size, times, errors):
    parts = urllib.parse.urlsplit(url)
    head = f"GET {parts.path} HTTP/1.1\r\nHost: bench.example\r\n\r\n".encode()
    buffer = bytearray(PIECE)
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
            while time.monotonic() < deadline:
                begin = time.monotonic()
                connection.sendall(head)
                left = size - _skip_head(connection, size)
                while left:
                    count = connection.recv_into(buffer, min(PIECE, left))
                    if not count:
                        raise ConnectionError("truncated")
                    left -= count
                times.append(time.monotonic() - begin)
    except (OSError, ValueError) as error:
        errors.append(str(error))


def _skip_head(connection, size):
    """Reads a 200 with Content-Length `size`; returns how many bytes of the body came with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(8192)
        if not piece:
            raise ConnectionError("closed before the head")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 ") or f"content-length: {size}".encode() not in head.lower():
        raise ValueError("unexpected answer: " + head.split(b"\r\n")[0].decode("latin-1"))
    return len(body)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
