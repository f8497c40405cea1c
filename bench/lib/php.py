"""PHP for all stacks: the same php.ini, the same scripts, and the cost of the engine alone."""

import glob
import json
import os
import re
import resource
import shutil
import subprocess

from . import processes

SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers", "site")
# The answer of scripts that print one line.
LINE = b"hello world\n"
POSTS_LOG = "posts.log"
# The cost and the size of page.php: scenario 4.
PAGE_US, PAGE_BYTES = 10_000, 55_757


def version(fpm):
    """Major and minor version of the PHP that `fpm`, the path of php-fpmX.Y, belongs to."""
    found = re.search(r"(\d+\.\d+)$", os.path.realpath(fpm))
    if not found:
        raise processes.Failed(f"{fpm}: no version in its name")
    return found.group(1)


def write_ini(folder, of_version):
    """Writes php.ini-production with a few more lines for the benchmark; returns its path."""
    production = f"/usr/lib/php/{of_version}/php.ini-production"
    path = f"{folder}/php.ini"
    shutil.copy(production, path)
    with open(path, "a", encoding="utf-8") as file:
        # No mail is sent. OPcache is on by default; the line makes it visible.
        file.write("\n[bench]\nopcache.enable = 1\nsendmail_path = /bin/true\n")
    return path


def write_site(root):
    """The scripts of `bench/peers/site`, and the file that one of them writes to."""
    os.makedirs(root, exist_ok=True)
    for path in glob.glob(f"{SITE}/*.php"):
        shutil.copy(path, root)
    log = f"{root}/{POSTS_LOG}"
    with open(log, "w", encoding="ascii"):
        pass
    os.chmod(log, 0o666)


def write_rounds(root, php_cgi, php_ini):
    """Makes page.php cost `PAGE_US` of CPU time: sets the number of its rounds by the time of 10,000 rounds."""
    path = f"{root}/rounds.php"
    def write(rounds):
        with open(path, "w", encoding="ascii") as file:
            file.write(f"<?php return {rounds};\n")
    write(10_000)
    rounds = round(10_000 * PAGE_US / engine_us(php_cgi, php_ini, f"{root}/page.php", runs=200))
    write(rounds)
    return rounds


class SameSettings:
    """Asks the PHP of every stack for its settings. All must have the same as the first one."""

    def __init__(self):
        self.first = None

    def check(self, name, get):
        """`get`: path → (status, body). Failed where something differs."""
        status, body = get("/settings.php")
        try:
            settings = json.loads(body) if status == 200 else None
        except ValueError:
            settings = None
        if not settings:
            raise processes.Failed(f"{name} answers /settings.php with {status}: {body[:300]!r}")
        if not settings["OPcache at work"]:
            raise processes.Failed(f"{name}: OPcache does not work: {settings}")
        if self.first is None:
            self.first = name, settings
        differences = {key: (value, settings.get(key)) for key, value in self.first[1].items()
                       if settings.get(key) != value}
        if differences:
            raise processes.Failed(f"PHP's settings of {self.first[0]} and {name} differ: {differences}")


def engine_us(php_cgi, php_ini, script, runs=10_000):
    """CPU microseconds (user + system) that the engine needs for a run of `script`: `php-cgi -T`, without start-up."""
    def used(count):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([php_cgi, "-q", "-c", php_ini, "-T", str(count), script], stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    few = runs // 10
    least = min((used(runs) - used(few)) / (runs - few) for _ in range(3))
    return least * 1e6
