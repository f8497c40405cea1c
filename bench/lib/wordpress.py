"""WordPress from the distribution's package, and a MariaDB of its own on a unix socket."""

import os
import re
import shutil
import socket
import subprocess

from . import processes
from .template import FOLDER, render

PACKAGE = "/usr/share/wordpress"
# The end of every complete page.
MARK = "</html>"
# The database's user, where the benchmark runs as root.
USER = "www-data"


class Database:
    """A running MariaDB; its files stay in `folder` when it is stopped, and it can be started again there."""

    def __init__(self, programs, folder):
        self.programs, self.folder, self.tree = programs, folder, None
        self.socket = f"{folder}/mariadb.sock"
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/data")
        self.user = USER if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(folder, self.user)
            shutil.chown(f"{folder}/data", self.user)
        _run([programs["mariadb-install-db"], "--no-defaults", "--skip-test-db", "--force",
              "--auth-root-authentication-method=normal", "--innodb-use-native-aio=0",
              f"--datadir={folder}/data", *self._identity()])
        with open(f"{folder}/init.sql", "w", encoding="ascii") as file:
            file.write("CREATE DATABASE IF NOT EXISTS wordpress;\n"
                       "CREATE USER IF NOT EXISTS 'wordpress'@'localhost' IDENTIFIED BY 'wordpress';\n"
                       "GRANT ALL ON wordpress.* TO 'wordpress'@'localhost';\n")

    def start(self, cores=None):
        """Runs it, on these `cores` only."""
        self.tree = processes.Tree("mariadbd", [
            self.programs["mariadbd"], "--no-defaults", "--skip-networking", "--skip-log-bin",
            # Data that a power failure would lose does not matter here, but waiting for disks would.
            "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--innodb-use-native-aio=0",
            f"--datadir={self.folder}/data", f"--socket={self.socket}", f"--pid-file={self.folder}/mariadb.pid",
            f"--init-file={self.folder}/init.sql", *self._identity()], f"{self.folder}/mariadb.log", cores)
        processes.wait_for(self._accepts, 60, "MariaDB did not listen", self.tree)

    def stop(self):
        if self.tree:
            self.tree.stop(patience=30)
            self.tree = None

    def _identity(self):
        return [f"--user={self.user}"] if self.user else []

    def _accepts(self):
        try:
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(self.socket)
                return True
        except OSError:
            return False


def install(programs, root, database, php_ini):
    """A copy of the package as the document root `root`, installed; `database` runs."""
    # Debian's is a tree of links into other packages.
    subprocess.run(["cp", "-rL", f"{PACKAGE}/.", root], stderr=subprocess.DEVNULL, check=False)
    if not os.path.exists(f"{root}/wp-login.php"):
        raise processes.Failed(f"{PACKAGE} could not be copied to {root}")
    render("wordpress/wp-config.php", root, {"socket": database.socket})
    told = _run([programs["php"], "-c", php_ini, os.path.join(FOLDER, "wordpress", "install.php"), root])
    if "installed" not in told:
        raise processes.Failed(f"WordPress was not installed: {told[-1000:]}")


def linked(get):
    """Paths of the front page's styles, scripts and pictures on this server; `get`: path → (status, body)."""
    status, body = get("/")
    if status != 200:
        raise processes.Failed(f"WordPress's front page: {status}")
    page = body.decode("utf-8", "replace").replace("&#038;", "&").replace("&amp;", "&")
    urls = re.findall(r"<(?:link|script|img)\b[^>]*?\b(?:href|src)=['\"]([^'\"]+)", page)
    paths = [re.sub(r"^https?://bench\.example", "", url) for url in urls]
    return list(dict.fromkeys(path for path in paths if re.match(r"/[^/].*\.(?:css|js|png|jpg|gif|svg|woff2)\b", path)))


def _run(argv):
    """The output of a program; Failed if the program failed."""
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120)
    if result.returncode:
        raise processes.Failed(f"{argv[0]} ended with {result.returncode}: {(result.stdout + result.stderr)[-1000:]}")
    return result.stdout + result.stderr
