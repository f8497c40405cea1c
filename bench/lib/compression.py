"""Compression, in turns: pages by weir with zstd and by nginx with gzip, and events through weir with and without compression."""

import glob
import http.client
import os
import statistics
import time
import zlib

from . import load, measure, pairs, peers, processes, works

# What a browser accepts: weir chooses zstd, nginx has only gzip.
ACCEPTED = "gzip, deflate, br, zstd"
PAGE, EVENTS = "/compressed.php", "/events.php"
PAGE_BYTES = 100 * 1024
# As many as PHP-FPM has workers.
CLIENTS = 4
PLAIN = "weir-plain"
# The time between two events, and how many a turn has.
EVENT_US, EVENT_COUNT = 10_000, 100


class Pools(dict):
    """Each server's PHP-FPM, by the server's name. weir keeps its connections, so nobody else could have a worker."""

    def stop(self):
        for pool in self.values():
            pool.stop()


class Compressed(pairs.Pair):
    """Servers that compress, each with a PHP-FPM of its own and one thread."""

    programs = ("wrk", "php-fpm")

    def begin(self, context):
        write_scripts(context.settings.root)
        return Pools((name, works.start_backend(works.WORKS["php-fpm"], context)) for name in self.names)

    def start(self, name, shared, context):
        settings = context.settings._replace(threads=context.options.threads or pairs.EQUAL, compress=name != PLAIN)
        server = peers.start("weir" if name == PLAIN else name, settings, shared[name], context.new_folder(name))
        return pairs.warm(pairs.Side(server.tree, lambda: self.load(server, context), server.stop), lambda: self.check(server))

    def measured(self, side, shared):
        first, second = (pool.tree for pool in shared.values())
        return measure.measured(side.load, side.tree, first, [side.tree], others=[second])

    def load(self, server, context):
        """One turn."""
        raise NotImplementedError

    def check(self, server):
        """Fails unless the answer is what it should be."""
        raise NotImplementedError


class Pages(Compressed):
    """A page of HTML."""

    def load(self, server, context):
        return load.wrk(context.settings.programs, server.url(PAGE), CLIENTS, context.seconds, headers={"Accept-Encoding": ACCEPTED})

    def check(self, server):
        response, connection = ask(server, PAGE)
        coding, length = response.getheader("Content-Encoding"), len(response.read())
        connection.close()
        expected = {"weir": "zstd", "nginx": "gzip"}[server.name]
        if (response.status, coding) != (200, expected) or length > PAGE_BYTES / 2:
            raise processes.Failed(f"{server.name} answers {PAGE} with {response.status}, {coding} and {length} bytes")


class Events(Compressed):
    """An event stream. `p50_ms` is the time from the script's clock to the client's, of the events of a turn."""

    programs = ("php-fpm",)
    peers = ("weir",)
    names = ("weir", PLAIN)

    def load(self, server, context):
        begin = time.monotonic()
        times = event_times(server)
        return {"requests": len(times), "bytes": 0, "seconds": time.monotonic() - begin, "errors": {}, "finished": True,
                "p50_ms": statistics.median(times)}

    def check(self, server):
        if len(event_times(server)) != EVENT_COUNT:
            raise processes.Failed(f"{server.name} does not pass on all events of {EVENTS}")


def ask(server, path):
    """An answer whose body was not read, and its connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    # gzip alone for events: Python decodes no other.
    accepted = ACCEPTED if path == PAGE else "gzip"
    connection.request("GET", path, headers={"Host": "bench.example", "Accept-Encoding": accepted})
    return connection.getresponse(), connection


def event_times(server):
    """How long each event took (ms)."""
    response, connection = ask(server, EVENTS)
    decode = zlib.decompressobj(31).decompress if response.getheader("Content-Encoding") == "gzip" else bytes
    text, times = b"", []
    while piece := response.read1(65536):
        text += decode(piece)
        now = time.monotonic_ns()
        *events, text = text.split(b"\n\n")
        times += [(now - int(event.split()[1])) / 1e6 for event in events]
    connection.close()
    return times


def write_scripts(root):
    """A page of weir's own documentation as HTML, and a script that sends events with the time of its clock."""
    paragraphs = []
    for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "../../docs/*.md"))):
        with open(path, encoding="utf-8") as file:
            paragraphs += file.read().split("\n\n")
    html = "".join(f'<section class="entry" id="p{number}"><p>{text}</p></section>\n' for number, text in enumerate(paragraphs))
    with open(f"{root}/compressed.html", "wb") as file:
        file.write(html.encode()[:PAGE_BYTES])
    scripts = {
        PAGE: "<?php header('Content-Type: text/html; charset=utf-8'); readfile(__DIR__ . '/compressed.html');\n",
        EVENTS: "<?php header('Content-Type: text/event-stream'); header('X-Accel-Buffering: no');\n"
                f"for ($i = 0; $i < {EVENT_COUNT}; $i++) {{\n"
                "    echo 'data: ', hrtime(true), ' ', str_repeat(\"event $i \", 20), \"\\n\\n\";\n"
                f"    @ob_flush(); flush(); usleep({EVENT_US});\n}}\n",
    }
    for path, text in scripts.items():
        with open(root + path, "w", encoding="ascii") as file:
            file.write(text)


WORKS = {pair.key: pair for pair in (
    Pages("pair-compress", None, f"{PAGE_BYTES // 1024} KB of HTML of PHP-FPM, weir with zstd, nginx with gzip at level 4, one thread each"),
    Events("pair-events", None, f"An event every {EVENT_US // 1000} ms: weir with gzip, and without compression"),
)}
