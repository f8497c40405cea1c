"""Whole stacks: a server and the PHP behind it, started anew for each sample. Each process is measured separately.

nginx, HAProxy and Apache's event MPM have PHP-FPM behind them; weir and Apache's prefork MPM run PHP themselves.
"""

import http.client
import os

from . import backends, peers, processes


class Part:
    """Some processes of a stack, for `processes.CpuTime` and `processes.MemoryWatch`."""

    def __init__(self, pids):
        self.pids = pids


class Stack:
    """A running server with its PHP workers."""

    def __init__(self, name, settings, pool, folder, fallback="", cores=None, own_php=True):
        """`own_php`: weir runs PHP itself."""
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        self.name, self.fpm = name, None
        if name == "weir" and own_php:
            backend = backends.Own("app", pool)
        elif name == "prefork":
            backend = backends.Own("mod_php", pool)
        else:
            backend = self.fpm = backends.PhpFpm(settings.programs["php-fpm"], folder, settings.is_root,
                                                 settings.php_ini, pool, cores)
        try:
            self.server = peers.start(name, settings, backend, f"{folder}/server", fallback=fallback, cores=cores,
                                      as_packaged=True)
        except BaseException:
            backend.stop()
            raise
        self.gateway = Part(lambda: self._pids("manager", "gateway"))
        self.workers = Part(lambda: self._pids("master", "worker"))

    def url(self, path):
        return self.server.url(path)

    def get(self, path, timeout=10):
        """(status, body); status 0 if no answer came, with the reason as body."""
        try:
            return self.server.get(path, timeout)
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()

    def processes(self):
        """{pid: role}; manager and gateway, master and worker."""
        roles = {}
        for number, (pid, (parent, name)) in enumerate(self.server.tree.processes().items()):
            if self.name == "prefork":
                roles[pid] = "master" if number == 0 else "worker"
            elif roles.get(parent) in ("master", "worker"):
                roles[pid] = "worker"
            elif name.startswith(self.server.php_processes):
                roles[pid] = "master"
            else:
                roles[pid] = "manager" if number == 0 else "gateway"
        if self.fpm:
            for number, pid in enumerate(self.fpm.tree.pids()):
                roles[pid] = "master" if number == 0 else "worker"
        return roles

    def stop(self):
        self.server.stop()
        if self.fpm:
            self.fpm.stop()

    def _pids(self, *wanted):
        return [pid for pid, role in self.processes().items() if role in wanted]
