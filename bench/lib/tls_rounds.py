"""A client of TLS whose load is the same in each run: handshakes that are begun together, and then all of their ends."""

import socket
import ssl

from . import processes


class Handshake:
    """A connection that does no more than its handshake. `session`: of an earlier one."""

    def __init__(self, context, address, name, session):
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.came, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.out, server_hostname=name, session=session)
        self.advance()

    def advance(self):
        """Sends what is to be sent. Returns whether the handshake is over."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.socket.sendall(self.out.read())
            return False
        return True

    def end(self):
        """Finishes the handshake, and closes when the server has closed. Returns the session."""
        while not self.advance():
            self.receive()
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            self.socket.sendall(self.out.read())
        while self.receive():
            pass
        # Tickets are read with data.
        try:
            self.tls.read()
        except ssl.SSLError:
            pass
        self.socket.close()
        return self.tls.session

    def receive(self):
        piece = self.socket.recv(65536)
        self.came.write(piece)
        return piece


class Client:
    """Handshakes; `is_resumed`: each with the session of the one before."""

    is_tls = True
    at_once = 1

    def __init__(self, name, is_resumed=False):
        self.name, self.is_resumed = name, is_resumed

    def ask(self, address, _path, connections, count):
        """Does `count` handshakes, one of each client in a round."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        sessions = [None] * connections
        for number in range(count // connections):
            clients = [Handshake(context, address, self.name, session) for session in sessions]
            found = [client.end() for client in clients]
            if any(client.tls.session_reused != (self.is_resumed and number > 0) for client in clients):
                raise processes.Failed(f"round {number}: handshakes were resumed that should not be, or the other way round")
            sessions = found if self.is_resumed else sessions
