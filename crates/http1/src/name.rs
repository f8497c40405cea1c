//! The field names that HTTP software asks for. Each name of a head is compared with them once, when the head is read;
//! later every question is a comparison of numbers.

use crate::swar;

macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        /// A well-known field name. Its number is the bit that [`ParsedFields`](crate::ParsedFields) keeps for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is the field of that name")]
        #[non_exhaustive]
        pub enum Name { $($name,)* }

        impl Name {
            /// All of them.
            pub const ALL: &'static [Name] = &[$(Name::$name,)*];

            /// In the usual spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                TEXTS[self as usize]
            }
        }

        const TEXTS: [&str; Name::ALL.len()] = [$($text,)*];
    };
}

names! {
    Accept = "Accept",
    AcceptEncoding = "Accept-Encoding",
    AcceptLanguage = "Accept-Language",
    AcceptRanges = "Accept-Ranges",
    Age = "Age",
    Allow = "Allow",
    AltSvc = "Alt-Svc",
    Authorization = "Authorization",
    CacheControl = "Cache-Control",
    Connection = "Connection",
    ContentDisposition = "Content-Disposition",
    ContentEncoding = "Content-Encoding",
    ContentLanguage = "Content-Language",
    ContentLength = "Content-Length",
    ContentRange = "Content-Range",
    ContentType = "Content-Type",
    Cookie = "Cookie",
    Date = "Date",
    Etag = "ETag",
    Expect = "Expect",
    Expires = "Expires",
    Forwarded = "Forwarded",
    Host = "Host",
    IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since",
    IfNoneMatch = "If-None-Match",
    IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since",
    KeepAlive = "Keep-Alive",
    LastModified = "Last-Modified",
    Link = "Link",
    Location = "Location",
    Origin = "Origin",
    Pragma = "Pragma",
    Priority = "Priority",
    Proxy = "Proxy",
    ProxyAuthenticate = "Proxy-Authenticate",
    ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection",
    ProxyStatus = "Proxy-Status",
    Range = "Range",
    Referer = "Referer",
    RetryAfter = "Retry-After",
    Server = "Server",
    SetCookie = "Set-Cookie",
    Status = "Status",
    StrictTransportSecurity = "Strict-Transport-Security",
    Te = "TE",
    Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding",
    Upgrade = "Upgrade",
    UserAgent = "User-Agent",
    Vary = "Vary",
    Via = "Via",
    WwwAuthenticate = "WWW-Authenticate",
    XAccelBuffering = "X-Accel-Buffering",
    XAccelExpires = "X-Accel-Expires",
    XAccelRedirect = "X-Accel-Redirect",
    XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host",
    XForwardedProto = "X-Forwarded-Proto",
    XPoweredBy = "X-Powered-By",
    XRealIp = "X-Real-IP",
    XRequestId = "X-Request-ID",
}

impl Name {
    /// The well-known name of this spelling, in any case.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Name> {
        let known = BY_HASH[usize::from(hash(name))]?;
        swar::is_same_name(name, known.as_str().as_bytes()).then_some(known)
    }

    /// Whether the field is between two neighbours only and is not passed on (RFC 9110 §7.6.1, RFC 9112 §9.6). What
    /// `Connection` names beside these is the caller's to look at.
    #[must_use]
    pub const fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::KeepAlive
                | Self::ProxyAuthenticate
                | Self::ProxyAuthorization
                | Self::ProxyConnection
                | Self::Te
                | Self::Trailer
                | Self::TransferEncoding
                | Self::Upgrade
        )
    }

    /// Its bit in a set of names.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

// One bit of a u64 each.
const _: () = assert!(Name::ALL.len() <= 64);

/// A number that is another one for each well-known name. Letters count alike in both cases.
#[inline]
const fn hash(name: &[u8]) -> u8 {
    let ([first, ..], [.., last]) = (name, name) else {
        return 0;
    };
    let middle = name[name.len() / 2];
    // Found by trying: with these factors no two names have the same number.
    (name.len() as u8)
        .wrapping_mul(LENGTH)
        .wrapping_add((*first | 0x20).wrapping_mul(FIRST))
        .wrapping_add((*last | 0x20).wrapping_mul(LAST))
        .wrapping_add((middle | 0x20).wrapping_mul(MIDDLE))
}

const LENGTH: u8 = 47;
const FIRST: u8 = 195;
const LAST: u8 = 85;
const MIDDLE: u8 = 23;

/// The names by their [`hash`].
static BY_HASH: [Option<Name>; 256] = {
    let mut names = [None; 256];
    let mut index = 0;
    while index < Name::ALL.len() {
        let name = Name::ALL[index];
        let place = hash(name.as_str().as_bytes()) as usize;
        assert!(
            names[place].is_none(),
            "two names have the same number: try other factors"
        );
        names[place] = Some(name);
        index += 1;
    }
    names
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_in_any_case() {
        for &name in Name::ALL {
            let text = name.as_str();
            assert_eq!(Name::of(text.as_bytes()), Some(name));
            assert_eq!(Name::of(text.to_uppercase().as_bytes()), Some(name));
            assert_eq!(Name::of(text.to_lowercase().as_bytes()), Some(name));
            assert_eq!(Name::of(&text.as_bytes()[1..]), None, "{text}");
            for (at, byte) in text.bytes().enumerate() {
                for other in (0..=u8::MAX).filter(|other| !other.eq_ignore_ascii_case(&byte)) {
                    let mut changed = text.as_bytes().to_vec();
                    changed[at] = other;
                    let found = Name::of(&changed);
                    assert!(found != Some(name), "{text} with {other} at {at}");
                }
            }
        }
        for other in [
            "",
            "X",
            "Hos",
            "Hosts",
            "Content_Length",
            "X-Something-Else",
        ] {
            assert_eq!(Name::of(other.as_bytes()), None, "{other}");
        }
    }
}
