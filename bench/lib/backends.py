"""What is behind the servers: the responder that does nothing, and a PHP-FPM pool."""

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


class PhpFpm:
    """A static pool of PHP-FPM with OPcache."""

    kind = "php"
    workers = maxconn = 4
    path = "/hello.php"

    def __init__(self, binary, folder, root_identity):
        self.socket = f"{folder}/php-fpm.sock"
        config = render("php-fpm/php-fpm.conf", folder, {
            "dir": folder, "backend": self.socket, "workers": self.workers,
            "if_root": "" if root_identity else ";",
        })
        self.tree = processes.Tree("php-fpm", [binary, "-F", "-y", config], f"{folder}/php-fpm.log")
        processes.wait_for(lambda: os.path.exists(self.socket), 10, "php-fpm did not listen", self.tree)

    def counters(self):
        return None

    def stop(self):
        self.tree.stop(signal.SIGQUIT)
