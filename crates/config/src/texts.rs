//! Parsers for texts of a certain kind: paths, names, patterns, header values. Like `scalar`, they know no keys and
//! no places; unlike `scalar`, they know the folder of the configuration file if they need it.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Component, Path, PathBuf},
};

use crate::{
    model::{
        Address, FairBy, HashBy, LogFormat, LogTarget, PathPattern, RequestPart, SerializeBy,
        SocketPath, Upstream, ValuePattern,
    },
    scalar::{self, Checked, wrong},
    template::Template,
};

pub(crate) fn line(text: &str) -> Checked<String> {
    match text {
        "" => wrong("this value is empty", "remove the key to get its default"),
        text if !is_plain(text) => wrong("this contains control characters", ""),
        text => Ok(text.to_owned()),
    }
}

/// Whether the text has no control characters.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

pub(crate) fn path(folder: &Path, text: &str) -> Checked<PathBuf> {
    match text {
        "" => wrong("an empty path", "remove the key to get its default"),
        text if text.contains('\0') => wrong("a path cannot contain NUL", ""),
        text => Ok(anchored(folder, text)),
    }
}

/// A path relative to the folder of the configuration file, without `.` components.
pub(crate) fn anchored(folder: &Path, text: &str) -> PathBuf {
    let joined = folder.join(text);
    joined
        .components()
        .filter(|c| *c != Component::CurDir)
        .collect()
}

pub(crate) fn anchored_address(folder: &Path, text: &str) -> Checked<Address> {
    let address = match scalar::address(text)? {
        Address::Unix(path) => Address::Unix(anchored(folder, &path.to_string_lossy())),
        tcp @ Address::Tcp(_) => tcp,
    };
    match &address {
        Address::Unix(path) if path.as_os_str().len() > SOCKET_PATH_MAX => wrong(
            format!("the path of a unix socket can have at most {SOCKET_PATH_MAX} bytes"),
            format!(
                "this one has {}: {}",
                path.as_os_str().len(),
                path.display()
            ),
        ),
        _ => Ok(address),
    }
}

/// Default port of DNS servers.
const DNS_PORT: u16 = 53;

/// A server: an address as for listeners, or a name with a port.
pub(crate) fn upstream(folder: &Path, text: &str) -> Checked<Upstream> {
    if let Some((host, port)) = text.rsplit_once(':')
        && let Ok(port) = port.parse::<u16>()
        && host.parse::<IpAddr>().is_err()
        && !matches!(host, "localhost" | "unix" | "" | "*")
        && !host.starts_with(['[', '/', '.'])
        && !host.contains(['/', ':'])
    {
        return match scalar::is_host_name(host) {
            true => Ok(Upstream::Named {
                host: host.trim_end_matches('.').to_ascii_lowercase(),
                port,
            }),
            false => wrong(
                format!("{host:?} is neither a name nor an IP address"),
                "for example \"php.internal:9000\" or \"10.0.0.5:9000\"",
            ),
        };
    }
    anchored_address(folder, text).map(Upstream::At)
}

/// The key of a hash.
pub(crate) fn hash_by(text: &str) -> Checked<HashBy> {
    let named = |name: &str, what: &str| match scalar::is_token(name) {
        true => Ok(name.to_owned()),
        false => wrong(
            format!("{name:?} is not a {what} name"),
            format!("for example \"{what}:NAME\""),
        ),
    };
    match text.split_once(':') {
        None if text == "source" => Ok(HashBy::Source),
        None if text == "uri" => Ok(HashBy::Uri),
        Some(("header", name)) => Ok(HashBy::Header(named(name, "header")?.to_ascii_lowercase())),
        Some(("cookie", name)) => Ok(HashBy::Cookie(named(name, "cookie")?)),
        _ => wrong(
            format!("{text:?} is not a value of `hash_by`"),
            "use one of \"source\", \"uri\", \"header:NAME\", \"cookie:NAME\"",
        ),
    }
}

/// A DNS server.
pub(crate) fn nameserver(text: &str) -> Checked<SocketAddr> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 || address.ip().is_unspecified() => wrong(
            format!("{text:?} is not an address of a DNS server"),
            "for example \"10.0.0.2\"",
        ),
        Ok(address) => Ok(address),
        Err(_) => Ok(SocketAddr::new(ip_address(text)?, DNS_PORT)),
    }
}

pub(crate) fn script(text: &str) -> Checked<String> {
    let regex = scalar::regex(text)?;
    match regex.captures_len() - 1 {
        1 | 2 => Ok(text.to_owned()),
        0 => wrong(
            "`script` has no group, which is needed for the script name",
            r"put the script name in parentheses: '^(/.+\.php)(/.*)?$'",
        ),
        n => wrong(
            format!("`script` has {n} groups"),
            "the 1st group is the script name, the 2nd the path-info; write other groups as (?:…)",
        ),
    }
}

pub(crate) fn path_pattern(text: &str) -> Checked<PathPattern> {
    if let Some(pattern) = text.strip_prefix('~') {
        // A space after the tilde is nginx's syntax.
        if pattern.starts_with([' ', '*']) {
            return wrong(
                format!("{text:?} begins with `~` and {:?}", &pattern[..1]),
                "write the expression directly after the `~`; (?i) ignores case: \"~(?i)\\\\.(jpg|png)$\"",
            );
        }
        scalar::regex(pattern)?;
        return Ok(PathPattern::Regex(pattern.to_owned()));
    }
    if text.starts_with(['/', '*']) {
        return Ok(PathPattern::Glob(text.to_owned()));
    }
    let hint = match text.starts_with('^') {
        true => format!(
            "a regular expression must begin with `~`: {}",
            quote(&format!("~{text}"))
        ),
        false => format!(
            "a path must begin with a slash: {}",
            quote(&format!("/{text}"))
        ),
    };
    wrong(format!("{text:?} can never match a path"), hint)
}

/// Target for a URL that is not a file: a path, which may have a query and groups of a route's expression.
pub(crate) fn fallback(text: &str) -> Checked<String> {
    match ["$args", "$query_string", "$is_args", "$uri"]
        .iter()
        .find(|variable| text.contains(**variable))
    {
        Some(_) => wrong(
            "a fallback cannot have variables",
            "write only the path: the file and the folder are always tried first, and the request's query is kept",
        ),
        None if text.is_empty() => Ok(String::new()),
        None => rewrite(text),
    }
}

/// A path with a query and groups.
pub(crate) fn rewrite(text: &str) -> Checked<String> {
    let path = text.split('?').next().unwrap_or_default();
    if text.contains("://") {
        return wrong(
            format!("{text:?} is a URL, not a path of the site"),
            "for another host, write redirect = \"https://…\"",
        );
    }
    if path.is_empty() {
        return wrong("this is not a path", "for example \"/index.php?q=$1\"");
    }
    if text.contains(['#', ' ']) || !text.is_ascii() {
        return wrong(
            format!("{text:?} has a `#`, a space or a character that is not ASCII"),
            "write them encoded: %23, %20",
        );
    }
    url_path(path)?;
    if text.chars().any(char::is_control) {
        return wrong("a path cannot contain control characters", "");
    }
    Ok(text.to_owned())
}

/// The groups in a rewrite: numbers and names.
pub(crate) fn groups(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    core::iter::from_fn(move || {
        loop {
            let dollar = rest.find('$')?;
            let after = &rest[dollar + 1..];
            let end = match after.as_bytes().first() {
                Some(b'0'..=b'9') => 1,
                Some(b'{') => match after.find('}') {
                    Some(end) => end + 1,
                    None => 0,
                },
                Some(b'$') => {
                    rest = &after[1..];
                    continue;
                }
                _ => 0,
            };
            rest = &after[end..];
            if end > 0 {
                return Some(after[..end].trim_matches(['{', '}']));
            }
        }
    })
}

pub(crate) fn url_path(text: &str) -> Checked<String> {
    if text.contains("$uri") || text.contains(' ') {
        return wrong(
            "this is one path",
            "the file and the folder are always tried first: \"/index.php\" is enough",
        );
    }
    match text {
        "" => Ok(String::new()),
        text if text.contains(['?', '#']) => wrong(
            format!("{text:?} has a query"),
            "write only the path; the request's query is kept",
        ),
        text if text.chars().any(char::is_control) => {
            wrong("a path cannot contain control characters", "")
        }
        text if text.split('/').any(|part| part == "..") => {
            wrong(format!("{text:?} has `..` parts"), "")
        }
        text if text.starts_with('/') => Ok(text.to_owned()),
        text => wrong(
            format!("{text:?} is not a path of the site"),
            format!("it must begin with a slash: {}", quote(&format!("/{text}"))),
        ),
    }
}

pub(crate) fn url_prefix(text: &str) -> Checked<String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => wrong(
            format!("{text:?} is not a path prefix"),
            format!("it must begin with a slash: {}", quote(&format!("/{text}"))),
        ),
    }
}

pub(crate) fn location(text: &str) -> Checked<Template> {
    match text {
        "" => wrong(
            "a redirect needs a location",
            "for example \"https://${host}${uri}\"",
        ),
        text if !is_header_template(text) => wrong(
            "a location must be one line, without spaces at its ends",
            "",
        ),
        text => Template::parse(text, false),
    }
}

pub(crate) fn header_value(text: &str) -> Checked<String> {
    match scalar::is_header_value(text) {
        true => Ok(text.to_owned()),
        false => wrong(
            "a header value must be one line, without spaces at its ends",
            "",
        ),
    }
}

pub(crate) fn is_header_template(text: &str) -> bool {
    scalar::is_header_value(text)
}

pub(crate) fn charset(text: &str) -> Checked<String> {
    match text.is_empty() || scalar::is_token(text) {
        true => Ok(text.to_owned()),
        false => wrong(
            format!("{text:?} is not a charset"),
            "for example \"utf-8\"",
        ),
    }
}

pub(crate) fn method(text: &str) -> Checked<String> {
    if !scalar::is_token(text) {
        return wrong(format!("{text:?} is not a method"), "for example \"GET\"");
    }
    match text.bytes().any(|b| b.is_ascii_lowercase()) {
        true => wrong(
            format!("{text:?} is not a method: methods are case-sensitive"),
            format!("write \"{}\"", text.to_ascii_uppercase()),
        ),
        false => Ok(text.to_owned()),
    }
}

pub(crate) fn header_name(text: &str) -> Checked<String> {
    match scalar::is_token(text) {
        true => Ok(text.to_owned()),
        false => wrong(
            format!("{text:?} is not a header name"),
            "for example \"X-Powered-By\"",
        ),
    }
}

pub(crate) fn optional_header_name(text: &str) -> Checked<String> {
    match text {
        "" => Ok(String::new()),
        text => header_name(text).map(|name| name.to_ascii_lowercase()),
    }
}

pub(crate) fn header_part(text: &str) -> Checked<RequestPart> {
    header_name(text).map(|name| RequestPart::Header(name.to_ascii_lowercase()))
}

pub(crate) fn cookie_part(text: &str) -> Checked<RequestPart> {
    match scalar::is_token(text) {
        true => Ok(RequestPart::Cookie(text.to_owned())),
        false => wrong(
            format!("{text:?} is not a cookie name"),
            "for example \"session\"",
        ),
    }
}

pub(crate) fn value_pattern(text: &str) -> Checked<ValuePattern> {
    match text.strip_prefix('~') {
        // A space after the tilde is nginx's syntax.
        Some(pattern) if pattern.starts_with([' ', '*']) => wrong(
            format!("{text:?} begins with `~` and {:?}", &pattern[..1]),
            "write the expression directly after the `~`; (?i) ignores case: \"~(?i)bot\"",
        ),
        Some(pattern) => {
            scalar::regex(pattern)?;
            Ok(ValuePattern::Regex(pattern.to_owned()))
        }
        None => Ok(ValuePattern::Glob(text.to_owned())),
    }
}

pub(crate) fn fair_by(text: &str) -> Checked<FairBy> {
    match (text, text.split_once(':')) {
        ("off", _) => Ok(FairBy::Off),
        ("address", _) => Ok(FairBy::Address),
        (_, Some(("header", name))) => header_part(name).map(FairBy::Part),
        (_, Some(("cookie", name))) => cookie_part(name).map(FairBy::Part),
        _ => wrong(
            format!("{text:?} is not a value of `fair_by`"),
            "use one of \"address\", \"header:NAME\", \"cookie:NAME\", \"off\"",
        ),
    }
}

pub(crate) fn serialize_by(text: &str) -> Checked<SerializeBy> {
    match (text, text.split_once(':')) {
        ("off", _) => Ok(SerializeBy::Off),
        ("auto", _) => Ok(SerializeBy::Auto),
        (_, Some(("header", name))) => header_part(name).map(SerializeBy::Part),
        (_, Some(("cookie", name))) => cookie_part(name).map(SerializeBy::Part),
        _ => wrong(
            format!("{text:?} is not a value of `serialize_by`"),
            "use one of \"auto\", \"cookie:NAME\", \"header:NAME\", \"off\"",
        ),
    }
}

pub(crate) fn request_header_name(text: &str) -> Checked<String> {
    if text.eq_ignore_ascii_case("proxy") {
        return wrong(
            "Proxy is never passed: programs would use it as their outgoing proxy",
            "leave it out",
        );
    }
    if text.contains('_') && scalar::is_token(text) {
        return wrong(
            format!(
                "{text} is never passed: a worker cannot distinguish it from the same name with dashes"
            ),
            format!("write \"{}\"", text.replace('_', "-")),
        );
    }
    if scalar::is_token(text) && !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return wrong(
            format!("{text} is never passed: PHP would read it as another name"),
            "a name can only have letters, digits and dashes",
        );
    }
    header_name(text)
}

pub(crate) fn request_header(name: &str, value: &str) -> Checked<(String, Template)> {
    request_header_name(name)?;
    header(name, value)
}

pub(crate) fn file_name(text: &str) -> Checked<String> {
    let good = !text.is_empty()
        && !text.starts_with('/')
        && !text.contains('\0')
        && !text.split('/').any(|part| matches!(part, "" | "." | ".."));
    match good {
        true => Ok(text.to_owned()),
        false => wrong(
            format!("{text:?} is not a file name"),
            "for example \"index.html\"",
        ),
    }
}

pub(crate) fn extension(text: &str) -> Checked<String> {
    match text {
        text if text.len() > 1 && text.starts_with('.') && !text.contains(['/', '*', '\0']) => {
            Ok(text.to_owned())
        }
        text => wrong(
            format!("{text:?} is not an extension"),
            format!(
                "write it with its dot: \".{}\"",
                text.trim_start_matches(['*', '.'])
            ),
        ),
    }
}

pub(crate) fn log_target(folder: &Path, text: &str) -> Checked<LogTarget> {
    match text {
        "off" | "none" => Ok(LogTarget::Off),
        "stdout" => Ok(LogTarget::Stdout),
        "stderr" => Ok(LogTarget::Stderr),
        text if !text.contains(['/', '.']) && scalar::nearest(text, LOG_WORDS).is_some() => wrong(
            format!("{text:?} is not a log target"),
            scalar::suggestion(text, LOG_WORDS).unwrap_or_default(),
        ),
        "syslog" => Ok(LogTarget::Syslog),
        text => path(folder, text).map(LogTarget::File),
    }
}

pub(crate) fn log_format(text: &str) -> Checked<LogFormat> {
    match text {
        "combined" => Ok(LogFormat::Combined),
        "json" => Ok(LogFormat::Json),
        text if text.contains(['\n', '\r']) => wrong("a log format must be one line", ""),
        text if text.contains("${") => Template::parse(text, true).map(LogFormat::Template),
        text => {
            let hint = match scalar::nearest(text, ["combined", "json"]) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "\"combined\", \"json\" or a template such as \"${remote_addr} ${status} ${uri}\"".into(),
            };
            wrong(format!("{text:?} is not a log format"), hint)
        }
    }
}

pub(crate) fn param(name: &str, value: &str) -> Checked<(String, Template)> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return wrong(
            format!("{name:?} is not a parameter name"),
            "for example APP_ENV",
        );
    }
    if name == "HTTP_PROXY" {
        return wrong(
            "HTTP_PROXY is never given to workers: programs would use it as their outgoing proxy",
            "use another name",
        );
    }
    Ok((name.to_owned(), Template::parse(value, false)?))
}

pub(crate) fn header(name: &str, value: &str) -> Checked<(String, Template)> {
    let name = header_name(name)?;
    if !is_header_template(value) {
        return wrong(
            format!("the value of {name} must be one line, without spaces at its ends"),
            "",
        );
    }
    const OURS: [&str; 4] = [
        "connection",
        "content-length",
        "transfer-encoding",
        "upgrade",
    ];
    if OURS.contains(&name.to_ascii_lowercase().as_str()) {
        return wrong(
            format!("{name} belongs to the connection and cannot be set"),
            "",
        );
    }
    Ok((name, Template::parse(value, false)?))
}

pub(crate) fn variable(name: &str, value: &str) -> Checked<(String, String)> {
    match name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        true => wrong(
            format!("{name:?} is not a valid name of an environment variable"),
            "",
        ),
        false => Ok((name.to_owned(), value.to_owned())),
    }
}

/// The path of one of weir's own sockets. It must be a unix socket, because only those have permissions.
pub(crate) fn socket_path(folder: &Path, text: &str) -> Checked<SocketPath> {
    if text == "off" {
        return Ok(SocketPath::Off);
    }
    match anchored_address(folder, text)? {
        Address::Unix(path) => Ok(SocketPath::At(path)),
        Address::Tcp(_) => wrong(
            "this must be a unix socket, or \"off\"",
            "write \"unix:PATH\". TCP addresses belong in `admin_tcp` of [server] or `listen` of [egress]",
        ),
    }
}

/// The TCP address of the admin API.
pub(crate) fn tcp_address(text: &str) -> Checked<SocketAddr> {
    match scalar::address(text)? {
        Address::Tcp(address) => Ok(address),
        Address::Unix(_) => wrong("this is for TCP", "write a unix socket in `admin`"),
    }
}

/// Checks that the name and value can be written on a line of php.ini.
pub(crate) fn php_setting(name: &str, value: &str) -> Checked<()> {
    let of_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(of_a_name) {
        return wrong(
            format!("{name:?} is not a valid name of a PHP setting"),
            "for example memory_limit",
        );
    }
    match value.contains(['\0', '\n', '\r']) {
        true => wrong("a PHP setting must be one line, without NUL", ""),
        false => Ok(()),
    }
}

pub(crate) fn ip_address(text: &str) -> Checked<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    match bare.unwrap_or(text).parse() {
        Ok(address) => Ok(address),
        Err(_) => wrong(
            format!("{text:?} is not an IP address"),
            "for example \"127.0.0.1\" or \"::1\"",
        ),
    }
}

pub(crate) fn media_type(extension: &str, media_type: &str) -> Checked<(String, String)> {
    if extension.contains(['.', '/']) || extension.is_empty() {
        let bare = extension.trim_start_matches(['*', '.']);
        return wrong(
            format!("{extension:?} is not an extension"),
            format!("write it without the dot: {bare} = \"{media_type}\""),
        );
    }
    let essence = media_type.split(';').next().unwrap_or_default();
    let parts: Vec<&str> = essence.trim_end().split('/').collect();
    let good = parts.len() == 2
        && parts.iter().all(|p| scalar::is_token(p))
        && scalar::is_header_value(media_type);
    match good {
        true => Ok((extension.to_ascii_lowercase(), media_type.to_owned())),
        false => wrong(
            format!("{media_type:?} is not a media type"),
            "for example \"application/wasm\"",
        ),
    }
}

/// A media type, `text/*`, `*+json` or `*`.
pub(crate) fn media_range(text: &str) -> Checked<String> {
    let is_type = |text: &str| match text.split_once('/') {
        Some((kind, subtype)) => scalar::is_token(kind) && !kind.contains('*') && is_part(subtype),
        None => false,
    };
    fn is_part(subtype: &str) -> bool {
        subtype == "*" || (scalar::is_token(subtype) && !subtype.contains('*'))
    }
    let is_suffix = |suffix: &str| scalar::is_token(suffix) && !suffix.contains('*');
    let good = text == "*" || text.strip_prefix("*+").is_some_and(is_suffix) || is_type(text);
    match good {
        true => Ok(text.to_ascii_lowercase()),
        false => wrong(
            format!("{text:?} is not a media type"),
            "for example \"application/json\", \"text/*\" or \"*+json\", without parameters",
        ),
    }
}

pub(crate) fn error_page(status: &str, file: &str) -> Checked<(u16, PathBuf)> {
    let number = status
        .parse::<u16>()
        .ok()
        .filter(|s| (400..=599).contains(s));
    match (number, file) {
        (None, _) => wrong(
            format!("{status:?} is not an error status"),
            "write a status from 400 to 599, for example 503 = \"errors/503.html\"",
        ),
        (_, file) if file.is_empty() || file.contains('\0') => wrong("an empty path", ""),
        (Some(number), file) => Ok((number, file.into())),
    }
}

pub(crate) fn protected(folder: &Path, prefix: &str, target: &str) -> Checked<(String, PathBuf)> {
    if !prefix.starts_with('/') || !prefix.ends_with('/') {
        let inner = prefix.trim_matches('/');
        return wrong(
            format!("{prefix:?} is not a URL prefix"),
            format!("it must begin and end with a slash: \"/{inner}/\""),
        );
    }
    Ok((prefix.to_owned(), path(folder, target)?))
}

/// Writes a text as TOML: a literal string if that is easier to read, else a basic one.
pub fn quote(text: &str) -> String {
    let plain = !text.contains('\'') && !text.chars().any(|c| c.is_control());
    if plain && (text.contains('\\') || text.contains('"')) {
        return format!("'{text}'");
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Writes bytes in the largest unit that is exact: `64K`, or the bare number.
pub(crate) fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

const LOG_WORDS: [&str; 3] = ["stdout", "stderr", "off"];
/// Size of `sun_path` in sockaddr_un without its NUL (unix(7)).
pub(crate) const SOCKET_PATH_MAX: usize = 107;
