"""Scenarios 1 and 4: too many users at a small pool, and a backlog that overflows; each peer with its best configuration."""

import contextlib
import ctypes
import os
import subprocess
import threading

from . import backends, load, php, processes
from .php_works import DYNAMIC, OWN, Computing, Scripted, Shaped

HELLO = b"hello world\n" * 1000
# PHP-FPM's own value, and the kernel's limit in the scenario.
BACKLOG, CUT = 511, 128


class Overload(Scripted, Shaped):
    """Scenario 1: a hundred users and a small pool. The load comes from siege, as in the published test, and from clients
    that need less CPU time than siege.

    One configuration of each server is that of the scenario. The others are what an operator would try next."""

    programs = (*Shaped.programs, "siege")
    path, expected, pool, clients = backends.PhpFpm.path, HELLO, DYNAMIC, 100
    shapes = {
        "weir": {"": DYNAMIC._replace(queue_timeout=None), "pm auto": OWN},
        "nginx": {"": DYNAMIC, **{f"max_children {n}": backends.Pool("static", n, n, 1, n, threads=1) for n in (2, 4, 8, 20)}},
        "haproxy": {"": DYNAMIC, **{f"maxconn {n}": DYNAMIC._replace(maxconn=n, minconn=1, threads=1)
                                    for n in (2, 4, 8, 12, 20)}},
    }

    def sample(self, name, shared, context):
        return [dict(result, phase=", ".join(filter(None, (result["phase"], shape))))
                for shape, work in self.shaped(name) for result in super(Overload, work).sample(name, shared, context)]

    def measure(self, stack, folder, shared, context):
        self.load(stack, folder, context, 2)
        urls = [stack.url(self.path)]
        # As long as published; what is tried beside that, shorter.
        seconds = context.seconds if context.options.quick or self.pool not in (DYNAMIC, *self.shapes["weir"].values()) else 10
        attack = lambda: load.siege(context.settings.programs, urls, self.clients, seconds, folder, keep=False)
        return [dict(self.measured(stack, attack), phase="siege"),
                dict(self.measured(stack, lambda: self.load(stack, folder, context, context.seconds)), phase="clients")]

    def load(self, stack, folder, context, seconds):
        return super().load(stack, folder, context, seconds, close=True)

    def cut_off(self, context):
        return self.clients


class Backlog(Computing):
    """Scenario 4: three hundred clients at a page that costs CPU, and what the kernel's queues do meanwhile."""

    programs = (*Shaped.programs, "ab")
    pool, clients = OWN, 300
    # Of the network, which is one of its own: net.core.somaxconn is lowered for these.
    shapes = {
        "weir": {"": OWN, f"somaxconn {CUT}": OWN},
        "nginx": {f"backlog {BACKLOG}": DYNAMIC._replace(backlog=BACKLOG), f"somaxconn {CUT}": DYNAMIC._replace(backlog=BACKLOG)},
        "haproxy": {"maxconn 4": DYNAMIC._replace(maxconn=4, threads=1)},
    }

    def sample(self, name, shared, context):
        results = []
        for shape, work in self.shaped(name):
            with network(CUT if "somaxconn" in shape else None):
                results += [dict(result, phase=shape) for result in super(Backlog, work).sample(name, shared, context)]
        return results

    def measure(self, stack, folder, shared, context):
        requests = 1000 if context.options.quick else 10_000
        attack = lambda: load.ab(context.settings.programs, stack.url(self.path), self.clients, requests, 300)
        before = listen_counters()
        with ListenQueues(stack.server.port, stack.fpm.socket if stack.fpm else None) as queues:
            result = self.measured(stack, attack)
        after = listen_counters()
        return [dict(result, kernel={"overflows": after["ListenOverflows"] - before["ListenOverflows"],
                                     "drops": after["ListenDrops"] - before["ListenDrops"], **queues.longest})]

    def check(self, stack):
        status, body = stack.get(self.path)
        if status != 200 or len(body) != php.PAGE_BYTES:
            raise processes.Failed(f"{stack.name} answers {self.path} with {status} and {len(body)} bytes: {body[:200]!r}")


@contextlib.contextmanager
def network(somaxconn=None):
    """A separate network for this process and its children: its counters count nothing else, and net.core.somaxconn can have
    another value. Without the right to make one (not root), it is the machine's own network."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.geteuid() == 0 and _libc.unshare(_CLONE_NEWNET) == 0:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            if somaxconn:
                with open("/proc/sys/net/core/somaxconn", "w", encoding="ascii") as file:
                    file.write(str(somaxconn))
        yield
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)


def listen_counters():
    """ListenOverflows and ListenDrops of this network (netstat(8)'s TcpExt)."""
    with open("/proc/self/net/netstat", encoding="ascii") as file:
        names, values = [line.split()[1:] for line in file if line.startswith("TcpExt:")]
    return {name: int(value) for name, value in zip(names, values) if name in ("ListenOverflows", "ListenDrops")}


class ListenQueues:
    """The most connections that were seen in the accept queues of a server's port and of a unix socket behind it."""

    def __init__(self, port, path):
        self.port, self.path = f":{port:04X}", path
        self.longest = {"front_queue": 0, "backend_queue": 0 if path else None}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _watch(self):
        while not self.over.wait(0.5):
            # The view of the thread: the process's view is that of its first thread. For a listener, rx_queue is the
            # accept queue.
            with open("/proc/thread-self/net/tcp", encoding="ascii") as file:
                rows = [line.split() for line in file]
            queues = [int(row[4].split(":")[1], 16) for row in rows[1:] if row[1].endswith(self.port) and row[3] == "0A"]
            self.longest["front_queue"] = max(self.longest["front_queue"], sum(queues))
            if self.path:
                lines = subprocess.run(["ss", "-Hlx", "src", self.path], capture_output=True, text=True).stdout.split("\n")
                queued = [int(line.split()[2]) for line in lines if line]
                self.longest["backend_queue"] = max(self.longest["backend_queue"], *queued, 0)


_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000

WORKS = {work.key: work for work in (
    Overload("overload", "1,000 × echo \"hello world\", 100 users, a connection per request, pool of 2 to 20"),
    Backlog("backlog", "A page of 55,757 bytes that costs 10 ms of CPU, 300 clients, a connection per request"),
)}
