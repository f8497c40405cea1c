"""Scenario 3: calls to other servers, direct, through weir's egress, and through nginx and HAProxy as sidecars.

These results have no figures of a load generator. What was measured is in the result under "egress".
"""

import collections
import http.client
import json
import os
import re
import statistics
import sys
import threading
import time

from . import load, machine, measure, networks, processes, works
from .crowds import Generators
from .networks import NAME_SERVER
from .origins import BODY, CERTIFICATES, HTTP2, NAMES, PLAIN, SUFFIX, TLS, TLS12, TROUBLE, Certificates, Origins, Trouble
from .sidecars import Application, Called, Sidecar, Way

DELAY_MS = 150
ORIGIN, TROUBLED, DNS_PORT = "10.99.0.11", "10.99.0.12", 53
NAMESERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nameserver.py")
# No program listens there.
CLOSED = 9099

WEIR = Way("weir")
READY = Way("weir", "preconnect 2", preconnect=2)
PUBLISHED = Way("nginx", "as published", config="published", threads=os.cpu_count())
TUNED = Way("nginx", "tuned", config="tuned")
HAPROXY = Way("haproxy")


class Egress:
    """Calls of some kind. `ways`: in which each server is measured."""

    programs = ("nginx", "haproxy", "openssl", "ip", "php-fpm", "php-cgi", "php-config", "php-curl")
    ways = (READY, WEIR, PUBLISHED, TUNED, HAPROXY)

    def __init__(self, key, title):
        self.key, self.title = key, title

    @property
    def peers(self):
        return tuple(dict.fromkeys(way.peer for way in self.ways))

    def rounds(self, options):
        return max(1, options.rounds // 2)

    def begin(self, context):
        """The network and the origins, for all samples of the work."""
        shared = Surroundings(context, self.network(context))
        try:
            self.prepare(shared, context)
        except BaseException:
            shared.stop()
            raise
        return shared

    def network(self, context):
        """The network in which everything runs."""
        return networks.Local([ORIGIN, TROUBLED, NAME_SERVER])

    def prepare(self, shared, context):
        """Measures what is needed once for all."""

    def sample(self, name, shared, context):
        results = []
        for way in self.ways:
            if way.peer == name:
                with shared.network.near():
                    with Others() as others:
                        seen = self.observe(way, shared, context)
                    results.append({"egress": seen, "shape": way.shape, "machine": others.found})
        return results

    def observe(self, way, shared, context):
        """The figures."""
        raise NotImplementedError


class Others:
    """How busy the machine was with other work than the benchmark: {"other_cores", "stolen_cores"} as `found`."""

    def __enter__(self):
        self.begin, self.used, self.own = time.monotonic(), machine.busy_seconds(), self.ours()
        return self

    def __exit__(self, *_):
        elapsed, (used, stolen) = time.monotonic() - self.begin, machine.busy_seconds()
        busy = used - self.used[0] - (self.ours() - self.own)
        self.found = {"other_cores": max(0.0, busy) / elapsed, "stolen_cores": (stolen - self.used[1]) / elapsed}

    def ours(self):
        """CPU seconds of running and ended processes."""
        return sum(os.times()[:4]) + processes.ticks()


class Surroundings:
    """A network, its name server, certificates, and origins."""

    def __init__(self, context, network):
        self.network, self.folder, self.started, self.facts = network, context.new_folder("surroundings"), [], {}
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        self.resolv_conf = f"{self.folder}/resolv.conf"
        with open(self.resolv_conf, "w", encoding="ascii") as file:
            file.write(f"nameserver {NAME_SERVER}\n")
        try:
            self.certificates = Certificates(context.settings.programs["openssl"], f"{self.folder}/certificates")
            names = [*(f"{kind}.{SUFFIX}={TROUBLED}" for kind in TROUBLE), f"{SUFFIX}={ORIGIN}"]
            with network.far():
                argv = [sys.executable, NAMESERVER, NAME_SERVER, str(DNS_PORT), *names]
                self.started.append(processes.Tree("nameserver", argv, f"{self.folder}/nameserver.log"))
                self.origins = Origins(context, self.certificates, ORIGIN)
                self.started.append(self.origins)
        except BaseException:
            self.stop()
            raise

    def called(self, hosts):
        """The settings that tell a sidecar which origins it may call."""
        at = lambda host: TROUBLED if host.partition(".")[0] in TROUBLE else ORIGIN
        return Called({host: at(host) for host in hosts}, self.certificates.ca, f"{NAME_SERVER}:{DNS_PORT}")

    def application(self, way, context, hosts, workers):
        """A running Application, whose PHP looks up names at the name server."""
        prepare = networks.resolv_conf(self.resolv_conf)
        return Application(way, self.called(hosts), context, workers, prepare)

    def direct(self, hosts, **more):
        """The settings that calls.php gets for calls without a sidecar."""
        return {"hosts": ",".join(hosts), "ca": self.certificates.ca, **more}

    def stop(self):
        for part in reversed(self.started):
            part.stop()
        self.network.stop()


class Delay(Egress):
    """Ten calls of one script, one after the other, where a round trip takes 300 ms."""

    calls = 10
    hosts = [f"{NAMES[0]}:{TLS}"]
    idle = 6
    ways = (Way("weir", "preconnect 2", preconnect=2, keepalive_timeout=f"{idle - 2}s"), WEIR, PUBLISHED, TUNED, HAPROXY)
    # For direct calls: the port, and whether names are known without a lookup.
    direct = {"TLS 1.2": (TLS12, {}), "TLS 1.3": (TLS, {}), "TLS 1.3, name known": (TLS, {"address": ORIGIN})}

    def network(self, context):
        return networks.Distant(DELAY_MS, [ORIGIN, TROUBLED, NAME_SERVER], context.folder)

    def prepare(self, shared, context):
        shared.round_trip_ms = shared.network.round_trip_ms(ORIGIN, PLAIN)
        shared.direct_calls = {}
        with shared.network.near():
            application = shared.application(Way(None), context, self.hosts, 1)
            try:
                for name, (port, more) in self.direct.items():
                    query = shared.direct([f"{NAMES[0]}:{port}"], calls=self.calls, **more)
                    shared.direct_calls[name] = page(application, **query)
            finally:
                application.stop()

    def observe(self, way, shared, context):
        before = shared.origins.accepted()
        application = shared.application(way, context, self.hosts, 1)
        try:
            ready = lambda: shared.origins.accepted() - before >= way.preconnect
            processes.wait_for(ready, 10, f"{way.name} did not open {way.preconnect} connections")
            # The remaining work of TLS; ready connections are kept from now on.
            time.sleep(1.5)
            query = {"via": application.via, "hosts": self.hosts[0]}
            seen = {"round_trip_ms": shared.round_trip_ms, "how": shared.network.how, "direct": shared.direct_calls,
                    "calls": page(application, calls=self.calls, **query)}
            if way.preconnect:
                time.sleep(self.idle)
                seen["after_idle"] = page(application, calls=1, **query)
            seen["connections"] = shared.origins.accepted() - before
            return seen
        finally:
            application.stop()


class Workers(Delay):
    """The same with twenty workers at once that call three origins; handshakes are counted there."""

    workers, calls, pause = 20, 9, 3
    ways = (WEIR, Way("weir", "HTTP/2", port=HTTP2), PUBLISHED, TUNED, HAPROXY)

    def hosts_of(self, way):
        return [f"{name}:{way.port or TLS}" for name in NAMES]

    def prepare(self, shared, context):
        with shared.network.near():
            shared.facts["direct"] = self.observe(Way(None), shared, context)

    def observe(self, way, shared, context):
        hosts = self.hosts_of(way)
        application = shared.application(way, context, hosts, self.workers)
        query = ({"via": application.via, "hosts": ",".join(hosts)} if way.peer
                 else shared.direct(hosts, address=ORIGIN))
        try:
            # Now all workers run, and have compiled the script.
            self.crowd(application, dict(query, calls=0))
            batches = []
            for number in range(2):
                time.sleep(self.pause if number else 0)
                before, seen = shared.origins.accepted(), len(shared.origins.calls())
                calls = self.crowd(application, dict(query, calls=self.calls))
                # The origin writes a call to its log when the call is over.
                processes.wait_for(lambda: len(shared.origins.calls()) >= seen + len(calls), 5, "the origin's log is too short")
                logged = shared.origins.calls()[seen:]
                batches.append({
                    "calls": len(calls), "accepted": shared.origins.accepted() - before,
                    "new": sum(call.nth == "1" for call in logged), "resumed": sum(call.nth == "1" and call.resumed[0] == "r"
                                                                                  for call in logged),
                    "at_once": {host: most_at_once([call for call in calls if call["host"] == host]) for host in hosts},
                    "p50_ms": statistics.median(call["ms"] for call in calls), "longest_ms": max(call["ms"] for call in calls)})
            return {"batches": batches, **shared.facts}
        finally:
            application.stop()

    def crowd(self, application, query):
        """The calls of this many pages that are requested at once."""
        calls, failures = [], []

        def ask():
            try:
                calls.extend(page(application, **query)["calls"])
            except (processes.Failed, OSError) as failure:
                failures.append(failure)
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        if failures:
            raise processes.Failed(str(failures[0]))
        return calls


class Near(Egress):
    """No delay: five users of a page that calls ten times; then the sidecars alone."""

    programs = (*Egress.programs, "wrk")
    hosts = [f"{name}:{TLS}" for name in NAMES]
    users, calls, posts, connections = 5, 10, 5, 16
    ways = (WEIR, PUBLISHED, TUNED, HAPROXY)

    def rounds(self, options):
        return options.rounds

    def observe(self, way, shared, context):
        seconds = context.seconds
        application = shared.application(way, context, self.hosts, 2 * self.users)
        direct = shared.direct(self.hosts, calls=self.calls, posts=self.posts, address=ORIGIN)
        through = {"via": application.via, "hosts": ",".join(self.hosts), "calls": self.calls, "posts": self.posts}
        try:
            page(application, **direct)
            page(application, **through)
            seen = {}
            # The sidecar is warm from the beginning. Half of the direct load runs before and half after, so that both
            # see the same machine.
            loads = {"direct": [], "through": []}
            for which, query in (("direct", direct), ("through", through), ("through", through), ("direct", direct)):
                loads[which].append(self.pages(application, query, context, seconds, shared))
            seen = {which: merged(results) for which, results in loads.items()}
        finally:
            application.stop()
        seen["alone"] = self.alone(way, shared, context)
        return seen

    def pages(self, application, query, context, seconds, shared):
        """Users of the page, and the cost for each process."""
        gateway, workers, sidecar = application.parts()
        attack = lambda: load.bench(context.settings.programs, application.url(**query), seconds, users=self.users)
        spent = processes.CpuTime(sidecar)
        result = measure.measured(attack, gateway, workers, [gateway], others=[shared.origins.tree, sidecar], every=1.0)
        spent = processes.CpuTime(sidecar).since(spent)
        if not result["report"] or result["errors"]:
            # Reports the error.
            page(application, **query)
            raise processes.Failed(f"{application.way.name}: {result['errors'] or result.get('output')}")
        return {"pages": result["requests"], "seconds": result["seconds"], "mean_ms": result["report"]["response_time"]["mean"] * 1e3,
                "p95_ms": result["report"]["response_time"]["p95"] * 1e3, "gateway_us": result["gateway"]["total_us"],
                "workers_us": result["workers"]["total_us"], "sidecar_us": spent["total_us"],
                "other_cores": result["machine"]["other_cores"]}

    def running(self, name, shared, context):
        """The sidecar alone, for `bench/profile`."""
        way = [way for way in self.ways if way.peer == name][-1]
        with shared.network.near():
            sidecar = Sidecar(way, shared.called(self.hosts), context)
            attack = self.attack(sidecar, context)

        def loaded():
            with shared.network.near():
                return attack()
        return works.Running({"gateway": sidecar.tree, "workers": shared.origins.tree}, loaded, sidecar.stop)

    def attack(self, sidecar, context):
        """A load for a warm sidecar."""
        url = sidecar.url(self.hosts[0], "/1k")
        check(url)
        load.wrk(context.settings.programs, url, self.connections, 1)
        return self.turn(url, context)

    def turn(self, url, context):
        """A load, as a function."""
        return lambda: load.wrk(context.settings.programs, url, self.connections, context.seconds)

    def alone(self, way, shared, context):
        """The cost of a call for the sidecar, with callers that keep their connections."""
        sidecar = Sidecar(way, shared.called(self.hosts), context)
        try:
            attack = self.attack(sidecar, context)
            result = measure.measured(attack, sidecar.tree, shared.origins.tree, [sidecar.tree])
        finally:
            sidecar.stop()
        return {"rate": result["rate"], "errors": result["errors"], "p50_ms": result["p50_ms"], "p99_ms": result["p99_ms"],
                "us_per_call": result["gateway"]["total_us"] / result["requests"] if result["requests"] else None,
                "pss_mb": result["memory"]["pss_kb"] / 1024, "other_cores": result["machine"]["other_cores"]}


class Rate(Egress):
    """This many calls a second, on one core; origin and callers are on another one."""

    hosts = [f"{NAMES[0]}:{TLS}"]
    rate = 5000
    ways = (WEIR, TUNED, HAPROXY)

    def rounds(self, options):
        return options.rounds

    def begin(self, context):
        cores = sorted(os.sched_getaffinity(0))
        self.own, self.rest = (cores[-1:], cores[:-1]) if len(cores) > 1 else (cores, cores)
        with on_cores(self.rest):
            return super().begin(context)

    def turn(self, url, context):
        """A load, as a function."""
        return lambda: load.bench(context.settings.programs, url, 2 * context.seconds, rate=self.rate, elsewhere=True)

    def observe(self, way, shared, context):
        with on_cores(self.rest):
            sidecar = Sidecar(way, shared.called(self.hosts), context, cores=self.own)
            try:
                urls = {"direct": f"http://{ORIGIN}:{PLAIN}/1k", "through": sidecar.url(self.hosts[0], "/1k")}
                check(urls["through"])
                seen = {"rate": self.rate}
                for which, url in urls.items():
                    attack = self.turn(url, context)
                    load.bench(context.settings.programs, url, 1, rate=self.rate, elsewhere=True)
                    result = measure.measured(attack, sidecar.tree, shared.origins.tree, [sidecar.tree])
                    if not result["report"]:
                        raise processes.Failed(f"weir bench said nothing: {result.get('output')}")
                    times = result["report"]["response_time"]
                    seen[which] = {
                        "errors": result["errors"], "rate": result["rate"],
                        **{f"{name}_ms": times[name] * 1e3 for name in ("p50", "p99", "p99_9", "max")},
                        "cores": result["gateway"]["total_us"] / 1e6 / result["machine"]["seconds"],
                        "us_per_call": result["gateway"]["total_us"] / result["requests"],
                        "pss_mb": result["memory"]["pss_kb"] / 1024, "rss_mb": result["memory"]["rss_kb"] / 1024,
                        "other_cores": result["machine"]["other_cores"]}
                return seen
            finally:
                sidecar.stop()


class Misbehaving(Egress):
    """Misbehaving origins: the answer of the caller and its time, and the effect on other calls."""

    good = f"{NAMES[0]}:{TLS}"
    hosts = {**{kind: f"{kind}.{SUFFIX}:{port}" for kind, (port, _) in TROUBLE.items()},
             **{kind: f"{kind}.{SUFFIX}:{TLS}" for kind in CERTIFICATES}, "closed": f"closed.{SUFFIX}:{CLOSED}"}
    good_rate, bad_rate = 200, 20
    ways = (WEIR, TUNED, HAPROXY)

    def rounds(self, options):
        return 1

    def prepare(self, shared, context):
        with shared.network.far():
            shared.started.append(Trouble(shared.certificates, TROUBLED, shared.folder))

    def observe(self, way, shared, context):
        seconds = max(4, context.seconds)
        sidecar = Sidecar(way, shared.called([self.good, *self.hosts.values()]), context)
        programs = context.settings.programs
        try:
            good = sidecar.url(self.good, "/1k")
            check(good)
            seen = {"calls": {kind: one_call(sidecar.port, host) for kind, host in self.hosts.items()}}
            load.bench(programs, good, 1, rate=self.good_rate)
            seen["alone"] = load.bench(programs, good, seconds, rate=self.good_rate)["report"]
            with Generators() as generators:
                argv = lambda url, length, rate: load.bench_argv(programs, url, length, rate=rate, timeout=10.0)
                bad = {kind: generators.add(argv(sidecar.url(host, "/1k"), seconds + 2, self.bad_rate))
                       for kind, host in self.hosts.items()}
                time.sleep(1.0)
                beside = generators.add(argv(good, seconds, self.good_rate))
                seen["beside"] = generators.result(beside)["report"]
                results = {kind: generators.result(process) for kind, process in bad.items()}
            if not seen["alone"] or not seen["beside"]:
                raise processes.Failed("weir bench said nothing")
            seen["crowd"] = {kind: {"requests": result["requests"], "good": result.get("in_time", 0), "errors": result["errors"],
                                    "longest_ms": longest(result["report"])} for kind, result in results.items()}
            return seen
        finally:
            sidecar.stop()


def page(application, **query):
    """The result of calls.php: {"ms", "calls": [{"host", "begin", "end", "ms"}]}; Failed if a call failed."""
    url = application.url(**query)
    status, body = application.stack.get(url[url.index("/calls.php"):], timeout=60)
    try:
        said = json.loads(body)
        failed = [call[3] for call in said["calls"] if call[3]]
    except (ValueError, KeyError, TypeError):
        raise processes.Failed(f"{application.way.name}: calls.php answers with {status}: {body[:500]!r}") from None
    if status != 200 or failed:
        raise processes.Failed(f"{application.way.name}: {len(failed)} of {len(said['calls'])} calls failed: {failed[:1]}")
    calls = [{"host": host, "begin": begin, "end": end, "ms": (end - begin) / 1e6} for begin, end, host, _ in said["calls"]]
    return {"ms": (said["end"] - said["begin"]) / 1e6, "calls": calls}


def most_at_once(calls):
    """How many of them were under way at the same time, at most."""
    changes = sorted([(call["begin"], 1) for call in calls] + [(call["end"], -1) for call in calls])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def merged(loads):
    """One load from several, with their sums and means."""
    pages = sum(one["pages"] for one in loads)
    mean = lambda field: sum(one[field] * one["pages"] for one in loads) / pages
    per_page = lambda field: sum(one[field] for one in loads) / pages
    return {"pages": pages, "mean_ms": mean("mean_ms"), "p95_ms": max(one["p95_ms"] for one in loads),
            "other_cores": max(one["other_cores"] for one in loads),
            **{field: per_page(field) for field in ("gateway_us", "workers_us", "sidecar_us")}}


def check(url):
    """Failed if the answer differs from the origin's."""
    port, path = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/.*)", url).groups()
    answer = call(int(port), path)
    if answer["status"] != 200 or answer["body"] != BODY:
        raise processes.Failed(f"{url}: {answer}")


def one_call(port, host):
    """{"status", "said" (Proxy-Status), "ms", "whole"} of a call through a sidecar."""
    answer = call(port, f"/{host}/1k")
    answer["whole"] = answer.pop("body") is not None
    return answer


def call(port, path):
    """One request; status 0 if no answer came, body None if it was cut off."""
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    status, said, body = 0, None, None
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        status, said = response.status, response.getheader("Proxy-Status")
        body = response.read()
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return {"status": status, "said": said, "ms": (time.monotonic() - begin) * 1e3, "body": body}


def longest(report):
    """The longest time of any request, ms, whatever its end."""
    kinds = ("response_time", "refused_time", "failed_time")
    return max((report[kind]["max"] or 0 for kind in kinds), default=0) * 1e3 if report else None


class on_cores:
    """Runs this process, and the processes that it starts, on these cores for a while."""

    def __init__(self, cores):
        self.cores = cores

    def __enter__(self):
        self.before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self.cores)

    def __exit__(self, *_):
        os.sched_setaffinity(0, self.before)


WORKS = {work.key: work for work in (
    Delay("egress-delay", "Ten calls of a script, one after the other, over TLS, 300 ms a round trip"),
    Workers("egress-workers", "20 workers at once, nine calls each to three origins, 300 ms a round trip; twice"),
    Near("egress-near", "No delay: 5 users of a page that calls three origins ten times"),
    Rate("egress-rate", "5,000 calls a second of 1 KB, the sidecar on one core, origin and callers on another"),
    Misbehaving("egress-trouble", "Origins that misbehave, and a good one beside them"),
)}
