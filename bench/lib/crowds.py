"""Whole stacks under overload: how long it lasts, who is served, what it costs, and whether the status is still visible.

These results have no figures of a load generator. What was measured is in the result under the work's name.
"""

import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import time

from . import backends, load, measure, php, processes
from .php_works import OWN, Computing, PhpWork, Shaped

# Twice as many workers as cores, and one thread in front, which leaves the other processor time to them.
FITTED = backends.Pool("static", 2 * os.cpu_count(), 1, 1, 1, threads=1)


class Crowd(Computing):
    """A page of 10 ms of CPU time, measured once with each stack."""

    programs = (*PhpWork.programs, "php-cgi")
    def sample(self, name, shared, context):
        results = []
        for shape, work in self.shaped(name):
            stack, folder = work.start(name, shared, context)
            try:
                seen = work.observe(stack, folder, context)
            finally:
                stack.stop()
            shutil.rmtree(folder, ignore_errors=True)
            results.append({self.key: seen, "shape": shape})
        return results

    def observe(self, stack, folder, context):
        """The figures."""
        raise NotImplementedError

    def check(self, stack):
        status, body = stack.get(self.path)
        if status != 200 or not body:
            raise processes.Failed(f"{stack.name} answers {self.path} with {status}: {body[:200]!r}")

    def bench(self, stack, context, seconds, **options):
        return load.bench(context.settings.programs, stack.url(self.path), seconds, **options)


class Flood(Crowd):
    """Scenario 5: more load than the pool's capacity for a long time, by clients that give up; then less."""

    patience = 2.0
    factors, after = (1.5, 3.0), 0.5
    after_seconds = 10
    shapes = {
        "weir": {"defaults": OWN},
        "nginx": {"backlog 511": FITTED._replace(backlog=511)},
        "haproxy": {"maxconn, timeout queue 1s": FITTED._replace(queue_timeout="1s")},
        "apache": {"backlog 511": FITTED._replace(backlog=511)},
    }

    def observe(self, stack, folder, context):
        seconds = context.options.trial_seconds
        calm_seconds = 3 if context.options.quick else 5
        self.bench(stack, context, 2, users=16, kept=False)
        capacity = self.bench(stack, context, 2 * calm_seconds, users=16, kept=False)["report"]["rate"]
        figures = {"capacity": capacity, "seconds": seconds, "floods": []}
        for factor in self.factors:
            calm = self.bench(stack, context, calm_seconds, rate=self.after * capacity, timeout=self.patience, kept=False)
            refusals = []
            attack = lambda: self.flood(stack, context, factor * capacity, self.after * capacity, seconds, refusals)
            result = self.measured(stack, attack)
            good = result["flood"]["transactions"]
            figures["floods"].append({
                "factor": factor, "calm": calm["report"], "flood": result["flood"], "after": result["after"],
                "asked_by_hand": refusals, "machine": result["machine"],
                "workers_us_per_good": (result["workers"]["total_us"] / good) if good else None,
                "gateway_us_per_request": result["gateway"]["total_us"] / result["requests"],
            })
            # The rest of this load must end before the next begins.
            time.sleep(self.patience)
        return figures

    def flood(self, stack, context, rate, rate_after, seconds, refusals):
        """A load, and a smaller one that begins when the first one ends."""
        url, programs = stack.url(self.path), context.settings.programs
        with Generators() as generators:
            first = generators.add(load.bench_argv(programs, url, seconds, rate=rate, timeout=self.patience, kept=False))
            over = time.monotonic() + seconds
            while time.monotonic() < over - 1.0:
                refusals.append(refusal(stack, self.path, self.patience))
                time.sleep(0.25)
            time.sleep(max(0.0, over - time.monotonic()))
            second = generators.add(load.bench_argv(programs, url, self.after_seconds, rate=rate_after,
                                                    timeout=self.patience, kept=False))
            results = [generators.result(first), generators.result(second)]
        if not all(result["report"] for result in results):
            raise processes.Failed(f"weir bench said nothing: {results[0].get('output')} {results[1].get('output')}")
        return dict(results[0], flood=results[0]["report"], after=results[1]["report"])


def refusal(stack, path, timeout):
    """[status, Retry-After or None, ms] of one request; status 0 if no answer came."""
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", stack.server.port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Host": "bench.example", "Connection": "close"})
        response = connection.getresponse()
        response.read()
        return [response.status, response.getheader("Retry-After"), (time.monotonic() - begin) * 1e3]
    except (OSError, http.client.HTTPException):
        return [0, None, (time.monotonic() - begin) * 1e3]
    finally:
        connection.close()


class Fairness(Crowd):
    """One client with very many requests at once, and a few with one each, by address."""

    path = "/sleep.php?ms=25"
    many, few = 1000, 10
    shapes = {
        "weir": {"defaults": backends.FOUR._replace(queue_timeout=None)},
        "nginx": {"defaults": backends.FOUR},
        "haproxy": {"maxconn 4": backends.FOUR._replace(threads=1)},
    }

    def begin(self, context):
        return PhpWork.begin(self, context)

    def observe(self, stack, folder, context):
        seconds = 4 if context.options.quick else 2 * context.seconds + 4
        sources = [f"127.0.0.{11 + number}" for number in range(self.few)]
        self.bench(stack, context, 1, users=self.few)
        alone = self.bench(stack, context, seconds, users=self.few, sources=sources, timeout=30.0)
        result = self.measured(stack, lambda: self.crowd(stack, context, seconds, sources))
        return {"alone": alone["report"], "few": result["few"], "many": result["many"], "machine": result["machine"]}

    def crowd(self, stack, context, seconds, sources):
        url, programs = stack.url(self.path), context.settings.programs
        with Generators() as generators:
            # It starts two seconds before the others come, and runs as long as they do.
            many = generators.add(load.bench_argv(programs, url, seconds + 3, users=self.many, sources=["127.0.0.2"]))
            time.sleep(2.0)
            few = generators.add(load.bench_argv(programs, url, seconds, users=self.few, sources=sources))
            few, many = generators.result(few), generators.result(many)
        if not few["report"] or not many["report"]:
            raise processes.Failed(f"weir bench said nothing: {few.get('output')} {many.get('output')}")
        return dict(few, few=few["report"], many=many["report"])


class Waiting(Crowd):
    """Ten thousand waiting requests: how much memory they take, and what another request costs the gateway."""

    path = "/sleep.php?ms=5"
    many, few = 10_000, 10
    shapes = {
        "weir": {"max_queue 20000": backends.FOUR._replace(queue_timeout="600s", max_queue=20_000)},
        "haproxy": {"maxconn 4": backends.FOUR._replace(queue_timeout="600s", threads=1)},
    }

    def begin(self, context):
        return PhpWork.begin(self, context)

    def observe(self, stack, folder, context):
        self.bench(stack, context, 2, users=64)
        before = processes.memory(stack.gateway)
        few = self.watch(stack, context, self.few + self.pool.workers)
        many = self.watch(stack, context, self.many)
        return {"before": before, "few": few, "many": many}

    def watch(self, stack, context, users):
        """What the gateway uses while this many users wait, from the moment when all of them wait."""
        seconds, settling = (4, 3) if context.options.quick else (10, 5)
        sources = [f"127.0.1.{number}" for number in range(1, min(users, 250) + 1)]
        with Generators() as generators:
            began = time.monotonic()
            generator = generators.add(load.bench_argv(context.settings.programs, stack.url(self.path), settling + seconds + 1,
                                                       users=users, sources=sources, timeout=120.0))
            time.sleep(max(0.0, began + settling - time.monotonic()))
            spent = processes.CpuTime(stack.gateway)
            memory = processes.memory(stack.gateway)
            time.sleep(max(0.0, began + settling + seconds - time.monotonic()))
            spent = processes.CpuTime(stack.gateway).since(spent)
            report = generators.result(generator)["report"]
        if not report:
            raise processes.Failed("weir bench said nothing")
        moments = [moment for moment in report["series"] if settling <= moment["at"] < settling + seconds]
        good = sum(moment["good"] for moment in moments)
        return {"users": users, "memory": memory, "good": good, "rate": good / seconds, "failed": report["failed"],
                "refused": report["refused"], "us_per_request": spent["total_us"] / good if good else None}


class Window(Crowd):
    """What an operator sees of a stack whose workers are all busy, and how fast."""

    users, probes = 300, 200
    shapes = {"weir": {"defaults": OWN}, "nginx": {"PHP-FPM's status page": FITTED}}
    paths = {"weir": ("/status", "/metrics"), "nginx": ("/fpm-status.php",)}

    def observe(self, stack, folder, context):
        probes = self.probes // 4 if context.options.quick else self.probes
        seconds = probes * 0.05 + 3
        seen = {}
        with Generators() as generators:
            generators.add(load.bench_argv(context.settings.programs, stack.url(self.path), round(seconds + 10),
                                           users=self.users, kept=False))
            time.sleep(2.0)
            for path in self.paths[stack.name]:
                waits, statuses = [], {}
                for _ in range(probes):
                    begin = time.monotonic()
                    status = self.probe(stack, path)
                    waits.append((time.monotonic() - begin) * 1e3)
                    statuses[status] = statuses.get(status, 0) + 1
                    time.sleep(max(0.0, begin + 0.025 - time.monotonic()))
                    if time.monotonic() > begin + 10:
                        break
                waits.sort()
                at = lambda share: waits[min(len(waits) - 1, int(len(waits) * share))]
                seen[path] = {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": waits[-1], "probes": len(waits),
                              "statuses": statuses}
        return seen

    def probe(self, stack, path):
        """The status of the answer, or 0."""
        try:
            if stack.name != "weir":
                return stack.get(path)[0]
            with contextlib.closing(OverUnix(f"{stack.server.folder}/admin.sock")) as connection:
                connection.request("GET", path, headers={"Host": "weir", "Connection": "close"})
                response = connection.getresponse()
                response.read()
                return response.status
        except (OSError, http.client.HTTPException):
            return 0


class OverUnix(http.client.HTTPConnection):
    """HTTP on a unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.socket_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.socket_path)


class Generators:
    """Several `weir bench` at once; all end with the block."""

    def __init__(self):
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    def add(self, argv):
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.processes.append(process)
        return process

    def result(self, process):
        return load.bench_result(process.communicate(timeout=120)[0])


WORKS = {work.key: work for work in (
    Flood("flood", "Open loop at 1.5 and 3 times what the pool can do, page of 10 ms of CPU, clients that give up after 2 s"),
    Fairness("fairness", "One client with 1,000 requests at once beside 10 with one each, 4 workers, script of 25 ms"),
    Waiting("waiting", "10,000 requests that wait, 4 workers, script of 5 ms"),
    Window("window", "Status and metrics while 300 clients load a pool that computes"),
)}
