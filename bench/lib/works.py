"""The works, and one sample of one work by one server."""

import collections
import itertools
import os
import shutil
import time

from . import backends, idle, load, measure, peers, php, processes

KB_FILE, LARGE_FILE, HUGE_FILE = "/1k.bin", "/100k.bin", "/100m.bin"
SIZES = {KB_FILE: 1024, LARGE_FILE: 100 * 1024, HUGE_FILE: 100 * 1024 * 1024}
IDLE_CLIENTS = 10_000
# How long connections have been idle when memory is read.
IDLE_SECONDS = 3
PHP_CLIENTS = 300


class Work(collections.namedtuple("Work", "key title backend path load peers connections")):
    """A server in front of a backend. `load`: wrk, download, ab or idle. `peers`: names of the servers that can do it."""

    @property
    def programs(self):
        """The programs that it needs, besides the servers."""
        return {"ab": ("ab", "php-fpm"), "download": ()}.get(self.load, ("wrk",))

    def rounds(self, options):
        """The number of rounds: fewer for ten thousand connections and for files of 100 MB, which take long."""
        return max(1, options.rounds // 2) if self.load in ("idle", "download") else options.rounds

    def begin(self, context):
        """The state that its samples share, with a `stop`."""
        return start_backend(self, context)

    def sample(self, name, backend, context):
        """Starts server `name`, warms it up, loads it, stops it. A list of results, one a phase."""
        return sample(self, name, backend, context)

    def running(self, name, backend, context):
        """Server `name`, checked and warm, for `bench/profile`."""
        server = peers.start(name, context.settings, backend, _folder(context, name, make=False))
        try:
            check(self, server)
            _warm_up(self, server, context)
        except BaseException:
            server.stop()
            raise
        return Running({"gateway": server.tree, "workers": backend.tree},
                       lambda: load_of(self, server, context),
                       server.stop)


class Running(collections.namedtuple("Running", "parts load stop")):
    """A running server for a profiler. `parts`: {name: something with pids}. `load`, `stop`: functions."""


_ALL = ("weir", "nginx", "haproxy", "apache")
_FILES = tuple(name for name in _ALL if peers.PEERS[name].serves_files)
WORKS = {work.key: work for work in (
    Work("fastcgi-64", "FastCGI, responder that does nothing, 64 connections", "responder",
         backends.Responder.path, "wrk", _ALL, 64),
    Work("fastcgi-4", "FastCGI, responder that does nothing, 4 connections", "responder",
         backends.Responder.path, "wrk", _ALL, 4),
    Work("static-1k", "Static file of 1 KB, 64 connections", "responder", KB_FILE, "wrk", _FILES, 64),
    Work("static-100k", "Static file of 100 KB, 64 connections", "responder", LARGE_FILE, "wrk", _FILES, 64),
    Work("static-100m", "Static file of 100 MB, 4 connections", "responder", HUGE_FILE, "download", _FILES, 4),
    Work("php-fpm", "The same PHP-FPM pool of 4 behind all, 300 clients", "php", backends.PhpFpm.path, "ab", _ALL, PHP_CLIENTS),
    Work("idle", "10,000 idle kept-alive clients beside fastcgi-64", "responder",
         backends.Responder.path, "idle", _ALL, 64),
)}


class Context(collections.namedtuple("Context", "settings folder options php_requests counter same_settings facts")):
    """One run: peers.Settings, its temporary folder, the command line, a counter for folder names, php.SameSettings,
    and facts {name: figure} that belong to no server."""

    @property
    def seconds(self):
        """How long a load lasts."""
        return self.options.seconds

    def new_folder(self, name):
        """The path of a new folder, which does not exist yet."""
        return os.path.join(self.folder, f"{next(self.counter)}-{name}")


def context(options, programs, folder, php_requests):
    """The Context of a run: settings, php.ini and the document root are written to `folder`."""
    php_ini = php.write_ini(folder, php.version(programs["php-fpm"]))
    settings = peers.Settings(programs=programs, root=f"{folder}/site", threads=options.threads,
                              descriptors=processes.raise_descriptors(), is_root=os.geteuid() == 0,
                              php_ini=php_ini)
    prepare_site(settings.root)
    return Context(settings=settings, folder=folder, options=options, php_requests=php_requests,
                   counter=itertools.count(), same_settings=php.SameSettings(), facts={})


def prepare_site(root):
    """The document root: files of the measured sizes, and scripts, because some servers check that they exist."""
    php.write_site(root)
    with open(root + backends.Responder.path, "w", encoding="ascii") as file:
        file.write("<?php\n")
    for path, size in SIZES.items():
        block = os.urandom(1024)
        with open(root + path, "wb") as file:
            for _ in range(size // len(block)):
                file.write(block)


def start_backend(work, context):
    """The backend of a work, shared by all servers in turn."""
    folder = _folder(context, work.backend)
    if work.backend == "php":
        return backends.PhpFpm(context.settings.programs["php-fpm"], folder, context.settings.is_root,
                               context.settings.php_ini)
    return backends.Responder(context.settings.programs["responder"], folder, context.options.responder_threads)


def sample(work, name, backend, context):
    """As Work.sample."""
    folder = context.new_folder(name)
    server = peers.start(name, context.settings, backend, folder)
    try:
        check(work, server)
        _warm_up(work, server, context)
        if work.load == "idle":
            results = _with_and_without_idle(work, server, backend, context)
        else:
            results = [_measure(work, server, backend, context)]
    finally:
        server.stop()
    # The log is complete only now. It includes the warm-up; the check is that it contains only 200.
    statuses = _without_cut_off(server.statuses(), work)
    for result in results:
        result["statuses"] = statuses
    shutil.rmtree(folder, ignore_errors=True)
    return results


def _with_and_without_idle(work, server, backend, context):
    without = dict(_measure(work, server, backend, context), phase="without")
    before = processes.memory(server.tree)
    clients = idle.Clients(server.port, IDLE_CLIENTS, work.path)
    try:
        # After this time without data a connection counts as idle, and the server has released its buffers.
        time.sleep(IDLE_SECONDS)
        during = processes.memory(server.tree)
        with_idle = dict(_measure(work, server, backend, context), phase="with")
    finally:
        closed = clients.close()
    opened = clients.opened.get("connections", 0)
    with_idle["idle"] = dict(clients.opened, still_open=closed.get("open", 0), memory_before=before,
                             memory_during=during)
    if opened:
        with_idle["idle"]["bytes_per_connection"] = {
            kind: (during[kind] - before[kind]) * 1024 / opened for kind in ("rss_kb", "pss_kb")}
    return [without, with_idle]


def _measure(work, server, backend, context):
    upstream = backend.counters()
    result = measure.measured(lambda: load_of(work, server, context), server.tree, backend.tree, [server.tree])
    if upstream:
        after = backend.counters()
        result["upstream"] = {what: after[what] - upstream[what] for what in ("accepted", "requests")}
    return result


def _warm_up(work, server, context):
    """Opens connections, fills caches, compiles scripts."""
    _load(work, server, context.settings.programs, 1, work.connections)


def load_of(work, server, context):
    """One load of a running server."""
    return _load(work, server, context.settings.programs, context.seconds, context.php_requests)


def _load(work, server, programs, seconds, php_requests):
    url = server.url(work.path)
    if work.load == "ab":
        return load.ab(programs, url, work.connections, php_requests, 60)
    if work.load == "download":
        return load.download(url, work.connections, seconds, SIZES[work.path])
    return load.wrk(programs, url, work.connections, seconds)


def _without_cut_off(statuses, work):
    """wrk ends by closing its connections in the middle of a request: nginx logs those as 499, weir too."""
    loads = 3 if work.load == "idle" else 2
    cut_off = min(statuses.get(499, 0), loads * work.connections if work.load in ("wrk", "idle") else 0)
    return {status: count - cut_off if status == 499 else count
            for status, count in statuses.items() if status != 499 or count > cut_off}


def check(work, server):
    """Checks before a measurement that the server gives the right answer."""
    status, body = server.get(work.path)
    expected = SIZES.get(work.path)
    if status != 200 or (expected is not None and len(body) != expected) or not body:
        raise processes.Failed(f"{server.name} answers {work.path} with {status} and {len(body)} bytes: {body[:200]!r}")
    if work.path == backends.PhpFpm.path and body.count(b"hello world") != 1000:
        raise processes.Failed(f"{server.name} does not give the page of {work.path}: {body[:200]!r}")


def _folder(context, name, make=True):
    folder = context.new_folder(name)
    if make:
        os.mkdir(folder)
        os.chmod(folder, 0o755)
    return folder
