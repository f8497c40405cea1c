//! The keys of `runtime = "servers"` → [`Servers`].

use crate::{
    entries::Entries,
    model::{
        Adaptive, Address, Balance, Check, HttpServers, Servers, Statuses, Upstream, UpstreamServer,
    },
    sink::Sink,
    value::Value,
};

/// Reads the keys. `queue`: the pool's `queue` table.
pub(crate) fn servers(name: &str, entries: &Entries, queue: &Entries, sink: &mut Sink) -> Servers {
    let list = list(name, entries, sink);
    let http = http(entries, sink);
    let check = check(entries, http.is_some(), sink);
    if let Some(entry) = entries.entry("keep_conn")
        && entries.bool("keep_conn")
        && http.is_none()
        && !queue.is_written("maxconn")
    {
        let message = "`keep_conn` has no effect without `maxconn`: each kept connection holds a PHP-FPM \
                       worker, and the number of workers is not known";
        let hint =
            format!("add [pool.{name}.queue] with maxconn = N, the sum of their pm.max_children");
        sink.warning(entry.key.clone(), message, hint);
    }
    // RFC 6265 §4.1.1.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if let Some(name) = entries.text("sticky")
        && !name.bytes().all(is_token)
    {
        let message = format!("{name:?} is no name of a cookie");
        sink.error(entries.span("sticky"), message, "for example \"SERVER\"");
    }
    if let Some(entry) = entries.entry("fail_timeout")
        && entries.number("max_fails") == 0
    {
        let message = "`fail_timeout` has no effect with `max_fails = 0`";
        sink.warning(entry.key.clone(), message, "");
    }
    let (resolve_min, resolve_max) = (
        entries.duration("resolve_min"),
        entries.duration("resolve_max"),
    );
    if resolve_min > resolve_max {
        let key = match entries.entry("resolve_max") {
            Some(_) => "resolve_max",
            None => "resolve_min",
        };
        let message = "`resolve_max` is less than `resolve_min`";
        sink.error(entries.span(key), message, "");
    }
    let has_names = list
        .iter()
        .any(|server| matches!(server.address, Upstream::Named { .. }));
    for key in ["resolve_min", "resolve_max"] {
        if let Some(entry) = entries.entry(key)
            && !list.is_empty()
            && !has_names
        {
            let message = format!("`{key}` has no effect: all servers are IP addresses or sockets");
            sink.warning(entry.key.clone(), message, "");
        }
    }
    Servers {
        balance: balance(entries, sink),
        adaptive: adaptive(entries, queue, sink),
        check,
        http,
        list,
        ..entries.fields(None)
    }
}

/// What is sent to servers that speak HTTP; `None`: they speak FastCGI.
fn http(entries: &Entries, sink: &mut Sink) -> Option<HttpServers> {
    if entries.text("protocol").as_deref() == Some("http") {
        return Some(HttpServers {
            host: entries.text("host").filter(|host| !host.is_empty()),
            forwarded: entries.get("forwarded"),
        });
    }
    for key in ["host", "forwarded"] {
        if let Some(entry) = entries.entry(key)
            && !entries.is_wrong("protocol")
        {
            let message = format!("`{key}` has no effect: the servers speak FastCGI");
            let hint = "write protocol = \"http\", or remove this key";
            sink.warning(entry.key.clone(), message, hint);
        }
    }
    None
}

fn list(name: &str, entries: &Entries, sink: &mut Sink) -> Vec<UpstreamServer> {
    let servers = match entries.value("servers") {
        Some(Value::Servers(servers)) => servers,
        _ => Vec::new(),
    };
    let hint = "for example servers = [\"unix:/run/php/php-fpm.sock\"]";
    let Some(entry) = entries.entry("servers") else {
        if !entries.is_written("servers") {
            let message = format!("`servers` is missing in [pool.{name}]");
            sink.error_of_whole(entries.header.clone(), message, hint);
        }
        return servers;
    };
    if servers.is_empty() {
        sink.error(
            entry.span.clone(),
            "this list is empty, so there are no workers",
            hint,
        );
        return servers;
    }
    for (index, (server, span)) in servers.iter().zip(&entry.parts).enumerate() {
        let same = |other: &UpstreamServer| other.address == server.address;
        if servers[..index].iter().any(same) {
            sink.error(span.clone(), "this server is in the list twice", "");
        }
        let bad = match &server.address {
            Upstream::At(Address::Tcp(socket)) => {
                socket.port() == 0 || socket.ip().is_unspecified()
            }
            Upstream::At(Address::Unix(_)) => false,
            Upstream::Named { port, .. } => *port == 0,
        };
        if bad {
            let message = "this address is only for listening: weir cannot connect to it";
            sink.error(span.clone(), message, "for example \"127.0.0.1:9000\"");
        }
    }
    if servers.iter().all(|server| server.weight == 0) {
        let message = "no server would get requests: all have `weight = 0`";
        sink.error(entry.span.clone(), message, "");
    } else if servers.iter().all(|server| server.backup) {
        let message = "all servers are backups, so `backup` has no effect";
        sink.warning(
            entry.span.clone(),
            message,
            "remove `backup` from the servers that should be used first",
        );
    }
    servers
}

fn balance(entries: &Entries, sink: &mut Sink) -> Balance {
    let chosen = entries.text("balance");
    for key in ["hash_by", "hash_balance_factor"] {
        if let Some(entry) = entries.entry(key)
            && chosen.as_deref() != Some("hash")
            && (chosen.is_some() && !entries.is_wrong("balance"))
        {
            let message = format!("`{key}` needs `balance = \"hash\"`");
            let hint = "write balance = \"hash\", or remove this key";
            sink.warning(entry.key.clone(), message, hint);
        }
    }
    match chosen.as_deref() {
        Some("roundrobin") => Balance::RoundRobin,
        Some("first") => Balance::First,
        Some("random") => Balance::Random,
        Some("hash") => {
            let factor = entries.number("hash_balance_factor") as u32;
            if (1..100).contains(&factor) {
                let message = "below 100 percent, some requests would have no server";
                let hint = "125 to 200 are usual; 0 means only each server's own limit";
                sink.error(entries.span("hash_balance_factor"), message, hint);
            }
            let by = entries.get("hash_by");
            Balance::Hash { by, factor }
        }
        _ => Balance::LeastConn,
    }
}

fn check(entries: &Entries, is_http: bool, sink: &mut Sink) -> Check {
    let chosen = entries.text("check");
    let all = [
        "check_status",
        "check_path",
        "check_interval",
        "check_timeout",
        "rise",
        "fall",
    ];
    let used = match chosen.as_deref() {
        Some("http") => &all[..],
        Some("fastcgi") => &all[1..],
        Some("tcp") => &all[2..],
        _ => &[],
    };
    let asks = match is_http {
        true => "http",
        false => "fastcgi",
    };
    for key in all.iter().filter(|key| !used.contains(key)) {
        if let Some(entry) = entries.entry(key)
            && !entries.is_wrong("check")
        {
            let (message, hint) = match (chosen.as_deref(), used.is_empty()) {
                _ if *key == "check_status" && !is_http => (
                    format!("`{key}` has no effect: the servers speak FastCGI"),
                    "remove this key: any status from 200 to 399 is good".to_owned(),
                ),
                (Some(chosen), false) => (
                    format!("`{key}` has no effect with `check = \"{chosen}\"`"),
                    format!("write check = \"{asks}\""),
                ),
                _ => (
                    format!("`{key}` has no effect: servers are not checked"),
                    format!("write check = \"{asks}\" or \"tcp\""),
                ),
            };
            sink.warning(entry.key.clone(), message, hint);
        }
    }
    if let Some(chosen @ ("http" | "fastcgi")) = chosen.as_deref()
        && chosen != asks
        && !entries.is_wrong("protocol")
    {
        let message = format!("the servers do not speak {chosen}: `protocol` is \"{asks}\"");
        let hint = format!("write check = \"{asks}\" or \"tcp\"");
        sink.error(entries.span("check"), message, hint);
    }
    let path = |usual: &str| {
        let written = entries.text("check_path").filter(|path| !path.is_empty());
        written.unwrap_or_else(|| usual.to_owned())
    };
    match chosen.as_deref() {
        Some("tcp") => Check::Tcp,
        Some("fastcgi") => Check::FastCgi(path("/ping")),
        Some("http") => Check::Http {
            path: path("/"),
            statuses: statuses(entries, sink),
        },
        _ => Check::Off,
    }
}

/// Numbers and ranges, with commas between them.
fn statuses(entries: &Entries, sink: &mut Sink) -> Statuses {
    let text = entries.text("check_status").unwrap_or_default();
    let status = |text: &str| {
        let number = text.trim().parse().ok();
        number.filter(|status| (100..=999).contains(status))
    };
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some((status(first)?, status(last)?)),
        None => status(part).map(|one| (one, one)),
    };
    let ranges: Option<Vec<(u16, u16)>> = text.split(',').map(range).collect();
    match ranges.filter(|ranges| ranges.iter().all(|(first, last)| first <= last)) {
        Some(ranges) => Statuses(ranges),
        None => {
            let message = format!("{text:?} is no list of statuses");
            let hint = "for example \"200-399\", or \"200, 204\"";
            sink.error(entries.span("check_status"), message, hint);
            Statuses::default()
        }
    }
}

fn adaptive(entries: &Entries, queue: &Entries, sink: &mut Sink) -> Option<Adaptive> {
    let said = queue.is_written("maxconn");
    let (start, max) = (entries.count("limit_start"), entries.count("limit_max"));
    for key in ["limit_start", "limit_max"] {
        if let Some(entry) = entries.entry(key)
            && said
        {
            let message = format!("`{key}` has no effect with `maxconn`");
            let hint = "remove maxconn to let weir find the limit";
            sink.warning(entry.key.clone(), message, hint);
        }
    }
    if start > max {
        let key = match entries.entry("limit_start") {
            Some(_) => "limit_start",
            None => "limit_max",
        };
        let message = format!("`limit_start` ({start}) is more than `limit_max` ({max})");
        sink.error(entries.span(key), message, "");
    }
    (!said).then_some(Adaptive {
        start: start.min(max),
        max,
    })
}
