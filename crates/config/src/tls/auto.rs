//! Sites with `tls = "auto"`: the certificates that weir makes for them, and where requests without TLS are redirected to.

use std::net::IpAddr;

use crate::{
    document::Named,
    entries::Entries,
    model::{
        Acme, Action, Address, AutoCertificate, Certificate, HostPattern, Issuer, Listener, Site,
        Tls,
    },
    scalar::{Checked, wrong},
    sink::Sink,
    template::Template,
};

use super::local::is_local_name;

/// Adds the certificate of a site with `tls = "auto"`, or takes that of another site with the same hosts.
pub(super) fn certificate(
    table: &Named,
    site: &mut Site,
    (tls, certificates): (&Tls, &mut Vec<Certificate>),
    sink: &mut Sink,
) {
    let entries = &table.entries;
    if site.hosts.is_empty() {
        let is_none = !entries.is_written("hosts") || entries.entry("hosts").is_some();
        if tls.acme.ask.is_none() && is_none {
            let message = "`tls = \"auto\"` needs `hosts`: the names that the certificate is for";
            let hint = "add hosts = [\"shop.test\"]; or `ask` in [tls.acme], which says for which other names certificates may be got on demand";
            sink.error(entries.span("tls"), message, hint);
        }
        return;
    }
    let mut names = Vec::with_capacity(site.hosts.len());
    let spans = entries.entry("hosts").map(|entry| entry.parts.clone());
    for (index, host) in site.hosts.iter().enumerate() {
        let span = spans.as_ref().and_then(|spans| spans.get(index).cloned());
        let span = span.unwrap_or_else(|| entries.span("hosts"));
        names.extend(sink.take(span, name(host, &tls.acme)));
    }
    if names.len() < site.hosts.len() {
        return;
    }
    let is_local = |name: &String| !tls.acme.local_names && is_local_name(name);
    let issuer = match names.iter().all(is_local) {
        true => Issuer::Local,
        false => Issuer::Acme,
    };
    if issuer == Issuer::Acme
        && let Some(local) = names.iter().find(|name| is_local(name))
    {
        let message =
            format!("no public authority signs {local:?}, but others of these names need one");
        let hint = "write two sites: one for local names, one for public names";
        sink.error(entries.span("hosts"), message, hint);
        return;
    }
    let has = |fits: fn(&String) -> bool| names.iter().any(fits);
    if issuer == Issuer::Acme
        && tls.acme.challenge.is_none()
        && has(|name| name.starts_with('*'))
        && has(|name| name.parse::<IpAddr>().is_ok())
    {
        let message = "names with a star are proved by DNS, and addresses cannot be";
        let hint = "write two sites: one for names, one for addresses";
        sink.error(entries.span("hosts"), message, hint);
        return;
    }
    let first = names[0].clone();
    if let Some(index) = certificates
        .iter()
        .position(|other| other.auto.is_some() && other.name == first)
    {
        let same = certificates[index].auto.as_ref();
        if same.is_none_or(|same| same.names != names) {
            let message = format!(
                "another site with `tls = \"auto\"` has the host {first:?} too, but other hosts beside it"
            );
            let hint = "give both sites the same `hosts`, or one of them `tls = \"NAME\"`";
            sink.error(entries.span("hosts"), message, hint);
        }
        site.certificate = Some(index);
        return;
    }
    let own = tls.certificates.join(folder_name(&first));
    site.certificate = Some(certificates.len());
    certificates.push(Certificate {
        name: first,
        chain: own.join("chain.pem"),
        key: Some(own.join("key.pem")),
        auto: Some(AutoCertificate { names, issuer }),
    });
}

/// What `[tls.acme]` says of proofs by DNS.
pub(super) fn proofs(entries: &Entries, acme: &Acme, sink: &mut Sink) {
    let challenge = acme.challenge.as_deref();
    let has_command = !acme.dns_command.is_empty();
    if challenge == Some("dns-01") && !has_command {
        let message = "`challenge = \"dns-01\"` needs `dns_command`, which is missing";
        let hint = "write dns_command = [\"/usr/local/bin/txt\"]: it is called with add or remove, a name and a value";
        sink.error(entries.span("challenge"), message, hint);
    }
    if has_command && !matches!(challenge, None | Some("dns-01")) {
        let message = "`dns_command` has no effect with this `challenge`";
        let hint = "write challenge = \"dns-01\", or remove one of them";
        sink.warning(entries.span("dns_command"), message, hint);
    }
}

/// What `[tls.acme]` says of certificates on demand.
pub(super) fn demand(entries: &Entries, (acme, sites): (&Acme, &[Site]), sink: &mut Sink) {
    let Some(ask) = &acme.ask else {
        let others = [
            "ask_timeout",
            "ask_wait",
            "ask_keep",
            "ask_rate",
            "ask_order_rate",
            "ask_max",
        ];
        for key in others {
            if let Some(entry) = entries.entry(key) {
                let message = format!("`{key}` has no effect without `ask`");
                let hint = "add ask = \"http://127.0.0.1:8080/may?domain=\", or remove it";
                sink.warning(entry.key.clone(), message, hint);
            }
        }
        return;
    };
    let rest = ask
        .strip_prefix("http://")
        .or_else(|| ask.strip_prefix("https://"));
    let is_url = rest.is_some_and(|rest| {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'"' | b'<' | b'>');
        !authority.is_empty()
            && !authority.contains(['?', '@'])
            && rest.contains('/')
            && [authority, path].iter().all(|part| part.bytes().all(fits))
    });
    if !is_url {
        let message = format!("{ask:?} is no URL to which a name can be added");
        let hint = "write it as in ask = \"http://127.0.0.1:8080/may?domain=\"";
        sink.error(entries.span("ask"), message, hint);
    }
    for (key, rate) in [
        ("ask_rate", acme.ask_rate),
        ("ask_order_rate", acme.ask_order_rate),
    ] {
        if rate.is_none() {
            let message = format!("`{key}` needs a rate: anybody may ask for names");
            sink.error(entries.span(key), message, "for example \"10/s burst 50\"");
        }
    }
    if !sites.iter().any(Site::is_on_demand) {
        let message = "`ask` has no effect: no site gets certificates on demand";
        let hint = "write tls = \"auto\" in a site without `hosts`";
        sink.warning_of_whole(entries.span("ask"), message, hint);
    }
}

/// The name in a certificate for a host.
fn name(host: &HostPattern, acme: &Acme) -> Checked<String> {
    let name = match host {
        HostPattern::Exact(name) => {
            let inner = name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'));
            inner.unwrap_or(name).to_owned()
        }
        HostPattern::Suffix(suffix) => format!("*{suffix}"),
        HostPattern::Prefix(_) => {
            return wrong(
                format!("no certificate can be for {:?}", host.to_string()),
                "with `tls = \"auto\"`, write the names themselves",
            );
        }
    };
    if is_local_name(&name) && !acme.local_names {
        return Ok(name);
    }
    if !name.contains(['.', ':']) && !acme.local_names {
        return wrong(
            format!("no public authority signs {name:?}, which has no dot"),
            format!(
                "use localhost, or a name such as {name}.internal; or write local_names = true in [tls.acme] if your own authority signs it"
            ),
        );
    }
    let challenge = acme.challenge.as_deref();
    let by_dns = matches!(challenge, Some("dns-01" | "dns-persist-01"));
    if name.parse::<IpAddr>().is_ok() && by_dns {
        return wrong(
            format!("the address {name} cannot be proved by DNS"),
            "write challenge = \"http-01\" or \"tls-alpn-01\" in [tls.acme], or remove it",
        );
    }
    let has_command = challenge.is_none() && !acme.dns_command.is_empty();
    if name.starts_with('*') && !by_dns && !has_command {
        return wrong(
            format!("authorities sign {name:?}, which has a star, only after a proof by DNS"),
            "write dns_command in [tls.acme], or challenge = \"dns-persist-01\"",
        );
    }
    Ok(name)
}

/// What the folder of a certificate is called.
fn folder_name(name: &str) -> String {
    name.replacen('*', "_", 1)
}

/// Where requests without TLS are redirected to.
pub(super) fn redirect(
    table: &Named,
    site: &Site,
    listeners: &[Listener],
    sink: &mut Sink,
) -> Option<Action> {
    let entries = &table.entries;
    let wanted = match entries.is_written("https_redirect") {
        true => entries.bool("https_redirect"),
        false => site.is_auto,
    };
    if !wanted {
        return None;
    }
    let of_site = site.listen.iter().filter_map(|index| listeners.get(*index));
    let ports = of_site.filter(|listener| listener.tls.is_some());
    let ports: Vec<u16> = ports
        .filter_map(|listener| match &listener.address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        })
        .collect();
    let Some(first) = ports.first() else {
        if let Some(entry) = entries.entry("https_redirect") {
            let message = "`https_redirect` needs a listener with `tls = true` on a TCP port";
            let hint =
                "write tls = true in a [listen.NAME] of this site, or a route with `redirect`";
            sink.error(entry.key.clone(), message, hint);
        }
        return None;
    };
    let port = match ports.contains(&443) || *first == 0 {
        true => String::new(),
        false => format!(":{first}"),
    };
    let to = Template::parse(&format!("https://${{host}}{port}${{uri}}"), false).ok()?;
    Some(Action::Redirect { to, status: 308 })
}
