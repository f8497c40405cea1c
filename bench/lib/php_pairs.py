"""Whole stacks side by side, in turns: one line of PHP, WordPress, and applications that stay booted."""

import os
import re
import shutil
import subprocess

from . import backends, load, pairs, php, php_works, processes, stacks, wordpress, works

# weir whose workers boot the application for each request.
CLASSIC = "weir-classic"
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples")


class Stacks(pairs.Pair):
    """Servers with their own PHP workers. The CPU time is that of all their processes. `paths`: whose answers must be the same,
    byte by byte, before the first turn; the first of them is loaded."""

    programs = ("php-fpm", "php-config", "nginx")
    paths = ("/line.php",)
    clients = 64
    pool = backends.FOUR

    def __init__(self, name, title, own_php=True, kept=None):
        """`own_php`: weir runs PHP itself. `kept`: as that of backends.Pool."""
        super().__init__(f"pair-{name}", None, title)
        self.own_php, self.pool = own_php, self.pool._replace(kept=kept)

    def begin(self, context):
        return Shared(context.settings.root)

    def start(self, name, shared, context):
        stack, folder = self.stack(name, shared, context)

        def check():
            processes.wait_for(lambda: stack.get(self.paths[0])[0] == 200, 20,
                               f"{name} does not answer {self.paths[0]}: {stack.get(self.paths[0])}", stack.server.tree)
            if not self.is_booted(name):
                context.same_settings.check(name, stack.get)
            for path in self.paths:
                shared.compare(name, path, stack.get(path))

        turn = lambda: load.clients(context.settings.programs, stack.url(self.paths[0]), self.clients, self.turn_seconds,
                                    folder=folder, expect=shared.answers[self.paths[0]][1])
        return pairs.warm(pairs.Side(stack.gateway, turn, stack.stop, stack.workers), check)

    def stack(self, name, shared, context):
        """(the stack, its folder)"""
        folder = context.new_folder(name)
        settings = context.settings._replace(root=shared.root)
        pool = self.pool._replace(worker=self.worker(shared)) if self.is_booted(name) else self.pool
        fallback = self.front_controller(name)
        return stacks.Stack("nginx" if name == "nginx" else "weir", settings, pool, folder, fallback, own_php=self.own_php), folder

    def is_booted(self, name):
        """Whether the application of this server stays booted."""
        return CLASSIC in self.names and name == self.names[0]

    def worker(self, shared):
        """The worker file."""
        return f"{shared.root}{self.paths[0]}"

    def front_controller(self, name):
        """The script of URLs that are no files."""
        return ""

    def cost(self, result):
        return result["gateway"]["total_us"] + result["workers"]["total_us"]

    def running(self, name, shared, context):
        """As that of works.Work."""
        side = self.start(name, shared, context)
        return works.Running({"gateway": side.tree, "workers": side.workers}, side.load, side.stop)


class Shared:
    """What the servers of a work have in common: the document root, and the answers of the first that was asked."""

    def __init__(self, root, database=None, folder=None):
        self.root, self.database, self.folder, self.answers = root, database, folder, {}

    def compare(self, name, path, answer):
        """Failed unless this server's (status, body) is that of the first."""
        status, body = answer
        # Laravel's forms have a token of the session, which is new for each client.
        body = re.sub(rb'name="_token" value="\w+"', b"", body)
        answer = status, body
        first = self.answers.setdefault(path, answer)
        if status == 0 or answer != first:
            raise processes.Failed(f"{name} answers {path} with {status} and {len(body)} bytes, another server with {first[0]} and "
                                   f"{len(first[1])}: {body[:300]!r}")

    def stop(self):
        if self.database:
            self.database.stop()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class BootedLine(Stacks):
    """One line of PHP by a worker that stays. PHP's processes are compared."""

    paths = ("/booted.php",)
    names = ("weir", CLASSIC)
    peers = ("weir",)


class FrontPage(Stacks):
    """WordPress's front page."""

    programs = (*Stacks.programs, "php", "wordpress", "mariadbd", "mariadb-install-db")
    paths = ("/",)
    clients = 30
    turn_seconds = 3

    def begin(self, context):
        with_database = php_works.WithDatabase(context)
        return Shared(with_database.root, with_database)

    def front_controller(self, name):
        return "/index.php"


class Application(Stacks):
    """One of `examples/`, with a framework: weir where it stays booted, weir where it boots for each request, nginx and PHP-FPM."""

    names = ("weir", CLASSIC, "nginx")
    clients = 16
    paths = ("/", "/?q=gate&name=%3Cb%3E", "/item/3", "/item/99", "/echo/a/b?c=d", "/old/7", "/streamed?lines=20", "/broken", "/no/such/page")
    writable = ()

    def __init__(self, example, worker, title):
        super().__init__(example, title)
        self.example, self.worker_file = example, worker
        self.programs = (*Stacks.programs, "php", example)

    def begin(self, context):
        folder = context.new_folder(self.example)
        shutil.copytree(f"{EXAMPLES}/{self.example}", folder)
        self.deploy(context.settings.programs["php"], folder)
        root = f"{folder}/public"
        php.write_site(root)
        if context.settings.is_root:
            subprocess.run(["chown", "-R", wordpress.USER, folder], check=True)
        return Shared(root, folder=folder)

    def deploy(self, interpreter, folder):
        """What is done once where the application is installed."""
        os.makedirs(f"{folder}/var/sessions")

    def worker(self, shared):
        return f"{shared.root}/{self.worker_file}"

    def front_controller(self, name):
        return "/index.php"


class Laravel(Application):
    """Laravel with its caches of configuration, routes and views, as it is deployed."""

    def deploy(self, interpreter, folder):
        for name in ("bootstrap/cache", "storage/framework/sessions", "storage/framework/views"):
            os.makedirs(f"{folder}/{name}")
        for command in ("optimize", "view:cache"):
            done = subprocess.run([interpreter, "artisan", command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=120)
            if done.returncode:
                raise processes.Failed(f"artisan {command} ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")


WORKS = {pair.key: pair for pair in (
    Stacks("php", "One line of PHP, 64 kept connections, 4 workers"),
    Stacks("php-kept", "The same; nginx keeps its connections to PHP-FPM", kept=True),
    Stacks("php-fpm", "The same, PHP-FPM behind both; weir keeps its connections to it", own_php=False),
    Stacks("php-fpm-new", "The same, PHP-FPM behind both, a connection to it for each request", own_php=False, kept=False),
    Stacks("php-fpm-kept", "The same, PHP-FPM behind both, connections to it kept", own_php=False, kept=True),
    BootedLine("php-booted", "One line of PHP, 64 kept connections, 4 workers that stay booted; ÷ weir without"),
    FrontPage("wordpress", "WordPress's front page, 30 kept connections, 4 workers"),
    Application("symfony", "index.php", "A page of Symfony and Twig, 16 kept connections, 4 workers that stay booted"),
    Laravel("laravel", "frankenphp-worker.php", "A page of Laravel and Blade, 16 kept connections, 4 workers that stay booted"),
)}
