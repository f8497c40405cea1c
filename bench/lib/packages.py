"""Programs: the peers from the distribution's packages, weir and the benchmark's own from this source."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

# Program, or other name for a file in ELSEWHERE → Debian packages. Apache, MariaDB and WordPress need their files only,
# not the packages with the services.
PACKAGES = {
    "nginx": "nginx-light",
    "haproxy": "haproxy",
    "apache2": "apache2-bin",
    "php-fpm": "php-fpm",
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "ab": "apache2-utils",
    "strace": "strace",
    "perf": "linux-perf",
    "valgrind": "valgrind",
    "siege": "siege",
    "php": "php-cli",
    "php-cgi": "php-cgi",
    "mod_php": "libapache2-mod-php",
    "php-curl": "php-curl",
    "openssl": "openssl",
    "ip": "iproute2",
    "php-config": "php-dev",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    # Named together with the web server and PHP that it accepts, so that apt chooses nothing larger.
    "symfony": "php-symfony-framework-bundle php-symfony-twig-bundle php-symfony-runtime",
    "laravel": "php-laravel-framework",
    "wordpress": "wordpress wordpress-theme-twentytwentythree php-gd php-mysql php-fpm nginx-light",
}
# Files that are not programs in PATH.
ELSEWHERE = {
    "php-curl": "/usr/lib/php/[0-9]*/curl.so",
    "mod_php": "/usr/lib/apache2/modules/libphp*.so",
    "symfony": "/usr/share/php/Symfony/Bundle/TwigBundle/TwigBundle.php",
    "laravel": "/usr/share/php/Illuminate/autoload.php",
    "wordpress": "/usr/share/wordpress/wp-login.php",
    "mariadbd": "/usr/sbin/mariadbd",
}
# Program → package of this source.
OWN = {"weir": "weir", "responder": "weir-bench-responder", "clients": "weir-bench-clients",
       "handshakes": "weir-bench-handshakes"}
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Missing(Exception):
    """A program that is needed is not there and could not be installed."""


def find(program):
    """Path of a program, or None. `php-fpm` finds the newest versioned binary too."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if not found and program == "php-fpm":
        found = _newest("/usr/sbin/php-fpm[0-9]*")
    if not found and program in ELSEWHERE:
        found = _newest(ELSEWHERE[program])
    return found


def _newest(pattern):
    """The file of the highest version, or None."""
    version = lambda name: [int(number) for number in re.findall(r"\d+", os.path.basename(name))]
    return max(glob.glob(pattern), key=version, default=None)


def of_peers(names):
    """The programs that the servers of these names need."""
    own = {"nginx": ["nginx"], "haproxy": ["haproxy"], "apache": ["apache2"], "prefork": ["apache2", "mod_php"]}
    # php.ini comes with PHP-FPM, and the version that is compared.
    return ["php-fpm", *(program for name in names for program in own.get(name, []))]


def ensure(programs):
    """Paths of all `programs`, except those that are built here. Installs the missing ones. The services of new packages
    are stopped."""
    programs = [program for program in dict.fromkeys(programs) if program not in OWN]
    missing = [p for p in programs if not find(p)]
    if missing:
        _install(missing)
    return {p: find(p) for p in programs}


def build(weir=None):
    """{program: path} of release builds from this source; a weir that is given is kept."""
    wanted = {package: program for program, package in OWN.items() if not (weir and program == "weir")}
    built = {"weir": weir} if weir else {}
    argv = ["cargo", "build", "--release", "--locked", "--message-format=json-render-diagnostics"]
    for package in wanted:
        argv += ["-p", package]
    result = subprocess.run(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise Missing("cargo build --release failed")
    # weir-php, for each PHP that has headers here. If a weir of this repository is given, it finds this weir-php
    # too, and must not find one of an older source.
    if find("php-config"):
        if subprocess.run(["make", "--no-print-directory", "-C", f"{REPOSITORY}/php"], stdout=sys.stderr).returncode:
            raise Missing("weir-php could not be built")
    for line in result.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] in wanted:
            built[wanted[message["target"]["name"]]] = message["executable"]
    return {program: os.path.abspath(path) for program, path in built.items()}


def _install(programs):
    packages = sorted({package for p in programs for package in PACKAGES[p].split()})
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
