//! The reference page of all keys, generated from the rows.

use crate::{
    rows::{self, Default, Kind, Row, Section},
    template::Variable,
    texts::show_size,
};

/// A table of weir.toml and its keys, as the pages describe them.
#[derive(Debug)]
pub struct TableHelp {
    /// `[pool.NAME]`
    pub title: &'static str,
    /// Markdown.
    pub about: &'static str,
    /// Keys that another table has, too, are only there.
    pub keys: Vec<KeyHelp>,
}

/// A key, as the pages describe it. All texts are Markdown.
#[derive(Debug)]
pub struct KeyHelp {
    /// The heading above it; empty: none.
    pub group: &'static str,
    /// The key.
    pub name: &'static str,
    /// The value that it takes.
    pub takes: String,
    /// Its value where it is not written.
    pub default: String,
    /// What it is for.
    pub help: &'static str,
}

/// All tables, in the order of the reference page.
pub fn tables() -> impl Iterator<Item = TableHelp> {
    Section::ALL.into_iter().map(|section| {
        // These are described where they stand first.
        let first = match section {
            Section::Route => Some(Section::Site),
            Section::EgressHost => Some(Section::Egress),
            _ => None,
        };
        let is_here = |row: &&Row| !first.is_some_and(|first| row.sections.contains(&first));
        let keys = rows::of(section).filter(is_here).map(|row| KeyHelp {
            group: row.group,
            name: row.name,
            takes: takes(row),
            default: default(&row.default),
            help: row.help,
        });
        TableHelp {
            title: section.title(),
            about: about(section),
            keys: keys.collect(),
        }
    })
}

/// How values are written, one rule each.
pub fn rules_of_values() -> impl Iterator<Item = &'static str> {
    let (_, list) = INTRODUCTION.split_once("\n- ").unwrap_or_default();
    list.split("\n- ")
}

/// The page as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for table in tables() {
        page.push_str(&format!("\n## `{}`\n\n{}\n\n", table.title, table.about));
        if table.keys[0].group.is_empty() {
            page.push_str(HEAD);
        }
        for (index, key) in table.keys.into_iter().enumerate() {
            if !key.group.is_empty() {
                let space = if index > 0 { "\n" } else { "" };
                page.push_str(&format!("{space}### {}\n\n{HEAD}", key.group));
            }
            page.push_str(&format!(
                "| `{}` | {} | {} | {} |\n",
                key.name,
                key.takes,
                key.default,
                cell(key.help)
            ));
        }
    }
    page.push_str(CALLS);
    page.push_str(VARIABLES);
    for (name, log_only, help) in Variable::all() {
        let when = if log_only { "log" } else { "everywhere" };
        page.push_str(&format!("| `${{{name}}}` | {help} | {when} |\n"));
    }
    page.push_str("| `${http_NAME}` | a request header: NAME in lower case, with underscores for dashes | everywhere |\n");
    let mut not_built = String::new();
    for section in Section::ALL {
        for row in rows::of(section) {
            for value in later(&row.kind) {
                let title = section.title();
                not_built.push_str(&format!("- `{} = {value}` of `{title}`\n", row.name));
            }
        }
    }
    if !not_built.is_empty() {
        page.push_str(LATER);
        page.push_str(&not_built);
    }
    page
}

fn about(section: Section) -> &'static str {
    match section {
        Section::Server => "The gateway and its user, and limits for all sites.",
        Section::Listen => {
            "One table per address. `timeout` and the keys after it are only for `protocol = \"fastcgi\"`. For HTTP, write \
             them in sites and routes."
        }
        Section::Tls => "TLS on all listeners with `tls = true`: [HTTPS](https.md).",
        Section::Acme => {
            "Where weir gets certificates for sites with `tls = \"auto\"`: [HTTPS](https.md#public-names)."
        }
        Section::Certificate => {
            "A certificate that somebody else made. There may be many: each handshake uses one that has the name the client asks for."
        }
        Section::Site => {
            "One table per site. The site without `hosts` is the default site of its listeners. \
             All keys except `hosts` and `listen` can also be written in a route."
        }
        Section::Route => {
            "Rules of a site. The first one that matches the path and the method is used. In addition to these keys, \
             a route takes all keys of its site except `hosts` and `listen`; they replace the site's values for the \
             requests that it matches."
        }
        Section::SiteCache => {
            "Which answers of the site's scripts are stored for other visitors: [Caching](caching.md). It is instead of `cache` of the site. A \
             route has the same table, `[site.NAME.route.cache]`, after its other keys. What each preset says: [Presets](caching.md#presets)."
        }
        Section::Pool => {
            "One table per pool of workers. Some keys are only for some of the three runtimes, which are then in brackets.\n\n\
             Keys that PHP-FPM also has have PHP-FPM's names, without the part before the dot: \
             `pm.max_children` is `max_children`, `pm.status_path` `status_path`, `ping.path` `ping_path`, `access.log` \
             `access_log`, `security.limit_extensions` `limit_extensions`, `process.priority` `process_priority`. \
             `php_admin_value[NAME]` and `env[NAME]` are tables; `listen` and its options are in `[listen.NAME]`. \
             [weir fpm](php-fpm.md) reads a whole php-fpm.conf as it is."
        }
        Section::Queue => "The queue of requests that wait for a worker of the pool.",
        Section::Program => {
            "One table per program that weir runs beside the pools: workers of a queue, schedulers, lines of a crontab: [programs.md](programs.md)."
        }
        Section::Cache => {
            "The store for the answers of all sites with `cache`: [Caching](caching.md)."
        }
        Section::Egress => {
            "Outgoing calls of the application. Without this table, weir accepts none."
        }
        Section::EgressHost => {
            "Settings for some hosts. In addition to `hosts`, these tables take all keys of `[egress]` from `keepalive` on, and \
             replace them for their hosts."
        }
        Section::Log => "The access log and the error log.",
    }
}

/// Values that are known but not supported yet.
fn later(kind: &Kind) -> Vec<String> {
    match kind {
        Kind::Word(_, later) => later.iter().map(|word| format!("\"{word}\"")).collect(),
        _ => Vec::new(),
    }
}

fn takes(row: &Row) -> String {
    let quoted = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
        words.join(", ")
    };
    match &row.kind {
        Kind::Word(words, _) => quoted(words),
        Kind::Http2 => "`true`, `false` or `\"clear\"`".into(),
        Kind::Count { min, max } => match *max {
            u64::MAX => format!("a whole number from {min}"),
            max => format!("a whole number, {min} to {max}"),
        },
        Kind::Size { min, max } => match (*min, *max) {
            (0 | 1, max) if max == i64::MAX as u64 => "a size".into(),
            (min, max) => format!("a size, {} to {}", show_size(min), show_size(max)),
        },
        kind => {
            let (noun, _) = kind.expectation();
            match kind {
                Kind::Bool
                | Kind::Duration { .. }
                | Kind::RedirectStatus
                | Kind::Path
                | Kind::Text
                    if !row.has_example() =>
                {
                    noun.to_owned()
                }
                _ => format!("{noun}: `{}`", cell(&row.example())),
            }
        }
    }
}

fn default(default: &Default) -> String {
    match default {
        Default::Value(value) => format!("`{}`", cell(value)),
        Default::Absent(meaning) => cell(meaning),
        Default::Required => "required".into(),
    }
}

/// Escapes the bar, which would end a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

const HEAD: &str = "| key | value | default | |\n|---|---|---|---|\n";

const INTRODUCTION: &str = "\
# weir.toml

<!-- Written from the table of keys in crates/config/src/rows. To write it again:
     WEIR_REFRESH=1 cargo test -p weir-config --test reference -->

`weir check -c weir.toml` prints everything that is wrong with a configuration, or `ok`. `weir check --print` prints all
values in force, defaults included.

- Durations take `ms`, `s`, `m`, `h`, `d`: `\"500ms\"`, `\"30s\"`; a number without unit is seconds.
- Sizes take `K`, `M`, `G`, in steps of 1024: `\"64K\"`; a number without unit is bytes.
- Addresses are `host:port` (with an IP address, `localhost`, or `*` for all), `[::]:port` or `unix:PATH`.
- Relative paths are relative to the configuration file's folder.
- Regular expressions have the syntax of the Rust crate `regex`. They match anywhere in the text, unless you write `^` and `$`.
  Write them in single quotes, where a backslash has no special meaning.
";

const CALLS: &str = r#"
## Allowed calls

`allow` of `[egress]` is a list. A call is allowed if one of its entries allows it, and refused otherwise. An entry is a text,

```text
[METHOD[,METHOD] ][http://]HOST[:PORT][/PATH]
```

or a table, `{ host = "[http://]HOST[:PORT]", methods = […], path = "/PATH", addresses = […] }`.

| entry | allows |
|---|---|
| `"api.example.com"` | that host by https at port 443: any path, any method except TRACE |
| `"http://legacy.internal:8080"` | that host by http at port 8080 |
| `"*.partner.example:8443"` | every subdomain of `partner.example` at any level, but not `partner.example` itself |
| `"files.example:*"` | that host by https at any port |
| `"GET,HEAD api.example.com/v1/"` | paths below `/v1/`, only with GET and HEAD |
| `"http://127.0.0.1:9200"`, `"http://localhost:9200"`, `"[fd00::7]"` | that address, although it is not public |
| `{ host = "http://stock.internal", addresses = ["10.0.0.0/8"] }` | that host, if its name resolves to an address in that network |

- Write names as in DNS, in upper or lower case, and international names in their ASCII form (`xn--…`). Write addresses in the
  usual way; unusual forms such as `2130706433` and `0x7f.1` are refused here and in calls.
- If a name resolves to an address of this machine, of a private network or of a cloud metadata service, the call is refused,
  unless `addresses` has that address. `addresses` takes networks and single addresses. It is not needed if the host itself is an
  address or `localhost`.
- A path is a prefix that ends at a `/` or at its end: `/v1` allows `/v1` and `/v1/x`, but not `/v10`. If paths are limited, a
  call whose path can be interpreted in several ways (`..`, `%2f`, `//`) is refused.
- CONNECT needs an entry without a path, and without methods or with CONNECT in them, because weir cannot see the requests in
  a tunnel.

`hosts` of `[egress.host.NAME]` takes `[http://]HOST[:PORT]` in the same way. `upgrade` takes the same without a scheme.

```toml
[egress]
allow = [
    "api.example.com",
    "*.partner.example:8443",
    "http://legacy.internal:8080",
    "GET,HEAD catalogue.example/v2/",
    { host = "http://stock.internal", addresses = ["10.0.0.0/8"] },
]

[egress.host.payments]
hosts = ["api.example.com"]
preconnect = 2
timeout = "10s"
set_headers = { Authorization = "Bearer ${file:/etc/weir/payments.token}" }
```
"#;

const VARIABLES: &str = "
## Variables

Templates may contain `${NAME}`; write `$${` for a literal `${`. Those with the word log are only for `format` of `[log]`.

| variable | | where |
|---|---|---|
";

const LATER: &str = "
## Not built yet

These values are known and refused.

";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, read};

    /// The head of a table, and what its keys, among them `row`, need.
    fn table(section: Section, row: Option<&Row>) -> (String, Vec<String>) {
        let word = row.and_then(|row| row.only.first().copied());
        let word = word.filter(|word| *word != "http").unwrap_or_default();
        let lines = match (section, word) {
            (Section::Server, _) => &["trusted = [\"10.0.0.0/8\"]"][..],
            (Section::Listen, "") => &["address = \"0.0.0.0:443\"", "tls = true"],
            (Section::Listen, _) => &["address = \"127.0.0.1:9001\"", "pool = \"shop\""],
            (Section::Certificate, _) => &[
                "chain = \"/etc/weir/shop.pem\"",
                "key = \"/etc/weir/shop.key\"",
            ],
            (Section::Site, _) => &["root = \"/srv/shop\"", "pool = \"shop\""],
            (Section::Route, _) if row.is_some_and(|row| row.name == "rewrite") => {
                &["path = \"~^/(api|v1)/\""]
            }
            (Section::Route, _) => &["path = \"/api/*\""],
            (Section::SiteCache, _) => &[
                "ttl = \"1m\"",
                "grace = \"1h\"",
                "bypass_cookies = [\"session\"]",
            ],
            (Section::Pool, "command") => &["command = [\"/usr/bin/php-cgi\"]"],
            (Section::Pool, "servers") => &["servers = [\"127.0.0.1:9000\"]", "queue.maxconn = 4"],
            (Section::Program, _) => &["command = [\"/bin/true\"]"],
            (Section::Pool, _) => &["status_path = \"/status\""],
            (Section::Egress, _) => &["allow = [\"api.example.com\"]"],
            (Section::EgressHost, _) => &["hosts = [\"api.example.com\"]"],
            _ => &[],
        };
        let word = match (section, word) {
            (Section::Pool, "") => Some("runtime = \"php\"".to_owned()),
            (Section::Pool, word) => Some(format!("runtime = \"{word}\"")),
            (Section::Listen, word) if !word.is_empty() => Some(format!("protocol = \"{word}\"")),
            _ => None,
        };
        let head = match section {
            Section::Listen if word.is_some() => "[listen.other]".to_owned(),
            Section::Listen => "[listen.web]".to_owned(),
            section => section.title().replace("NAME", "shop"),
        };
        (
            head,
            lines
                .iter()
                .map(|line| (*line).to_owned())
                .chain(word)
                .collect(),
        )
    }

    /// Another key of the table without which this one is refused.
    fn companion(key: &str) -> &'static str {
        match key {
            "minconn" => "fullconn = 200",
            "fullconn" => "minconn = 4",
            "client_cert" => "client_key = \"/etc/weir/client.key\"",
            "client_key" => "client_cert = \"/etc/weir/client.pem\"",
            "client_certificate" => "client_ca = \"/etc/weir/clients.pem\"",
            "eab_key_id" => "eab_key_file = \"/etc/weir/eab.key\"",
            "eab_key_file" => "eab_key_id = \"kid-1\"",
            "status" => "redirect = \"https://${host}${uri}\"",
            _ => "",
        }
    }

    /// A configuration with the example of a key: all tables once, that of the key last.
    fn with_example(section: Section, row: &Row) -> String {
        use Section::{Certificate, Egress, Listen, Pool, Server, Site};
        let mut text = String::new();
        let own = table(section, Some(row));
        let others =
            [Server, Listen, Certificate, Site, Pool, Egress].map(|other| table(other, None));
        let others = others.into_iter().filter(|(head, _)| *head != own.0);
        for (head, lines) in others.chain([own.clone()]) {
            text.push_str(&format!("{head}\n"));
            let is_same = |line: &String| line.starts_with(&format!("{} = ", row.name));
            let lines = lines
                .into_iter()
                .filter(|line| head != own.0 || !is_same(line));
            lines.for_each(|line| text.push_str(&format!("{line}\n")));
        }
        text.push_str(&format!(
            "{}\n{} = {}\n",
            companion(row.name),
            row.name,
            row.example()
        ));
        text
    }

    #[test]
    fn the_example_of_each_key_is_right() {
        let mut failed = String::new();
        for section in Section::ALL {
            for row in rows::of(section) {
                let text = with_example(section, row);
                if let Err(wrong) = read("weir.toml", &text, &environment()) {
                    failed.push_str(&format!("{text}\n{wrong}\n"));
                }
            }
        }
        assert!(failed.is_empty(), "{failed}");
    }

    fn environment() -> Environment {
        Environment {
            folder: "/etc/weir".into(),
            cores: 2,
            memory: 1 << 30,
            open_files: 1 << 20,
        }
    }

    #[test]
    fn the_example_of_calls_is_right() {
        let (_, example) = CALLS.split_once("```toml").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let site = "[listen.web]\naddress = \"127.0.0.1:80\"\n[site.a]\nroot = \"/srv\"\n";
        let text = format!("{site}{example}");
        let checked = read("weir.toml", &text, &environment()).unwrap();
        assert!(checked.warnings.is_empty(), "{}", checked.warnings);
        let egress = checked.config.egress.unwrap();
        assert_eq!((egress.allow.len(), egress.hosts.len()), (5, 1));
    }
}
