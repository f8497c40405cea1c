"""Proxies beside an application, through which it calls other servers: weir's egress, nginx, HAProxy; and the application.

All accept `http://127.0.0.1:PORT/HOST:PORT/path`. The configurations of nginx and HAProxy name each host and its address.
"""

import os
import shutil
import signal
import socket

from . import backends, peers, processes, stacks
from .origins import SUFFIX
from .template import render, text

# The number of connections to an origin that are kept, for proxies with such a setting.
KEPT = 100


class Way:
    """The way of the calls. The name of the server that they go through; None: direct. `shape`: its kind of configuration.
    `config`: nginx's. `preconnect`, `keepalive_timeout`: weir's. `port`: of the origins. `threads`: of the sidecar."""

    def __init__(self, peer, shape="", config="", preconnect=0, keepalive_timeout="300s", port=None, threads=1):
        self.peer, self.shape, self.config, self.preconnect = peer, shape, config, preconnect
        self.keepalive_timeout, self.port, self.threads = keepalive_timeout, port, threads

    @property
    def name(self):
        """The name in tables."""
        return ", ".join(filter(None, (NAMES[self.peer], self.shape)))


NAMES = {None: "direct", "weir": "weir", "nginx": "nginx", "haproxy": "HAProxy"}


class Called:
    """The servers that a sidecar may call: {"NAME:PORT": address}; the file of the trusted CA; a name server,
    "ADDRESS:PORT"."""

    def __init__(self, hosts, ca, name_server):
        self.hosts, self.ca, self.name_server = hosts, ca, name_server


class Sidecar:
    """A running proxy without an application."""

    def __init__(self, way, called, context, cores=None):
        self.way, self.folder = way, context.new_folder(f"sidecar-{way.peer}")
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        self.port = free_port()
        settings = context.settings
        values = {
            "dir": self.folder, "port": self.port, "address": f"127.0.0.1:{self.port}", "threads": way.threads,
            "descriptors": settings.descriptors, "if_root": "" if settings.is_root else "#", "ca": called.ca, "kept": KEPT,
        }
        argv, log, self.stop_signal = getattr(self, f"_{way.peer}")(values, called, settings.programs)
        self.tree = processes.Tree(way.peer, argv, log, cores)
        try:
            processes.wait_for(lambda: listens(self.port), 10, f"{way.name} did not listen", self.tree)
        except processes.Failed as failure:
            self.stop()
            raise processes.Failed(f"{failure}\n{errors(self.folder)}") from None

    @property
    def via(self):
        """The value of `via` for calls.php."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, host, path):
        return f"{self.via}/{host}{path}"

    def stop(self):
        self.tree.stop(self.stop_signal)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _weir(self, values, called, programs):
        values = dict(values, egress=egress_section(self.way, called, self.port))
        config = render("egress/weir.toml", self.folder, dict(values, resolver=called.name_server))
        return [programs["weir"], "serve", "-c", config], f"{self.folder}/output.log", signal.SIGTERM

    def _nginx(self, values, called, programs):
        origins = [_origin(host, called, values) for host in called.hosts]
        values["upstreams"] = "".join(text(f"egress/{self.way.config}-upstream.conf", origin) for origin in origins)
        values["locations"] = "".join(text(f"egress/{self.way.config}-location.conf", origin) for origin in origins)
        config = render("egress/nginx.conf", self.folder, values)
        return [programs["nginx"], "-p", self.folder, "-c", config], f"{self.folder}/output.log", signal.SIGTERM

    def _haproxy(self, values, called, programs):
        origins = [_origin(host, called, values) for host in called.hosts]
        values["backends"] = "".join(text("egress/haproxy-backend.cfg", origin) for origin in origins)
        config = render("egress/haproxy.cfg", self.folder, values)
        return [programs["haproxy"], "-db", "-f", config], f"{self.folder}/access.log", signal.SIGTERM


class Application:
    """weir with PHP, whose scripts call other servers: through weir's egress or through a sidecar."""

    def __init__(self, way, called, context, workers, prepare=None):
        self.way, self.sidecar = way, None
        self.stack = _Stack(way, called, context, workers, prepare)
        if way.peer not in (None, "weir"):
            try:
                self.sidecar = Sidecar(way, called, context)
            except BaseException:
                self.stack.stop()
                raise

    @property
    def via(self):
        """The value of `via` for calls.php."""
        return self.sidecar.via if self.sidecar else "egress"

    def url(self, **query):
        """The URL of a call through this sidecar."""
        return self.stack.url(f"/calls.php?{'&'.join(f'{name}={value}' for name, value in query.items())}")

    def parts(self):
        """(gateway, workers, the sidecar's processes): for lib/measure.py."""
        return self.stack.gateway, self.stack.workers, self.sidecar.tree if self.sidecar else stacks.Part(lambda: [])

    def stop(self):
        self.stack.stop()
        if self.sidecar:
            self.sidecar.stop()


class _Stack(stacks.Stack):
    """weir with PHP, and with `[egress]` if the way is weir's."""

    def __init__(self, way, called, context, workers, prepare):
        self.name, self.fpm, self.folder = "weir", None, context.new_folder("application")
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        pool = backends.Pool("static", workers, workers, 1, workers)
        egress = egress_section(way, called, free_port()) if way.peer == "weir" else ""
        more = {"egress": egress, "resolver": called.name_server}
        self.server = _Weir(context.settings, backends.Own("app", pool), self.folder, more, prepare)
        self.gateway = stacks.Part(lambda: self._pids("manager", "gateway"))
        self.workers = stacks.Part(lambda: self._pids("master", "worker"))

    def stop(self):
        super().stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Weir(peers.Weir):
    """weir as in the other works, with additional configuration."""

    def __init__(self, settings, backend, folder, more, prepare):
        self.more, self.prepare = more, prepare
        super().__init__(settings, backend, folder)

    def command(self, values):
        config = render("egress/application.toml", self.folder, dict(values, **self.more))
        return [self.settings.programs["weir"], "serve", "-c", config], f"{self.folder}/output.log"


def egress_section(way, called, port):
    """`[egress]` and its host table."""
    quoted = lambda words: ", ".join(f'"{word}"' for word in words)
    allow = ", ".join(f'{{ host = "{host}", addresses = ["{address}"] }}' for host, address in called.hosts.items())
    return text("egress/section.toml", {
        "port": port, "allow": allow, "kept": KEPT, "hosts": quoted(called.hosts), "ca": called.ca,
        "preconnect": way.preconnect, "keepalive_timeout": way.keepalive_timeout})


def free_port():
    """A free port of loopback."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    """Whether a server listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def errors(folder):
    """The end of an error log."""
    try:
        with open(f"{folder}/error.log", encoding="utf-8", errors="replace") as file:
            return file.read()[-2000:]
    except OSError:
        return ""


def _origin(host, called, values):
    """Values of templates for one origin."""
    name, port = host.split(":")
    return dict(values, host=host, name=name, upstream=f"{name.removesuffix('.' + SUFFIX)}-{port}",
                server=f"{called.hosts[host]}:{port}")
