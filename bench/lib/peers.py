"""The servers that are compared, each from its templates in `bench/peers/`.

A server is started anew for every sample. So no sample profits from an earlier one, and connections that are kept to a
small PHP pool do not block the next server.
"""

import collections
import http.client
import os
import re
import signal
import socket

from . import processes
from .template import render


class Peer:
    """One running server in front of a backend."""

    name = ""
    serves_files = True
    # The number of threads if the configuration uses the server's default; nginx's packages say auto: the number of
    # cores.
    own_threads = os.cpu_count()
    stop_signal = signal.SIGTERM
    # Names of processes: such a process and its descendants are PHP, not gateway.
    php_processes = ()
    # A function that runs in the server's process before the server starts.
    prepare = None
    # Finds the status in a line of its access log.
    status = re.compile(rb'" (\d{3}) ')

    def __init__(self, settings, backend, folder, fallback="", cores=None, as_packaged=False):
        """`settings`: a Settings. `backend`: of lib/backends.py. `folder`: an empty folder for this server. `fallback`:
        the front controller. `cores`: None, or the cores that it may use. `as_packaged`: it keeps the number of threads and
        processes of its package, if the benchmark's number would be larger."""
        self.as_packaged = as_packaged
        self.settings, self.backend, self.folder = settings, backend, folder
        self.access_log = f"{folder}/access.log"
        self.port = _free_port()
        self.tls_port = _free_port() if settings.tls else None
        values = {
            "dir": folder,
            "kind": backend.kind,
            "backend": backend.socket,
            "root": settings.root,
            "address": f"127.0.0.1:{self.port}",
            "threads": settings.threads or self.own_threads,
            "descriptors": settings.descriptors,
            "if_root": "" if settings.is_root else "#",
            "modules": "/usr/lib/apache2/modules",
            "php_ini": settings.php_ini,
            "mod_php": settings.programs.get("mod_php", ""),
            "fallback": fallback,
            "if_fallback": "" if fallback else "#",
            "if_tls": "" if settings.tls else "#",
            "if_compress": "" if settings.compress else "#",
            "tls_address": f"127.0.0.1:{self.tls_port}",
            **(settings.tls or Tls())._asdict(),
            **backend.values(),
        }
        argv, log = self.command(values)
        self.tree = processes.Tree(self.name, argv, log, cores, self.prepare)
        try:
            processes.wait_for(self._answers, 10, f"{self.name} did not answer", self.tree)
        except processes.Failed as failure:
            self.stop()
            raise processes.Failed(f"{failure}\n{self._errors()}") from None

    def command(self, values):
        """Renders the configuration; (argv, file for stdout and stderr)."""
        raise NotImplementedError

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def tls_url(self, path):
        return f"https://127.0.0.1:{self.tls_port}{path}"

    def get(self, path, timeout=10):
        """(status, body) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path, headers={"Host": "bench.example", "Connection": "close"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def stop(self):
        self.tree.stop(self.stop_signal)

    def statuses(self):
        """{status: lines} of the whole access log; complete only after stop()."""
        try:
            with open(self.access_log, "rb") as file:
                found = self.status.findall(file.read())
        except OSError:
            return {}
        return {int(status): count for status, count in collections.Counter(found).items()}

    def _answers(self):
        try:
            for port in filter(None, (self.port, self.tls_port)):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            return False

    def _errors(self):
        try:
            with open(f"{self.folder}/error.log", encoding="utf-8", errors="replace") as file:
                return file.read()[-2000:]
        except OSError:
            return ""


class Weir(Peer):
    name = "weir"
    own_threads = 0
    php_processes = ("weir-php",)

    def command(self, values):
        config = render(f"weir/{values['kind']}.toml", self.folder, values)
        return [self.settings.programs["weir"], "serve", "-c", config], f"{self.folder}/output.log"


class Nginx(Peer):
    name = "nginx"
    stop_signal = signal.SIGTERM

    def command(self, values):
        render(f"nginx/{values['kind']}.conf", self.folder, values)
        config = render("nginx/nginx.conf", self.folder, values)
        return [self.settings.programs["nginx"], "-p", self.folder, "-c", config], f"{self.folder}/output.log"


class HAProxy(Peer):
    name = "haproxy"
    serves_files = False
    # option httplog: … Tq/Tw/Tc/Tr/Ta STATUS …
    status = re.compile(rb" -?\d+/-?\d+/-?\d+/-?\d+/\+?\d+ (\d{3}) ")

    def command(self, values):
        common = render("haproxy/haproxy.cfg", self.folder, values)
        kind = render(f"haproxy/{values['kind']}.cfg", self.folder, values)
        argv = [self.settings.programs["haproxy"], "-db", "-f", common, "-f", kind]
        return argv, self.access_log


class Apache(Peer):
    """The event MPM."""

    name = "apache"

    def mpm(self):
        return "event" if self.as_packaged else "many"

    def command(self, values):
        values = dict(values, mpm=self.mpm())
        render(f"apache/{values['kind']}.conf", self.folder, values)
        render(f"apache/{values['mpm']}.conf", self.folder, values)
        config = render("apache/apache.conf", self.folder, values)
        argv = [self.settings.programs["apache2"], "-f", config, "-DFOREGROUND"]
        return argv, f"{self.folder}/output.log"


class Prefork(Apache):
    """The prefork MPM with PHP as a module: each of its processes is gateway and worker in one."""

    name = "prefork"
    php_processes = ("apache2",)

    def mpm(self):
        return "prefork"


PEERS = {peer.name: peer for peer in (Weir, Nginx, HAProxy, Apache, Prefork)}


class Tls(collections.namedtuple("Tls", "certificate key bundle http2 key_isolation", defaults=("", "", "", "", "true"))):
    """A listener with TLS beside the other: the files of its certificate; `bundle` has both. `http2`: "http2", or nothing where
    only HTTP/1.1 is measured; weir offers both. `key_isolation`: weir's."""


class Settings(collections.namedtuple("Settings", "programs root threads descriptors is_root php_ini tls compress", defaults=(None, False))):
    """The settings that all servers of a run share. `tls`: a Tls, or None. `compress`: they compress answers."""


def start(name, settings, backend, folder, **more):
    """A running server `name`; `folder` is made."""
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    return PEERS[name](settings, backend, folder, **more)


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
