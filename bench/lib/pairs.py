"""Servers side by side, weir and nginx, in many short turns: the figure of a turn is divided by that of the turn beside it, so what
slows the machine down for a while affects both. All run all the time, those that have no turn without a load."""

import argparse
import collections
import os

from . import backends, egress, load, measure, peers, processes, stacks, works
from .sidecars import Sidecar

NAMES = ("weir", "nginx")
# Turns of each server after both were started, and how long each is (seconds). The number of starts is `--rounds`.
TURNS, SECONDS = 7, 1


class Side(collections.namedtuple("Side", "tree load stop workers", defaults=(None,))):
    """A running server: its processes, a function that loads it for one turn, and how it ends. `workers`: the processes behind it, if
    each server has its own."""


class Pair:
    """A work in turns. `work`: the one of the same name, with one server at a time. `names`: the first is compared with each of the
    others. `turn_seconds`: the length of a turn."""

    peers = names = NAMES
    turn_seconds = SECONDS

    def __init__(self, key, work, title):
        self.key, self.work, self.title = key, work, title

    @property
    def programs(self):
        return self.work.programs

    def rounds(self, options):
        return options.rounds

    def begin(self, context):
        return self.work.begin(context)

    def turns(self, shared, context, number):
        """All turns after one start of both servers."""
        context = context._replace(options=argparse.Namespace(**{**vars(context.options), "seconds": self.turn_seconds}))
        samples, sides = [], {}
        try:
            for name in self.names:
                sides[name] = self.start(name, shared, context)
            for turn in range(TURNS):
                # The second of one turn is the first of the next.
                for name in self.names if (number + turn) % 2 == 0 else reversed(self.names):
                    result = self.measured(sides[name], shared)
                    requests = result["requests"]
                    samples.append({"peer": name, "round": number, "machine": result["machine"], "pair": {
                        "turn": turn, "requests": requests, "errors": result["errors"],
                        "us_per_request": self.cost(result) / requests if requests else None,
                        "workers_us": result["workers"]["total_us"] / requests if requests else None,
                        "per_second": result["rate"], "p50_ms": result.get("p50_ms"),
                        "mb_per_second": result["bytes"] / result["seconds"] / 1e6 if result["seconds"] else None}})
        finally:
            for side in sides.values():
                side.stop()
        return samples

    def measured(self, side, shared):
        return measure.measured(side.load, side.tree, side.workers or self.behind(shared), [side.tree])

    def cost(self, result):
        """The CPU time of a turn that counts (microseconds)."""
        return result["gateway"]["total_us"]

    def start(self, name, shared, context):
        """A Side that is warm."""
        raise NotImplementedError

    def behind(self, shared):
        """The processes behind the servers."""
        raise NotImplementedError


class Front(Pair):
    """Servers in front of an application. `threads`: of each server; 0: its own default."""

    def __init__(self, name, threads):
        self.threads = threads
        work = works.WORKS[name]
        each = f"{threads} thread{'s' if threads > 1 else ''} each" if threads else "threads by default"
        super().__init__(f"pair-{name}" + ("" if threads else "-default"), work, f"{work.title}, {each}")

    def start(self, name, shared, context):
        threads = (context.options.threads or self.threads) if self.threads else 0
        settings = context.settings._replace(threads=threads)
        server = peers.start(name, settings, shared, context.new_folder(name))
        side = Side(server.tree, lambda: works.load_of(self.work, server, context), server.stop)
        return warm(side, lambda: works.check(self.work, server))

    def behind(self, shared):
        return shared.tree


class Calls(Pair):
    """Sidecars. `observed`: the class of `lib/egress.py` whose calls are sent."""

    ways = {"weir": egress.WEIR, "nginx": egress.TUNED}

    def __init__(self, name, title):
        super().__init__(f"pair-{name}", egress.WORKS[name], title)

    def begin(self, context):
        # As many callers as one connection each; the origins have the other cores.
        cores = sorted(os.sched_getaffinity(0))
        self.own, self.rest = (cores[-1:], cores[:-1]) if len(cores) > 1 else (cores, cores)
        with egress.on_cores(self.rest):
            return self.work.begin(context)

    def turns(self, shared, context, number):
        with shared.network.near(), egress.on_cores(self.rest):
            return super().turns(shared, context, number)

    def start(self, name, shared, context):
        sidecar = Sidecar(self.ways[name], shared.called(self.work.hosts), context, cores=self.own)
        url = sidecar.url(self.work.hosts[0], "/1k")
        side = Side(sidecar.tree, self.work.turn(url, context), sidecar.stop)
        return warm(side, lambda: egress.check(url))

    def behind(self, shared):
        return shared.origins.tree


class Nobody(stacks.Part):
    """No processes behind the servers."""

    def __init__(self):
        super().__init__(list)

    def stop(self):
        pass


class Computing(Pair):
    """A script that only computes, with one PHP worker in each: weir's own, and PHP-FPM's behind nginx. The CPU time is that of PHP's
    processes alone."""

    programs = ("php-fpm", "php-config", "nginx")
    path, mark = "/compute.php", "computed "
    pool = backends.Pool("static", 1, 1, 1, 1)

    def __init__(self, name, title):
        super().__init__(f"pair-{name}", None, title)

    def begin(self, context):
        return Nobody()

    def start(self, name, shared, context):
        stack = stacks.Stack(name, context.settings, self.pool, context.new_folder(name))
        turn = lambda: load.clients(context.settings.programs, stack.url(self.path), 1, SECONDS, contains=self.mark)

        def check():
            processes.wait_for(lambda: stack.get(self.path)[0] == 200, 20, f"{name} does not answer {self.path}", stack.server.tree)
            context.same_settings.check(name, stack.get)

        return warm(Side(stack.workers, turn, stack.stop), check)

    def behind(self, shared):
        return shared


def warm(side, check):
    """The side, after a check and a first turn that does not count."""
    try:
        check()
        side.load()
        return side
    except BaseException:
        side.stop()
        raise


# For how many threads servers are compared at equal cost.
EQUAL = 1

WORKS = {pair.key: pair for pair in (
    *(Front(name, threads) for threads in (EQUAL, 0) for name in ("fastcgi-64", "fastcgi-4", "static-1k", "static-100k", "static-100m")),
    Computing("php-compute", "A script of arrays, calls, strings and regular expressions, one PHP worker each"),
    Calls("egress-near", "Calls through the sidecar alone, 16 kept callers"),
    Calls("egress-rate", "5,000 calls a second of 1 KB through the sidecar"),
)}
