//! The keys of `[tls]` and `[certificate.NAME]`.

use super::{
    Default::{Absent, Required, Value},
    Kind, Row,
    Section::{Acme, Certificate, Tls},
    key,
};

#[rustfmt::skip]
pub(super) const TLS: &[Row] = &[
    key(&[Tls], "min_version", Kind::Word(&["1.2", "1.3"], &[]), Value("\"1.2\""),
        "Lowest version of TLS that clients may use: `\"1.2\"` or `\"1.3\"`. weir does not support older versions, because they are not secure.")
        .called(&["ssl_protocols", "SSLProtocol", "ssl-min-ver", "protocols"]),
    key(&[Tls], "key_isolation", Kind::Bool, Value("true"),
        "Private keys are in a process of their own, the keeper, which signs for the gateway. `false`: the gateway has the keys, as in other web \
         servers, and needs a little less CPU time for each handshake."),
    key(&[Tls], "certificates", Kind::Path, Value("\"/var/lib/weir/certificates\""),
        "Folder of the certificates that weir makes by itself (`tls = \"auto\"` of a site) and of its local authority. Several nodes may share it.")
        .called(&["storage", "certs_dir"]).like("\"/var/lib/weir/certificates\""),
];

#[rustfmt::skip]
pub(super) const ACME: &[Row] = &[
    key(&[Acme], "email", Kind::Text, Absent("none"),
        "Address that the authority may write to.").called(&["contact"]),
    key(&[Acme], "directory", Kind::Text, Value("\"https://acme-v02.api.letsencrypt.org/directory\""),
        "URL of the authority's directory (RFC 8555). The default is Let's Encrypt.").called(&["ca", "uri", "acme_ca", "server"]),
    key(&[Acme], "ca_file", Kind::Path, Absent("what this machine trusts"),
        "File with the certificates that the directory's own server may have (PEM), for an authority of your own.").called(&["ssl_trusted_certificate", "acme_ca_root"]).like("\"/etc/weir/ca.pem\""),
    key(&[Acme], "challenge", Kind::Word(&["http-01", "tls-alpn-01", "dns-01", "dns-persist-01"], &[]), Absent("http-01 and tls-alpn-01, in turn"),
        "How names are proved: `\"http-01\"` by a text on port 80 without TLS, `\"tls-alpn-01\"` by a handshake on port 443, `\"dns-01\"` by TXT \
         records that `dns_command` makes, `\"dns-persist-01\"` by a TXT record that you set once (`weir certificates` shows it). Without `challenge`, `dns_command` proves names with a star."),
    key(&[Acme], "dns_command", Kind::Program, Absent("none"),
        "Program that makes and removes TXT records, and its arguments. weir adds three: `add` or `remove`, the name, the value. It runs as the \
         user who starts weir, with weir's environment, one at a time. A name without a slash is searched in PATH.").called(&["dns", "manual_auth_hook", "dnsapi"]),
    key(&[Acme], "dns_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "`dns_command` is killed after this time."),
    key(&[Acme], "dns_wait", Kind::Duration { zero: true }, Value("\"10s\""),
        "How long weir waits after `dns_command add` before the authority looks, until all name servers have the record. `\"0\"`: the command itself waits.").called(&["propagation_delay", "dns_propagation_seconds", "propagation_timeout"]),
    key(&[Acme], "local_names", Kind::Bool, Value("false"),
        "The authority signs local names too (`*.internal`, names without a dot, private addresses), for example an authority of your own. Otherwise weir's local CA signs them."),
    key(&[Acme], "ask", Kind::Text, Absent("no certificates on demand"),
        "URL of your application that decides for which names weir gets certificates on demand, for sites with `tls = \"auto\"` and without `hosts`. At the first handshake of a name, weir sends GET to this URL with the name at its end: 200 means yes, everything else no.").called(&["on_demand_tls", "permission"]).like("\"http://127.0.0.1:8080/may?domain=\""),
    key(&[Acme], "ask_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "How long `ask` may take to answer. No answer in this time means no."),
    key(&[Acme], "ask_wait", Kind::Duration { zero: false }, Value("\"30s\""),
        "How long a handshake waits for a certificate on demand. Then weir refuses the client; the order continues."),
    key(&[Acme], "ask_keep", Kind::Duration { zero: false }, Value("\"5m\""),
        "How long answers of `ask` are kept, yes and no."),
    key(&[Acme], "ask_rate", Kind::Rate, Value("\"10/s burst 50\""),
        "How often weir asks about a new name. Names beyond it are refused."),
    key(&[Acme], "ask_order_rate", Kind::Rate, Value("\"60/h burst 100\""),
        "How often weir orders a certificate for a new name. Names beyond it are refused. Let's Encrypt allows an account 300 orders in three hours; several \
         nodes share that.").called(&["interval", "burst"]),
    key(&[Acme], "ask_max", Kind::Count { min: 1, max: 100_000 }, Value("10000"),
        "Maximum number of certificates on demand. At the limit, new names are refused until others have ended."),
    key(&[Acme], "profile", Kind::Text, Absent("the authority's usual kind"),
        "Kind of certificate, as the authority names it: Let's Encrypt has `\"tlsserver\"` and `\"shortlived\"` (six days)."),
    key(&[Acme], "eab_key_id", Kind::Text, Absent("none"),
        "Number of the key that an authority gave you for your account there (external account binding). Needs `eab_key_file`.").called(&["eab_kid", "external_account"]),
    key(&[Acme], "eab_key_file", Kind::Path, Absent("none"),
        "File with that key (base64url). It is read when the process for certificates starts.").called(&["eab_hmac_key", "eab_mac_key"]).like("\"/etc/weir/eab.key\""),
];

#[rustfmt::skip]
pub(super) const CERTIFICATE: &[Row] = &[
    key(&[Certificate], "chain", Kind::Path, Required,
        "File with the certificate and, after it, the intermediate certificates of its authority (PEM). Changed files are used within a second, \
         without a reload.").called(&["ssl_certificate", "SSLCertificateFile", "certificate", "cert", "crt", "fullchain", "cert_file"]).like("\"/etc/weir/shop.pem\""),
    key(&[Certificate], "key", Kind::Path, Absent("in the file of `chain`"),
        "File with the private key (PEM: PKCS #8, PKCS #1 or SEC 1; RSA of 2048 to 8192 bits, ECDSA with P-256, P-384 or P-521, Ed25519). Only root \
         needs to be able to read it.").called(&["ssl_certificate_key", "SSLCertificateKeyFile", "privkey", "key_file", "certificate_key"]).like("\"/etc/weir/shop.key\""),
];
