//! `[tls]` and `[certificate.NAME]`: which listener and site uses which certificate.

mod auto;
mod local;

use std::time::Duration;

use crate::{
    document::{Document, Named},
    entries::Entries,
    model::{
        Address, Certificate, ClientAuth, Hsts, Http2, Listener, ListenerTls, Protocol, Site, Tls,
    },
    scalar::{self, Checked, wrong},
    sink::Sink,
};

pub use self::local::{LOCAL_DOMAINS, LOCAL_NETWORKS, is_local_name, is_public_name};

/// The certificates. Also fills in what listeners and sites say of TLS.
pub(crate) fn certificates(
    document: &Document,
    listeners: &mut [Listener],
    sites: &mut [Site],
    sink: &mut Sink,
) -> Vec<Certificate> {
    let names: Vec<&str> = (document.certificates.iter())
        .map(|table| table.name.as_str())
        .collect();
    let has_auto = (document.sites.iter()).any(|tables| is_auto(&tables.site.entries, &names));
    for (Named { name, entries }, listener) in document.listeners.iter().zip(&mut *listeners) {
        listener.tls = of_listener(name, entries, (&names, has_auto), sink);
        if listener.protocol != Protocol::Http {
            listener.tls = None;
            (listener.http2, listener.http3) = (Http2::Off, false);
            continue;
        }
        listener.http2 = http2(listener, entries, sink);
        listener.http3 = listener.http3 && http3(listener, entries, sink);
    }
    let certificate = |Named { name, entries }: &Named| Certificate {
        name: name.clone(),
        ..entries.fields(None)
    };
    let mut certificates: Vec<Certificate> =
        document.certificates.iter().map(certificate).collect();
    let tls = Tls {
        acme: document.acme.fields(None),
        ..document.tls.fields(None)
    };
    for (tables, site) in document.sites.iter().zip(&mut *sites) {
        of_site(&tables.site.entries, site, listeners, &names, sink);
        let mut listens = site.listen.iter().filter_map(|index| listeners.get(*index));
        if site.is_auto && listens.any(|listener| listener.tls.is_some()) {
            let made = (&tls, &mut certificates);
            auto::certificate(&tables.site, site, made, sink);
        }
        site.https_redirect = auto::redirect(&tables.site, site, listeners, sink);
    }
    auto::proofs(&document.acme, &tls.acme, sink);
    auto::demand(&document.acme, (&tls.acme, &*sites), sink);
    for (key, other) in [
        ("eab_key_id", "eab_key_file"),
        ("eab_key_file", "eab_key_id"),
    ] {
        if document.acme.is_written(key) && !document.acme.is_written(other) {
            let message = format!("`{key}` needs `{other}`, which is missing");
            let hint = "the authority has given you both";
            sink.error(document.acme.span(key), message, hint);
        }
    }
    let has_tls = listeners.iter().any(|listener| listener.tls.is_some());
    if !has_tls && let Some(first) = document.certificates.first() {
        let message = "no listener uses certificates";
        let hint =
            "write tls = true in a [listen.NAME], for example with address = \"0.0.0.0:443\"";
        sink.warning_of_whole(first.entries.header.clone(), message, hint);
    }
    certificates
}

/// Whether weir makes the certificates of a site. A certificate may have the NAME `auto`.
fn is_auto(entries: &Entries, certificates: &[&str]) -> bool {
    entries.text("tls").as_deref() == Some("auto") && !certificates.contains(&"auto")
}

/// The value of `hsts`: `1y include_subdomains preload`.
pub(crate) fn hsts(text: &str) -> Checked<Option<Hsts>> {
    let mut words = text.split_ascii_whitespace();
    let Some(time) = words.next() else {
        return Ok(None);
    };
    let years = time.strip_suffix('y').and_then(|years| years.parse().ok());
    let max_age = match years {
        Some(years @ 0..=10) => Duration::from_secs(365 * 86_400 * years),
        _ => Duration::from_secs(scalar::duration(time)?.as_secs()),
    };
    let mut hsts = Hsts {
        max_age,
        include_subdomains: false,
        preload: false,
    };
    for word in words {
        match word {
            "include_subdomains" => hsts.include_subdomains = true,
            "preload" => hsts.preload = true,
            _ => {
                return wrong(
                    format!("{word:?} is no word of `hsts`"),
                    "after the time only `include_subdomains` and `preload` may follow: \"2y include_subdomains preload\"",
                );
            }
        }
    }
    Ok(Some(hsts))
}

fn of_listener(
    name: &str,
    entries: &Entries,
    (certificates, has_auto): (&[&str], bool),
    sink: &mut Sink,
) -> Option<ListenerTls> {
    let has_tls = entries.bool("tls");
    let default_certificate = reference(entries, "default_certificate", certificates, sink);
    if !has_tls {
        if let Some(entry) = entries.entry("default_certificate") {
            let message = "`default_certificate` needs `tls = true`";
            sink.error(entry.key.clone(), message, "write tls = true, or remove it");
        }
        return None;
    }
    if certificates.is_empty() && !has_auto {
        let message = format!("[listen.{name}] has `tls`, but there is no certificate");
        let hint = "add [certificate.NAME] with chain = \"/etc/ssl/shop.pem\" and key = \"/etc/ssl/private/shop.key\", or \
                    write tls = \"auto\" in a [site.NAME]";
        sink.error(entries.span("tls"), message, hint);
    }
    Some(ListenerTls {
        default_certificate,
    })
}

/// Whether a listener takes HTTP/2.
fn http2(listener: &Listener, entries: &Entries, sink: &mut Sink) -> Http2 {
    let (message, hint) = match (listener.http2, listener.tls.is_some()) {
        (Http2::Off, true) if !entries.is_written("http2") => return Http2::Tls,
        (Http2::Tls, false) if !entries.bool("tls") => (
            "`http2 = true` needs `tls = true`",
            "write tls = true, or http2 = \"clear\" for clients that use HTTP/2 without TLS",
        ),
        (Http2::Clear, true) => (
            "`http2 = \"clear\"` is for listeners without `tls`",
            "write http2 = true: clients choose it in the handshake of TLS",
        ),
        (said, _) => return said,
    };
    sink.error(entries.span("http2"), message, hint);
    Http2::Off
}

/// Whether a listener that says so can take HTTP/3.
fn http3(listener: &Listener, entries: &Entries, sink: &mut Sink) -> bool {
    let (message, hint) = match &listener.address {
        Address::Unix(_) => (
            "`http3 = true` needs an address with a port: QUIC has no unix sockets",
            "write address = \"0.0.0.0:443\", or remove http3",
        ),
        _ if !entries.bool("tls") => (
            "`http3 = true` needs `tls = true`",
            "write tls = true: HTTP/3 is always encrypted",
        ),
        _ if listener.proxy_protocol => (
            "`http3 = true` and `proxy_protocol = true` exclude each other: over UDP no proxy says whose connection it is",
            "remove one of them",
        ),
        _ => return listener.tls.is_some(),
    };
    sink.error(entries.span("http3"), message, hint);
    false
}

fn of_site(
    entries: &Entries,
    site: &mut Site,
    listeners: &[Listener],
    certificates: &[&str],
    sink: &mut Sink,
) {
    site.is_auto = is_auto(entries, certificates);
    if !site.is_auto {
        site.certificate = reference(entries, "tls", certificates, sink);
    }
    let ca = entries.get::<Option<std::path::PathBuf>>("client_ca");
    site.client_auth = ca.map(|ca| ClientAuth {
        ca,
        optional: entries.bool("client_certificate"),
    });
    if let Some(entry) = entries.entry("client_certificate")
        && !entries.is_written("client_ca")
    {
        let message = "`client_certificate` needs `client_ca`, which is missing";
        let hint = "add client_ca = \"FILE\" with the authorities of the clients' certificates";
        sink.error(entry.key.clone(), message, hint);
    }
    let mut listens = site.listen.iter().filter_map(|index| listeners.get(*index));
    let required = (site.client_auth.as_ref()).is_some_and(|auth| !auth.optional);
    if required && let Some(plain) = listens.clone().find(|listener| listener.tls.is_none()) {
        let message = format!(
            "clients of [listen.{}], which has no TLS, would reach this site without a certificate",
            plain.name
        );
        let hint = "write listen = [\"NAME\"] with listeners that have tls = true";
        sink.error(entries.span("client_ca"), message, hint);
    }
    if listens.all(|listener| listener.tls.is_none()) {
        for key in ["tls", "client_ca"] {
            if let Some(entry) = entries.entry(key) {
                let message =
                    format!("`{key}` has no effect: none of the site's listeners has TLS");
                let hint = "write tls = true in a [listen.NAME]";
                sink.warning(entry.key.clone(), message, hint);
            }
        }
    }
}

/// The certificate that a key names.
fn reference(
    entries: &Entries,
    key: &str,
    certificates: &[&str],
    sink: &mut Sink,
) -> Option<usize> {
    let name = entries.text(key)?;
    let found = certificates.iter().position(|known| *known == name);
    if found.is_none() {
        let hint = scalar::suggestion(&name, certificates.iter().copied());
        let message = format!("unknown certificate {name:?}");
        sink.error_of_whole(entries.span(key), message, hint);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsts_is_written_as_it_is_read() {
        for (text, shown, header) in [
            ("1y", "1y", "max-age=31536000"),
            ("300", "300s", "max-age=300"),
            ("365d", "1y", "max-age=31536000"),
            ("0", "0s", "max-age=0"),
            (
                "2y preload include_subdomains",
                "2y include_subdomains preload",
                "max-age=63072000; includeSubDomains; preload",
            ),
        ] {
            let hsts = hsts(text).ok().flatten().unwrap();
            assert_eq!((&*hsts.to_string(), &*hsts.header()), (shown, header));
        }
        assert!(matches!(hsts(""), Ok(None)));
        for wrong in ["soon", "1y forever", "99y", "-1s"] {
            assert!(hsts(wrong).is_err(), "{wrong}");
        }
    }
}
