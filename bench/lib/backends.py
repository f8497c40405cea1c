"""What runs behind the servers: a responder that does no work, a PHP-FPM pool, or the server's own workers."""

import collections
import os
import signal
import socket

from . import processes
from .template import render


class Responder:
    """`bench/responder`: answers at once, and counts connections and requests."""

    kind = "responder"
    path = "/nothing.php"

    def __init__(self, binary, folder, threads):
        self.socket, self.counters_socket = f"{folder}/responder.sock", f"{folder}/counters.sock"
        self.tree = processes.Tree("responder", [
            binary, "--listen", self.socket, "--counters", self.counters_socket, "--threads", str(threads),
        ], f"{folder}/responder.log")
        processes.wait_for(lambda: os.path.exists(self.counters_socket), 5, "responder did not listen", self.tree)

    def values(self):
        """For templates."""
        return {}

    def counters(self):
        """{"accepted", "open", "requests"} since its start."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(2)
            s.connect(self.counters_socket)
            words = s.makefile().read().split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def stop(self):
        self.tree.stop()


class Pool(collections.namedtuple("Pool", "pm workers start_servers min_spare max_spare backlog maxconn minconn "
                                       "queue_timeout max_queue threads worker kept",
                                  defaults=(4096, None, None, "60s", None, None, None, None))):
    """The number of PHP workers, in PHP-FPM's terms, and how many requests may run and wait at once, in HAProxy's
    terms. `backlog`: of PHP-FPM's socket. `threads`: of the server in front. `worker`: weir's worker file. `kept`: whether
    connections to PHP-FPM are kept. None means the server's default; for `maxconn` it means the number of workers, for `kept` that
    weir keeps them and nginx does not."""

    def values(self):
        """For templates."""
        said = {f"if_{name}": "#" if getattr(self, name) is None else ""
                for name in ("workers", "maxconn", "minconn", "queue_timeout", "max_queue", "worker")}
        values = {name: "" if value is None else value for name, value in self._asdict().items()}
        if not self.threads:
            del values["threads"]
        said["if_kept"] = "" if self.kept else "#"
        return dict(values, **said, keep_conn="false" if self.kept is False else "true", if_dynamic="" if self.pm == "dynamic" else "#",
                    maxconn=self.maxconn or self.workers, fullconn=100,
                    minconn=f"minconn {self.minconn}" if self.minconn else "")


FOUR = Pool("static", 4, 4, 1, 4)


class PhpFpm:
    """A pool of PHP-FPM with OPcache."""

    kind = "php"
    path = "/hello.php"

    def __init__(self, binary, folder, root_identity, php_ini, pool=FOUR, cores=None):
        self.socket, self.pool = f"{folder}/php-fpm.sock", pool
        config = render("php-fpm/php-fpm.conf", folder, {
            "dir": folder, "backend": self.socket, "if_root": "" if root_identity else ";", **pool.values(),
        })
        self.tree = processes.Tree("php-fpm", [binary, "-F", "-c", php_ini, "-y", config], f"{folder}/php-fpm.log",
                                   cores=cores)
        processes.wait_for(lambda: os.path.exists(self.socket), 10, "php-fpm did not listen", self.tree)

    def values(self):
        """For templates."""
        return self.pool.values()

    def counters(self):
        return None

    def stop(self):
        self.tree.stop(signal.SIGQUIT)


class Own:
    """The server runs PHP itself."""

    socket = ""

    def __init__(self, kind, pool):
        self.kind, self.pool = kind, pool

    def values(self):
        """For templates."""
        return self.pool.values()

    def stop(self):
        pass
