//! Values of keys ↔ fields of the model.
//!
//! A field's type says how it takes the [`Value`] of its key and how weir.toml shows it. `fields.rs` lists which field
//! belongs to which key.

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    access_format::AccessFormat,
    model::{
        Address, BasicAuth, Bus, CachePreset, EncodedSlash, ErrorFormat, FairBy, Forwarded,
        ForwardedFields, HashBy, HostPattern, Hsts, Http2, Level, LogFormat, LogTarget,
        OnClientLeft, OriginPattern, Overlap, PathPattern, Peer, PriorityRule, QueueOrder, Rate,
        RequestPart, Reserve, Restart, Secret, SerializeBy, SocketPath, ValuePattern,
    },
    rows::{Kind, Row},
    schedule::Schedule,
    template::Template,
    texts::{quote, show_size},
    value::Value,
};

/// A field that one key fills.
pub(crate) trait Field {
    /// Takes the key's value; `None`: the key is not written and has no default. Tables are added to the present value.
    fn set(&mut self, value: Option<Value>, row: &Row);

    /// The value as in weir.toml; `None`: no value.
    fn show(&self, row: &Row) -> Option<String>;
}

/// Types with a variant of [`Value`] of their own, and how their values are shown.
macro_rules! settings {
    ($($type:ty: $variant:ident, $show:expr;)*) => {$(
        impl Field for $type {
            fn set(&mut self, value: Option<Value>, _: &Row) {
                *self = match value {
                    Some(Value::$variant(value)) => Self::from(value),
                    _ => Default::default(),
                };
            }

            fn show(&self, _: &Row) -> Option<String> {
                let show: fn(&Self) -> Option<String> = $show;
                show(self)
            }
        }
    )*};
}

settings! {
    Duration: Duration, |time| Some(duration(*time));
    String: Text, |text| Some(quote(text));
    Vec<String>: Texts, |list| Some(quoted_list(list));
    Option<Vec<String>>: Texts, |list| list.as_deref().map(quoted_list);
    PathBuf: Path, |file| Some(path(file));
    Vec<PathBuf>: Paths, |folders| Some(shown(folders, |folder| path(folder)));
    Vec<Address>: Addresses, |addresses| Some(quoted(addresses));
    Vec<SocketAddr>: Nameservers, |servers| not_empty(servers, quoted);
    Vec<Peer>: Peers, |peers| not_empty(peers, quoted);
    Option<Hsts>: Hsts, |hsts| hsts.map(|hsts| quote(&hsts.to_string()));
    Option<Bus>: Bus, |bus| bus.as_ref().map(|bus| quote(&bus.to_string()));
    Option<Schedule>: Schedule, |schedule| schedule.as_ref().map(|schedule| quote(schedule.as_str()));
    Option<Rate>: Rate, |rate| rate.map(|rate| quote(&rate.to_string()));
    Option<BasicAuth>: BasicAuth, |auth| auth.as_ref().map(|auth| {
        format!("{{ realm = {}, file = {} }}", quote(&auth.realm), path(&auth.file))
    });
    Option<NonZeroU64>: Bandwidth, |speed| speed.map(|speed| quote(&format!("{}/s", show_size(speed.get()))));
    Vec<IpAddr>: IpAddresses, |addresses| not_empty(addresses, quoted);
    Vec<HostPattern>: Hosts, |hosts| not_empty(hosts, quoted);
    Vec<OriginPattern>: Origins, |origins| not_empty(origins, quoted);
    Vec<PathPattern>: PathPatterns, |patterns| Some(quoted(patterns));
    Vec<(String, String)>: Pairs, |pairs| table(pairs, |value| quote(value));
    Vec<Reserve>: Reserves, |reserves| not_empty(reserves, |all| shown(all, reserve));
    Vec<PriorityRule>: PriorityRules, |rules| not_empty(rules, |all| shown(all, rule));
    FairBy: FairBy, |by| Some(match by {
        FairBy::Off => quote("off"),
        FairBy::Address => quote("address"),
        FairBy::Part(part) => request_part(part),
    });
    SerializeBy: SerializeBy, |by| match by {
        SerializeBy::Pool => None,
        SerializeBy::Off => Some(quote("off")),
        SerializeBy::Part(part) => Some(request_part(part)),
        SerializeBy::Auto => Some(quote("auto")),
    };
    HashBy: HashBy, |by| Some(quote(&by.to_string()));
    SocketPath: SocketPath, |socket| match socket {
        SocketPath::Default => None,
        SocketPath::Off => Some(quote("off")),
        SocketPath::At(path) => Some(quote(&format!("unix:{}", path.display()))),
    };
    LogTarget: LogTarget, |target| Some(log_target(target));
    Option<LogTarget>: LogTarget, |target| target.as_ref().map(log_target);
    LogFormat: LogFormat, |format| Some(match format {
        LogFormat::Combined => quote("combined"),
        LogFormat::Json => quote("json"),
        LogFormat::Template(template) => quote(&template.to_string()),
    });
    AccessFormat: AccessFormat, |format| Some(quote(&format.to_string()));
}

/// Counts, sizes and modes.
macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn set(&mut self, value: Option<Value>, _: &Row) {
                *self = match value {
                    Some(Value::Number(number)) => number as Self,
                    _ => 0,
                };
            }

            fn show(&self, row: &Row) -> Option<String> {
                Some(number(*self as u64, row))
            }
        }
    )*};
}

numbers!(u8 u32 u64 usize);

impl Field for Option<u64> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
    }

    fn show(&self, row: &Row) -> Option<String> {
        self.map(|value| number(value, row))
    }
}

/// A nice value.
impl Field for Option<i32> {
    fn set(&mut self, value: Option<Value>, row: &Row) {
        let mut number = None::<u64>;
        number.set(value, row);
        *self = number.map(|number| number.cast_signed() as i32);
    }

    fn show(&self, _: &Row) -> Option<String> {
        self.map(|number| number.to_string())
    }
}

/// A priority of requests.
impl Field for i16 {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Signed(number)) => number as Self,
            _ => 0,
        };
    }

    fn show(&self, _: &Row) -> Option<String> {
        Some(self.to_string())
    }
}

/// `true` or `false`, or the second and the first of two words.
impl Field for bool {
    fn set(&mut self, value: Option<Value>, row: &Row) {
        *self = match (value, row.kind) {
            (Some(Value::Bool(on)), _) => on,
            (Some(Value::Text(word)), Kind::Word(words, _)) => words.get(1) == Some(&word.as_str()),
            _ => false,
        };
    }

    fn show(&self, row: &Row) -> Option<String> {
        match row.kind {
            Kind::Word(words, _) => words.get(usize::from(*self)).map(|word| quote(word)),
            _ => Some(self.to_string()),
        }
    }
}

/// A switch whose default depends on other things.
impl Field for Option<bool> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Bool(on)) => Some(on),
            _ => None,
        };
    }

    fn show(&self, _: &Row) -> Option<String> {
        self.map(|on| on.to_string())
    }
}

/// An empty text is no value.
impl Field for Option<String> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
    }

    fn show(&self, _: &Row) -> Option<String> {
        self.as_deref().map(quote)
    }
}

impl Field for Option<PathBuf> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Path(path)) => Some(path),
            Some(Value::Text(path)) => Some(path.into()),
            _ => None,
        };
    }

    fn show(&self, _: &Row) -> Option<String> {
        self.as_ref().map(path)
    }
}

impl Field for Option<SocketAddr> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Address(Address::Tcp(address))) => Some(address),
            _ => None,
        };
    }

    fn show(&self, _: &Row) -> Option<String> {
        self.map(|address| quote(&address.to_string()))
    }
}

/// Lists of names with values: new values are added, and replace values of the same name.
macro_rules! named {
    ($($value:ty: $variant:ident, $show:expr;)*) => {$(
        impl Field for Vec<(String, $value)> {
            fn set(&mut self, value: Option<Value>, row: &Row) {
                let Some(Value::$variant(written)) = value else {
                    return;
                };
                let exact = matches!(row.kind, Kind::Params | Kind::Folders);
                for (name, value) in written {
                    let same = |known: &str| match exact {
                        true => known == name,
                        false => known.eq_ignore_ascii_case(&name),
                    };
                    match self.iter_mut().find(|(known, _)| same(known)) {
                        Some(slot) => *slot = (name, value),
                        None => self.push((name, value)),
                    }
                }
            }

            fn show(&self, _: &Row) -> Option<String> {
                table(self, $show)
            }
        }
    )*};
}

named! {
    Template: Templates, |value| quote(&value.to_string());
    Secret: Secrets, |value| quote(&value.to_string());
    PathBuf: Folders, |folder| path(folder);
}

impl Field for BTreeMap<u16, PathBuf> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        if let Some(Value::Pages(pages)) = value {
            self.extend(pages);
        }
    }

    fn show(&self, _: &Row) -> Option<String> {
        inline_table(
            self.iter()
                .map(|(status, file)| format!("{status} = {}", path(file))),
        )
    }
}

impl Field for BTreeMap<String, String> {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        if let Some(Value::Pairs(pairs)) = value {
            self.extend(pairs);
        }
    }

    fn show(&self, _: &Row) -> Option<String> {
        inline_table(
            self.iter()
                .map(|(name, value)| format!("{} = {}", bare(name), quote(value))),
        )
    }
}

/// `true`, `false` or a word.
impl Field for Http2 {
    fn set(&mut self, value: Option<Value>, _: &Row) {
        *self = match value {
            Some(Value::Text(word)) if word == "clear" => Http2::Clear,
            Some(Value::Text(word)) if word == "true" => Http2::Tls,
            _ => Http2::Off,
        };
    }

    fn show(&self, _: &Row) -> Option<String> {
        Some(match self {
            Http2::Off => "false".into(),
            Http2::Tls => "true".into(),
            Http2::Clear => quote("clear"),
        })
    }
}

/// Enums with a word for each variant. A word that is wrong was reported, and becomes the default.
macro_rules! words {
    ($($type:ident { $($word:literal => $variant:ident),* $(,)? })*) => {$(
        impl Field for $type {
            fn set(&mut self, value: Option<Value>, _: &Row) {
                *self = match value {
                    $(Some(Value::Text(word)) if word == $word => Self::$variant,)*
                    _ => Self::default(),
                };
            }

            fn show(&self, _: &Row) -> Option<String> {
                Some(quote(match self {
                    $(Self::$variant => $word,)*
                }))
            }
        }
    )*};
}

words! {
    CachePreset {
        "off" => Off, "headers" => Headers, "wordpress" => WordPress, "drupal" => Drupal, "mediawiki" => MediaWiki, "laravel" => Laravel,
    }
    EncodedSlash { "pass" => Pass, "refuse" => Refuse }
    OnClientLeft { "finish" => Finish, "cancel" => Cancel, "finish_if_answering" => FinishIfAnswering }
    QueueOrder { "adaptive" => Adaptive, "fifo" => Fifo }
    Overlap { "skip" => Skip, "wait" => Wait }
    Restart { "always" => Always, "on-failure" => OnFailure, "never" => Never }
    Level { "error" => Error, "warning" => Warning, "notice" => Notice, "debug" => Debug }
    ErrorFormat { "weir" => Weir, "json" => Json, "fpm" => Fpm }
    ForwardedFields { "any" => Any, "x-forwarded" => XForwarded, "forwarded" => Rfc7239 }
    Forwarded { "off" => Off, "x-forwarded-for" => XForwardedFor, "forwarded" => Rfc7239 }
}

fn number(number: u64, row: &Row) -> String {
    match row.kind {
        Kind::Size { .. } => size(number),
        Kind::Mode => format!("\"{number:04o}\""),
        _ => number.to_string(),
    }
}

fn size(bytes: u64) -> String {
    let text = show_size(bytes);
    match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text,
        false => quote(&text),
    }
}

/// Writes a duration in the largest unit that is exact.
fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let exact = units.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    match exact {
        _ if ms == 0 => quote("0s"),
        Some((unit, name)) => quote(&format!("{}{name}", ms / unit)),
        None => quote(&format!("{ms}ms")),
    }
}

pub(crate) fn path(path: impl AsRef<Path>) -> String {
    quote(&path.as_ref().to_string_lossy())
}

fn log_target(target: &LogTarget) -> String {
    match target {
        LogTarget::Off => quote("off"),
        LogTarget::Stdout => quote("stdout"),
        LogTarget::Stderr => quote("stderr"),
        LogTarget::File(file) => path(file),
        LogTarget::Syslog => quote("syslog"),
    }
}

fn request_part(part: &RequestPart) -> String {
    match part {
        RequestPart::Header(name) => quote(&format!("header:{name}")),
        RequestPart::Cookie(name) => quote(&format!("cookie:{name}")),
    }
}

fn rule(rule: &PriorityRule) -> String {
    let (part, name) = match &rule.part {
        RequestPart::Header(name) => ("header", name),
        RequestPart::Cookie(name) => ("cookie", name),
    };
    let value = match &rule.value {
        ValuePattern::Glob(glob) => glob.clone(),
        ValuePattern::Regex(regex) => format!("~{regex}"),
    };
    let (name, value) = (quote(name), quote(&value));
    format!(
        "{{ {part} = {name}, match = {value}, priority = {} }}",
        rule.priority
    )
}

fn reserve(Reserve { priority, workers }: &Reserve) -> String {
    format!("{{ priority = {priority}, workers = {workers} }}")
}

/// A list whose elements are shown in this way.
pub(crate) fn shown<T>(list: &[T], show: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = list.iter().map(show).collect();
    format!("[{}]", items.join(", "))
}

/// A list of texts.
pub(crate) fn quoted(list: &[impl Display]) -> String {
    shown(list, |item| quote(&item.to_string()))
}

/// Texts as a list of TOML.
pub fn quoted_list(texts: &[String]) -> String {
    quoted(texts)
}

fn not_empty<T>(list: &[T], show: impl Fn(&[T]) -> String) -> Option<String> {
    (!list.is_empty()).then(|| show(list))
}

/// Pairs as an inline table; none if there are no pairs. A name of several pairs has a list.
pub(crate) fn table<T>(pairs: &[(String, T)], show: impl Fn(&T) -> String) -> Option<String> {
    let is_first = |at: usize, name: &str| pairs[..at].iter().all(|(before, _)| before != name);
    let firsts = (pairs.iter().enumerate()).filter(|(at, (name, _))| is_first(*at, name));
    inline_table(firsts.map(|(at, (name, value))| {
        let others = pairs[at + 1..].iter().filter(|(other, _)| other == name);
        let others: Vec<String> = others.map(|(_, other)| show(other)).collect();
        match &others[..] {
            [] => format!("{} = {}", bare(name), show(value)),
            _ => format!("{} = [{}, {}]", bare(name), show(value), others.join(", ")),
        }
    }))
}

fn inline_table(pairs: impl Iterator<Item = String>) -> Option<String> {
    let pairs: Vec<String> = pairs.collect();
    (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
}

/// A key, with quotes only if TOML requires them.
pub(crate) fn bare(key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !key.is_empty() && key.bytes().all(plain) {
        true => key.to_owned(),
        false => quote(key),
    }
}
