//! Sites made for a test, and what a target is in words.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use weir_config::{Config, Settings};

use super::*;

impl Router {
    /// The target, whether it takes a thread to find it or not.
    pub(super) async fn resolve<'r>(
        &self,
        found: &RouteMatch<'r, '_>,
        method: &Method,
        query: Option<&str>,
        now: u64,
    ) -> Target<'r> {
        if let Some(target) = self.resolve_now(found, method, query, now) {
            return target;
        }
        let target = self.resolve_on_thread(found, method, query, now).await;
        found.finish(target, method)
    }
}

/// A site of its own in a temporary folder.
pub(super) struct Fixture {
    pub(super) root: PathBuf,
    pub(super) router: Router,
    pub(super) config: Config,
    _dir: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new(change: impl FnOnce(&mut Settings, &mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("site");
        for folder in [
            "docs", "empty", "lib.php", "admin", ".git", "uploads", "sp a\\ce",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::create_dir(base.join("outside")).unwrap();
        for (name, content) in [
            ("site/index.php", "<?php"),
            ("site/source.phtml", "<?php"),
            ("site/source.PHP", "<?php"),
            ("site/run.cgi", "#!"),
            ("site/style.css", "body{}"),
            ("site/docs/index.html", "<html>"),
            ("site/lib.php/readme.txt", "text"),
            ("site/admin/index.php", "<?php"),
            ("site/.env", "secret"),
            ("site/.hidden.php", "<?php"),
            ("site/.git/config", "secret"),
            ("site/uploads/evil.php", "<?php"),
            ("site/uploads/evil.PHP", "<?php"),
            ("site/uploads/index.php", "<?php"),
            ("site/uploads/photo.jpg", "jpeg"),
            ("outside/secret.txt", "secret"),
            ("outside/secret.php", "secret"),
        ] {
            fs::write(base.join(name), content).unwrap();
        }
        symlink("../outside/secret.txt", root.join("out.txt")).unwrap();
        symlink("../outside/secret.php", root.join("out.php")).unwrap();
        symlink(base.join("outside"), root.join("outside")).unwrap();
        symlink("docs/../style.css", root.join("in.css")).unwrap();
        symlink("loop", root.join("loop")).unwrap();

        let mut config = config(&root);
        let mut settings = config.sites[0].settings.clone();
        change(&mut settings, &mut config);
        config.sites[0].settings = settings;
        Self {
            root,
            router: Router::new(&config).unwrap(),
            config,
            _dir: dir,
        }
    }

    #[track_caller]
    pub(super) fn expect(&self, request: &str, expected: &str) {
        let (method, path, query) = split(request);
        let found = match self.router.find(0, None, &method, path.as_bytes()) {
            Ok(found) => found,
            Err(refusal) => {
                let said = format!("{} {}", refusal.status().as_u16(), refusal.reason());
                return assert_eq!(said, expected, "{request}");
            }
        };
        for target in self.both_ways(&found, &method, query) {
            assert_eq!(describe(&target), expected, "{request}");
        }
    }

    /// A site with the routes and pools that a text says.
    pub(super) fn with(text: &str) -> Self {
        let mut site = Self::new(|_, _| {});
        let root = site.root.display().to_string();
        let text = text.replace("ROOT", &root);
        site.config = parse(&format!("[listen.web]\naddress = \"127.0.0.1:80\"\n{text}"));
        site.router = Router::new(&site.config).unwrap();
        site
    }

    /// First with an empty cache, then with the filled cache, and then on a thread that may wait.
    pub(super) fn both_ways<'r>(
        &self,
        found: &RouteMatch<'r, '_>,
        method: &Method,
        query: Option<&str>,
    ) -> Vec<Target<'r>> {
        let now = clock::now();
        let rewritten = found.query(query);
        let rewritten = rewritten.as_deref();
        let waiting = found
            .rules
            .space
            .as_ref()
            .filter(|_| found.route.is_none())
            .map(|space| {
                let wanted = found.wanted(method, rewritten);
                let target = wait_for(self.router.wait(found.rules, space, wanted.kept(), now));
                found.finish(target, method)
            });
        let mut targets: Vec<_> = waiting.into_iter().collect();
        for _ in 0..2 {
            targets.push(wait_for(self.router.resolve(found, method, query, now)));
        }
        targets
    }

    pub(super) fn resolve(&self, request: &str) -> Target<'_> {
        self.resolve_at(request, clock::now())
    }

    pub(super) fn resolve_at(&self, request: &str, now: u64) -> Target<'_> {
        let (method, path, query) = split(request);
        let path = path.to_owned();
        let found = self.router.find(0, None, &method, path.as_bytes()).unwrap();
        match wait_for(self.router.resolve(&found, &method, query, now)) {
            Target::Action(_) => panic!("an action"),
            Target::File(entry) => Target::File(entry),
            Target::Script(script) => Target::Script(script),
            Target::NotFound { why, tried } => Target::NotFound { why, tried },
            target => panic!("{target:?}"),
        }
    }

    pub(super) fn content(&self, request: &str) -> String {
        match self.resolve(request) {
            Target::File(entry) => {
                String::from_utf8(entry.identity().content.as_ref().unwrap().to_vec()).unwrap()
            }
            target => panic!("{target:?}"),
        }
    }

    /// Asks until the file is old enough to be kept in memory.
    pub(super) fn keep(&self, request: &str) -> Rc<FileEntry> {
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            match self.resolve(request) {
                Target::File(entry) if entry.is_settled() => return entry,
                Target::File(_) => {}
                target => panic!("{target:?}"),
            }
            assert!(Instant::now() < limit, "never settled");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(super) fn describe(target: &Target<'_>) -> String {
    match target {
        Target::Action(Action::Deny) => "action Deny".into(),
        Target::Action(Action::Reply { .. }) => "action Reply".into(),
        Target::Action(Action::Redirect { .. }) => "action Redirect".into(),
        Target::File(entry) => {
            let content_type = entry.identity().headers.get("content-type").unwrap();
            let content_type = String::from_utf8_lossy(content_type);
            format!(
                "file {} {content_type}",
                String::from_utf8_lossy(entry.path())
            )
        }
        Target::Script(script) => {
            let name = String::from_utf8_lossy(&script.script_name);
            let inner = script.seen_name().unwrap_or(&script.script_name);
            assert!(script.filename.ends_with(inner));
            let query = script.query.as_ref().map(|query| format!("?{query}"));
            let query = query.unwrap_or_default();
            match String::from_utf8_lossy(&script.path_info).as_ref() {
                "" => format!("script {name}{query}"),
                info => format!("script {name}{query} info {info}"),
            }
        }
        Target::Pool { target } => {
            let target = target.as_deref().unwrap_or(b"as it is");
            format!("pool {}", String::from_utf8_lossy(target))
        }
        Target::DirectoryRedirect { location, status } => {
            format!("{} {}", status.as_u16(), location.to_str().unwrap())
        }
        Target::Options { allow } => format!("options {}", allow.to_str().unwrap()),
        Target::MethodNotAllowed { allow } => format!("405 {}", allow.to_str().unwrap()),
        Target::NotFound { why, .. } => format!("404 {why}"),
        Target::Forbidden { why, .. } => format!("403 {why}"),
        Target::Failed { error, tried } => format!("failed {error} {}", tried.display()),
    }
}

/// `[METHOD ]PATH[?QUERY]`
fn split(request: &str) -> (Method, &str, Option<&str>) {
    let (method, target) = request.split_once(' ').unwrap_or(("GET", request));
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    (method.parse().unwrap(), path, query)
}

/// This thread's time on a processor, and the part of it in user mode (which is counted in ticks of 10 ms).
pub(super) fn cpu_time() -> (Duration, Duration) {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap();
    let on_cpu = read("schedstat")
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let stat = read("stat");
    let after_name = &stat[stat.rfind(')').unwrap() + 2..];
    let user_ticks: u64 = after_name.split(' ').nth(11).unwrap().parse().unwrap();
    (
        Duration::from_nanos(on_cpu),
        Duration::from_millis(user_ticks * 10),
    )
}

pub(super) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// A pool whose workers are locked into a folder.
pub(super) fn pools_in(chroot: &Path) -> Vec<weir_config::Pool> {
    let chroot = chroot.display();
    parse(&format!(
        "[listen.web]\naddress = \"127.0.0.1:80\"\n\
         [site.first]\nroot = \"/\"\npool = \"php\"\n\
         [pool.php]\nruntime = \"php\"\nchroot = \"{chroot}\"\nlimit_extensions = []\n"
    ))
    .pools
}

fn parse(text: &str) -> Config {
    let environment = weir_config::Environment {
        folder: "/".into(),
        cores: 1,
        memory: 1 << 30,
        open_files: 1024,
    };
    weir_config::parse("weir.toml", text, &environment).unwrap()
}

/// One listener, one default site at `root`, one pool.
pub(super) fn config(root: &Path) -> Config {
    let text = format!(
        r#"
        [listen.web]
        address = "127.0.0.1:80"
        [site.first]
        root = "{}"
        pool = "php"
        precompressed = false
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        queue = {{ maxconn = 1 }}
        "#,
        root.display()
    );
    let mut config = parse(&text);
    // Each test says which extensions it means.
    config.pools[0].limit_extensions.clear();
    config
}
