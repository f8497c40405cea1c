//! `weir trust`: how to make a machine trust weir's local authority.

use std::{
    env,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use jiff::Timestamp;
use weir_acme::{Issued, Store};
use weir_config::{DEFAULT_CERTIFICATES, read};
use weir_observe::console;
use weir_sys::identity;
use weir_tools::command::{Source, print, refuse};

use super::EX_UNAVAILABLE;

/// Flags of `weir trust`.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The configuration file whose `certificates` folder has the local CA
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The folder of certificates for `weir serve FOLDER`: systemd's for the service, /var/lib/weir for root, and otherwise the
/// user's own. `None`: the user has no home.
pub fn own_certificates() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = env::var("STATE_DIRECTORY").unwrap_or_default();
    if let Some(first) = state.split(':').find(|path| path.starts_with('/')) {
        return Some(Path::new(first).join("certificates"));
    }
    if identity::is_root() {
        return Some(DEFAULT_CERTIFICATES.into());
    }
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Some(data?.join("weir/certificates"))
}

/// Runs `weir trust`.
pub fn main(args: &TrustArgs) -> ExitCode {
    let folders = match &args.config {
        Some(file) => match of_config(file) {
            Ok(folder) => vec![folder],
            Err(code) => return code,
        },
        None => {
            let usual = ["weir.toml", "/etc/weir/weir.toml"].map(PathBuf::from);
            let config = usual.into_iter().find(|file| file.exists());
            let of_file = config.and_then(|file| of_config(&file).ok());
            let own = own_certificates();
            let of_root = PathBuf::from(DEFAULT_CERTIFICATES);
            let mut folders: Vec<PathBuf> = of_file.into_iter().chain(own).collect();
            folders.push(of_root);
            folders
        }
    };
    let found = folders.iter().find_map(|folder| {
        let root = Store::at(folder).root();
        Issued::read(&root).map(|issued| (root, issued))
    });
    match found {
        Some((root, issued)) => print(&text(&root, &issued)),
        None => {
            let looked: Vec<String> = folders
                .iter()
                .map(|folder| Store::at(folder).root().display().to_string())
                .collect();
            let message = format!("there is no local CA yet: {}", looked.join(", "));
            let hint = "weir makes it when it first serves a name that no public authority signs: weir serve FOLDER --domain localhost";
            console::say_error(message, hint);
            ExitCode::from(EX_UNAVAILABLE)
        }
    }
}

fn of_config(file: &Path) -> Result<PathBuf, ExitCode> {
    let source = Source::of_file(file)?;
    let checked = read(&source.name, &source.text, &source.environment);
    let checked = checked.map_err(|wrong| refuse(&wrong))?;
    Ok(checked.config.tls.certificates)
}

fn text(root: &Path, issued: &Issued) -> String {
    let Issued { subject, .. } = issued;
    let name = subject.strip_prefix("CN=").unwrap_or(subject);
    let path = quoted(&root.display().to_string());
    let ends = Timestamp::from_second(issued.not_after)
        .map(|ends| ends.strftime("%Y-%m-%d").to_string())
        .unwrap_or_default();
    let digest = weir_tls::sha256(&issued.der).map(|byte| format!("{byte:02X}"));
    let mut out = String::new();
    let _ = write!(
        out,
        "\
weir's local CA    {file}
Name               {name}
Valid until        {ends}
SHA-256            {digest}

Browsers accept the certificates that weir makes for localhost, *.test and private addresses when this file is installed.
The CA can sign for no other names. Install it only on machines of people who trust this one.

Debian, Ubuntu     sudo install -m 644 {path} /usr/local/share/ca-certificates/weir-local-ca.crt
                   sudo update-ca-certificates
Fedora, RHEL       sudo install -m 644 {path} /etc/pki/ca-trust/source/anchors/weir-local-ca.pem
                   sudo update-ca-trust
macOS              sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {path}
Chromium, Chrome   certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n '{name}' -i {path}
  on Linux         (certutil: Debian libnss3-tools, Fedora nss-tools)
Firefox            Settings, Privacy & Security, View Certificates, Authorities, Import; or for each profile:
                   certutil -d sql:PROFILE -A -t C,, -n '{name}' -i {path}
one program        curl --cacert {path} https://localhost:8443/
",
        file = root.display(),
        digest = digest.join(":"),
    );
    out
}

/// A path as a shell wants it.
fn quoted(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    match path.bytes().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted("/var/lib/weir/root.pem"), "/var/lib/weir/root.pem");
        assert_eq!(quoted("/srv/a b/it's"), "'/srv/a b/it'\\''s'");
    }
}
