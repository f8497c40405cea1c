"""The servers that are called: nginx with TLS, with names and certificates of the benchmark, and origins that misbehave.

All ports give the same answers. The first speaks TLS 1.3 and 1.2, the second TLS 1.2 only, the third HTTP/2, and the
last plain HTTP. The origin's log and counters show its connections and handshakes.
"""

import collections
import os
import shutil
import socket
import sys

from . import authority, processes
from .template import render

# Names of origins that answer; all have the same address.
NAMES = ("api1.bench.test", "api2.bench.test", "api3.bench.test")
SUFFIX = "bench.test"
TLS, TLS12, HTTP2, PLAIN, COUNTERS = 8443, 8444, 8445, 8080, 8081
# The answer to GET /1k.
BODY = b"0123456789abcdef" * 64
# Names of origins whose certificate is wrong, and what is wrong with it.
CERTIFICATES = {"expired": "certificate has expired", "wrong-name": "certificate of another name",
                "unknown-ca": "certificate of an unknown CA"}
MISBEHAVE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "misbehave.py")
# The kinds of misbehave.py: the port and the description.
TROUBLE = {"silent": (9001, "accepts, says nothing, not even TLS"), "no-answer": (9002, "takes the request, never answers"),
           "reset": (9003, "takes the request, resets the connection"), "half": (9004, "answers half, and closes"),
           "endless-head": (9005, "answers with a head that never ends")}


class Certificates(authority.Authority):
    """The certificates of the origins, good and bad ones."""

    def __init__(self, openssl, folder):
        super().__init__(openssl, folder)
        self._authority("stranger")
        self.issue("good", f"*.{SUFFIX}")
        self.issue("wrong-name", "another.example")
        self.issue("unknown-ca", f"*.{SUFFIX}", by="stranger")
        # This certificate ends in the second in which it begins.
        self.issue("expired", f"*.{SUFFIX}", days=0)


class Origins:
    """A running nginx with all good names and those of wrong certificates; `address` is that of all."""

    def __init__(self, context, certificates, address, cores=None):
        self.address, self.folder = address, context.new_folder("origin")
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        self.log = f"{self.folder}/access.log"
        settings = context.settings
        values = {
            "dir": self.folder, "certificates": certificates.folder, "address": address, "suffix": SUFFIX,
            "body": BODY.decode(), "if_root": "" if settings.is_root else "#", "descriptors": settings.descriptors,
            "tls": TLS, "twelve": TLS12, "two": HTTP2, "plain": PLAIN, "counters": COUNTERS}
        render("egress/answers.conf", self.folder, values)
        config = render("egress/origin.conf", self.folder, values)
        argv = [settings.programs["nginx"], "-p", self.folder, "-c", config]
        self.tree = processes.Tree("origin", argv, f"{self.folder}/output.log", cores)
        processes.wait_for(lambda: self._listens(), 10, "origin did not listen", self.tree)

    def accepted(self):
        """How many connections it has accepted since its start, without those for this question."""
        self._asked = getattr(self, "_asked", 0) + 1
        with socket.create_connection((self.address, COUNTERS), timeout=10) as s:
            s.sendall(b"GET /counters HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: s.recv(4096), b"")).decode()
        # "server accepts handled requests", and a line of numbers.
        return int(text.split("requests\n")[1].split()[0]) - self._asked

    def calls(self):
        """A Call for each line of its log so far."""
        with open(self.log, encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file]
        return [Call(*words) for words in lines if len(words) == len(Call._fields)]

    def stop(self):
        self.tree.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listens(self):
        try:
            with socket.create_connection((self.address, TLS), timeout=1):
                self._asked = getattr(self, "_asked", 0) + 1
                return True
        except OSError:
            return False


class Call(collections.namedtuple("Call", "time host connection nth resumed tls protocol method status")):
    """A line of an origin's log. `connection`: its number; `nth`: the number of the request on it; `resumed`: r if it
    resumed an earlier TLS session."""


class Trouble:
    """Origins that misbehave."""

    def __init__(self, certificates, address, folder):
        argv = [sys.executable, MISBEHAVE, address, f"{certificates.folder}/good.pem", f"{certificates.folder}/good.key",
                *(f"{kind}={port}" for kind, (port, _) in TROUBLE.items())]
        self.tree = processes.Tree("misbehave", argv, f"{folder}/misbehave.log")
        self.address = address
        processes.wait_for(self._listens, 10, "misbehave.py did not listen", self.tree)

    def stop(self):
        self.tree.stop()

    def _listens(self):
        try:
            for port, _ in TROUBLE.values():
                socket.create_connection((self.address, port), timeout=1).close()
            return True
        except OSError:
            return False
