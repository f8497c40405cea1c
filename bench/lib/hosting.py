"""Many pools that are used, as hosters have them: weir loads PHP once for all. `weir fpm` and PHP-FPM have the same file of pools, and
then weir and nginx with PHP-FPM serve a thousand pools in turn."""

import collections
import os
import re
import signal
import socket
import statistics
import subprocess
import time

from . import processes
from .pools import SCRIPT, Nothing, over_fastcgi, timed
from .table import Figure

# Pools with `pm = static`, and their children; then the pools of the other parts.
POOLS, CHILDREN, MANY, ALL = 40, 5, 203, 1000
# Clients of the thousand pools.
CLIENTS = 16
LIMIT = 120


class Work(collections.namedtuple("Work", "key title")):
    peers = ("weir",)
    programs = ("php-fpm", "nginx", "wrk")

    def rounds(self, options):
        return options.rounds

    def begin(self, context):
        return Nothing()

    def sample(self, name, shared, context):
        """One round: weir, then its peer, for each part."""
        folder = context.new_folder("hosting")
        os.makedirs(folder)
        with open(f"{folder}/pool.php", "w", encoding="ascii") as file:
            file.write(SCRIPT)
        # OPcache takes no file that was written just now.
        os.utime(f"{folder}/pool.php", (time.time() - 100,) * 2)
        settings, found = context.settings, {}
        for name in ("weir", "PHP-FPM"):
            found[name] = {**used(Pools(name, folder, settings, POOLS, "static", CHILDREN)),
                           **cold(Pools(name, folder, settings, POOLS, "ondemand", 2)),
                           **many(Pools(name, folder, settings, MANY, "ondemand", 2))}
        seconds = 10 if context.options.quick else 60
        found["weir"].update(in_turn(Front(folder, settings), settings, seconds))
        found["PHP-FPM"].update(in_turn(Nginx(folder, settings), settings, seconds))
        return [{"hosting": found}]


def _user(settings, text):
    return text if settings.is_root else ""


class Pools:
    """PHP-FPM, or `weir fpm` in its place, with a file of pools."""

    def __init__(self, name, folder, settings, count, manager, children):
        self.count, self.root = count, folder
        self.folder = f"{folder}/{name}-{count}-{manager}"
        os.makedirs(self.folder)
        self.file = f"{self.folder}/pools.conf"
        user = _user(settings, "user = www-data\ngroup = www-data\nlisten.owner = www-data\n")
        with open(self.file, "w", encoding="ascii") as file:
            file.write(f"[global]\npid = {self.folder}/pid\nerror_log = {self.folder}/log\n" + "".join(
                f"[p{n}]\n{user}listen = {self.folder}/p{n}.sock\npm = {manager}\npm.max_children = {children}\n"
                for n in range(count)))
        programs = settings.programs
        self.command = [programs["weir"], "fpm"] if name == "weir" else [programs["php-fpm"]]
        self.command += ["-F", "-c", settings.php_ini, "-y", self.file] + (["-R"] if settings.is_root else [])

    def start(self):
        """Until it says that it is ready."""
        self.tree = processes.Tree(self.command[0], self.command, f"{self.folder}/out")
        self.wait_until_ready(1)

    def reload(self):
        times = self.ready()
        os.kill(self.tree.process.pid, signal.SIGUSR2)
        self.wait_until_ready(times + 1)

    def wait_until_ready(self, times):
        deadline = time.monotonic() + LIMIT
        while self.ready() < times:
            if not self.tree.alive() or time.monotonic() > deadline:
                raise processes.Failed(f"{self.command[0]} is not ready: {self.tree.output()}")
            time.sleep(0.002)

    def ready(self):
        try:
            with open(f"{self.folder}/log", encoding="utf-8") as file:
                return len(re.findall("ready to handle connections", file.read()))
        except FileNotFoundError:
            return 0

    def ask(self, pool):
        answer = over_fastcgi(f"{self.folder}/p{pool}.sock", f"{self.root}/pool.php")
        if b"\r\n\r\npool " not in answer:
            raise processes.Failed(f"{self.command[0]} does not serve pool p{pool}: {answer!r}")

    def stop(self):
        self.tree.stop(signal.SIGTERM)


def used(pools):
    """Static pools: start, requests, reloads."""
    try:
        start = timed(pools.start)
        for _ in range(4):
            for pool in range(pools.count):
                pools.ask(pool)
        # Idle processes may still give memory back.
        time.sleep(1)
        found = {"start": start, "pss": processes.memory(pools.tree)["pss_kb"] / 1024}
        before = processes.CpuTime(pools.tree)
        found["reload"] = statistics.median(timed(pools.reload) for _ in range(3))
        found["reload_cpu"] = processes.CpuTime(pools.tree).since(before)["total_us"] / 3e3
        return found
    finally:
        pools.stop()


def cold(pools):
    """The first request of a pool without a process."""
    try:
        pools.start()
        times = [timed(lambda: pools.ask(pool)) for pool in range(pools.count)]
        return {"first": statistics.median(times[1:]), "first_longest": max(times[1:])}
    finally:
        pools.stop()


def many(pools):
    """Memory of pools that were used once, each."""
    try:
        pools.start()
        for pool in range(pools.count):
            pools.ask(pool)
        time.sleep(1)
        return {"many": processes.memory(pools.tree)["pss_kb"] / 1024 / pools.count}
    finally:
        pools.stop()


class Front:
    """weir with a site for each pool."""

    def __init__(self, folder, settings):
        self.port, self.folder = free_port(), f"{folder}/front"
        os.makedirs(self.folder)
        user = _user(settings, 'user = "www-data"\n')
        with open(f"{self.folder}/weir.toml", "w", encoding="ascii") as file:
            file.write(f'[server]\n{user}admin = "unix:{self.folder}/admin.sock"\n[log]\naccess = "off"\n'
                       f'[listen.web]\naddress = "127.0.0.1:{self.port}"\n' + "".join(
                           f'[pool.p{n}]\nruntime = "php"\n{user}pm = "ondemand"\nmax_children = 2\n'
                           f'[site.p{n}]\nhosts = ["p{n}.example"]\nroot = "{folder}"\npool = "p{n}"\n' for n in range(ALL)))
        command = [settings.programs["weir"], "serve", "-c", f"{self.folder}/weir.toml"]
        self.trees = [processes.Tree("weir", command, f"{self.folder}/out")]

    def stop(self):
        for tree in self.trees:
            tree.stop()


class Nginx(Front):
    """nginx, and PHP-FPM with the same pools."""

    def __init__(self, folder, settings):
        self.port, self.folder = free_port(), f"{folder}/nginx"
        os.makedirs(self.folder)
        pools = Pools("PHP-FPM", self.folder, settings, ALL, "ondemand", 2)
        pools.start()
        with open(f"{self.folder}/nginx.conf", "w", encoding="ascii") as file:
            file.write(f"""{_user(settings, "user www-data;")}
worker_processes auto;
pid {self.folder}/pid;
error_log {self.folder}/error.log;
daemon off;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    server {{
        listen 127.0.0.1:{self.port};
        server_name ~^(?<pool>p[0-9]+)[.]example$;
        root {folder};
        location ~ [.]php$ {{
            include /etc/nginx/fastcgi.conf;
            fastcgi_pass unix:{pools.folder}/$pool.sock;
        }}
    }}
}}
""")
        command = [settings.programs["nginx"], "-c", f"{self.folder}/nginx.conf", "-e", f"{self.folder}/error.log"]
        self.trees = [processes.Tree("nginx", command, f"{self.folder}/out"), pools.tree]


def in_turn(server, settings, seconds):
    """All pools in turn, from the first moment on."""
    try:
        processes.wait_for(lambda: answers(server.port), LIMIT, "no answer", server.trees[0])
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "every_pool.lua")
        argv = [settings.programs["wrk"], "-t1", f"-c{CLIENTS}", f"-d{seconds}s", "--timeout", "30s", "-s", script,
                f"http://127.0.0.1:{server.port}/", "--", str(ALL)]
        output = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=seconds + LIMIT).stdout
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
        broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output)
        lost = int(refused[1]) if refused else 0
        return {"rate": rate, "refused": lost + (sum(map(int, broken.groups())) if broken else 0)}
    finally:
        server.stop()


def answers(port):
    with socket.socket() as client:
        client.settimeout(LIMIT)
        try:
            client.connect(("127.0.0.1", port))
            client.sendall(b"GET /pool.php HTTP/1.1\r\nHost: p0.example\r\nConnection: close\r\n\r\n")
            return b" 200 " in client.recv(64)
        except OSError:
            return False


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


# (figure, title, its unit, what weir must reach as a multiple of its peer's, at most?; None: nothing)
ROWS = (
    ("start", f"{POOLS} static pools of {CHILDREN}: start", "ms", 1.3, True),
    ("reload", "reload", "ms", 1.3, True),
    ("reload_cpu", "CPU time of a reload", "ms", None, True),
    ("pss", "memory (PSS) when each was used", "MiB", 1.5, True),
    ("first", "first request of an ondemand pool, median", "ms", 2, True),
    ("first_longest", "the longest", "ms", None, True),
    ("many", f"memory of each of {MANY} ondemand pools that were used once", "MiB", None, True),
    ("rate", f"{ALL:,} ondemand pools, {CLIENTS} clients in turn (PHP-FPM: behind nginx): requests per second", "", 0.5, False),
    ("refused", "refused or failed", "", None, True),
)
# What weir must reach whatever its peer does.
LIMITS = (("first", "first request of an ondemand pool, median", 15, "ms"), ("many", f"each of {MANY} pools that were used", 2, "MiB"),
          ("refused", f"{ALL:,} ondemand pools: refused", 0, ""))


def medians(samples):
    """{server: {figure: median of all rounds}}"""
    found = [sample["hosting"] for sample in samples if "hosting" in sample]
    return {name: {key: statistics.median(one[name][key] for one in found) for key in found[0][name]} for name in found[0]} if found else {}


def tables(samples):
    """Markdown: one table."""
    found = medians(samples)
    if not found:
        return ""
    lines = ["### hosting: many pools that are used", "", "| | weir | PHP-FPM | weir ÷ PHP-FPM |", "|---|--:|--:|--:|"]
    for key, title, unit, _, _ in ROWS:
        ours, theirs = (found[name][key] for name in ("weir", "PHP-FPM"))
        figures = " | ".join(f"{value:,.{0 if value >= 100 or not unit else 1}f} {unit}".strip() for value in (ours, theirs))
        lines.append(f"| {title} | {figures} | {f'{ours / theirs:.2f}' if theirs else '–'} |")
    return "\n".join(lines) + "\n"


def asked(samples):
    """(work, demand, Figure or None, limit, at most?), as table.asked."""
    found = medians(samples)
    if not found:
        return
    ours, theirs = found["weir"], found["PHP-FPM"]
    for key, title, unit, limit, at_most in ROWS:
        if limit is not None:
            ratio = ours[key] / theirs[key]
            yield "hosting", f"{title}: {'at most' if at_most else 'at least'} {limit} × PHP-FPM", Figure(ratio, f"{ratio:.2f}"), limit, at_most
    for key, title, limit, unit in LIMITS:
        yield "hosting", f"{title}: at most {limit} {unit}".strip(), Figure(ours[key], f"{ours[key]:,.1f} {unit}".strip()), limit, True


WORKS = {"hosting": Work("hosting", "many pools that are used")}
