//! `[tls]` and `[certificate.NAME]`, and what listeners and sites say of them.

use std::{fmt, path::PathBuf, time::Duration};

use super::Rate;

/// `[tls]`: what all listeners with `tls` have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// TLS 1.2 is refused.
    pub only_tls13: bool,
    /// Private keys are in a process of their own.
    pub key_isolation: bool,
    /// The folder of the certificates that weir gets or makes by itself.
    pub certificates: PathBuf,
    /// `[tls.acme]`
    pub acme: Acme,
}

/// `[tls.acme]`: where certificates are got.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acme {
    /// Whom the authority may write to.
    pub email: Option<String>,
    /// URL of its directory.
    pub directory: String,
    /// The certificates that the directory's server may have; `None`: what this machine trusts.
    pub ca_file: Option<PathBuf>,
    /// `http-01`, `tls-alpn-01`, `dns-01` or `dns-persist-01`; `None`: the first two in turn, and for names with a star `dns-01`.
    pub challenge: Option<String>,
    /// The program that makes and removes TXT records, and its first arguments. Empty: none.
    pub dns_command: Vec<String>,
    /// How long it may run.
    pub dns_timeout: Duration,
    /// How long after it a record is seen by everybody.
    pub dns_wait: Duration,
    /// The authority signs local names and addresses too, so there is no local CA.
    pub local_names: bool,
    /// The URL that says for which names certificates may be got on demand; the name is added at its end.
    pub ask: Option<String>,
    /// How long it may take to answer.
    pub ask_timeout: Duration,
    /// How long a handshake waits for a certificate.
    pub ask_wait: Duration,
    /// How long answers are kept.
    pub ask_keep: Duration,
    /// How often it is asked about a new name.
    pub ask_rate: Option<Rate>,
    /// How often a certificate is ordered for a new name.
    pub ask_order_rate: Option<Rate>,
    /// Maximum number of certificates on demand.
    pub ask_max: usize,
    /// The kind of certificate, as the authority names it.
    pub profile: Option<String>,
    /// The number of the key of the account elsewhere (EAB).
    pub eab_key_id: Option<String>,
    /// The file of that key.
    pub eab_key_file: Option<PathBuf>,
}

/// How certificates are got on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand<'a> {
    /// [`Acme::ask`]
    pub ask: &'a str,
    /// [`Acme::ask_rate`]
    pub rate: Rate,
    /// [`Acme::ask_order_rate`]
    pub order_rate: Rate,
}

impl Acme {
    /// How certificates are got on demand; `None`: they are not.
    pub fn demand(&self) -> Option<Demand<'_>> {
        Some(Demand {
            ask: self.ask.as_deref()?,
            rate: self.ask_rate?,
            order_rate: self.ask_order_rate?,
        })
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            only_tls13: false,
            key_isolation: true,
            certificates: DEFAULT_CERTIFICATES.into(),
            acme: Acme::default(),
        }
    }
}

/// Default of `certificates`.
pub const DEFAULT_CERTIFICATES: &str = "/var/lib/weir/certificates";

/// `[certificate.NAME]`, or the certificate of a site with `tls = "auto"`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Certificate {
    /// The NAME; without a table, the first host.
    pub name: String,
    /// The file of the certificate and its intermediate certificates.
    pub chain: PathBuf,
    /// The file of its private key; `None`: it is in the file of `chain`.
    pub key: Option<PathBuf>,
    /// weir makes it by itself. `None`: it has a table.
    pub auto: Option<AutoCertificate>,
}

/// A certificate that weir makes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoCertificate {
    /// The names and addresses for which it is; the first label may be a star. Never empty.
    pub names: Vec<String>,
    /// Who signs the certificate.
    pub issuer: Issuer,
}

impl super::Config {
    /// Whether certificates are ordered from the authority of `[tls.acme]`.
    pub fn tls_is_ordered(&self) -> bool {
        let mut autos = self.certificates.iter().filter_map(|one| one.auto.as_ref());
        autos.any(|auto| auto.issuer == Issuer::Acme) || self.demand().is_some()
    }

    /// How certificates are got on demand; `None`: they are not, or no site wants them.
    pub fn demand(&self) -> Option<Demand<'_>> {
        let is_wanted = self.sites.iter().any(super::Site::is_on_demand);
        self.tls.acme.demand().filter(|_| is_wanted)
    }
}

/// Who signs a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuer {
    /// weir's local authority.
    Local,
    /// The authority of `[tls.acme]`.
    Acme,
}

impl Certificate {
    /// The file that has the private key.
    pub fn key_file(&self) -> &PathBuf {
        self.key.as_ref().unwrap_or(&self.chain)
    }
}

/// A listener with `tls = true`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenerTls {
    /// Index into [`Config::certificates`](super::Config::certificates): the certificate for clients without a known
    /// name. `None`: they are refused.
    pub default_certificate: Option<usize>,
}

/// A site's client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientAuth {
    /// The file of the authorities.
    pub ca: PathBuf,
    /// A client without a certificate is served too.
    pub optional: bool,
}

/// A site's `hsts`: browsers use only HTTPS for it (RFC 6797).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hsts {
    /// For so long, in whole seconds.
    pub max_age: Duration,
    /// Also for all names below the site's.
    pub include_subdomains: bool,
    /// Browsers may have it in their lists.
    pub preload: bool,
}

impl Hsts {
    /// The value of `Strict-Transport-Security`.
    pub fn header(&self) -> String {
        let mut value = format!("max-age={}", self.max_age.as_secs());
        if self.include_subdomains {
            value.push_str("; includeSubDomains");
        }
        if self.preload {
            value.push_str("; preload");
        }
        value
    }
}

/// Writes it as in weir.toml.
impl fmt::Display for Hsts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_age.as_secs() {
            seconds if seconds > 0 && seconds.is_multiple_of(YEAR) => {
                write!(f, "{}y", seconds / YEAR)?;
            }
            seconds if seconds > 0 && seconds.is_multiple_of(DAY) => {
                write!(f, "{}d", seconds / DAY)?;
            }
            seconds => write!(f, "{seconds}s")?,
        }
        if self.include_subdomains {
            f.write_str(" include_subdomains")?;
        }
        if self.preload {
            f.write_str(" preload")?;
        }
        Ok(())
    }
}

const DAY: u64 = 86_400;
const YEAR: u64 = 365 * DAY;
