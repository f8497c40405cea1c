"""Networks for the benchmark: two with a long delay between them, or one without delay.

The machine's own network, names and files do not change. A program in one of these networks sees no other. Needs root.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time

from . import processes

NEAR, PREFIX = "10.99.0.1", 24
# The origins have the addresses after this one, the name server has the last one.
NAME_SERVER = "10.99.0.53"
RELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "relay.py")


class Distant:
    """Two networks. Every IP packet between them takes `delay_ms` in each direction, also those that open a connection and
    those of name lookups."""

    def __init__(self, delay_ms, far_addresses, folder):
        self.delay_ms, self.folder, self.tree = delay_ms, folder, None
        with _home():
            self.far_handle = _new_network()
            far = _tunnel("far", far_addresses)
            self.near_handle = _new_network()
            near = _tunnel("near", [NEAR])
        try:
            self.how = self._netem(far_addresses) or self._relay(near, far)
        except BaseException:
            self.stop()
            raise
        finally:
            for descriptor in (near, far):
                if descriptor is not None:
                    os.close(descriptor)

    def near(self):
        """Processes that are started in this block run where the application is."""
        return _within(self.near_handle)

    def far(self):
        """Processes that are started in this block run where the origins are."""
        return _within(self.far_handle)

    def round_trip_ms(self, address, port, times=3):
        """How long a connect takes: the shortest of several."""
        taken = []
        with self.near():
            for _ in range(times):
                begin = time.monotonic()
                with socket.create_connection((address, port), timeout=10):
                    taken.append((time.monotonic() - begin) * 1e3)
        return min(taken)

    def stop(self):
        if self.tree:
            self.tree.stop()
        for handle in (self.near_handle, self.far_handle):
            os.close(handle)

    def _relay(self, near, far):
        argv = [sys.executable, RELAY, str(near), str(far), str(self.delay_ms)]
        self.tree = processes.Tree("relay", argv, f"{self.folder}/relay.log", keep=(near, far))
        return "relay"

    def _netem(self, far_addresses):
        """A pair of devices whose queues the kernel delays; None if this kernel cannot do that."""
        with self.near():
            if not _try("ip", "link", "add", "way", "type", "veth", "peer", "name", "yaw"):
                return None
            netem = ("root", "netem", "delay", f"{self.delay_ms}ms", "limit", "100000")
            if not _try("tc", "qdisc", "add", "dev", "way", *netem):
                _run("ip", "link", "delete", "way")
                return None
            _run("ip", "link", "delete", "near")
            # A network is identified by a process in it.
            with self.far():
                holder = processes.Tree("holder", ["sleep", "infinity"], f"{self.folder}/relay.log")
            try:
                _run("ip", "link", "set", "yaw", "netns", str(holder.process.pid))
            finally:
                holder.stop()
            _addresses("way", [NEAR])
        with self.far():
            _run("ip", "link", "delete", "far")
            _addresses("yaw", far_addresses)
            _run("tc", "qdisc", "add", "dev", "yaw", *netem)
        return "netem"


class Local:
    """One network, without delay: all addresses are of its loopback."""

    how = "loopback"

    def __init__(self, addresses):
        with _home():
            self.handle = _new_network()
            _addresses("lo", [NEAR, *addresses])

    def near(self):
        """Processes that are started in this block run in this network."""
        return _within(self.handle)

    far = near

    def stop(self):
        os.close(self.handle)


def resolv_conf(path):
    """A function that has a process, before it becomes a program, and what that starts see `path` as /etc/resolv.conf."""
    def prepare():
        _check(_libc.unshare(_CLONE_NEWNS))
        # Mounts that change here do not change elsewhere.
        _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
        _check(_libc.mount(os.fsencode(path), b"/etc/resolv.conf", None, _MS_BIND, None))
    return prepare


def _new_network():
    """A handle of a new network with a loopback device. From now on, this thread is in that network."""
    _check(_libc.unshare(_CLONE_NEWNET))
    _run("ip", "link", "set", "lo", "up")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _tunnel(name, addresses):
    """Creates a device whose packets a program reads; returns its descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    os.set_blocking(descriptor, False)
    _addresses(name, addresses)
    # No packet is dropped because the queue is full.
    _run("ip", "link", "set", name, "txqueuelen", "10000")
    return descriptor


def _addresses(device, addresses):
    for address in addresses:
        _run("ip", "address", "add", f"{address}/{PREFIX}", "dev", device)
    _run("ip", "link", "set", device, "up")


@contextlib.contextmanager
def _within(handle):
    with _home():
        _check(_libc.setns(handle, _CLONE_NEWNET))
        yield


@contextlib.contextmanager
def _home():
    """Returns to the present network afterwards."""
    if os.geteuid() != 0:
        raise processes.Failed("networks of its own take root")
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _check(_libc.setns(home, _CLONE_NEWNET))
        os.close(home)


def _run(*argv):
    result = subprocess.run(argv, capture_output=True, text=True)
    if result.returncode:
        raise processes.Failed(f"{' '.join(argv)}: {result.stderr.strip()}")


def _try(*argv):
    return subprocess.run(argv, capture_output=True).returncode == 0


def _check(result):
    if result != 0:
        number = ctypes.get_errno()
        raise processes.Failed(f"networks: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)
# sched.h, sys/mount.h, linux/if_tun.h
_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
