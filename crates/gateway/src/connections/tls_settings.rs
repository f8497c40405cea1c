//! TLS in the gateway: settings of sites about certificates, and what requests and scripts learn about a connection.

use std::{collections::HashMap, os::fd::AsFd, path::PathBuf, sync::Arc};

use weir_config::{Certificate, ClientAuth, Config, Http2, TlsVariable};
use weir_control::{Challenges, GivenCertificate, ManagerHandle, TlsFiles, TlsGiven, ToManager};
use weir_fcgi::client::Params;
use weir_observe::access_log::Tls;
use weir_sys::memory;
use weir_tls::{
    Challenge, Choice, ClientAuthority, Demand, Entry, Listener, Pair, Server, Signers, Sites,
    x509::{Malformed, Parsed},
};

use crate::{Gateway, record::Endpoints, route::Router};

/// What a gateway's sites say of the names that clients ask for.
struct OfSites {
    /// The gateway's own router, which is there before the first connection.
    router: Arc<Router>,
    /// By site.
    choices: Vec<Choice>,
}

impl Sites for OfSites {
    fn choice(&self, listener: u16, host: Option<&str>) -> Choice {
        let site = self.router.site_of(listener, host);
        site.and_then(|site| self.choices.get(site))
            .copied()
            .unwrap_or_default()
    }
}

/// Makes what all connections with TLS share. `None`: no listener has TLS.
///
/// # Errors
/// A certificate, key or authority that cannot be used.
pub(crate) fn server(
    config: &Config,
    given: Option<TlsGiven>,
    router: &Arc<Router>,
    (reactors, manager): (u16, &ManagerHandle),
) -> Result<Option<Arc<Server>>, String> {
    if config
        .listeners
        .iter()
        .all(|listener| listener.tls.is_none())
    {
        return Ok(None);
    }
    let given = given.ok_or("the manager gave no certificates")?;
    let (authorities, choices) = choices(config, &given.files)?;
    let listeners = config.listeners.iter().map(|listener| Listener {
        default: listener
            .tls
            .as_ref()
            .and_then(|tls| tls.default_certificate),
        http2: listener.http2 == Http2::Tls,
    });
    let manager = manager.clone();
    let told = manager.clone();
    let on_silence = move || manager.tell(ToManager::KeeperSilent);
    let signers = Arc::new(Signers::new(usize::from(reactors), on_silence));
    for (reactor, socket) in given.signers {
        signers.set(usize::from(reactor), socket);
    }
    let sites = OfSites {
        router: router.clone(),
        choices,
    };
    let mut server = Server::new(
        config.tls.only_tls13,
        &authorities,
        listeners.collect(),
        Box::new(sites),
        signers,
    )?;
    server.tickets.set(&given.tickets.keys);
    server.demand = demand(config, told);
    let mut entries = remote(&server, given.files.certificates)?;
    for (index, chain, key) in given.pairs {
        let certificate = config.certificates.get(index as usize);
        entries.push(own(index, certificate, &chain, &key)?);
    }
    server.change(entries, &[]);
    Ok(Some(Arc::new(server)))
}

/// The names that handshakes wait for, if certificates are got on demand.
fn demand(config: &Config, manager: ManagerHandle) -> Option<Demand> {
    let rules = config.demand()?;
    let tell = move |name: &str| manager.tell(ToManager::WantCertificate(name.to_owned()));
    let rate = (rules.rate.interval(), rules.rate.burst);
    Some(Demand::new(config.tls.acme.ask_wait, rate, tell))
}

/// The ways of asking clients for a certificate, and what each site says.
fn choices(
    config: &Config,
    files: &TlsFiles,
) -> Result<(Vec<ClientAuthority>, Vec<Choice>), String> {
    let mut authorities = Vec::new();
    let mut known: HashMap<&ClientAuth, usize> = HashMap::new();
    let mut choices = Vec::with_capacity(config.sites.len());
    for site in &config.sites {
        let mut authority = None;
        if let Some(auth) = &site.client_auth {
            if !known.contains_key(auth) {
                known.insert(auth, authorities.len());
                authorities.push(ClientAuthority {
                    certificates: certificates_of(files, &auth.ca)?,
                    optional: auth.optional,
                });
            }
            authority = known.get(auth).copied();
        }
        choices.push(Choice {
            certificate: site.certificate,
            authority,
            on_demand: site.is_on_demand(),
        });
    }
    Ok((authorities, choices))
}

fn certificates_of(files: &TlsFiles, ca: &PathBuf) -> Result<Vec<Vec<u8>>, String> {
    let certificates = files.authorities.get(ca);
    certificates
        .cloned()
        .ok_or_else(|| format!("{} was not handed over", ca.display()))
}

/// Certificates whose keys the keeper has.
fn remote(server: &Server, given: Vec<GivenCertificate>) -> Result<Vec<Entry>, String> {
    let entry = |GivenCertificate { index, key, chain }| {
        let unreadable = || format!("certificate {index} cannot be read");
        let leaf = chain.first().ok_or_else(unreadable)?;
        let kind = Parsed::read(leaf).map_err(|Malformed| unreadable())?.kind;
        let kind = kind.ok_or_else(unreadable)?;
        Ok(Entry {
            index: index as usize,
            chain: chain.into_iter().map(Into::into).collect(),
            key: server.signers.key(key, kind),
        })
    };
    given.into_iter().map(entry).collect()
}

/// A certificate whose key this gateway has.
fn own(
    index: u32,
    certificate: Option<&Certificate>,
    chain: &std::os::fd::OwnedFd,
    key: &std::os::fd::OwnedFd,
) -> Result<Entry, String> {
    let place = |in_key: bool| match (certificate, in_key) {
        (None, _) => "a certificate on demand".to_owned(),
        (Some(certificate), true) => format!(
            "[certificate.{}] key: {}",
            certificate.name,
            certificate.key_file().display()
        ),
        (Some(certificate), false) => format!(
            "[certificate.{}] chain: {}",
            certificate.name,
            certificate.chain.display()
        ),
    };
    let read = |file: &std::os::fd::OwnedFd, in_key: bool| {
        memory::read(file.as_fd(), MAX_FILE).map_err(|error| format!("{}: {error}", place(in_key)))
    };
    let pair = Pair::read(&read(chain, false)?, &read(key, true)?);
    let pair = pair.map_err(|wrong| format!("{}: {}", place(wrong.in_key), wrong.message))?;
    Ok(Entry {
        index: index as usize,
        chain: pair.chain,
        key: pair.key,
    })
}

/// Certificates have changed.
pub(crate) fn change(gateway: &Gateway, file: &std::os::fd::OwnedFd) {
    let Some(server) = &gateway.tls else {
        return;
    };
    let changed = memory::read(file.as_fd(), TlsFiles::MAX_ENCODED)
        .map_err(|error| error.to_string())
        .and_then(|bytes| TlsFiles::decode(&bytes).map_err(|error| error.to_string()))
        .and_then(|files| Ok((remote(server, files.certificates)?, files.gone)));
    match changed {
        Ok((entries, gone)) => {
            let gone: Vec<usize> = gone.into_iter().map(|index| index as usize).collect();
            server.change(entries, &gone);
        }
        Err(error) => log::error!("changed certificates cannot be used: {error}"),
    }
}

/// Answers to challenges of authorities.
pub(crate) fn set_challenges(gateway: &Gateway, number: u32, file: &std::os::fd::OwnedFd) {
    let Some(server) = &gateway.tls else {
        return;
    };
    let challenges = memory::read(file.as_fd(), Challenges::MAX_ENCODED)
        .map_err(|error| error.to_string())
        .and_then(|bytes| Challenges::decode(&bytes).map_err(|error| error.to_string()));
    match challenges {
        Ok(challenges) => {
            let list = challenges.list.into_iter().map(|one| Challenge {
                name: one.name,
                token: one.token,
                text: one.text,
                certificate: one.certificate,
            });
            server.challenges.set(list.collect());
            gateway.manager.tell(ToManager::ChallengesSet(number));
        }
        Err(error) => log::error!("answers to challenges cannot be used: {error}"),
    }
}

/// The files of a certificate have changed whose key this gateway has.
pub(crate) fn change_own(
    gateway: &Gateway,
    index: u32,
    chain: &std::os::fd::OwnedFd,
    key: &std::os::fd::OwnedFd,
) {
    let certificate = gateway.config.certificates.get(index as usize);
    if let Some(server) = &gateway.tls {
        match own(index, certificate, chain, key) {
            Ok(entry) => server.change(vec![entry], &[]),
            Err(error) => log::warn!("{error}; the earlier certificate stays in use"),
        }
    }
}

/// Whether a request for the site may come over this connection: the name in the handshake has led to the same site, and
/// the client was asked for the certificate that the site wants. If a trusted proxy says which host its client asked for,
/// the name in its own handshake may be another, but the certificate may not.
pub(crate) fn is_for_site(
    gateway: &Gateway,
    listener: u16,
    endpoints: &Endpoints,
    site: usize,
) -> bool {
    let Some(info) = &endpoints.tls else {
        return true;
    };
    let name = info.server_name.as_deref();
    let asked = gateway.router.site_of(listener, name);
    // A client that named no host may ask for any site.
    let same_site =
        name.is_none() || endpoints.is_host_forwarded || asked.is_none_or(|asked| asked == site);
    let wants = gateway
        .config
        .sites
        .get(site)
        .and_then(|site| site.client_auth.as_ref());
    // Sites with equal authorities have equal handshakes. The asked site is known because each site of a listener has
    // its own name.
    same_site && (wants.is_none() || info.authority.is_some() && asked == Some(site))
}

/// The parameters of scripts, as Apache and nginx name them.
pub(crate) fn put_params(endpoints: &Endpoints, params: &mut Params<'_>) {
    let Some(info) = &endpoints.tls else {
        return;
    };
    for (name, variable) in PARAMS {
        if let Some(value) = self::variable(*variable, endpoints) {
            params.pair(name.as_bytes(), value.as_bytes());
        }
    }
    params.pair(
        b"SSL_SESSION_RESUMED",
        if info.resumed { b"Resumed" } else { b"Initial" },
    );
}

/// What the access log says of a connection's TLS.
pub(crate) fn logged(endpoints: &Endpoints) -> Option<Tls<'_>> {
    let info = endpoints.tls.as_ref()?;
    Some(Tls {
        protocol: info.protocol,
        cipher: info.cipher,
        is_resumed: info.resumed,
        server_name: info.server_name.as_deref(),
    })
}

/// The value of a variable; `None`: it has none.
pub(crate) fn variable(variable: TlsVariable, endpoints: &Endpoints) -> Option<&str> {
    let info = endpoints.tls.as_ref()?;
    let client = info.client.as_deref();
    match variable {
        TlsVariable::Protocol => Some(info.protocol),
        TlsVariable::Cipher => Some(info.cipher),
        TlsVariable::SessionReused => Some(if info.resumed { "r" } else { "." }),
        TlsVariable::ServerName => info.server_name.as_deref(),
        TlsVariable::ClientVerify => match (info.authority, client) {
            (None, _) => None,
            (Some(_), None) => Some("NONE"),
            (Some(_), Some(_)) => Some("SUCCESS"),
        },
        TlsVariable::ClientSubject => client.map(|client| &client.subject[..]),
        TlsVariable::ClientIssuer => client.map(|client| &client.issuer[..]),
        TlsVariable::ClientSerial => client.map(|client| &client.serial[..]),
        TlsVariable::ClientFingerprint => client.map(|client| &client.fingerprint[..]),
    }
}

/// Whether a header of a client would look to a script as if the server had said something of TLS.
pub(crate) fn is_of_tls(name: &[u8]) -> bool {
    let plain = |byte: &u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    let begins = |prefix: &&[u8]| {
        name.len() >= prefix.len()
            && name
                .iter()
                .map(plain)
                .zip(*prefix)
                .all(|(one, other)| one == *other)
    };
    let forged: [&[u8]; 3] = [b"ssl-", b"x-ssl-", b"x-client-cert"];
    forged.iter().any(begins)
}

/// Parameters and their values.
const PARAMS: &[(&str, TlsVariable)] = &[
    ("SSL_PROTOCOL", TlsVariable::Protocol),
    ("SSL_CIPHER", TlsVariable::Cipher),
    ("SSL_TLS_SNI", TlsVariable::ServerName),
    ("SSL_CLIENT_VERIFY", TlsVariable::ClientVerify),
    ("SSL_CLIENT_S_DN", TlsVariable::ClientSubject),
    ("SSL_CLIENT_I_DN", TlsVariable::ClientIssuer),
    ("SSL_CLIENT_M_SERIAL", TlsVariable::ClientSerial),
    ("SSL_CLIENT_FINGERPRINT", TlsVariable::ClientFingerprint),
];

/// Bytes of a file with certificates or a key, at most.
const MAX_FILE: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_only_a_server_may_say_are_known() {
        for forged in [
            "SSL-Client-Verify",
            "ssl_client_s_dn",
            "X-SSL-Client-DN",
            "X-Client-Cert",
            "SSL-Protocol",
        ] {
            assert!(is_of_tls(forged.as_bytes()), "{forged}");
        }
        for other in ["X-Client", "Sslx", "X-Requested-With", "Authorization", ""] {
            assert!(!is_of_tls(other.as_bytes()), "{other}");
        }
    }
}
