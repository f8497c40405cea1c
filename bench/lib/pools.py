"""A pool and a site for each of a thousand customers: what one costs that nobody asks for, and how long changes take. PHP-FPM has the
same pools (`ondemand`), each with a socket, and no web server in front."""

import collections
import http.client
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import time

from . import processes
from .table import Figure

COUNT, QUICK_COUNT = 1000, 100
# Changes of each kind, and how long the machine rests between two of them (seconds).
CHANGES, REST = 5, 1
# The history of the admin interface has its full length after this time (seconds).
SETTLED = 65
SCRIPT = "<?php echo 'pool ', getmypid();\n"
LIMIT = 60


class Work(collections.namedtuple("Work", "key title")):
    peers = ("weir",)
    programs = ("php-fpm",)

    def rounds(self, options):
        return 1

    def begin(self, context):
        return Nothing()

    def sample(self, name, shared, context):
        """weir, then PHP-FPM."""
        folder = context.new_folder("pools")
        root = f"{folder}/site"
        os.makedirs(root)
        with open(f"{root}/pool.php", "w", encoding="ascii") as file:
            file.write(SCRIPT)
        count = QUICK_COUNT if context.options.quick else COUNT
        return [{"pools": {server.name: figures(server, count, context.options.quick)
                           for server in (Weir(folder, root, context.settings), Fpm(folder, root, context.settings))}}]


class Nothing:
    def stop(self):
        pass


class Weir:
    name = "weir"

    def __init__(self, folder, root, settings):
        self.program, self.root, self.log = settings.programs["weir"], root, f"{folder}/weir.log"
        self.config, self.admin = f"{folder}/weir.toml", f"{folder}/admin.sock"
        self.user = 'user = "www-data"\n' if settings.is_root else ""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]

    def write(self, pools, children=2):
        """`children`: of the last pool; another number is a change of that pool."""
        parts = [f'[server]\n{self.user}admin = "unix:{self.admin}"\n[listen.web]\naddress = "127.0.0.1:{self.port}"\n']
        parts += [f'[pool.p{n}]\nruntime = "php"\n{self.user}pm = "ondemand"\nmax_children = {children if n == pools - 1 else 2}\n'
                  f'[site.p{n}]\nhosts = ["p{n}.example"]\nroot = "{self.root}"\npool = "p{n}"\n' for n in range(pools)]
        with open(self.config, "w", encoding="ascii") as file:
            file.write("".join(parts))

    def start(self):
        self.tree = processes.Tree("weir", [self.program, "serve", "-c", self.config], self.log)

    def reload(self):
        """Until `weir reload` returns: then the new configuration serves."""
        subprocess.run([self.program, "reload", "-c", self.config], check=True, capture_output=True, timeout=LIMIT)

    def ask(self, pool):
        """Whether the pool answers."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        try:
            client.request("GET", "/pool.php", headers={"Host": f"p{pool}.example"})
            answer = client.getresponse()
            return answer.status == 200 and answer.read().startswith(b"pool ")
        except OSError:
            return False
        finally:
            client.close()

    def idle_pids(self):
        """Without what serves the pools that were asked."""
        return [pid for pid, (_, name) in self.tree.processes().items() if not name.startswith("php-fpm") and "weir-php" not in name]

    def status(self):
        """How long the whole status takes (ms)."""
        return timed(lambda: subprocess.run([self.program, "status", "-c", self.config], check=True, capture_output=True, timeout=LIMIT))

    def stop(self):
        self.tree.stop()


class Fpm:
    name = "PHP-FPM"

    def __init__(self, folder, root, settings):
        self.program, self.ini, self.root, self.folder = settings.programs["php-fpm"], settings.php_ini, root, f"{folder}/fpm"
        self.user = "user = www-data\ngroup = www-data\n" if settings.is_root else ""
        os.makedirs(self.folder)

    def write(self, pools, children=2):
        parts = [f"[global]\npid = {self.folder}/pid\nerror_log = {self.folder}/log\ndaemonize = no\n"]
        parts += [f"[p{n}]\n{self.user}listen = {self.folder}/p{n}.sock\npm = ondemand\n"
                  f"pm.max_children = {children if n == pools - 1 else 2}\n" for n in range(pools)]
        with open(f"{self.folder}/fpm.conf", "w", encoding="ascii") as file:
            file.write("".join(parts))

    def start(self):
        self.tree = processes.Tree("php-fpm", [self.program, "-F", "-c", self.ini, "-y", f"{self.folder}/fpm.conf"], f"{self.folder}/out")

    def reload(self):
        """PHP-FPM executes itself anew. Its log says when it is ready."""
        ready = self.ready()
        os.kill(self.tree.process.pid, signal.SIGUSR2)
        processes.wait_for(lambda: self.ready() > ready, LIMIT, "php-fpm was not ready", self.tree)

    def ready(self):
        with open(f"{self.folder}/log", encoding="utf-8") as file:
            return len(re.findall("ready to handle connections", file.read()))

    def ask(self, pool):
        """As a web server would, over FastCGI."""
        try:
            return b"\r\n\r\npool " in over_fastcgi(f"{self.folder}/p{pool}.sock", f"{self.root}/pool.php")
        except OSError:
            return False

    def idle_pids(self):
        return self.tree.pids()[:1]

    def status(self):
        """It has none of all pools."""
        return None

    def stop(self):
        self.tree.stop(signal.SIGQUIT)


def over_fastcgi(path, script):
    """The whole answer to a GET of a script through this unix socket, with the records around it."""
    def pair(name, value):
        return struct.pack(">BL", len(name), 0x8000_0000 | len(value)) + name.encode() + value.encode()
    record = lambda kind, content: struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content
    params = pair("SCRIPT_FILENAME", script) + pair("REQUEST_METHOD", "GET")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT)
        client.connect(path)
        client.sendall(record(1, b"\0\1" + bytes(6)) + record(4, params) + record(4, b"") + record(5, b""))
        answer = b""
        while piece := client.recv(65536):
            answer += piece
        return answer


def figures(server, count, quick):
    """What `count` pools cost with this server. Times are in ms."""
    server.write(count)
    begin = time.monotonic()
    server.start()
    try:
        until_served(server, count - 1)
        found = {"count": count, "start": (time.monotonic() - begin) * 1e3}
        found["cold"] = statistics.median(timed(lambda: until_served(server, pool)) for pool in range(5))
        time.sleep(2 if quick else SETTLED)
        found["kb_per_pool"] = kb_per_pool(server, count)
        changes = {"add": [], "change": [], "remove": []}
        usable = []
        for number in range(2 if quick else CHANGES):
            for kind, pools, children in (("add", count + 1, 2), ("change", count + 1, 3), ("remove", count, 2)):
                time.sleep(REST)
                server.write(pools, children)
                begin = time.monotonic()
                server.reload()
                changes[kind].append((time.monotonic() - begin) * 1e3)
                if kind == "add":
                    until_served(server, count)
                    usable.append((time.monotonic() - begin) * 1e3)
        found.update({kind: statistics.median(times) for kind, times in changes.items()}, usable=statistics.median(usable))
        time.sleep(2 if quick else SETTLED)
        found["kb_after_reloads"] = kb_per_pool(server, count)
        times = [server.status() for _ in range(5)]
        found["status"] = None if None in times else statistics.median(times)
        return found
    finally:
        server.stop()


def kb_per_pool(server, count):
    """The memory of the server (proportional set size), shared among the pools."""
    total = 0
    for pid in server.idle_pids():
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    return total / count


def until_served(server, pool):
    deadline = time.monotonic() + LIMIT
    while not server.ask(pool):
        if not server.tree.alive() or time.monotonic() > deadline:
            raise processes.Failed(f"{server.name} does not serve pool p{pool}: {server.tree.output()}")
        time.sleep(0.002)


def timed(act):
    begin = time.monotonic()
    act()
    return (time.monotonic() - begin) * 1e3


# (figure, title, what weir must reach, its unit)
ROWS = (
    ("kb_per_pool", "memory per idle pool, a minute after the start", 64, "KB"),
    ("kb_after_reloads", "the same after the changes below", 64, "KB"),
    ("start", "start, until the last pool has answered", 3000, "ms"),
    ("cold", "first request of a pool without a process", 300, "ms"),
    ("add", "adding a pool, until the reload is done", 100, "ms"),
    ("usable", "adding a pool, until it has answered", None, "ms"),
    ("change", "changing a pool, until the reload is done", 100, "ms"),
    ("remove", "removing a pool, until the reload is done", 100, "ms"),
    ("status", "`weir status`", 300, "ms"),
)


def tables(samples):
    """Markdown: one table."""
    parts = []
    for sample in (sample["pools"] for sample in samples if "pools" in sample):
        names = list(sample)
        count = sample[names[0]]["count"]
        lines = [f"### pools: {count:,} pools with `pm = ondemand`", "", f"| | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
        for key, title, _, unit in ROWS:
            values = (sample[name][key] for name in names)
            lines.append(f"| {title} | {' | '.join('–' if value is None else f'{value:,.0f} {unit}' for value in values)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def asked(samples):
    """(work, demand, Figure or None, limit, at most?), as table.asked."""
    for sample in (sample["pools"] for sample in samples if "pools" in sample):
        for key, title, limit, unit in ROWS:
            # weir's own memory is that of few pools, too.
            if limit is not None and (unit != "KB" or sample["weir"]["count"] == COUNT):
                value = sample["weir"][key]
                yield "pools", f"{title}, at most {limit:,} {unit}", Figure(value, f"{value:,.0f} {unit}"), limit, True


WORKS = {"pools": Work("pools", f"{COUNT:,} pools that nobody asks")}
