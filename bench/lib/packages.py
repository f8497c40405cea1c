"""Programs: the peers from the distribution's packages, weir and the responder from this source."""

import glob
import json
import os
import shutil
import subprocess
import sys

# Program → Debian package. Apache needs its binary and modules only, not the package with the service.
PACKAGES = {
    "nginx": "nginx-light",
    "haproxy": "haproxy",
    "apache2": "apache2-bin",
    "php-fpm": "php-fpm",
    "wrk": "wrk",
    "ab": "apache2-utils",
    "strace": "strace",
    "perf": "linux-perf",
}
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Missing(Exception):
    """A program that is needed is not there and could not be installed."""


def find(program):
    """Path of a program, or None. `php-fpm` finds the newest versioned binary too."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if not found and program == "php-fpm":
        versions = glob.glob("/usr/sbin/php-fpm[0-9]*")
        key = lambda name: [int(n) for n in name.rpartition("fpm")[2].split(".") if n.isdigit()]
        found = max(versions, key=key, default=None)
    return found


def ensure(programs):
    """Paths of all `programs`; installs what is missing. Services of new packages are not left running."""
    missing = [p for p in programs if not find(p)]
    if missing:
        _install(missing)
    return {p: find(p) for p in programs}


def build(weir=None, responder=None):
    """Release builds from this source; (path of weir, path of the responder). Paths that are given are kept."""
    wanted = [name for name, path in (("weir", weir), ("weir-bench-responder", responder)) if not path]
    built = {"weir": weir, "weir-bench-responder": responder}
    if wanted:
        argv = ["cargo", "build", "--release", "--locked", "--message-format=json-render-diagnostics"]
        for name in wanted:
            argv += ["-p", name]
        result = subprocess.run(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        if result.returncode:
            raise Missing("cargo build --release failed")
        for line in result.stdout.splitlines():
            message = json.loads(line)
            if message.get("executable") and message["target"]["name"] in wanted:
                built[message["target"]["name"]] = message["executable"]
    return os.path.abspath(built["weir"]), os.path.abspath(built["weir-bench-responder"])


def _install(programs):
    packages = sorted({PACKAGES[p] for p in programs})
    command = "apt-get install --no-install-recommends " + " ".join(packages)
    if os.geteuid() != 0:
        raise Missing(f"not installed: {', '.join(programs)}. As root: {command}")
    print(f"bench: installing {' '.join(packages)}", file=sys.stderr)
    with _NoServices():
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        for argv in (["apt-get", "-qq", "update"],
                     ["apt-get", "-qq", "-y", "install", "--no-install-recommends", *packages]):
            result = subprocess.run(argv, env=environment, stdout=sys.stderr, stderr=sys.stderr)
    still = [p for p in programs if not find(p)]
    if result.returncode or still:
        raise Missing(f"could not install {', '.join(still or programs)}: {command}")


class _NoServices:
    """Keeps packages from starting their services while they are installed (policy-rc.d of invoke-rc.d)."""

    PATH = "/usr/sbin/policy-rc.d"

    def __enter__(self):
        self.ours = not os.path.exists(self.PATH)
        if self.ours:
            with open(self.PATH, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\nexit 101\n")
            os.chmod(self.PATH, 0o755)

    def __exit__(self, *_):
        if self.ours:
            os.unlink(self.PATH)
