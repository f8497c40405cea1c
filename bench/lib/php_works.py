"""Works in which whole stacks run PHP: each server with its own workers, or with PHP-FPM behind it.

Works with disturbances (bursts, reloads, dying workers) and long works are in `trials.py`.
"""

import copy
import os
import shutil

from . import backends, load, measure, php, processes, stacks, wordpress, works

# The pool of scenario 1: two at the start, twenty at most.
DYNAMIC = backends.Pool("dynamic", 20, 2, 2, 5)
# weir's pool with the default settings.
OWN = backends.Pool("auto", None, 1, 1, 1, queue_timeout=None)
# How often memory is read (seconds): with many processes each reading takes time.
LOOK_EVERY = 1.0


class Nothing:
    """The shared state of samples that share nothing."""

    def stop(self):
        pass


class PhpWork:
    """A script, a pool, a load, and the stacks that are compared."""

    # PHP's headers, which weir-php is built with, are among them.
    programs = ("php-fpm", "php-cgi", "php-config")
    path = "/line.php"
    expected = php.LINE
    fallback = ""
    pool = backends.FOUR
    peers = ("weir", "nginx", "haproxy", "apache", "prefork")
    clients = 64

    def __init__(self, key, title):
        self.key, self.title = key, title

    def rounds(self, options):
        return options.rounds

    def begin(self, context):
        """The state that the samples share, with a `stop`."""
        return Nothing()

    def root(self, context, shared):
        """The document root."""
        return context.settings.root

    def sample(self, name, shared, context):
        """Starts stack `name`, checks it, loads it, checks it again, stops it. A list of results, one a phase."""
        stack, folder = self.start(name, shared, context)
        try:
            results = self.measure(stack, folder, shared, context)
            self.check(stack)
        finally:
            stack.stop()
        # The log is complete only now.
        statuses = stack.server.statuses()
        for result in results:
            result["statuses"] = {s: n for s, n in statuses.items() if s != 499 or n > self.cut_off(context)}
        shutil.rmtree(folder, ignore_errors=True)
        return results

    def running(self, name, shared, context):
        """Stack `name`, checked and warm, for `bench/profile`."""
        stack, folder = self.start(name, shared, context)
        self.load(stack, folder, context, 1)
        return works.Running({"gateway": stack.gateway, "workers": stack.workers},
                             lambda: self.load(stack, folder, context, context.seconds), stack.stop)

    def start(self, name, shared, context, cores=None):
        """(running stack, its folder): the stack gives correct answers, and has the same settings as the others."""
        folder = context.new_folder(name)
        settings = context.settings._replace(root=self.root(context, shared))
        stack = stacks.Stack(name, settings, self.pool, folder, self.fallback, cores)
        try:
            processes.wait_for(lambda: stack.get(self.path)[0] == 200, 20,
                               f"{name} does not answer {self.path}: {stack.get(self.path)}", stack.server.tree)
            self.check(stack)
            context.same_settings.check(name, stack.get)
        except BaseException:
            stack.stop()
            raise
        return stack, folder

    def check(self, stack):
        """Checks that the stack gives the right answer, before and after the measurement."""
        status, body = stack.get(self.path)
        right = self.expected.encode() in body if isinstance(self.expected, str) else body == self.expected
        if status != 200 or not right:
            raise processes.Failed(f"{stack.name} answers {self.path} with {status} and {len(body)} bytes: {body[:200]!r}")

    def measure(self, stack, folder, shared, context):
        """Returns a list of results."""
        self.load(stack, folder, context, 1)
        return [self.measured(stack, lambda: self.load(stack, folder, context, context.seconds))]

    def measured(self, stack, function, others=()):
        return measure.measured(function, stack.gateway, stack.workers, [stack.gateway, stack.workers], others,
                                LOOK_EVERY)

    def load(self, stack, folder, context, seconds, **more):
        return load.clients(context.settings.programs, stack.url(self.path), self.clients, seconds, folder=folder,
                            expect=self.expected, **more)

    def cut_off(self, context):
        """How many requests the load generator may have cut off at its end; they are logged as 499."""
        return 0


class Scripted(PhpWork):
    """A script that needs nothing else. The time that the PHP engine alone takes for it is measured too."""

    def begin(self, context):
        script = f"{context.settings.root}{self.path}"
        engine = php.engine_us(context.settings.programs["php-cgi"], context.settings.php_ini, script)
        context.facts.setdefault("engine_us", {})[self.key] = engine
        return Nothing()


class Shaped(PhpWork):
    """The same load on each stack with several configurations: `shapes`, {peer: {description: Pool}}."""

    shapes = {}

    @property
    def peers(self):
        return tuple(self.shapes)

    def shaped(self, name):
        """(description, this work with that pool), one for each configuration of `name`."""
        for shape, pool in self.shapes[name].items():
            work = copy.copy(self)
            work.pool = pool
            yield shape, work


class Computing(Shaped):
    """A page that takes 10 ms of CPU on this machine. It takes long: each stack has one turn."""

    path = "/page.php"

    def rounds(self, options):
        return 1

    def begin(self, context):
        php.write_rounds(context.settings.root, context.settings.programs["php-cgi"], context.settings.php_ini)
        return super().begin(context)


class WithDatabase:
    """A WordPress and its database, for all samples of a work."""

    def __init__(self, context):
        settings = context.settings
        self.root = context.new_folder("wordpress")
        os.mkdir(self.root)
        self.database = wordpress.Database(settings.programs, context.new_folder("mariadb"))
        self.database.start()
        try:
            wordpress.install(settings.programs, self.root, self.database, settings.php_ini)
            php.write_site(self.root)
        except BaseException:
            self.database.stop()
            raise

    def stop(self):
        self.database.stop()
        shutil.rmtree(self.root, ignore_errors=True)


class FrontPage(PhpWork):
    """WordPress's front page, by 30 clients that keep their connection."""

    programs = (*PhpWork.programs, "php", "wordpress", "mariadbd", "mariadb-install-db")
    path, expected, fallback, clients = "/", wordpress.MARK, "/index.php", 30

    def rounds(self, options):
        return max(1, options.rounds // 2 + 1)

    def begin(self, context):
        return WithDatabase(context)

    def root(self, context, shared):
        return shared.root

    def measure(self, stack, folder, shared, context):
        self.load(stack, folder, context, 2)
        seconds = 2 * context.seconds
        attack = lambda: self.load(stack, folder, context, seconds)
        return [self.measured(stack, attack, others=[shared.database.tree])]

    def load(self, stack, folder, context, seconds, **more):
        return load.clients(context.settings.programs, stack.url(self.path), self.clients, seconds,
                            contains=self.expected, **more)


class SmallMachine(FrontPage):
    """Scenario 2: page and static files on one core, database included; siege runs on another."""

    programs = (*FrontPage.programs, "siege")
    peers = ("weir", "apache", "prefork")

    def rounds(self, options):
        return max(1, options.rounds // 3)

    def begin(self, context):
        shared = WithDatabase(context)
        shared.database.stop()
        cores = sorted(os.sched_getaffinity(0))
        shared.cores, shared.rest = (cores[-1:], cores[:-1]) if len(cores) > 1 else (cores, cores)
        shared.database.start(shared.cores)
        return shared

    def sample(self, name, shared, context):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, shared.rest)
        try:
            return super().sample(name, shared, context)
        finally:
            os.sched_setaffinity(0, before)

    def start(self, name, shared, context, cores=None):
        return super().start(name, shared, context, shared.cores)

    def measure(self, stack, folder, shared, context):
        urls = [stack.url(path) for path in ["/", *wordpress.linked(stack.get)]]
        for url in urls:
            status, body = stack.get(url[len(stack.url("")):])
            if status != 200 or not body:
                raise processes.Failed(f"{stack.name}: {url}: {status}")
        attack = lambda seconds: load.siege(context.settings.programs, urls, self.clients, seconds, folder, keep=True)
        attack(2)
        seconds = 60 if context.options.full else 4 * context.seconds
        return [dict(self.measured(stack, lambda: attack(seconds), others=[shared.database.tree]), urls=len(urls))]

    def cut_off(self, context):
        return 2 * self.clients


WORKS = {work.key: work for work in (
    Scripted("php", "One line of PHP, 64 kept connections, 4 workers"),
    FrontPage("wordpress", "WordPress's front page, 30 clients, 4 workers"),
    SmallMachine("small-machine", "WordPress with its static files on one core, siege with 30 users"),
)}
