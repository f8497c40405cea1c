//! The field names that HTTP software asks for. Each name of a head is compared with them once, when the head is read;
//! later every question is a comparison of numbers.

macro_rules! names {
    ($($name:ident = $text:literal,)*) => {
        /// A well-known field name. Its number is the bit that [`Fields`](crate::Fields) keeps for it.
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
        let (Some(range), [first, .., last]) = (LENGTHS.get(name.len()), name) else {
            return None;
        };
        let ends = [first | 0x20, last | 0x20];
        BY_LENGTH[usize::from(range.0)..usize::from(range.1)]
            .iter()
            .find(|(known, of_known)| {
                // First and last letter tell nearly all names of one length apart.
                *of_known == ends && known.as_str().as_bytes().eq_ignore_ascii_case(name)
            })
            .map(|(known, _)| *known)
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

/// Longest well-known name, bytes.
const LONGEST: usize = "Strict-Transport-Security".len();

/// The names, shorter ones first, with the first and the last letter of each in lower case.
static BY_LENGTH: [(Name, [u8; 2]); Name::ALL.len()] = {
    let mut sorted = [(Name::Accept, [0; 2]); Name::ALL.len()];
    let (mut count, mut length) = (0, 0);
    while length <= LONGEST {
        let mut index = 0;
        while index < Name::ALL.len() {
            let text = Name::ALL[index].as_str().as_bytes();
            if text.len() == length {
                let ends = [text[0] | 0x20, text[length - 1] | 0x20];
                sorted[count] = (Name::ALL[index], ends);
                count += 1;
            }
            index += 1;
        }
        length += 1;
    }
    assert!(count == Name::ALL.len());
    sorted
};

/// Where the names of each length are in [`BY_LENGTH`]: from, and to.
static LENGTHS: [(u8, u8); LONGEST + 1] = {
    let mut ranges = [(0, 0); LONGEST + 1];
    let mut index = 0;
    while index < BY_LENGTH.len() {
        let length = BY_LENGTH[index].0.as_str().len();
        if ranges[length].1 == 0 {
            ranges[length].0 = index as u8;
        }
        ranges[length].1 = index as u8 + 1;
        index += 1;
    }
    ranges
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
