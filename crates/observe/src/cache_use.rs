//! What the cache of a site had for a request: a word in the access log, and a count of the site.

/// What the cache had for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// A stored answer that is fresh.
    Hit,
    /// The answer that an equal request was waiting for.
    Joined,
    /// A stored answer that has expired: while another request renews it, or because the pool is full or fails.
    Stale,
    /// A stored answer that had expired: the application has said that it is still valid.
    Validated,
    /// The same, but the application has made another answer.
    Expired,
    /// Nothing.
    Miss,
    /// The cache was not asked.
    Bypass,
}

impl CacheUse {
    /// All of them, in the order of their counts.
    pub const ALL: [CacheUse; 7] = [
        CacheUse::Hit,
        CacheUse::Joined,
        CacheUse::Stale,
        CacheUse::Validated,
        CacheUse::Expired,
        CacheUse::Miss,
        CacheUse::Bypass,
    ];

    /// As logs and metrics name it.
    pub fn word(self) -> &'static str {
        match self {
            CacheUse::Hit => "hit",
            CacheUse::Joined => "joined",
            CacheUse::Stale => "stale",
            CacheUse::Validated => "validated",
            CacheUse::Expired => "expired",
            CacheUse::Miss => "miss",
            CacheUse::Bypass => "bypass",
        }
    }
}
