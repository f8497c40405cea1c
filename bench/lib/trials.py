"""Whole stacks with disturbances: bursts, reloads, dying workers; and a million requests.

These results have no figures of a load generator. What was measured is in the result under the work's name.
"""

import collections
import http.client
import os
import random
import select
import signal
import subprocess
import threading
import time

from . import load, php, processes
from .php_works import DYNAMIC, PhpWork

KILLS_A_SECOND = 10


class Burst(PhpWork):
    """From 2 clients to 20 at once: the time until 20 workers are busy."""

    path, expected, pool = "/sleep.php", " ", DYNAMIC
    peers = ("weir", "nginx")
    few, settle = 2, 3.0

    def rounds(self, options):
        return max(1, options.rounds // 2 + 1)

    def measure(self, stack, folder, shared, context):
        crowd = Crowd(stack)
        try:
            crowd.add(self.few)
            time.sleep(self.settle)
            before = len(stack.workers.pids())
            begin = time.monotonic_ns()
            crowd.add(self.pool.workers - self.few)
            limit = time.monotonic() + 15
            while time.monotonic() < limit and len(stack.workers.pids()) < self.pool.workers:
                time.sleep(0.05)
            # A script in a full pool must end before the test knows that it has run.
            time.sleep(1.0)
        finally:
            crowd.leave()
        reached = at_once(crowd.runs, self.pool.workers, begin)
        waits = [answered - asked for asked, answered in crowd.waits if asked >= begin]
        return [{"burst": {
            "workers_before": before,
            "full_ms": (reached - begin) / 1e6 if reached else None,
            "requests": len(crowd.waits), "errors": dict(crowd.errors),
            "longest_ms": max(waits, default=0) / 1e6,
        }}]


class Crowd:
    """Clients of `sleep.php`, a thread each, until they are told to leave."""

    def __init__(self, stack):
        self.stack, self.over, self.threads = stack, threading.Event(), []
        # (worker, begin, end) of scripts; (asked, answered) of requests; nanoseconds of the monotonic clock.
        self.runs, self.waits, self.errors = [], [], collections.Counter()

    def add(self, number):
        threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        self.threads += threads

    def leave(self):
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    def _ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.stack.server.port, timeout=30)
        while not self.over.is_set():
            asked = time.monotonic_ns()
            try:
                connection.request("GET", Burst.path, headers={"Host": "bench.example"})
                response = connection.getresponse()
                words = response.read().split()
                if response.status != 200 or len(words) != 3:
                    raise ValueError(f"status {response.status}")
                self.runs.append(tuple(map(int, words)))
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.errors[str(error) or type(error).__name__] += 1
                connection.close()
            self.waits.append((asked, time.monotonic_ns()))
        connection.close()


def at_once(runs, number, since):
    """The first moment from `since` on at which `number` of the `runs` (worker, begin, end) were under way, or None."""
    changes = sorted([(begin, 1) for _, begin, end in runs if end > since]
                     + [(end, -1) for _, begin, end in runs if end > since])
    running = 0
    for moment, change in changes:
        running += change
        if running >= number:
            return max(moment, since)
    return None


class Reload(PhpWork):
    """A reload every second, under load; the effect on clients."""

    peers = ("weir", "nginx", "prefork")
    kept, fresh = 16, 4

    def rounds(self, options):
        return 1

    def measure(self, stack, folder, shared, context):
        seconds = context.options.trial_seconds
        # weir and Apache reload completely; where PHP-FPM runs, only PHP-FPM reloads.
        pid, how = {"weir": (stack.server.tree.process.pid, signal.SIGHUP),
                    "prefork": (stack.server.tree.process.pid, signal.SIGUSR1)}.get(stack.name, (None, None))
        if stack.fpm:
            pid, how = stack.fpm.tree.process.pid, signal.SIGUSR2
        with Loads(context) as loads:
            kept = loads.add(stack.url(self.path), self.kept, seconds, folder, expect=self.expected)
            fresh = loads.add(stack.url(self.path), self.fresh, seconds, folder, expect=self.expected, close=True)
            reloads = 0
            for _ in beats(seconds, 1.0):
                os.kill(pid, how)
                reloads += 1
            results = {"kept connections": loads.result(kept), "a connection per request": loads.result(fresh)}
        return [{"reload": {"reloads": reloads, "seconds": seconds, **_sums(results)}}]


class Kill(PhpWork):
    """kill -9 of a worker ten times a second, under GET and POST; the effect on clients."""

    path = "/work.php"
    peers = ("weir", "nginx")
    getting, posting = 16, 8

    def rounds(self, options):
        return 1

    def measure(self, stack, folder, shared, context):
        seconds = context.options.trial_seconds
        log = f"{self.root(context, shared)}/{php.POSTS_LOG}"
        with open(log, "w", encoding="ascii"):
            pass
        killed, running = 0, random.Random(1)
        with Loads(context) as loads:
            gets = loads.add(stack.url(self.path), self.getting, seconds, folder, expect=self.expected)
            posts = loads.add(stack.url("/post.php"), self.posting, seconds, folder, post=True)
            for _ in beats(seconds, 1 / KILLS_A_SECOND):
                killed += kill_one(stack, running)
            results = {"GET": loads.result(gets), "POST": loads.result(posts)}
        begun, ended = _posts(log)
        failed = results["POST"].pop("failed_posts", [])
        calm = time.monotonic()
        processes.wait_for(lambda: stack.get(self.path)[0] == 200, 30, f"{stack.name} does not answer after the kills")
        # 502 for a lost answer is right for requests that had begun, and only for these; no script runs twice.
        return [{"kill": {
            "killed": killed, "seconds": seconds, "recovered_seconds": time.monotonic() - calm, **_sums(results),
            "posts_failed": len(failed),
            "posts_failed_unbegun": sum(1 for name in failed if name not in begun),
            "posts_failed_done": sum(1 for name in failed if name in ended),
            "posts_begun_twice": sum(1 for count in begun.values() if count > 1),
        }}]


def beats(seconds, period):
    """Every `period` seconds for `seconds`, the first after one period; a late beat does not make the next one late."""
    begin = time.monotonic()
    for number in range(1, int(seconds / period)):
        time.sleep(max(0.0, begin + number * period - time.monotonic()))
        yield number


def kill_one(stack, running):
    """Kills a random worker; returns the number of killed workers (0 or 1). The worker must exist before and after its
    pidfd is opened. Otherwise its process id could belong to another process by then."""
    workers = [pid for pid, role in stack.processes().items() if role == "worker"]
    if not workers:
        return 0
    pid = running.choice(workers)
    who = _identity(pid)
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        if who is None or _identity(pid) != who:
            return 0
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return 1
    except OSError:
        return 0
    finally:
        os.close(handle)


class Soak(PhpWork):
    """Very many requests: whether memory that is not released grows."""

    peers = ("weir", "nginx")

    def rounds(self, options):
        return 1

    def measure(self, stack, folder, shared, context):
        requests = context.options.soak_requests
        argv = load.clients_argv(context.settings.programs, stack.url(self.path), self.clients, None, requests, folder,
                                 expect=self.expected, progress=requests // 10)
        looks, output = [], ""
        begin = time.monotonic()
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            try:
                for line in _lines(process, 1200):
                    output = line
                    if line.strip().isdigit():
                        looks.append((int(line), resident(stack)))
            finally:
                process.kill()
        result = load.clients_result(output)
        return [{"soak": {
            "requests": result["requests"], "errors": result["errors"], "seconds": time.monotonic() - begin,
            "rate": result["requests"] / result["seconds"] if result["seconds"] else 0,
            "longest_ms": result["longest_ms"], "looks": looks,
        }}]


def resident(stack):
    """{role: kB resident}, the sum of its processes. Without workers, because their memory depends on the scripts."""
    found = collections.Counter()
    for pid, role in stack.processes().items():
        if role != "worker":
            size = _field(f"/proc/{pid}/smaps_rollup", "Rss:")
            found[role] += int(size) if size else 0
    return dict(found)


class Loads:
    """Load generators that run beside other work; all end with the block."""

    def __init__(self, context):
        self.context, self.processes = context, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def add(self, url, number, seconds, folder, **options):
        argv = load.clients_argv(self.context.settings.programs, url, number, seconds, None, folder, **options)
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def result(self, process):
        return load.clients_result(process.communicate(timeout=90)[0])


def _sums(results):
    """The sums of several loads, for tables."""
    return {"loads": {name: {key: result.get(key) for key in ("requests", "seconds", "errors", "sent_again", "longest_ms",
                                                              "p50_ms", "p99_ms")} for name, result in results.items()}}


def _posts(log):
    """({name: how often it was begun}, names that ended)"""
    begun, ended = collections.Counter(), set()
    with open(log, encoding="ascii", errors="replace") as file:
        for line in file:
            what, _, name = line.strip().partition(" ")
            if what == "begun":
                begun[name] += 1
            elif what == "ended":
                ended.add(name)
    return begun, ended


def _lines(process, seconds):
    """Reads lines for this long, and yields each one when it comes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 1.0)[0]:
            line = process.stdout.readline()
            if not line:
                return
            yield line
    raise processes.Failed("the clients did not end")


def _identity(pid):
    """(parent's number, time of the start), or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return fields[1], fields[19]
    except (OSError, IndexError):
        return None


def _field(path, name):
    """The first word after `name` at the beginning of a line, or None."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(name):
                    return line.split()[1]
    except OSError:
        pass
    return None


WORKS = {work.key: work for work in (
    Burst("burst", "A burst from 2 clients to 20, script of 100 ms, pool of 2 to 20"),
    Reload("reload", "A reload every second"),
    Kill("kill", f"kill -9 of a worker {KILLS_A_SECOND} times a second"),
    Soak("soak", "Very many requests of one line"),
)}
