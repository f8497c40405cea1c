//! What is said of certificates. Handshakes are tried with real servers: tests/egress/tls.rs.

use super::*;
use std::time::Duration;
use tokio_rustls::rustls::Error;
use weir_config::Scheme;

fn origin() -> Origin {
    Origin {
        scheme: Scheme::Https,
        host: "api.example.com".to_owned(),
        port: 443,
    }
}

fn said(error: impl Into<Error>) -> (Kind, String) {
    // As it comes from a connection.
    let error = io::Error::new(io::ErrorKind::InvalidData, error.into());
    let error = io::Error::other(error);
    let fault = fault(&origin(), &error).expect("an error of TLS");
    (fault.kind, fault.message)
}

#[test]
fn each_fault_of_a_certificate_is_told_with_what_helps() {
    let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let name = ServerName::try_from("api.example.com").unwrap();
    let presented = |count: usize| {
        (0..count)
            .map(|n| format!("DnsName(\"{n}.example\n\")"))
            .collect()
    };
    for (error, parts) in [
        (
            CertificateError::ExpiredContext {
                time: at(2_000_000_000),
                not_after: at(1_000_000_000),
            },
            ["has expired on 2001-09-09T01:46:40Z", "renew"],
        ),
        (
            CertificateError::NotValidYetContext {
                time: at(1),
                not_before: at(1_000_000_000),
            },
            ["not valid before 2001-09-09", "clock"],
        ),
        (
            CertificateError::UnknownIssuer,
            ["that this machine trusts", "ca_file"],
        ),
        (
            CertificateError::NotValidForNameContext {
                expected: name.clone(),
                presented: presented(7),
            },
            [
                r"is for 0.example\n, 1.example\n,",
                "4.example\\n and 2 more",
            ],
        ),
        (
            CertificateError::NotValidForNameContext {
                expected: name,
                presented: Vec::new(),
            },
            ["no name", "call it by"],
        ),
        (CertificateError::Revoked, ["was revoked", "new one"]),
        (
            CertificateError::BadSignature,
            ["a wrong signature", "ca_file"],
        ),
    ] {
        let (kind, message) = said(error);
        assert_eq!(kind, Kind::CertificateError);
        assert!(
            message.starts_with("https://api.example.com: its certificate "),
            "{message}"
        );
        for part in parts {
            assert!(message.contains(part), "{part} in {message}");
        }
    }
}

#[test]
fn what_else_goes_wrong_is_no_fault_of_the_certificate() {
    let (kind, message) = said(Error::AlertReceived(AlertDescription::CertificateRequired));
    assert_eq!(kind, Kind::TlsError);
    assert!(message.contains("client_cert"), "{message}");
    let (kind, message) = said(Error::AlertReceived(AlertDescription::ProtocolVersion));
    assert_eq!(kind, Kind::TlsError);
    assert!(message.contains("TLS 1.2"), "{message}");
    let other = io::Error::from(io::ErrorKind::ConnectionReset);
    assert!(fault(&origin(), &other).is_none());
}
