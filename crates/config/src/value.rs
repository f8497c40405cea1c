//! A value of the text → a [`Value`] of the kind that its row expects.

mod basic_auth;
mod egress;
mod field_values;
mod priority_rules;
mod reserve;
mod servers;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

use core::ops::{Range, RangeInclusive};

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use crate::{
    access_format::AccessFormat,
    cache, clients,
    entries::Key,
    model::{
        Action, Address, AllowRule, BasicAuth, Bus, FairBy, HashBy, HostPattern, Hsts, LogFormat,
        LogTarget, Network, OriginPattern, PathPattern, Peer, PriorityRule, Rate, Reserve, Secret,
        SerializeBy, SocketPath, UpstreamServer,
    },
    origin,
    rows::Kind,
    scalar::{self, Checked, Wrong, wrong},
    schedule::Schedule,
    secret,
    sink::{IntoHint, Sink},
    template::Template,
    texts, tls,
};

/// A checked value. The [`Kind`] of a key determines the variant.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Bool(bool),
    Number(u64),
    Duration(Duration),
    Text(String),
    Texts(Vec<String>),
    Path(PathBuf),
    Paths(Vec<PathBuf>),
    Address(Address),
    Servers(Vec<UpstreamServer>),
    HashBy(HashBy),
    Nameservers(Vec<SocketAddr>),
    SocketPath(SocketPath),
    Hosts(Vec<HostPattern>),
    PathPattern(PathPattern),
    PathPatterns(Vec<PathPattern>),
    Template(Template),
    Templates(Vec<(String, Template)>),
    Pairs(Vec<(String, String)>),
    IpAddresses(Vec<IpAddr>),
    Peers(Vec<Peer>),
    Rate(Option<Rate>),
    Schedule(Schedule),
    Bus(Bus),
    Hsts(Option<Hsts>),
    BasicAuth(Option<BasicAuth>),
    Bandwidth(Option<NonZeroU64>),
    Pages(BTreeMap<u16, PathBuf>),
    Folders(Vec<(String, PathBuf)>),
    Reply(Action),
    Reserves(Vec<Reserve>),
    Signed(i64),
    PriorityRules(Vec<PriorityRule>),
    FairBy(FairBy),
    /// `None`: `"off"`.
    SerializeBy(SerializeBy),
    LogTarget(LogTarget),
    LogFormat(LogFormat),
    AccessFormat(AccessFormat),
    Addresses(Vec<Address>),
    AllowRules(Vec<AllowRule>),
    Origin(OriginPattern),
    Origins(Vec<OriginPattern>),
    Networks(Vec<Network>),
    Secrets(Vec<(String, Secret)>),
}

/// Converts a value of the file, or a row's default, into a [`Value`].
pub(crate) struct Reader<'s> {
    pub(crate) sink: &'s mut Sink,
    /// Relative paths are relative to this folder.
    pub(crate) folder: &'s Path,
    /// Name of the key in diagnostics.
    pub(crate) key: &'s str,
    /// Places of the elements of a list or table. `read` fills it.
    pub(crate) parts: Vec<Range<usize>>,
}

/// How the texts of a list are read; `None`: the kind is no list of texts.
fn element(kind: &Kind) -> Option<fn(&str) -> Checked<String>> {
    Some(match kind {
        Kind::References => texts::line,
        Kind::Methods => texts::method,
        Kind::HeaderNames => texts::header_name,
        Kind::RequestHeaderNames => texts::request_header_name,
        Kind::FileNames => texts::file_name,
        Kind::UrlPrefixes => texts::url_prefix,
        Kind::MediaTypes => texts::media_range,
        Kind::Extensions => texts::extension,
        Kind::Regexes => |text| scalar::regex(text).map(|_| text.to_owned()),
        Kind::Names => cache::name,
        Kind::Assignments => cache::assignment,
        _ => return None,
    })
}

type Node<'i> = Spanned<DeValue<'i>>;

impl Reader<'_> {
    /// Returns a reader for a key of a table that is an element of this value.
    fn of_key<'r>(&'r mut self, key: &'r str) -> Reader<'r> {
        Reader {
            sink: &mut *self.sink,
            folder: self.folder,
            key,
            parts: Vec::new(),
        }
    }

    /// Reads a value. `None`: it is wrong, and that was reported.
    pub(crate) fn read(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Value> {
        let folder = self.folder;
        let path = |text: &str| texts::path(folder, text);
        let address = |text: &str| texts::anchored_address(folder, text);
        let log_target = |text: &str| texts::log_target(folder, text);
        let pattern = cache::path_pattern;
        if let Some(read) = element(kind) {
            return self.texts(kind, node, read);
        }
        match kind {
            Kind::Bool => self.bool(kind, node).map(Value::Bool),
            Kind::Http2 => self.http2(kind, node).map(Value::Text),
            Kind::Count { min, max } => self.count(kind, node, *min, *max).map(Value::Number),
            Kind::RedirectStatus => self.redirect_status(kind, node).map(Value::Number),
            Kind::Duration { zero } => self.duration(kind, node, *zero).map(Value::Duration),
            Kind::Size { min, max } => self.size(kind, node, *min, *max).map(Value::Number),
            Kind::Mode => self.mode(kind, node).map(Value::Number),
            Kind::Priority => self.priority(kind, node).map(Value::Number),
            Kind::Signed { min, max } => self.signed(kind, node, *min, *max).map(Value::Signed),
            Kind::Word(words, later) => self.word(kind, node, words, later).map(Value::Text),
            Kind::Text => self.text(kind, node, texts::line),
            Kind::Reference => self.text(kind, node, |text| Ok(text.to_owned())),
            Kind::Script => self.text(kind, node, texts::script),
            Kind::UrlPath => self.text(kind, node, texts::url_path),
            Kind::Fallback => self.text(kind, node, texts::fallback),
            Kind::Rewrite => self.text(kind, node, texts::rewrite),
            Kind::HeaderValue => self.text(kind, node, texts::header_value),
            Kind::HeaderName => self.text(kind, node, texts::optional_header_name),
            Kind::Charset => self.text(kind, node, texts::charset),
            Kind::Program => self.program(kind, node).map(Value::Texts),
            Kind::Path => self.scalar(kind, node, path).map(Value::Path),
            Kind::Paths => self.list(kind, node, path).map(Value::Paths),
            Kind::Address => self.scalar(kind, node, address).map(Value::Address),
            Kind::Addresses => self.list(kind, node, address).map(Value::Addresses),
            Kind::TcpAddress => (self.scalar(kind, node, texts::tcp_address))
                .map(|address| Value::Address(Address::Tcp(address))),
            Kind::SocketPath => (self.scalar(kind, node, |text| texts::socket_path(folder, text)))
                .map(Value::SocketPath),
            Kind::PathPattern => {
                (self.scalar(kind, node, texts::path_pattern)).map(Value::PathPattern)
            }
            Kind::PathPatterns => self.list(kind, node, pattern).map(Value::PathPatterns),
            Kind::FieldValues => self.field_values(kind, node).map(Value::Pairs),
            Kind::Template => (self.scalar(kind, node, texts::location)).map(Value::Template),
            Kind::LogTarget => self.scalar(kind, node, log_target).map(Value::LogTarget),
            Kind::LogFormat => (self.scalar(kind, node, texts::log_format)).map(Value::LogFormat),
            Kind::AccessFormat => {
                (self.scalar(kind, node, AccessFormat::parse)).map(Value::AccessFormat)
            }
            Kind::SerializeBy => {
                (self.scalar(kind, node, texts::serialize_by)).map(Value::SerializeBy)
            }
            Kind::FairBy => self.scalar(kind, node, texts::fair_by).map(Value::FairBy),
            Kind::HashBy => self.scalar(kind, node, texts::hash_by).map(Value::HashBy),
            Kind::Hosts => (self.list(kind, node, scalar::host_pattern)).map(Value::Hosts),
            Kind::Nameservers => (self.list(kind, node, texts::nameserver)).map(Value::Nameservers),
            Kind::IpAddresses => (self.list(kind, node, texts::ip_address)).map(Value::IpAddresses),
            Kind::Peers => self.list(kind, node, clients::peer).map(Value::Peers),
            Kind::Deny => match node.get_ref() {
                DeValue::Array(_) => self.list(kind, node, clients::peer).map(Value::Peers),
                _ => self.bool(kind, node).map(Value::Bool),
            },
            Kind::Hsts => self.scalar(kind, node, tls::hsts).map(Value::Hsts),
            Kind::Schedule => (self.scalar(kind, node, Schedule::parse)).map(Value::Schedule),
            Kind::Bus => {
                let read = |text: &str| cache::bus(folder, text);
                self.scalar(kind, node, read).map(Value::Bus)
            }
            Kind::Rate => self.scalar(kind, node, clients::rate).map(Value::Rate),
            Kind::BasicAuth => self.basic_auth(kind, node).map(Value::BasicAuth),
            Kind::Bandwidth => (self.scalar(kind, node, clients::bandwidth)).map(Value::Bandwidth),
            Kind::Origin => self.scalar(kind, node, origin::host).map(Value::Origin),
            Kind::Origins => self.list(kind, node, origin::host).map(Value::Origins),
            Kind::HttpOrigins => self.list(kind, node, origin::http_host).map(Value::Origins),
            Kind::Networks => self.list(kind, node, origin::network).map(Value::Networks),
            Kind::Params => self.table(kind, node, texts::param).map(Value::Templates),
            Kind::HeaderTemplates => self.table(kind, node, texts::header).map(Value::Templates),
            Kind::RequestHeaderTemplates => {
                (self.table(kind, node, texts::request_header)).map(Value::Templates)
            }
            Kind::Environment => self.table(kind, node, texts::variable).map(Value::Pairs),
            Kind::Types => self.table(kind, node, texts::media_type).map(Value::Pairs),
            Kind::PhpIni | Kind::PhpFlags => self.php_ini(kind, node).map(Value::Pairs),
            Kind::ErrorPages => (self.table(kind, node, texts::error_page))
                .map(|pages| Value::Pages(pages.into_iter().collect())),
            Kind::Folders => {
                (self.table(kind, node, |k, v| texts::protected(folder, k, v))).map(Value::Folders)
            }
            Kind::SecretHeaders => {
                (self.table(kind, node, |k, v| secret::header(folder, k, v))).map(Value::Secrets)
            }
            Kind::Servers => self.servers(kind, node).map(Value::Servers),
            Kind::Reply => self.reply(kind, node).map(Value::Reply),
            Kind::Reserves => self.reserves(kind, node).map(Value::Reserves),
            Kind::PriorityRules => self.priority_rules(kind, node).map(Value::PriorityRules),
            Kind::AllowRules => self.allow_rules(kind, node).map(Value::AllowRules),
            // Lists of texts. A test reads an example of each kind.
            _ => None,
        }
    }

    fn text(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        read: impl Fn(&str) -> Checked<String>,
    ) -> Option<Value> {
        self.scalar(kind, node, read).map(Value::Text)
    }

    fn texts(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        read: impl Fn(&str) -> Checked<String>,
    ) -> Option<Value> {
        self.list(kind, node, read).map(Value::Texts)
    }

    fn redirect_status(&mut self, kind: &Kind, node: &Node<'_>) -> Option<u64> {
        let status = self.count(kind, node, 0, u64::MAX)?;
        if !REDIRECTS.contains(&status) {
            let message = format!("{status} is not a redirect status");
            let hint = "use one of 301, 302, 303, 307, 308; 308 keeps the method";
            self.error(node, message, hint);
            return None;
        }
        Some(status)
    }

    fn mode(&mut self, kind: &Kind, node: &Node<'_>) -> Option<u64> {
        if let DeValue::Integer(number) = node.get_ref() {
            let (key, number) = (self.key, number.as_str());
            let message = format!("`{key}` takes a file mode in quotes, not a number");
            let hint = format!("write it in quotes, in octal: {key} = \"0{number}\"");
            self.error(node, message, hint);
            return None;
        }
        self.scalar(kind, node, scalar::mode).map(u64::from)
    }

    fn error(&mut self, node: &Node<'_>, message: impl Into<String>, hint: impl IntoHint) {
        self.sink.error(node.span(), message, hint);
    }

    /// Reports a value of the wrong type, with an example.
    fn mismatch(&mut self, kind: &Kind, node: &Node<'_>) {
        let (noun, example) = kind.expectation();
        let message = format!(
            "`{}` takes {noun}, not {}",
            self.key,
            type_of(node.get_ref())
        );
        let meant = match (node.get_ref(), kind) {
            (DeValue::String(text), Kind::Count { .. }) if text.parse::<u64>().is_ok() => {
                Some(text.to_string())
            }
            (DeValue::String(text), Kind::Bool | Kind::Deny) => {
                match text.to_ascii_lowercase().as_str() {
                    "on" | "yes" | "true" | "1" => Some("true".into()),
                    "off" | "no" | "false" | "0" => Some("false".into()),
                    _ => None,
                }
            }
            (DeValue::Integer(number), Kind::Bool | Kind::Deny) => match number.as_str() {
                "0" => Some("false".into()),
                "1" => Some("true".into()),
                _ => None,
            },
            (DeValue::String(text), Kind::Program) => {
                let words: Vec<String> = text.split_whitespace().map(texts::quote).collect();
                Some(format!("[{}]", words.join(", ")))
            }
            (DeValue::String(text), _) if example.starts_with('[') => {
                Some(format!("[{}]", texts::quote(text)))
            }
            (DeValue::Array(list), _) if example.starts_with(['"', '\'']) => {
                match list.first().map(Spanned::get_ref) {
                    Some(DeValue::String(text)) if list.len() == 1 => Some(texts::quote(text)),
                    _ => None,
                }
            }
            _ => None,
        };
        let hint = match meant {
            Some(meant) => format!("write {} = {meant}", self.key),
            None if matches!(kind, Kind::Word(..)) => {
                format!("for example {} = \"{example}\"", self.key)
            }
            None => format!("for example {} = {example}", self.key),
        };
        self.sink.error(node.span(), message, hint);
    }

    fn bool(&mut self, kind: &Kind, node: &Node<'_>) -> Option<bool> {
        let value = node.get_ref().as_bool();
        if value.is_none() {
            self.mismatch(kind, node);
        }
        value
    }

    fn http2(&mut self, kind: &Kind, node: &Node<'_>) -> Option<String> {
        match node.get_ref() {
            DeValue::Boolean(on) => Some(on.to_string()),
            DeValue::String(text) if text.as_ref() == "clear" => Some("clear".into()),
            _ => {
                self.mismatch(kind, node);
                None
            }
        }
    }

    fn count(&mut self, kind: &Kind, node: &Node<'_>, min: u64, max: u64) -> Option<u64> {
        let Some(integer) = node.get_ref().as_integer() else {
            self.mismatch(kind, node);
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        self.within(node, number, min..=max, |n| n.to_string())
    }

    fn size(&mut self, kind: &Kind, node: &Node<'_>, min: u64, max: u64) -> Option<u64> {
        let bytes = match node.get_ref() {
            DeValue::Integer(integer) => {
                u64::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
            DeValue::String(text) => Some(self.sink.take(node.span(), scalar::size(text))?),
            _ => {
                self.mismatch(kind, node);
                return None;
            }
        };
        self.within(node, bytes, min..=max, texts::show_size)
    }

    fn within(
        &mut self,
        node: &Node<'_>,
        number: Option<u64>,
        allowed: RangeInclusive<u64>,
        show: impl Fn(u64) -> String,
    ) -> Option<u64> {
        let (min, max) = (*allowed.start(), *allowed.end());
        if let Some(number) = number.filter(|n| allowed.contains(n)) {
            return Some(number);
        }
        let negative = node
            .get_ref()
            .as_integer()
            .is_some_and(|i| i.as_str().starts_with('-'));
        let message = match number {
            _ if negative => format!("`{}` cannot be negative", self.key),
            Some(n) if n < min => format!("`{}` must be at least {}", self.key, show(min)),
            _ => format!("`{}` must be at most {}", self.key, show(max)),
        };
        self.error(node, message, "");
        None
    }

    fn duration(&mut self, kind: &Kind, node: &Node<'_>, zero: bool) -> Option<Duration> {
        let checked = match node.get_ref() {
            DeValue::String(text) => scalar::duration(text),
            DeValue::Integer(integer) if integer.radix() == 10 => {
                scalar::duration(integer.as_str())
            }
            DeValue::Float(float) => {
                let seconds: f64 = float.as_str().parse().unwrap_or_default();
                let hint = match seconds.is_finite() && (0.001..1e6).contains(&seconds) {
                    true => format!("write {} = \"{}ms\"", self.key, (seconds * 1000.0).round()),
                    false => String::new(),
                };
                wrong(format!("`{}` takes whole numbers", self.key), hint)
            }
            _ => {
                self.mismatch(kind, node);
                return None;
            }
        };
        let duration = self.sink.take(node.span(), checked)?;
        if duration.is_zero() && !zero {
            let message = format!("`{}` cannot be zero", self.key);
            let (_, example) = kind.expectation();
            self.error(
                node,
                message,
                format!("for example {} = {example}", self.key),
            );
            return None;
        }
        Some(duration)
    }

    fn word(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        words: &[&str],
        later: &[&str],
    ) -> Option<String> {
        let Some(text) = node.get_ref().as_str() else {
            self.mismatch(kind, node);
            return None;
        };
        if words.contains(&text) {
            return Some(text.to_owned());
        }
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        if later.contains(&text) {
            let message = format!("`{} = \"{text}\"` is not built yet", self.key);
            self.error(
                node,
                message,
                format!("built so far: {}", quoted.join(", ")),
            );
            return None;
        }
        let message = format!("{text:?} is not a value of `{}`", self.key);
        let hint = match scalar::nearest(text, words.iter().chain(later).copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if words.len() == 1 => format!("write {} = {}", self.key, quoted.join("")),
            None => format!("use one of {}", quoted.join(", ")),
        };
        self.error(node, message, hint);
        None
    }

    fn scalar<T>(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        read: impl FnOnce(&str) -> Checked<T>,
    ) -> Option<T> {
        let Some(text) = node.get_ref().as_str() else {
            self.mismatch(kind, node);
            return None;
        };
        self.sink.take(node.span(), read(text))
    }

    fn list<T>(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        read: impl Fn(&str) -> Checked<T>,
    ) -> Option<Vec<T>> {
        self.elements(kind, node, |reader, element| {
            let Some(text) = element.get_ref().as_str() else {
                let (noun, _) = kind.expectation();
                let found = type_of(element.get_ref());
                let message = format!("`{}` takes {noun}, this is {found}", reader.key);
                reader.error(element, message, "");
                return None;
            };
            reader.sink.take(element.span(), read(text))
        })
    }

    /// A list whose elements `read` reads. It keeps the places of those that are right.
    fn elements<T>(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        read: impl Fn(&mut Self, &Node<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(array) = node.get_ref().as_array() else {
            self.mismatch(kind, node);
            return None;
        };
        let mut list = Vec::with_capacity(array.len());
        for element in array.iter() {
            if let Some(value) = read(self, element) {
                list.push(value);
                self.parts.push(element.span());
            }
        }
        (list.len() == array.len()).then_some(list)
    }

    /// Reports a key that a table in a value, for example "a rule", does not have.
    fn unknown_key<T>(&mut self, key: &Key<'_>, table: &str, known: &[&str]) -> Option<T> {
        let unknown: &str = key.get_ref();
        let hint = scalar::suggestion(unknown, known.iter().copied());
        let message = format!("`{unknown}` is not a key of {table}");
        self.sink.error(key.span(), message, hint);
        None
    }

    fn program(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Vec<String>> {
        let argv = self.list(kind, node, |text| match text.contains('\0') {
            true => wrong("an argument cannot contain NUL", ""),
            false => Ok(text.to_owned()),
        })?;
        match argv.first().map(String::as_str) {
            None | Some("") => {
                let (_, example) = kind.expectation();
                self.error(
                    node,
                    "the list is empty: write a program and its arguments",
                    format!("for example {} = {example}", self.key),
                );
                None
            }
            Some(program) if program.contains('/') => {
                let program = texts::anchored(self.folder, program)
                    .to_string_lossy()
                    .into_owned();
                let arguments = argv.into_iter().skip(1);
                Some(core::iter::once(program).chain(arguments).collect())
            }
            Some(_) => Some(argv),
        }
    }

    fn table<T>(
        &mut self,
        kind: &Kind,
        node: &Node<'_>,
        read: impl Fn(&str, &str) -> Checked<T>,
    ) -> Option<Vec<T>> {
        let Some(table) = node.get_ref().as_table() else {
            self.mismatch(kind, node);
            return None;
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut list = Vec::with_capacity(entries.len());
        for (key, value) in &entries {
            let Some(text) = value.get_ref().as_str() else {
                let message = format!(
                    "`{}` takes a text, not {}",
                    key.get_ref(),
                    type_of(value.get_ref())
                );
                let hint = match value.get_ref() {
                    DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_) => {
                        "write it in quotes"
                    }
                    _ => "",
                };
                self.sink.error(value.span(), message, hint);
                continue;
            };
            match read(key.get_ref(), text) {
                Ok(entry) => {
                    list.push(entry);
                    self.parts.push(key.span());
                }
                Err(Wrong { message, hint }) => {
                    self.sink
                        .error(key.span().start..value.span().end, message, hint)
                }
            }
        }
        (list.len() == entries.len()).then_some(list)
    }

    /// PHP settings: texts, numbers and booleans, all stored as php.ini would write them.
    fn php_ini(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Vec<(String, String)>> {
        let Some(table) = node.get_ref().as_table() else {
            self.mismatch(kind, node);
            return None;
        };
        let mut settings = Vec::new();
        if !self.php_settings("", table, &mut settings) {
            return None;
        }
        settings.sort_by_key(|(_, _, place): &(String, String, Range<usize>)| place.start);
        let mut list = Vec::with_capacity(settings.len());
        for (name, value, place) in settings {
            list.push((name, value));
            self.parts.push(place);
        }
        Some(list)
    }

    /// TOML reads `opcache.enable = true` as a table, so the names of its settings begin with the table's name.
    fn php_settings(
        &mut self,
        prefix: &str,
        table: &DeTable<'_>,
        settings: &mut Vec<(String, String, Range<usize>)>,
    ) -> bool {
        let mut fine = true;
        for (key, value) in table.iter() {
            let name = format!("{prefix}{}", key.get_ref());
            let text = match value.get_ref() {
                DeValue::Table(inner) => {
                    fine &= self.php_settings(&format!("{name}."), inner, settings);
                    continue;
                }
                // These two settings may be given several times. Of all others PHP uses the last value.
                DeValue::Array(list) if name == "extension" || name == "zend_extension" => {
                    let names: Option<Vec<_>> =
                        list.iter().map(|item| item.get_ref().as_str()).collect();
                    let Some(names) = names else {
                        let message = format!("`{name}` takes a text or a list of texts");
                        self.sink.error(value.span(), message, "");
                        fine = false;
                        continue;
                    };
                    for text in names {
                        fine &= self.php_setting((&name, text), (key, value), settings);
                    }
                    continue;
                }
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(true) => "1".into(),
                DeValue::Boolean(false) => "0".into(),
                DeValue::Integer(number) if number.radix() == 10 => number.as_str().into(),
                DeValue::Float(number) => number.as_str().into(),
                other => {
                    let message = format!(
                        "`{name}` takes a text, a number or true or false, not {}",
                        type_of(other)
                    );
                    self.sink.error(value.span(), message, "");
                    fine = false;
                    continue;
                }
            };
            fine &= self.php_setting((&name, &text), (key, value), settings);
        }
        fine
    }

    /// Checks one setting.
    fn php_setting(
        &mut self,
        (name, text): (&str, &str),
        (key, value): (&Spanned<DeString<'_>>, &Node<'_>),
        settings: &mut Vec<(String, String, Range<usize>)>,
    ) -> bool {
        match texts::php_setting(name, text) {
            Ok(()) => settings.push((name.to_owned(), text.to_owned(), key.span())),
            Err(Wrong { message, hint }) => {
                let place = key.span().start..value.span().end;
                self.sink.error(place, message, hint);
                return false;
            }
        }
        true
    }

    fn priority(&mut self, kind: &Kind, node: &Node<'_>) -> Option<u64> {
        let Some(integer) = node.get_ref().as_integer() else {
            self.mismatch(kind, node);
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        match number.filter(|number| (-19..=20).contains(number)) {
            Some(number) => Some(number.cast_unsigned()),
            None => {
                self.error(
                    node,
                    "a nice value must be -19 to 20",
                    "-19 runs first, 20 last",
                );
                None
            }
        }
    }

    fn signed(&mut self, kind: &Kind, node: &Node<'_>, min: i64, max: i64) -> Option<i64> {
        let Some(integer) = node.get_ref().as_integer() else {
            self.mismatch(kind, node);
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            let message = format!("`{}` is a number from {min} to {max}", self.key);
            self.error(node, message, "");
        }
        number
    }

    fn reply(&mut self, kind: &Kind, node: &Node<'_>) -> Option<Action> {
        let Some(table) = node.get_ref().as_table() else {
            self.mismatch(kind, node);
            return None;
        };
        let mut reply = (200, Template::default(), PLAIN.to_owned());
        let mut good = true;
        for (key, value) in table {
            let mut inner = self.of_key(key.get_ref());
            let read = match key.get_ref().as_ref() {
                "status" => inner
                    .count(&Kind::Count { min: 200, max: 599 }, value, 200, 599)
                    .map(|status| reply.0 = status as u16),
                "body" => inner
                    .scalar(&Kind::Text, value, |text| Template::parse(text, false))
                    .map(|body| reply.1 = body),
                "content_type" => inner
                    .scalar(&Kind::HeaderValue, value, texts::header_value)
                    .map(|content_type| reply.2 = content_type),
                _ => inner.unknown_key(key, "a reply", &["status", "body", "content_type"]),
            };
            good &= read.is_some();
        }
        let (status, body, content_type) = reply;
        good.then_some(Action::Reply {
            status,
            body,
            content_type,
        })
    }
}

/// The type of a TOML value, as a noun.
pub(crate) fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";
const REDIRECTS: [u64; 5] = [301, 302, 303, 307, 308];
