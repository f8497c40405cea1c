//! Writes the weir.toml for a folder. Each line says why it is there.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr, path::PathBuf};

use regex::bytes::Regex;
use weir_config::{DEFAULT_LISTEN, is_local_name, quote, quoted_list};

use super::{
    Found, Looked,
    applications::{DENIED_IN_PHP, Route},
    part_elsewhere,
};
use crate::htaccess::{self, About, Rule};

/// What the configuration is for.
#[derive(Debug)]
pub struct Wanted<'l> {
    /// The folder.
    pub looked: &'l Looked,
    /// The first lines, as comments. With them it is a file to keep (`weir init`). None: it is for one run of
    /// `weir serve FOLDER`, whose user is probably editing the files.
    pub head: Vec<String>,
    /// Root starts weir, as a service.
    pub is_service: bool,
    /// Addresses to listen on, as written. Empty: as [`listeners`] chooses.
    pub listen: Vec<String>,
    /// Addresses for TLS, if there are `domains`.
    pub listen_https: Vec<String>,
    /// Hosts for which weir makes a certificate.
    pub domains: Vec<String>,
    /// The folder of certificates. `None`: the default.
    pub certificates: Option<PathBuf>,
    /// The PHP that runs its scripts. `None`: the folder has no scripts.
    pub php: Option<Php>,
    /// User of the gateway if root starts weir. `None`: the default.
    pub gateway_user: Option<String>,
    /// User of the workers if root starts weir. `None`: the gateway's.
    pub user: Option<String>,
    /// The configuration is in the document root.
    pub is_inside: bool,
    /// It is the file of a service that was installed. `None`: logs go to standard output and error.
    pub service: Option<Service>,
}

/// Paths of a service.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// Its `pid_file`.
    pub pid_file: &'static str,
    /// The folder of its logs.
    pub logs: &'static str,
}

/// PHP of a folder.
#[derive(Debug)]
pub struct Php {
    /// The program that runs scripts.
    pub runtime: Runtime,
    /// Its version, if it is not the newest.
    pub version: Option<String>,
    /// Number of workers. `None`: computed from cores and memory.
    pub workers: Option<usize>,
}

/// The program that runs scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runtime {
    /// weir's own PHP.
    Own,
    /// php-cgi: a path, or a name to find in PATH.
    Cgi(String),
}

/// The configuration. It is complete: users can save and change it.
pub fn text(wanted: &Wanted<'_>) -> String {
    let mut page = Page::default();
    for line in &wanted.head {
        page.comment(line);
    }
    if wanted.gateway_user.is_some() || wanted.service.is_some() {
        page.table("[server]");
    }
    if let Some(user) = &wanted.gateway_user {
        page.key(
            "user",
            &quote(user),
            "of the process that talks to clients: it must be able to read the files",
        );
    }
    if let Some(service) = &wanted.service {
        page.key(
            "pid_file",
            &quote(service.pid_file),
            "the rotation of logs uses it",
        );
    }
    listeners(wanted, &mut page);
    if let Some(certificates) = wanted
        .certificates
        .as_ref()
        .filter(|_| !wanted.domains.is_empty())
    {
        page.table("[tls]");
        page.key(
            "certificates",
            &quote(&certificates.to_string_lossy()),
            "weir keeps its certificates here",
        );
    }
    let name = site_name(wanted);
    site(wanted, &name, true, &mut page);
    // By other names, the folder is served as without domains.
    if !wanted.is_kept() && !wanted.domains.is_empty() && !wanted.has_public() {
        site(wanted, "other-names", false, &mut page);
    }
    if let Some(php) = &wanted.php {
        pool(wanted, php, &mut page);
    }
    if let Some(service) = &wanted.service {
        let file = |name: &str| quote(&format!("{}/{name}", service.logs));
        page.table("[log]");
        page.key("access", &file("access.log"), "one line for each request");
        page.key("error", &file("error.log"), "");
    }
    if wanted.is_kept() {
        programs(wanted.looked, &mut page);
        left_over(wanted.looked, &mut page);
    }
    page.text
}

impl Wanted<'_> {
    fn is_kept(&self) -> bool {
        !self.head.is_empty()
    }

    /// Whether a domain is a public one: authorities and visitors come to ports 80 and 443.
    fn has_public(&self) -> bool {
        let name = |domain: &String| domain.trim_matches(['[', ']']).to_owned();
        let mut names = self.domains.iter().map(name);
        names.any(|name| !is_local_name(&name))
    }

    /// The default addresses: without and with TLS.
    fn addresses(&self) -> [&'static str; 2] {
        // If a domain is an address of this machine in a network, other machines of that network use it.
        let inner = |domain: &String| domain.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let mut inner = self.domains.iter().filter_map(inner);
        match inner.any(|address| !address.is_loopback()) {
            _ if self.is_service || self.has_public() => [":80", ":443"],
            true => [":8080", ":8443"],
            false => [DEFAULT_LISTEN, DEFAULT_LISTEN_HTTPS],
        }
    }
}

/// The listeners: `web`, `web2`, …, and with domains `https`, `https2`, ….
fn listeners(wanted: &Wanted<'_>, page: &mut Page) {
    let kinds = [("web", &wanted.listen), ("https", &wanted.listen_https)];
    for ((kind, written), default) in kinds.into_iter().zip(wanted.addresses()) {
        if kind == "https" && wanted.domains.is_empty() {
            continue;
        }
        let mut addresses = written.clone();
        if addresses.is_empty() {
            addresses.push(default.to_owned());
            // A kept file is for visitors with IPv6, too, if the machine has it.
            if wanted.is_kept() && default.starts_with(':') && has_ipv6() {
                addresses.push(format!("[::]{default}"));
            }
        }
        for (index, address) in addresses.iter().enumerate() {
            match index {
                0 => page.table(&format!("[listen.{kind}]")),
                _ => page.table(&format!("[listen.{kind}{}]", index + 1)),
            }
            let comment = match address {
                address if address.starts_with(':') => "all IPv4 addresses of this machine",
                address if address.starts_with("[::]") => "all IPv6 addresses of this machine",
                address if address.starts_with("127.") => "only this machine reaches it",
                _ => "",
            };
            page.key("address", &quote(address), comment);
            if kind == "https" {
                page.key("tls", "true", "HTTP/2 is included");
            }
        }
    }
}

/// Whether this machine has an IPv6 address that others may reach.
fn has_ipv6() -> bool {
    let text = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    // The fourth word is the scope.
    text.lines()
        .any(|line| line.split_whitespace().nth(3) == Some("00"))
}

/// The site: for the domains, if there are any, or for all other names.
fn site(wanted: &Wanted<'_>, name: &str, is_for_domains: bool, page: &mut Page) {
    let looked = wanted.looked;
    page.table(&format!("[site.{name}]"));
    if !wanted.domains.is_empty() && is_for_domains {
        page.key("hosts", &quoted_list(&wanted.domains), "");
        let comment = match wanted.has_public() {
            true => "weir gets a certificate by itself, and redirects http to https",
            false => "a certificate of weir's local CA (weir trust); http is redirected to https",
        };
        page.key("tls", "\"auto\"", comment);
    } else if !wanted.domains.is_empty() {
        let count = wanted.listen.len().max(1);
        let names: Vec<String> = (1..=count)
            .map(|number| match number {
                1 => "web".to_owned(),
                _ => format!("web{number}"),
            })
            .collect();
        page.key(
            "listen",
            &quoted_list(&names),
            "by other names it is served without TLS",
        );
    }
    let comment = match looked.root == looked.folder {
        true => "",
        false => "what is beside it is not public",
    };
    page.key("root", &quote(&looked.root.to_string_lossy()), comment);
    let main = looked.main();
    if let Some(index) = main.and_then(|main| main.index) {
        page.key("index", &quoted_list(&[index.to_owned()]), "");
    }
    if looked.follows_links {
        page.key(
            "follow_symlinks",
            "true",
            "root owns the links that lead out of the folder",
        );
    }
    if wanted.php.is_some() {
        page.key("pool", "\"php\"", "");
    }
    if let Some(fallback) = fallback(looked) {
        page.key(
            "fallback",
            &quote(fallback),
            "URLs that are no files go to this script",
        );
    }
    let is_alone = looked.applications.len() == 1;
    if let Some(script) = main.and_then(|main| main.script).filter(|_| is_alone) {
        page.key(
            "script",
            &quote(script),
            "the only scripts that run; others are refused",
        );
    }
    if let Some(size) = largest_body(looked) {
        page.key("max_body", &quote(size), "uploads");
    }
    let refusals = htaccess::refusals(&looked.htaccess);
    let mut no_scripts = no_scripts(looked);
    let known: BTreeSet<_> = no_scripts.iter().cloned().collect();
    no_scripts.extend(
        refusals
            .deny_scripts
            .into_iter()
            .filter(|one| !known.contains(one)),
    );
    if !no_scripts.is_empty() {
        page.key(
            "deny_scripts",
            &quoted_list(&no_scripts),
            "what visitors upload never runs",
        );
    }
    for (key, value, comment) in looked
        .applications
        .iter()
        .flat_map(|found| found.application.site)
    {
        page.key(key, value, comment);
    }
    if let Some(preset) = main.and_then(|main| main.cache).filter(|_| is_alone) {
        let line = format!("cache = {}", quote(preset));
        let width = COLUMN - "# ".len();
        page.comment(&format!(
            "{line:width$} # pages are stored for visitors who are not logged in"
        ));
    }
    routes(wanted, name, refusals.routes, page);
}

fn fallback(looked: &Looked) -> Option<&'static str> {
    match looked.main() {
        Some(main) => main.fallback,
        None => (looked.has_php && looked.has_index).then_some("/index.php"),
    }
}

/// The largest `max_body` of the applications; all are in megabytes.
fn largest_body(looked: &Looked) -> Option<&'static str> {
    let sizes = looked
        .applications
        .iter()
        .filter_map(|found| found.application.max_body);
    sizes.max_by_key(|size| size.trim_end_matches('M').parse().unwrap_or(0))
}

/// Prefixes below which no script runs.
fn no_scripts(looked: &Looked) -> Vec<String> {
    let of_application = |found: &Found| {
        let base = found.base.clone();
        let prefixes = found.application.no_scripts.iter();
        prefixes
            .map(move |prefix| format!("{base}{prefix}"))
            .collect::<Vec<_>>()
    };
    let of_applications = looked.applications.iter().flat_map(of_application);
    of_applications
        .chain(looked.uploads.iter().cloned())
        .collect()
}

/// What is denied comes first, because the first route that matches is used.
fn routes(wanted: &Wanted<'_>, site: &str, of_files: Vec<Rule>, page: &mut Page) {
    let looked = wanted.looked;
    let mut denied: Vec<(String, String)> = Vec::new();
    if wanted.is_inside {
        let why = "this file, and copies that editors make: nobody learns whether they are there";
        let reply = "{ status = 404 }".to_owned();
        let keys = [("reply".to_owned(), reply, String::new())];
        page.route(site, "/weir.toml*", why, &keys);
    }
    for found in &looked.applications {
        let rows = found.application.denied.iter();
        denied.extend(rows.map(|(path, why)| (below(&found.base, path), (*why).to_owned())));
    }
    if looked.main().is_none() && looked.has_php {
        denied.extend(
            DENIED_IN_PHP
                .iter()
                .map(|(path, why)| ((*path).to_owned(), (*why).to_owned())),
        );
    }
    for prefix in no_scripts(looked) {
        let path = format!("~^{}.*\\.php", htaccess::literal(&prefix));
        denied.push((path, "scripts in a folder for uploads".into()));
    }
    let is_denied = {
        let compiled: Vec<_> = denied
            .iter()
            .filter_map(|(path, _)| compile(path))
            .collect();
        move |path: &str| compiled.iter().any(|regex| regex.is_match(path.as_bytes()))
    };
    let mut seen: BTreeSet<String> = denied.iter().map(|(path, _)| path.clone()).collect();
    for (path, why) in denied {
        page.route(
            site,
            &path,
            &why,
            &[("deny".into(), "true".into(), String::new())],
        );
    }
    for rule in of_files {
        let folder = rule
            .path
            .strip_suffix('*')
            .filter(|_| !rule.path.starts_with('~'));
        let is_known = folder.is_some_and(|folder| {
            rule.denied && is_denied(folder) && is_denied(&format!("{folder}x"))
        });
        if is_known || !seen.insert(rule.path.clone()) {
            continue;
        }
        let keys = match rule.denied {
            true => vec![("deny".to_owned(), "true".to_owned(), String::new())],
            false => Vec::new(),
        };
        page.route(site, &rule.path, &rule.why, &keys);
    }
    for found in &looked.applications {
        for route in found.application.routes {
            application_route(found, route, site, page);
        }
        if let Some((path, folder)) = part_elsewhere(&looked.root, looked.follows_links, found) {
            let alias = ("alias".to_owned(), quote(folder), String::new());
            page.route(site, path, "Debian's package has them elsewhere", &[alias]);
        }
    }
    for found in looked
        .applications
        .iter()
        .filter(|found| !found.base.is_empty())
    {
        if let Some(fallback) = found.application.fallback {
            let value = quote(&below(&found.base, fallback));
            let keys = [("fallback".to_owned(), value, String::new())];
            let why = format!("{}: URLs that are no files", found.application.name);
            page.route(site, &format!("{}/*", found.base), &why, &keys);
        }
    }
}

fn application_route(found: &Found, route: &Route, site: &str, page: &mut Page) {
    if route
        .only_with
        .is_some_and(|file| !found.folder.join(file).exists())
    {
        return;
    }
    let keys: Vec<_> = (route.keys.iter())
        .map(|(key, value, comment)| {
            let is_path = ["fallback", "redirect", "rewrite"].contains(key);
            let value = match value.strip_prefix("\"/") {
                Some(rest) if is_path => format!("\"{}/{rest}", found.base),
                _ => (*value).to_owned(),
            };
            ((*key).to_owned(), value, (*comment).to_owned())
        })
        .collect();
    page.route(site, &below(&found.base, route.path), "", &keys);
}

/// A path or an expression of an application, below the URL path of its folder.
fn below(base: &str, path: &str) -> String {
    match path.strip_prefix("~^") {
        Some(rest) => format!("~^{}{rest}", htaccess::literal(base)),
        None => format!("{base}{path}"),
    }
}

/// A route's path as an expression.
fn compile(path: &str) -> Option<Regex> {
    match path.strip_prefix('~') {
        Some(expression) => Regex::new(expression).ok(),
        None if path.ends_with('*') => Regex::new(&format!(
            "^{}",
            htaccess::literal(path.trim_end_matches('*'))
        ))
        .ok(),
        None => Regex::new(&format!("^{}$", htaccess::literal(path))).ok(),
    }
}

fn pool(wanted: &Wanted<'_>, php: &Php, page: &mut Page) {
    page.table("[pool.php]");
    match &php.runtime {
        Runtime::Own => {
            page.key("runtime", "\"php\"", "weir's own workers");
            if let Some(version) = &php.version {
                page.key(
                    "php",
                    &quote(version),
                    "the newest that the application accepts",
                );
            }
            if !wanted.is_kept() {
                // The user is probably editing files in this folder: run the saved version at once.
                page.key("php_define", "{ opcache.revalidate_freq = 0 }", "");
            }
            if wanted.looked.is_linked {
                page.key(
                    "watch_root",
                    "true",
                    "when a link in the root's path is switched, new workers start",
                );
            }
            if let Some(size) = largest_body(wanted.looked)
                && !keys_of_pool(wanted).any(|(key, ..)| *key == "php_value")
            {
                let size = quote(size);
                let value = format!("{{ upload_max_filesize = {size}, post_max_size = {size} }}");
                page.key("php_value", &value, "as max_body");
            }
            for (key, value, comment) in keys_of_pool(wanted) {
                page.key(key, value, comment);
            }
        }
        Runtime::Cgi(program) => {
            page.key(
                "runtime",
                "\"command\"",
                "php-cgi; with php-fpm weir has workers of its own",
            );
            // Do not set cgi.fix_pathinfo=0, with which PHP runs PATH_TRANSLATED and not SCRIPT_FILENAME, and do not
            // set discard_path, which breaks PHP_SELF. The gateway has checked that the script exists, so PHP corrects
            // nothing.
            page.key("command", &quoted_list(std::slice::from_ref(program)), "");
            // A worker of weir is one permanent process: php-cgi must neither fork nor exit by itself.
            page.key(
                "env",
                "{ PHP_FCGI_CHILDREN = \"0\", PHP_FCGI_MAX_REQUESTS = \"0\" }",
                "each worker is one process that stays",
            );
        }
    }
    if let Some(workers) = php.workers {
        page.key("pm", "\"static\"", "");
        page.key("max_children", &workers.to_string(), "");
    }
    if let Some(user) = &wanted.user {
        page.key("user", &quote(user), "scripts run as this user");
    }
    if !wanted.is_kept() {
        page.key("clear_env", "false", "");
    }
}

/// Keys for production; a folder that is tried out has its own settings.
fn keys_of_pool(
    wanted: &Wanted<'_>,
) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    let is_kept = wanted.is_kept();
    let keys = wanted
        .looked
        .applications
        .iter()
        .flat_map(|found| found.application.pool);
    keys.filter(move |_| is_kept)
}

/// Programs of an application that run at times, as comments: they may be in a crontab already.
fn programs(looked: &Looked, page: &mut Page) {
    for found in &looked.applications {
        for (name, words, schedule) in found.application.programs {
            let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            page.text.push('\n');
            page.comment(&format!(
                "{} needs this at these times, unless a crontab has it. Remove the # to let weir do it (it needs php-cli):",
                found.application.name
            ));
            for line in [
                format!("[program.{name}]"),
                format!("command = {}", quoted_list(&command)),
                format!("schedule = {}", quote(schedule)),
                format!("chdir = {}", quote(&found.folder.to_string_lossy())),
                "pool = \"php\"".to_owned(),
            ] {
                page.comment(&line);
            }
        }
    }
}

/// What `.htaccess` files have that the configuration has not, line by line.
fn left_over(looked: &Looked, page: &mut Page) {
    let kinds = [
        (
            About::SomeClients,
            "Refused to all here. In .htaccess files, some clients may use it (basic_auth and allow in a route do that):",
        ),
        (
            About::Widened,
            "Refused here together with more URLs, because the expression has look-around:",
        ),
        (
            About::Access,
            "NOT REFUSED here, because it depends on more than the path, or was not understood:",
        ),
        (
            About::Rewriting,
            "Rewrites and redirects of .htaccess files that are not in this file:",
        ),
        (
            About::Other,
            "Other lines of .htaccess files that are not in this file:",
        ),
    ];
    for (about, title) in kinds {
        let lines: Vec<String> = left_lines(looked, about).collect();
        if lines.is_empty() {
            continue;
        }
        page.text.push('\n');
        page.comment(title);
        for line in lines.iter().take(MOST_LINES) {
            page.comment(&format!("  {line}"));
        }
        if lines.len() > MOST_LINES {
            page.comment(&format!("  and {} more", lines.len() - MOST_LINES));
        }
    }
}

/// Lines of `.htaccess` files without an equivalent, as `FOLDER/.htaccess:LINE: TEXT`.
pub fn left_lines(looked: &Looked, about: About) -> impl Iterator<Item = String> {
    let has_fallback = fallback(looked).is_some();
    looked.htaccess.files.iter().flat_map(move |file| {
        let left = file.left.iter().filter(move |left| left.about == about);
        // A rule that leads to the front controller: `fallback` does the same.
        let left = left.filter(move |left| {
            !(about == About::Rewriting && has_fallback && left.text.contains("index.php"))
        });
        left.map(|left| {
            format!(
                "{}.htaccess:{}: {}",
                &file.folder[1..],
                left.line,
                left.text
            )
        })
    })
}

/// NAME of the site: from its first domain, or from the folder.
fn site_name(wanted: &Wanted<'_>) -> String {
    if !wanted.is_kept() {
        return "folder".into();
    }
    let folder = wanted.looked.folder.file_name().unwrap_or_default();
    let whole = match wanted.domains.first() {
        Some(domain) => domain.trim_start_matches("www.").to_owned(),
        None => folder.to_string_lossy().to_lowercase(),
    };
    let word: String = whole
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    match word.trim_matches('-') {
        "" | "html" => "site".into(),
        word if word.bytes().all(|byte| byte.is_ascii_digit()) => "site".into(),
        word => word.into(),
    }
}

/// The text as it is written.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn comment(&mut self, text: &str) {
        let _ = writeln!(self.text, "# {}", printable(text).trim_end());
    }

    fn table(&mut self, name: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let _ = writeln!(self.text, "{name}");
    }

    /// A key with its comment: behind it, or above it if the line would be long.
    fn key(&mut self, key: &str, value: &str, comment: &str) {
        let line = format!("{key} = {value}");
        match printable(comment).as_str() {
            "" => {
                let _ = writeln!(self.text, "{line}");
            }
            comment if line.chars().count() + comment.chars().count() <= WIDTH => {
                let _ = writeln!(self.text, "{line:COLUMN$} # {comment}");
            }
            comment => {
                self.comment(comment);
                let _ = writeln!(self.text, "{line}");
            }
        }
    }

    /// A route; the first of its comments is that of its path.
    fn route(&mut self, site: &str, path: &str, why: &str, keys: &[(String, String, String)]) {
        self.table(&format!("[[site.{site}.route]]"));
        let of_key = keys.first().map_or("", |(_, _, comment)| comment.as_str());
        let why = if why.is_empty() { of_key } else { why };
        self.key("path", &quote(path), why);
        for (key, value, comment) in keys {
            self.key(key, value, if comment == why { "" } else { comment });
        }
    }
}

/// A text as a part of a comment, which has no control characters.
fn printable(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(printable).collect()
}

/// How long a line with its comment may be.
const WIDTH: usize = 120;
/// Where comments begin.
const COLUMN: usize = 44;
/// Maximum number of lines of one kind in the comments.
const MOST_LINES: usize = 40;

/// Where a folder's domains are served over TLS by default.
const DEFAULT_LISTEN_HTTPS: &str = "127.0.0.1:8443";
