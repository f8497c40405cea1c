//! Parses certificates and keys from the files that the manager has read.
//!
//! For where they come from, and why the gateway has them, see [`weir_control::EgressFiles`].

use std::path::Path;

use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};

use weir_control::EgressFiles;

/// The certificates of a file, in order.
///
/// # Errors
/// What is wrong with the file, and how to fix it.
pub fn certificates(
    files: &EgressFiles,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let shown = path.display();
    let read = CertificateDer::pem_slice_iter(files.file(path)?);
    let certificates: Vec<_> = read
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{shown} cannot be read: {error}; it must be a PEM file"))?;
    match certificates.is_empty() {
        false => Ok(certificates),
        true => Err(format!(
            "{shown} contains no certificate in PEM format (-----BEGIN CERTIFICATE-----): convert a DER file with \
             openssl x509 -inform der"
        )),
    }
}

/// The first private key of a file: PKCS #8, PKCS #1 or SEC 1.
///
/// # Errors
/// What is wrong with the file, and how to fix it.
pub fn key(files: &EgressFiles, path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let shown = path.display();
    let bytes = files.file(path)?;
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
        let encrypted = memchr::memmem::find(bytes, b"ENCRYPTED").is_some();
        match error {
            _ if encrypted => format!(
                "{shown} needs a password, which weir cannot ask for. Remove it with openssl pkey -in {shown} \
                 -out FILE, and make the new file readable only by root"
            ),
            Error::NoItemsFound => format!(
                "{shown} contains no private key in PEM format (-----BEGIN PRIVATE KEY-----, or RSA, or EC)"
            ),
            // The error's text may contain a part of the key.
            _ => format!("{shown} is not a readable private key in PEM format"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(bytes: &[u8]) -> EgressFiles {
        let files = [("/f".into(), bytes.to_vec())].into();
        EgressFiles {
            files,
            ..EgressFiles::default()
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_and_not_what_it_holds() {
        let path = Path::new("/f");
        let key = |bytes: &[u8]| key(&files(bytes), path).unwrap_err();
        assert!(key(b"").contains("no private key"));
        assert!(key(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n").contains("password"));
        let secret = key(b"-----BEGIN PRIVATE KEY-----\nhunter2!\n-----END PRIVATE KEY-----\n");
        assert!(!secret.contains("hunter2"), "{secret}");
        let none = certificates(&files(b"\x30\x82"), path).unwrap_err();
        assert!(none.contains("no certificate in PEM"), "{none}");
    }
}
