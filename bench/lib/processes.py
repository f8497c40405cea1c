"""Process trees that the benchmark starts: their CPU time and memory. They end in every case.

Only processes that this module started get a signal. Each leads its own session, dies with the benchmark
(PR_SET_PDEATHSIG), and is in a registry that `stop_all` empties.
"""

import ctypes
import glob
import os
import resource
import signal
import subprocess
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_running = []


class Failed(Exception):
    """A program did not start, or did not behave. The text says which and what it wrote."""


class Tree:
    """A program and its descendants."""

    def __init__(self, name, argv, log, cores=None, prepare=None, keep=()):
        """Starts `argv` on these `cores` only. stdout and stderr go to the file `log`. `prepare`: a function that runs in
        the new process before the program. `keep`: descriptors that the program gets with the same numbers."""
        self.name, self.log = name, log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=lambda: _prepare(cores, prepare), pass_fds=keep)
        _running.append(self)

    def alive(self):
        return self.process.poll() is None

    def pids(self):
        """All process ids of the tree, the root first."""
        return list(self.processes())

    def processes(self):
        """{pid: (parent's pid, name)} of the tree, the root first."""
        found, children = {}, {}
        for path in glob.glob("/proc/[0-9]*/stat"):
            text = _read(path)
            if text:
                pid, name = text.partition(")")[0].split(" (", 1)
                parent = int(text.rpartition(")")[2].split()[1])
                found[int(pid)] = parent, name
                children.setdefault(parent, []).append(int(pid))
        pids, at = [self.process.pid], 0
        while at < len(pids):
            pids += children.get(pids[at], [])
            at += 1
        return {pid: found[pid] for pid in pids if pid in found}

    def stop(self, how=signal.SIGTERM, patience=5.0):
        """Signals the root and waits; what remains of the tree after `patience` seconds is killed."""
        if self.alive():
            pids = self.pids()
            self.process.send_signal(how)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                for pid in pids:
                    _signal(pid, signal.SIGKILL)
                self.process.wait()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        if self in _running:
            _running.remove(self)

    def output(self, limit=2000):
        """The end of its output."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()[-limit:].strip()
        except OSError:
            return ""


def stop_all():
    """Ends every process that was started and not stopped."""
    for tree in list(reversed(_running)):
        tree.stop(patience=2.0)


def wait_for(condition, seconds, what, tree=None):
    """Polls `condition` until it is true; Failed if the time is over or `tree` has ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        if tree is not None and not tree.alive():
            raise Failed(f"{tree.name} ended with {tree.process.returncode}: {tree.output()}")
        if time.monotonic() > deadline:
            raise Failed(f"{what} within {seconds:g} s" + (f": {tree.output()}" if tree else ""))
        time.sleep(0.02)


class CpuTime:
    """CPU time of a process tree, from the kernel's counters.

    The scheduler's nanoseconds (/proc/PID/task/*/schedstat) are exact, but they do not include threads and processes
    that have ended. The ticks of /proc/PID/stat (10 ms) with the time of reaped children include everything. The
    nanoseconds are used if the same threads existed at the start and at the end, otherwise the ticks. The split between
    user and kernel time is the kernel's own estimate from its ticks.
    """

    def __init__(self, tree):
        self.threads, self.user, self.system = {}, 0, 0
        for pid in tree.pids():
            fields = _stat(f"/proc/{pid}/stat")
            if not fields:
                continue
            # After the name: state ppid … utime(11) stime(12) cutime(13) cstime(14)
            self.user += int(fields[11]) + int(fields[13])
            self.system += int(fields[12]) + int(fields[14])
            for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
                text = _read(path)
                if text:
                    self.threads[path] = int(text.split()[0])

    def since(self, before):
        """{"total_us", "user_us", "system_us", "exact"} between two readings."""
        user, system = self.user - before.user, self.system - before.system
        exact = self.threads.keys() == before.threads.keys()
        if exact:
            total = sum(ns - before.threads[path] for path, ns in self.threads.items()) / 1e3
        else:
            total = (user + system) * 1e6 / TICK
        share = user / (user + system) if user + system else 0.5
        return {"total_us": total, "user_us": total * share, "system_us": total * (1 - share), "exact": exact}


def memory(tree):
    """Kilobytes of a tree now: resident (sum), proportional (shared pages once), high-water mark (sum)."""
    total = {"rss_kb": 0, "pss_kb": 0, "hwm_kb": 0}
    for pid in tree.pids():
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Rss:"):
                total["rss_kb"] += int(line.split()[1])
            elif line.startswith("Pss:"):
                total["pss_kb"] += int(line.split()[1])
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith("VmHWM:"):
                total["hwm_kb"] += int(line.split()[1])
    return total


class MemoryWatch:
    """Samples the memory of several process trees during the load and keeps the largest sum: `peak`. `shares_kb`: the PSS
    of each tree at that time."""

    def __init__(self, trees, every=0.25):
        self.trees, self.every = trees, every
        self.peak = {"rss_kb": 0, "pss_kb": 0, "hwm_kb": 0}
        self.shares_kb = [0 for _ in trees]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        for pid in (pid for tree in self.trees for pid in tree.pids()):
            # 5 resets the high-water mark to what is resident now (proc(5), clear_refs).
            try:
                with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
                    file.write("5")
            except OSError:
                pass
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self._take()

    def _watch(self):
        while not self.over.wait(self.every):
            self._take()

    def _take(self):
        each = [memory(tree) for tree in self.trees]
        if sum(one["pss_kb"] for one in each) > self.peak["pss_kb"]:
            self.shares_kb = [one["pss_kb"] for one in each]
        for name in self.peak:
            self.peak[name] = max(self.peak[name], sum(one[name] for one in each))


def ticks():
    """CPU seconds of all processes that were started and not stopped, with their ended children."""
    fields = (_stat(f"/proc/{pid}/stat") for tree in _running for pid in tree.pids())
    return sum(sum(map(int, words[11:15])) for words in fields if words) / TICK


def raise_descriptors():
    """Raises the soft limit of descriptors to the hard limit, also for processes started later. Returns the limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for wanted in (65536, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
            return wanted
        except (ValueError, OSError):
            continue
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _prepare(cores, more):
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if more:
        more()
    if cores:
        os.sched_setaffinity(0, cores)


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _stat(path):
    """Fields of /proc/PID/stat after the name (which may hold blanks), or None if the process is gone."""
    text = _read(path)
    return text.rpartition(")")[2].split() if text else None


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
