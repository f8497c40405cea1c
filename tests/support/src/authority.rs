//! Certificates: each test makes its own authority with the openssl program when it runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate authority. Only clients with its certificate in `ca_file` trust it.
pub struct Authority {
    folder: TempDir,
    issued: std::cell::Cell<u32>,
}

/// A certificate and its key, each a PEM file. The files are removed with their [`Authority`].
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key, without a passphrase. Everybody may read it.
    pub key: PathBuf,
}

impl Authority {
    /// Makes a new authority.
    pub fn new() -> Authority {
        let folder = TempDir::with_prefix("weir-ca-").expect("a temporary folder");
        crate::weir::mode(folder.path(), 0o755);
        let authority = Authority {
            folder,
            issued: std::cell::Cell::new(0),
        };
        fs::write(authority.path("ca.cnf"), CONFIGURATION).expect("ca.cnf");
        fs::write(authority.path("index.txt"), "").expect("index.txt");
        // Two authorities of the same name could not be told apart without checking a signature.
        let unique = authority.folder.path().file_name().expect("a name");
        let subject = format!("/CN=Authority {}", unique.display());
        authority.openssl(
            &[
                &["req", "-x509"],
                NEW_KEY,
                &[
                    "-keyout",
                    "ca.key",
                    "-out",
                    "ca.pem",
                    "-days",
                    "30",
                    "-subj",
                    &subject,
                    "-addext",
                    "basicConstraints=critical,CA:TRUE",
                    "-addext",
                    "keyUsage=critical,keyCertSign,cRLSign",
                ],
            ]
            .concat(),
        );
        authority
    }

    /// Its own certificate, for `ca_file`.
    pub fn file(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// Its own certificate, as a server would use it by mistake.
    pub fn itself(&self) -> Identity {
        Identity {
            cert: self.file(),
            key: self.path("ca.key"),
        }
    }

    /// The certificate of a server with these names, each `DNS:api.test` or `IP:127.0.0.1`.
    pub fn server(&self, names: &[&str]) -> Identity {
        self.issue(names, "serverAuth", &["-days", "30"])
    }

    /// As [`Authority::server`], but the certificate expired years ago.
    pub fn expired(&self, names: &[&str]) -> Identity {
        let times = [
            "-startdate",
            "20200101000000Z",
            "-enddate",
            "20200201000000Z",
        ];
        self.issue(names, "serverAuth", &times)
    }

    /// The certificate of a client, for `client_cert`.
    pub fn client(&self, name: &str) -> Identity {
        self.issue(&[&format!("DNS:{name}")], "clientAuth", &["-days", "30"])
    }

    fn issue(&self, names: &[&str], usage: &str, times: &[&str]) -> Identity {
        let number = self.issued.get();
        self.issued.set(number + 1);
        let [key, request, cert] = ["key", "csr", "pem"].map(|kind| format!("{number}.{kind}"));
        let subject = names[0].split_once(':').expect("DNS: or IP:").1;
        self.openssl(
            &[
                &["req", "-new"],
                NEW_KEY,
                &[
                    "-keyout",
                    &key,
                    "-out",
                    &request,
                    "-subj",
                    &format!("/CN={subject}"),
                    "-addext",
                    &format!("subjectAltName={}", names.join(",")),
                    "-addext",
                    "basicConstraints=critical,CA:FALSE",
                    "-addext",
                    &format!("extendedKeyUsage={usage}"),
                ],
            ]
            .concat(),
        );
        let mut words = vec![
            "ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile",
            "ca.key", "-in", &request, "-out", &cert,
        ];
        words.extend(times);
        self.openssl(&words);
        let identity = Identity {
            cert: self.path(&cert),
            key: self.path(&key),
        };
        crate::weir::mode(&identity.key, 0o644);
        identity
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn openssl(&self, words: &[&str]) {
        let output = Command::new("openssl")
            .args(words)
            .current_dir(self.folder.path())
            .output()
            .expect("openssl; setup/install.sh test installs it");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {words:?}: {said}");
    }
}

impl Identity {
    /// Loads the certificate and the key for rustls.
    pub fn load(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificates = CertificateDer::pem_file_iter(&self.cert).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("a key");
        (certificates.map(|one| one.expect("PEM")).collect(), key)
    }
}

/// Makes many certificates quickly, in `folder`: certificate N has the name `hostN.many.test`, and a chain of two. Returns their tables.
/// No client trusts them.
pub fn many(folder: &Path, count: usize) -> String {
    let parameters = |name: &str, sans: Vec<String>| {
        let mut parameters = CertificateParams::new(sans).expect("names");
        let name_of = &mut parameters.distinguished_name;
        name_of.push(DnType::CommonName, name);
        parameters
    };
    let mut middle = parameters("The authority of many certificates", Vec::new());
    middle.is_ca = IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    middle.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    let own = middle.self_signed(&key).expect("a certificate").pem();
    let issuer = Issuer::new(middle, key);
    let mut tables = String::new();
    for number in 0..count {
        let name = format!("host{number}.many.test");
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters(&name, vec![name.clone(), format!("www.{name}")]);
        let certificate = certificate.signed_by(&key, &issuer).expect("a certificate");
        let [chain, secret] = ["pem", "key"].map(|kind| folder.join(format!("{number}.{kind}")));
        fs::write(&chain, certificate.pem() + &own).expect("a file");
        fs::write(&secret, key.serialize_pem()).expect("a file");
        crate::weir::mode(&secret, 0o600);
        tables += &format!(
            "[certificate.many{number}]\nchain = \"{}\"\nkey = \"{}\"\n",
            chain.display(),
            secret.display()
        );
    }
    tables
}

/// A certificate with an RSA key that no authority has signed, at `path.pem` and `path.key`.
pub fn self_signed_rsa(path: &Path, name: &str) {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
        .args(["-days", "30", "-subj", "/CN=rsa", "-addext"])
        .arg(format!("subjectAltName=DNS:{name}"))
        .arg("-keyout")
        .arg(path.with_extension("key"))
        .arg("-out")
        .arg(path.with_extension("pem"))
        .output()
        .expect("openssl; setup/install.sh test installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl: {said}");
}

/// `openssl req` with these makes a key.
const NEW_KEY: &[&str] = &[
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
];

/// ca(1ssl): the authority issues what a request asks for.
const CONFIGURATION: &str = "\
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
";
