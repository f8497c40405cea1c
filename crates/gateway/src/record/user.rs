//! The user of a request: who has shown a password (`basic_auth`), and what the log says.

use std::borrow::Cow;

use weir_htpasswd::Credentials;
use weir_http1::Name;

use super::{RareValues, Record};
use crate::access::basic_auth::{Auth, Unverified};

/// A user who has shown a password.
#[derive(Debug)]
pub(crate) struct SignedIn {
    pub(crate) user: Vec<u8>,
    /// The files in which the password is right. Usually there is one.
    verified: Vec<&'static Auth>,
}

impl Record {
    /// The user, if a password was needed.
    pub(crate) fn user(&self) -> Option<&[u8]> {
        let signed_in = self.rare.as_ref()?.signed_in.as_ref()?;
        Some(&signed_in.user)
    }

    /// Whether the user has shown the password for `auth` with this request.
    pub(crate) fn is_signed_in(&self, auth: &Auth) -> bool {
        let signed_in = self.rare.as_ref().and_then(|rare| rare.signed_in.as_ref());
        signed_in.is_some_and(|signed_in| {
            let mut verified = signed_in.verified.iter();
            verified.any(|other| std::ptr::eq(*other, auth))
        })
    }

    /// Whether the guards of the path have let it in, except for a password.
    pub(crate) fn is_admitted(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.is_admitted)
    }

    /// The user name for the log: as nginx, what the client has sent, whether or not a password was needed and right. For a
    /// request from a web server in front: the user that it names.
    pub(super) fn remote_user(&self) -> Option<Cow<'_, [u8]>> {
        if let Some(params) = &self.params {
            return params.get(b"REMOTE_USER").map(Cow::Borrowed);
        }
        let authorization = self.head.fields.get(Name::Authorization)?;
        let credentials = Credentials::parse(authorization)?;
        Some(Cow::Owned(credentials.user))
    }
}

impl RareValues {
    /// Notes that a password is right.
    pub(crate) fn sign_in(&mut self, verified: Unverified) {
        let Unverified { auth, credentials } = verified;
        let signed_in = self.signed_in.get_or_insert_with(|| SignedIn {
            user: credentials.user,
            verified: Vec::new(),
        });
        signed_in.verified.push(auth);
    }
}
