//! Generates the weir.toml for `weir serve FOLDER`.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    field::texts,
    model::Address,
    scalar::{self, Wrong},
    settings::default_hide_files,
    texts::quote,
    tls::is_local_name,
};

/// A folder to serve, and its properties.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The folder, absolute.
    pub root: PathBuf,
    /// Addresses to listen on, as written. Empty: 127.0.0.1:8080.
    pub listen: Vec<String>,
    /// Addresses for TLS, if there are `domains`. Empty: 127.0.0.1:8443.
    pub listen_https: Vec<String>,
    /// Hosts for which weir makes a certificate.
    pub domains: Vec<String>,
    /// The folder of certificates. `None`: the default.
    pub certificates: Option<PathBuf>,
    /// The PHP that runs its scripts. `None`: the folder has no scripts.
    pub php: Option<FolderPhp>,
    /// User of gateway and workers if root starts weir.
    pub user: Option<String>,
    /// Routes in order: a `path`, and whether access to it is denied.
    pub routes: Vec<(String, bool)>,
    /// URL prefixes below which no script runs.
    pub deny_scripts: Vec<String>,
}

/// PHP settings of a [`Folder`].
#[derive(Debug, Clone)]
pub struct FolderPhp {
    /// The program that runs scripts.
    pub runtime: FolderRuntime,
    /// Number of workers. `None`: computed from cores and memory.
    pub workers: Option<usize>,
    /// `/index.php` exists and handles every URL that is not a file.
    pub index: bool,
}

/// The program that runs the scripts of a [`Folder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderRuntime {
    /// weir's own PHP.
    Own,
    /// php-cgi: a path, or a name to find in PATH.
    Cgi(String),
}

impl Folder {
    /// Whether there is a script in `root`: `index.php`, or any `*.php` within a limited depth.
    pub fn has_php(root: &Path) -> bool {
        let mut budget = SEARCH_ENTRIES;
        root.join("index.php").is_file() || finds_php(root, SEARCH_DEPTH, &mut budget)
    }
}

/// Writes the configuration for serving a folder. The text is complete: users can save and change it.
pub fn folder_toml(folder: &Folder) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    if let Some(user) = &folder.user {
        line("[server]");
        line(&format!("user = {}\n", quote(user)));
    }
    listeners(folder, &mut line);
    if folder.domains.is_empty() {
        site("folder", folder, &mut line);
    } else {
        if let Some(certificates) = &folder.certificates {
            let certificates = quote(&certificates.to_string_lossy());
            line(&format!("[tls]\ncertificates = {certificates}\n"));
        }
        site("folder", folder, &mut line);
        // By other names, the folder is served as without domains.
        if !has_public(folder) {
            line("");
            site("other-names", folder, &mut line);
        }
    }
    let Some(php) = &folder.php else {
        return out;
    };
    line("\n[pool.php]");
    match &php.runtime {
        FolderRuntime::Own => {
            line("runtime = \"php\"");
            // The user is probably editing files in this folder: run the saved version at once.
            line("php_define = { opcache.revalidate_freq = 0 }");
        }
        FolderRuntime::Cgi(program) => {
            line("runtime = \"command\"");
            // Do not set cgi.fix_pathinfo=0, with which PHP runs PATH_TRANSLATED and not SCRIPT_FILENAME, and do not
            // set discard_path, which breaks PHP_SELF. The gateway has checked that the script exists, so PHP corrects
            // nothing.
            line(&format!("command = [{}]", quote(program)));
            // A worker of weir is one permanent process: php-cgi must neither fork nor exit by itself.
            line("env = { PHP_FCGI_CHILDREN = \"0\", PHP_FCGI_MAX_REQUESTS = \"0\" }");
        }
    }
    if let Some(workers) = php.workers {
        line("pm = \"static\"");
        line(&format!("max_children = {workers}"));
    }
    if let Some(user) = &folder.user {
        line(&format!("user = {}", quote(user)));
    }
    line("clear_env = false");
    out
}

/// Whether a domain is a public one: authorities and visitors come to ports 80 and 443.
fn has_public(folder: &Folder) -> bool {
    let name = |domain: &String| domain.trim_matches(['[', ']']).to_owned();
    let mut names = folder.domains.iter().map(name);
    names.any(|name| !is_local_name(&name))
}

/// The listeners: `web`, `web2`, …, and with domains `https`, `https2`, ….
fn listeners(folder: &Folder, line: &mut impl FnMut(&str)) {
    // If a domain is an address of this machine in a network, other machines of that network use it.
    let inner = |domain: &String| domain.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    let is_reached = |address: IpAddr| !address.is_loopback();
    let everywhere = folder.domains.iter().filter_map(inner).any(is_reached);
    let defaults = match everywhere {
        _ if has_public(folder) => [":80", ":443"],
        true => [":8080", ":8443"],
        false => [DEFAULT_LISTEN, DEFAULT_LISTEN_HTTPS],
    };
    let kinds = [("web", &folder.listen), ("https", &folder.listen_https)];
    for ((kind, written), default) in kinds.into_iter().zip(defaults) {
        if kind == "https" && folder.domains.is_empty() {
            continue;
        }
        let default = [default.to_owned()];
        let addresses = if written.is_empty() {
            &default[..]
        } else {
            written
        };
        for (index, address) in addresses.iter().enumerate() {
            match index {
                0 => line(&format!("[listen.{kind}]")),
                _ => line(&format!("[listen.{kind}{}]", index + 1)),
            }
            line(&format!("address = {}", quote(address)));
            if kind == "https" {
                line("tls = true");
            }
            line("");
        }
    }
}

/// The site: `folder` for the domains, if there are any; otherwise for all names. The other one is for all other names.
fn site(name: &str, folder: &Folder, line: &mut impl FnMut(&str)) {
    line(&format!("[site.{name}]"));
    if !folder.domains.is_empty() && name == "folder" {
        line(&format!("hosts = {}", texts(&folder.domains)));
        line("tls = \"auto\"");
    } else if !folder.domains.is_empty() {
        let count = folder.listen.len().max(1);
        let names: Vec<String> = (1..=count)
            .map(|number| match number {
                1 => "web".to_owned(),
                _ => format!("web{number}"),
            })
            .collect();
        line(&format!("listen = {}", texts(&names)));
    }
    line(&format!("root = {}", quote(&folder.root.to_string_lossy())));
    let mut hidden = default_hide_files();
    hidden.push(HIDDEN_CONFIGURATION.to_owned());
    line(&format!("hide_files = {}", texts(&hidden)));
    if !folder.deny_scripts.is_empty() {
        line(&format!("deny_scripts = {}", texts(&folder.deny_scripts)));
    }
    if folder.php.is_some() {
        line("pool = \"php\"");
    }
    if folder.php.as_ref().is_some_and(|php| php.index) {
        line("fallback = \"/index.php\"");
    }
    for (path, denied) in &folder.routes {
        line(&format!("\n[[site.{name}.route]]"));
        line(&format!("path = {}", quote(path)));
        if *denied {
            line("deny = true");
        }
    }
}

/// Parses a host of `--domain`.
///
/// # Errors
/// As [`parse_address`].
pub fn parse_host(text: &str) -> Result<(), String> {
    scalar::host_pattern(text)
        .map(drop)
        .map_err(in_one_sentence)
}

/// Parses an address of `--listen`.
///
/// # Errors
/// The problem and what to write instead, in one sentence.
pub fn parse_address(text: &str) -> Result<Address, String> {
    scalar::address(text).map_err(in_one_sentence)
}

/// Parses a duration as in weir.toml: `500ms`, `30s`, `2m`. A bare number means seconds.
///
/// # Errors
/// As [`parse_address`].
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    scalar::duration(text).map_err(in_one_sentence)
}

fn in_one_sentence(Wrong { message, hint }: Wrong) -> String {
    match hint {
        Some(hint) => format!("{message}: {hint}"),
        None => message,
    }
}

fn finds_php(folder: &Path, depth: usize, budget: &mut usize) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    let mut folders = Vec::new();
    for entry in entries.flatten() {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => folders.push(entry.path()),
            Ok(kind) if !kind.is_dir() && name.as_encoded_bytes().ends_with(b".php") => {
                return true;
            }
            _ => {}
        }
    }
    folders
        .iter()
        .any(|folder| finds_php(folder, depth - 1, budget))
}

/// Default address for serving a folder.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// Where a folder's domains are served over TLS by default.
const DEFAULT_LISTEN_HTTPS: &str = "127.0.0.1:8443";

/// A weir.toml in the folder contains paths, users and hosts, and so do backup copies of editors. They are never
/// served.
const HIDDEN_CONFIGURATION: &str = r"^/weir\.toml";

const SEARCH_DEPTH: usize = 4;
const SEARCH_ENTRIES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Pm, Runtime, read};

    fn folder(php: Option<FolderPhp>) -> Folder {
        Folder {
            root: "/srv/it's \"mine\"".into(),
            listen: Vec::new(),
            listen_https: Vec::new(),
            domains: Vec::new(),
            certificates: None,
            php,
            user: None,
            routes: Vec::new(),
            deny_scripts: Vec::new(),
        }
    }

    fn meant(folder: &Folder) -> crate::Config {
        let environment = Environment {
            folder: "/".into(),
            cores: 2,
            memory: 8 << 30,
            open_files: 1 << 16,
        };
        let text = folder_toml(folder);
        let checked = read("folder", &text, &environment).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(checked.warnings.is_empty(), "{}", checked.warnings);
        checked.config
    }

    #[test]
    fn a_folder_without_scripts_is_files_only() {
        let config = meant(&folder(None));
        assert_eq!(config.listeners[0].address.to_string(), DEFAULT_LISTEN);
        assert_eq!(config.sites[0].settings.root, Some(folder(None).root));
        assert_eq!(config.sites[0].settings.fallback, None);
        let hidden = &config.sites[0].settings.hide_files;
        assert!(hidden.starts_with(&default_hide_files()));
        assert_eq!(hidden.last().unwrap(), HIDDEN_CONFIGURATION);
        assert!(config.pools.is_empty());
    }

    #[test]
    fn a_folder_with_domains_is_served_over_https_too() {
        let mut folder = folder(None);
        folder.domains = vec!["localhost".into(), "[::1]".into(), "shop.test".into()];
        folder.certificates = Some("/srv/certificates".into());
        folder.listen = vec![":80".into(), ":81".into()];
        let config = meant(&folder);
        let places = config.listeners.iter();
        let places = places.map(|one| (one.address.to_string(), one.tls.is_some()));
        let web = |port| (format!("0.0.0.0:{port}"), false);
        let https = (DEFAULT_LISTEN_HTTPS.to_owned(), true);
        assert_eq!(places.collect::<Vec<_>>(), [web(80), web(81), https]);
        let [domains, others] = &config.sites[..] else {
            panic!("not two sites");
        };
        assert!(domains.is_auto && domains.https_redirect.is_some());
        assert_eq!((&others.listen[..], others.is_auto), (&[0, 1][..], false));
        assert_eq!(domains.settings.root, others.settings.root);
        let auto = config.certificates[0].auto.as_ref().unwrap();
        assert_eq!(auto.names, ["localhost", "::1", "shop.test"]);
        assert!(
            config.certificates[0]
                .chain
                .starts_with("/srv/certificates")
        );
        folder.domains = vec!["shop.example".into()];
        folder.listen.clear();
        let config = meant(&folder);
        let addresses = config.listeners.iter().map(|one| one.address.to_string());
        assert_eq!(addresses.collect::<Vec<_>>(), ["0.0.0.0:80", "0.0.0.0:443"]);
        assert_eq!(config.sites.len(), 1);
        folder.domains = vec!["192.168.1.7".into()];
        folder.listen.clear();
        let addresses = meant(&folder).listeners;
        assert_eq!(addresses[1].address.to_string(), "0.0.0.0:8443");
    }

    #[test]
    fn a_folder_with_scripts_gets_a_pool() {
        let mut folder = folder(Some(FolderPhp {
            runtime: FolderRuntime::Cgi("/usr/bin/php-cgi".into()),
            workers: Some(3),
            index: true,
        }));
        folder.user = Some("www-data".into());
        folder.listen = vec![":80".into(), "unix:/run/weir.sock".into()];
        let config = meant(&folder);
        assert_eq!(config.listeners.len(), 2);
        assert_eq!(
            config.sites[0].settings.fallback.as_deref(),
            Some("/index.php")
        );
        let Runtime::Command(command) = &config.pools[0].runtime else {
            panic!("no command");
        };
        assert_eq!(command.workers.max_children, 3);
        assert_eq!(command.workers.user, config.server.user);
        assert_eq!(command.argv, ["/usr/bin/php-cgi"]);
    }

    #[test]
    fn what_is_denied_in_a_folder_is_denied_by_routes() {
        let mut folder = folder(None);
        folder.routes = vec![
            ("/data/public/*".into(), false),
            ("/data/*".into(), true),
            (r"~^/[^/]*\.inc$".into(), true),
        ];
        folder.deny_scripts = vec!["/up loads/".into()];
        let site = &meant(&folder).sites[0];
        let denied: Vec<bool> = site
            .routes
            .iter()
            .map(|route| route.action.is_some())
            .collect();
        assert_eq!(denied, [false, true, true]);
        assert_eq!(site.settings.deny_scripts, ["/up loads/"]);
    }

    #[test]
    fn without_an_index_script_other_urls_are_not_found() {
        let config = meant(&folder(Some(FolderPhp {
            runtime: FolderRuntime::Own,
            workers: None,
            index: false,
        })));
        assert_eq!(config.sites[0].settings.fallback, None);
        let php = config.pools[0].php().unwrap();
        assert_eq!(
            php.workers.pm,
            Pm::Auto {
                start: 1,
                rests: false
            }
        );
        assert_eq!(php.define, [("opcache.revalidate_freq".into(), "0".into())]);
    }

    #[test]
    fn durations_of_the_command_line_are_those_of_the_file() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("soon").unwrap_err().contains("\"500ms\""));
    }
}
