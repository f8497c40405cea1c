"""TLS: handshakes and files, weir and nginx in turns; weir with its keys in the keeper beside weir without a keeper; and HTTP/2."""

import collections

from . import authority, backends, load, pairs, peers, works

NAME = "bench.example"
# weir without a keeper.
ALONE = "weir-alone"
CLIENTS = 8
# Of HTTP/2: connections, and requests at once on each.
CONNECTIONS, STREAMS = 10, 32
KEYS = {"ecdsa": authority.P256, "rsa": authority.RSA}


class Shared(collections.namedtuple("Shared", "backend ca certificate key bundle")):
    """What both servers have: the backend (unused), and the files of the certificate."""

    @property
    def tree(self):
        return self.backend.tree

    def stop(self):
        self.backend.stop()


class Tls(pairs.Pair):
    """Servers with the same certificate, one thread each. `kind`: of its key."""

    programs = ("openssl", "handshakes", "wrk")
    http2 = ""

    def __init__(self, key, title, kind="ecdsa", names=pairs.NAMES):
        super().__init__(key, None, title)
        self.kind, self.names = kind, names
        self.peers = tuple(name for name in names if name != ALONE)

    def begin(self, context):
        folder = context.new_folder("certificates")
        own = authority.Authority(context.settings.programs["openssl"], folder)
        own.issue("server", NAME, key=KEYS[self.kind])
        backend = works.start_backend(works.WORKS["static-100k"], context)
        files = [f"{folder}/server.{end}" for end in ("pem", "key")]
        bundle = f"{folder}/both.pem"
        with open(bundle, "w", encoding="ascii") as both:
            for name in files:
                with open(name, encoding="ascii") as file:
                    both.write(file.read())
        return Shared(backend, own.ca, *files, bundle)

    def serve(self, name, shared, context):
        """A server that runs."""
        isolation = str(name != ALONE).lower()
        settings = context.settings._replace(threads=context.options.threads or pairs.EQUAL,
                                             tls=peers.Tls(shared.certificate, shared.key, shared.bundle, self.http2, isolation))
        return peers.start("weir" if name == ALONE else name, settings, shared.backend, context.new_folder(name))

    def start(self, name, shared, context):
        server = self.serve(name, shared, context)
        side = pairs.Side(server.tree, lambda: self.load(server, shared, context), server.stop)
        return pairs.warm(side, lambda: None)

    def load(self, server, shared, context):
        """One turn."""
        raise NotImplementedError

    def behind(self, shared):
        return shared.tree

    def running(self, name, shared, context):
        """As that of works.Work."""
        side = self.start(name, shared, context)
        return works.Running({"gateway": side.tree, "workers": shared.tree}, side.load, side.stop)


class Handshakes(Tls):
    """Connections that are opened and closed."""

    def __init__(self, key, title, resume=False, **more):
        super().__init__(key, title, **more)
        self.resume = resume

    def load(self, server, shared, context):
        return load.handshakes(context.settings.programs, f"127.0.0.1:{server.tls_port}", CLIENTS, context.seconds, shared.ca,
                               NAME, self.resume)


class Files(Tls):
    """A file on kept connections."""

    def load(self, server, shared, context):
        return load.wrk(context.settings.programs, server.tls_url(works.LARGE_FILE), 64, context.seconds)


class Http2(Tls):
    """Many requests at once on few kept connections of HTTP/2. `path`: what is asked for."""

    programs = ("openssl", "h2load")
    http2 = "http2"

    def __init__(self, key, title, path, **more):
        super().__init__(key, f"{title}, {CONNECTIONS} connections of HTTP/2 with {STREAMS} requests each, one thread each", **more)
        self.path = path

    def load(self, server, shared, context):
        return load.h2load(context.settings.programs, server.tls_url(self.path), CONNECTIONS, STREAMS, context.seconds)


WORKS = {pair.key: pair for pair in (
    Handshakes("pair-tls-full", "Full handshakes, ECDSA P-256 and X25519, one thread each"),
    Handshakes("pair-tls-resumed", "Resumed handshakes, one thread each", resume=True),
    Handshakes("pair-tls-rsa", "Full handshakes, RSA-2048 and X25519, one thread each", kind="rsa"),
    Handshakes("pair-tls-keeper", "Full handshakes, ECDSA P-256: keys in the keeper and in the gateway", names=("weir", ALONE)),
    Files("pair-tls-100k", "Static file of 100 KB over TLS, 64 connections, one thread each"),
    Http2("pair-h2-static", "Static file of 1 KB over TLS", works.KB_FILE),
    Http2("pair-h2-fastcgi", "Beside HAProxy: FastCGI over TLS, responder that does nothing", backends.Responder.path, names=("weir", "haproxy")),
)}
