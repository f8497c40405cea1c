//! Applications that stay booted: those of `examples/symfony` and `examples/laravel` answer as they do when they boot for each request,
//! byte for byte, and nothing of one client reaches another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_test::php::own;
use weir_test::process::newest;
use weir_test::wordpress::Browser;
use weir_test::{Response, Setup, USER, Weir, is_root};

mod requests;

use requests::{Ask, Script};

/// One of the applications in `examples`.
#[derive(Clone, Copy, PartialEq)]
enum Application {
    Symfony,
    Laravel,
}
use Application::{Laravel, Symfony};

impl Application {
    /// A weir with a copy of the application. Without `workers` it boots for each request.
    #[track_caller]
    fn start(self, workers: Workers) -> Weir {
        let setup = Setup::new();
        let folder = setup.path("app");
        copy(&self.source(), &folder);
        self.deploy(&folder);
        let public = folder.join("public");
        let (number, script, line) = match workers {
            Workers::Classic => (2, "index.php", String::new()),
            Workers::Booted(number) => {
                let line = format!("worker = \"{}\"\n", public.join(self.worker()).display());
                (number, self.worker(), line)
            }
        };
        setup
            .site(&format!(
                "hosts = [\"{SITE}\", \"other.example\"]\nroot = \"{}\"\nfallback = \"/{script}\"\n",
                public.display()
            ))
            .pool(&own(number, &line))
            .start()
    }

    fn source(self) -> PathBuf {
        let name = match self {
            Symfony => "symfony",
            Laravel => "laravel",
        };
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("examples")
            .join(name)
    }

    /// The worker file. Symfony's front controller is one.
    fn worker(self) -> &'static str {
        match self {
            Symfony => "index.php",
            Laravel => "frankenphp-worker.php",
        }
    }

    /// What is done when an application is deployed.
    fn deploy(self, folder: &Path) {
        let writable = match self {
            Symfony => &["var/sessions"][..],
            Laravel => &[
                "bootstrap/cache",
                "storage/framework/sessions",
                "storage/framework/views",
            ],
        };
        for name in writable {
            fs::create_dir_all(folder.join(name)).expect("mkdir");
        }
        if self == Laravel {
            for command in ["optimize", "view:cache"] {
                let mut php = Command::new(newest("/usr/bin", "php"));
                run(php.current_dir(folder).args(["artisan", command]));
            }
        }
        if is_root() {
            run(Command::new("chown").arg("-R").arg(USER).arg(folder));
        }
    }

    /// Cookies whose values are new each time. Laravel encrypts all of them.
    fn is_random(self, cookie: &str) -> bool {
        self == Laravel || cookie == "PHPSESSID"
    }

    /// The answer as text, without what differs each time.
    fn normalised(self, response: &Response) -> String {
        let mut fields: Vec<String> = response
            .headers
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("date"))
            .map(
                |(name, value)| match name.eq_ignore_ascii_case("set-cookie") {
                    true => format!("{name}: {}", self.normalised_cookie(value)),
                    // The response time of a page with a session.
                    false if name.eq_ignore_ascii_case("expires") => format!("{name}: …"),
                    false => format!("{name}: {value}"),
                },
            )
            .collect();
        // Fields of different names have no order.
        fields.sort();
        let body = without_token(&response.text());
        format!("{}\n{}\n\n{body}", response.status, fields.join("\n"))
    }

    fn normalised_cookie(self, cookie: &str) -> String {
        let parts = cookie.split("; ").enumerate().map(|(index, part)| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            // A cookie that is deleted is no random one.
            let random = index == 0 && value != "deleted" && self.is_random(name);
            // The time that is left may have begun another second.
            match random || ["expires", "max-age"].contains(&name.to_lowercase().as_str()) {
                true => format!("{name}=…"),
                false => part.to_owned(),
            }
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// How the scripts of a weir run.
#[derive(Clone, Copy)]
enum Workers {
    /// The application boots for each request.
    Classic,
    /// This many workers, in each of which the application stays booted.
    Booted(usize),
}
use Workers::{Booted, Classic};

#[test]
fn symfony_answers_as_it_does_when_it_boots_each_time() {
    answers_are_the_same(Symfony);
}

#[test]
fn laravel_answers_as_it_does_when_it_boots_each_time() {
    answers_are_the_same(Laravel);
}

#[test]
fn symfony_keeps_clients_apart() {
    clients_are_kept_apart(Symfony);
}

#[test]
fn laravel_keeps_clients_apart() {
    clients_are_kept_apart(Laravel);
}

#[test]
fn symfony_serves_clients_at_the_same_time() {
    clients_at_the_same_time(Symfony);
}

#[test]
fn laravel_serves_clients_at_the_same_time() {
    clients_at_the_same_time(Laravel);
}

/// One client sends all requests, twice.
fn answers_are_the_same(application: Application) {
    let (classic, booted) = (application.start(Classic), application.start(Booted(1)));
    let before = process(&booted);
    let (mut one, mut other) = (
        Script::new(application, &classic, "ann"),
        Script::new(application, &booted, "ann"),
    );
    let asks = requests::all(application, "ann");
    assert!(asks.len() >= 36, "{}", asks.len());
    for _ in 0..2 {
        for ask in &asks {
            let wanted = one.send(ask);
            wanted.expect_status(ask);
            same(ask, &wanted.text, &other.send(ask).text);
        }
    }
    let after = process(&booted);
    assert_eq!(before["pid"], after["pid"], "the application stayed");
    let handled = after["handled"].as_u64().expect("a number");
    assert!(handled > before["handled"].as_u64().expect("a number"));
}

/// Four clients, each with its own name in what it sends, take turns on one worker in an order by chance.
fn clients_are_kept_apart(application: Application) {
    let (classic, booted) = (application.start(Classic), application.start(Booted(1)));
    let mut random = Random(7);
    let mut clients: Vec<_> = NAMES
        .iter()
        .map(|name| {
            let asks = requests::all(application, name).into_iter();
            let one = Script::new(application, &classic, name);
            (*name, asks, one, Script::new(application, &booted, name))
        })
        .collect();
    while !clients.is_empty() {
        let index = random.below(clients.len());
        let (name, asks, one, other) = &mut clients[index];
        let Some(ask) = asks.next() else {
            clients.swap_remove(index);
            continue;
        };
        let (wanted, got) = (one.send(&ask).text, other.send(&ask).text);
        same(&ask, &wanted, &got);
        for stranger in NAMES.iter().filter(|stranger| *stranger != name) {
            assert!(!got.contains(stranger), "{stranger} in {name}'s {got}");
        }
    }
}

/// Each client sends its requests one after another, all clients at the same time, to two workers.
fn clients_at_the_same_time(application: Application) {
    let (classic, booted) = (application.start(Classic), application.start(Booted(2)));
    // Laravel compiles the pages of errors when they are first shown, and writes them in place: another process could read half of one.
    for weir in [&classic, &booted] {
        let mut first = Script::new(application, weir, "first");
        requests::trouble("first").iter().for_each(|ask| {
            first.send(ask);
        });
    }
    std::thread::scope(|scope| {
        for name in NAMES {
            let (classic, booted) = (&classic, &booted);
            scope.spawn(move || {
                let mut one = Script::new(application, classic, name);
                let mut other = Script::new(application, booted, name);
                for ask in requests::all(application, name) {
                    let wanted = one.send(&ask).text;
                    same(&ask, &wanted, &other.send(&ask).text);
                }
            });
        }
    });
}

#[track_caller]
fn same(ask: &Ask, wanted: &str, got: &str) {
    if wanted != got {
        let mut pairs = wanted.lines().zip(got.lines());
        let differs = pairs.find(|(one, other)| one != other);
        let (lines, others) = (wanted.lines().count(), got.lines().count());
        panic!(
            "{ask:?}: {lines} lines when booted for it, {others} when it stays booted; first {differs:#?}"
        );
    }
}

/// What the application says of the process that it runs in.
#[track_caller]
fn process(weir: &Weir) -> Value {
    let page = Browser::of_site(weir, SITE)
        .get("/process")
        .expect(200)
        .text();
    serde_json::from_str(&page).expect("JSON")
}

/// Laravel's forms have a token of the session.
fn without_token(page: &str) -> String {
    let mark = "name=\"_token\" value=\"";
    match page.split_once(mark) {
        Some((before, after)) => {
            let (_, rest) = after.split_once('"').expect("the end of a value");
            format!("{before}{mark}…\"{rest}")
        }
        None => page.to_owned(),
    }
}

fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-r").arg(from).arg(to));
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(to));
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("a command");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{command:?}\n{said}");
}

/// Numbers that are the same in each run (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).expect("31 bits") % limit
    }
}

const SITE: &str = "shop.example";
/// None is part of another, or of a page.
const NAMES: [&str; 4] = ["quinby", "zoltan", "wolfgang", "xanthippe"];
