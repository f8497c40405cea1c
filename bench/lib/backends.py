"""What is behind the servers: the responder that does nothing, a PHP-FPM pool, or workers of the server's own."""

import collections
import os
import signal
import socket

from . import processes
from .template import render


class Responder:
    """`bench/responder`: answers at once, and counts connections and requests."""

    kind = "responder"
    maxconn = 64
    path = "/nothing.php"

    def __init__(self, binary, folder, threads):
        self.socket, self.counters_socket = f"{folder}/responder.sock", f"{folder}/counters.sock"
        self.tree = processes.Tree("responder", [
            binary, "--listen", self.socket, "--counters", self.counters_socket, "--threads", str(threads),
        ], f"{folder}/responder.log")
        processes.wait_for(lambda: os.path.exists(self.counters_socket), 5, "responder did not listen", self.tree)

    def counters(self):
        """{"accepted", "open", "requests"} since it was started."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(2)
            s.connect(self.counters_socket)
            words = s.makefile().read().split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def stop(self):
        self.tree.stop()


class Pool(collections.namedtuple("Pool", "pm workers start_servers min_spare max_spare")):
    """How many PHP workers there are, in PHP-FPM's words."""

    def values(self):
        """For templates."""
        return dict(self._asdict(), if_dynamic="" if self.pm == "dynamic" else "#")


FOUR = Pool("static", 4, 4, 1, 4)


class PhpFpm:
    """A pool of PHP-FPM with OPcache."""

    kind = "php"
    path = "/hello.php"

    def __init__(self, binary, folder, root_identity, php_ini, pool=FOUR, cores=None):
        self.socket, self.pool, self.maxconn = f"{folder}/php-fpm.sock", pool, pool.workers
        config = render("php-fpm/php-fpm.conf", folder, {
            "dir": folder, "backend": self.socket, "if_root": "" if root_identity else ";", **pool.values(),
        })
        self.tree = processes.Tree("php-fpm", [binary, "-F", "-c", php_ini, "-y", config], f"{folder}/php-fpm.log",
                                   cores=cores)
        processes.wait_for(lambda: os.path.exists(self.socket), 10, "php-fpm did not listen", self.tree)

    def counters(self):
        return None

    def stop(self):
        self.tree.stop(signal.SIGQUIT)


class Own:
    """The server runs PHP itself."""

    socket = ""

    def __init__(self, kind, pool):
        self.kind, self.pool, self.maxconn = kind, pool, pool.workers

    def stop(self):
        pass
