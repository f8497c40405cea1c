//! Whether an answer may be stored, for how long and for whom (RFC 9111 §3), and whether a stored one may be used (§4).
//!
//! ```text
//!                 made ──────── lifetime ────────►│◄─ stale-while-revalidate ─►│
//!                                                 │◄────── stale-if-error ─────────────►│
//! [`Life::state`] Fresh                            StaleWhileRevalidate          StaleIfError   MustValidate
//! ```
//!
//! Stricter than the RFC:
//!
//! - An answer with `Set-Cookie` is never stored, nor is one whose `Cache-Control` cannot be read.
//! - No lifetime is guessed from `Last-Modified`.
//! - Cookies count as credentials unless the answer says expressly that it is for everybody. A stored answer that does not say so is
//!   not used for requests with credentials either.

#[cfg(test)]
mod tests;

use weir_semantics::conditions::date;

use super::{
    directives::{Directives, MOST_SECONDS, Seconds, delta_seconds},
    fields::Fields,
    status::Reason,
    vary::Vary,
};

/// A request, as far as the rules need it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r, F> {
    /// Its method.
    pub method: Method,
    /// Its fields.
    pub fields: &'r F,
    /// What could tell the application who asks.
    pub asker: Asker,
    /// Whether it has a body.
    pub has_body: bool,
}

/// A method, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS, TRACE: they change nothing.
    Safe,
    /// All others.
    Unsafe,
}

/// What could tell the application who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// Nothing.
    Anybody,
    /// Cookies. The answer may be for their owner alone, unless it says that it is for everybody. Stored answers may be used: nobody
    /// learns from them what is another's.
    WithCookies,
    /// `Authorization` or the like (RFC 9111 §3.5). Only answers that say that they are for everybody are stored or used.
    WithCredentials,
}

/// An answer, as the origin or the application gave it.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a, F> {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub fields: &'a F,
    /// When the request was sent.
    pub asked: u64,
    /// When the answer's head arrived.
    pub answered: u64,
}

/// What the site or the origin's configuration says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policy<'p> {
    /// The lifetime of answers that name none, if their status usually has one ([`LASTING`]). `None`: they are not stored, except to be
    /// validated.
    pub ttl: Option<u64>,
    /// For how long an answer with a status of 500 or more is fresh at most, if it names a lifetime. 0: it is never stored.
    pub longest_error: u64,
    /// For how long the configuration lets an answer be used after its lifetime if the origin fails. An answer without a lifetime, or with one
    /// that has passed, is stored for that.
    pub stale_if_error: u64,
    /// The targeted fields (RFC 9213) that are for this cache, in lower case; the first one counts.
    pub targeted: &'p [&'p str],
    /// `must-revalidate` also says that an answer to a request with credentials may be stored (RFC 9111 §3.5).
    pub must_revalidate_is_for_all: bool,
}

/// An answer that may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// For how long.
    pub life: Life,
    /// For which requests.
    pub vary: Vary,
}

/// The times of a stored answer, and what its origin said of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// When the origin made it, as its age tells (RFC 9111 §4.2.3).
    pub made: u64,
    /// For how long it is fresh from then on.
    pub lifetime: u64,
    /// For how long after that it may be used while one request renews it.
    pub stale_while_revalidate: u64,
    /// For how long after its lifetime it may be used if the origin fails.
    pub stale_if_error: u64,
    /// Whose word counts once it is stale.
    pub staleness: Staleness,
    /// It may be used for requests with credentials.
    pub is_for_all: bool,
}

/// How a stale answer may be used (RFC 9111 §4.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// As the origin, the configuration or the client allows it.
    Allowed,
    /// Only as the origin itself allows it (`s-maxage`).
    OriginsWord,
    /// Never (`no-cache`, `must-revalidate`, `proxy-revalidate`, and errors).
    Forbidden,
}

/// On which terms a stored answer is used.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Who asks.
    pub asker: Asker,
    /// What the client wants.
    pub wishes: Wishes,
    /// For how long after its lifetime the configuration allows an answer to be used while one request renews it.
    pub stale_while_revalidate: u64,
    /// For how long after its lifetime the configuration allows an answer to be used if the origin fails or is saturated.
    pub stale_if_error: u64,
}

/// What a client wants (RFC 9111 §5.2.1). The default: what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wishes {
    /// `no-cache`, also as `Pragma`: only what was validated for this request.
    pub no_cache: bool,
    /// `no-store`: not even a look.
    pub no_store: bool,
    /// `only-if-cached`: no request to the origin.
    pub only_if_cached: bool,
    /// `max-age`: nothing older.
    pub max_age: Option<u64>,
    /// `min-fresh`: nothing that is stale before.
    pub min_fresh: Option<u64>,
    /// `max-stale`: also what is stale for less than this.
    pub max_stale: Option<u64>,
    /// `stale-if-error`
    pub stale_if_error: Option<u64>,
}

/// What a stored answer is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It may be used.
    Fresh,
    /// It may be used at once, while one request renews it.
    StaleWhileRevalidate,
    /// It may be used if the origin fails, cannot be reached or is saturated.
    StaleIfError,
    /// It may be used only after the origin has said that it is still valid.
    MustValidate,
    /// It is not for this client.
    Withheld,
}

impl Method {
    /// The method of that name.
    #[must_use]
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" | b"TRACE" => Method::Safe,
            _ => Method::Unsafe,
        }
    }
}

impl Asker {
    /// By `Authorization` and `Cookie`. Who knows more of the cookies or of other credentials says so itself.
    #[must_use]
    pub fn of(request: &impl Fields) -> Asker {
        if request.has("authorization") {
            Asker::WithCredentials
        } else if request.has("cookie") {
            Asker::WithCookies
        } else {
            Asker::Anybody
        }
    }
}

impl<F: Fields> Request<'_, F> {
    /// Why the cache has nothing to do with this request, if so. A request for a part ([`Reason::Range`]) may be answered from the cache, but
    /// its answer is not stored.
    #[must_use]
    pub fn passes(&self) -> Option<Reason> {
        let has = |name: &str| self.fields.has(name);
        match self.method {
            Method::Safe | Method::Unsafe => Some(Reason::Method),
            _ if self.has_body => Some(Reason::Body),
            _ if has("if-match") || has("if-unmodified-since") => Some(Reason::Condition),
            Method::Get | Method::Head => None,
        }
    }
}

impl Wishes {
    /// Reads them.
    #[must_use]
    pub fn of(request: &impl Fields) -> Wishes {
        if !request.has("cache-control") {
            // Pragma counts only without Cache-Control (RFC 9111 §5.4).
            return Wishes {
                no_cache: request.has_token("pragma", "no-cache"),
                ..Wishes::default()
            };
        }
        let said = Directives::of(request);
        let limit = |seconds: Seconds| match seconds {
            Seconds::Absent => None,
            Seconds::Unclear => Some(0),
            Seconds::Of(seconds) => Some(seconds * 1000),
        };
        let leave = |seconds: Seconds| seconds.clear().map(|seconds| seconds * 1000);
        Wishes {
            no_cache: said.no_cache,
            no_store: said.no_store,
            only_if_cached: said.only_if_cached,
            max_age: limit(said.max_age),
            min_fresh: leave(said.min_fresh),
            max_stale: leave(said.max_stale),
            stale_if_error: leave(said.stale_if_error),
        }
    }

    /// Whether it accepts less than others do, so that it cannot share the answer to another request.
    #[must_use]
    pub fn are_picky(&self) -> bool {
        self.no_cache || self.max_age.is_some() || self.min_fresh.is_some()
    }
}

/// Whether the answer may be stored.
///
/// # Errors
/// Why not.
pub fn judge<R: Fields, A: Fields>(
    request: Request<'_, R>,
    answer: Answer<'_, A>,
    policy: &Policy<'_>,
) -> Result<Verdict, Reason> {
    request_allows(&request)?;
    judge_answer(request.asker, answer, policy)
}

/// Whether a whole answer to GET may be stored.
pub(crate) fn judge_answer<A: Fields>(
    asker: Asker,
    answer: Answer<'_, A>,
    policy: &Policy<'_>,
) -> Result<Verdict, Reason> {
    let said = Said::of(answer.fields, policy);
    answer_allows(&answer, &said)?;
    asker_allows(asker, &said, policy)?;
    let vary = Vary::of(answer.fields)?;
    let life = said.life(&answer, policy)?;
    Ok(Verdict { life, vary })
}

fn request_allows<R: Fields>(request: &Request<'_, R>) -> Result<(), Reason> {
    match request.passes() {
        Some(reason) => Err(reason),
        None if request.method == Method::Head => Err(Reason::Head),
        None if request.fields.has("range") => Err(Reason::Range),
        None => Ok(()),
    }
}

fn answer_allows<A: Fields>(answer: &Answer<'_, A>, said: &Said) -> Result<(), Reason> {
    let directives = &said.directives;
    if answer.fields.has("set-cookie") {
        return Err(Reason::SetCookie);
    }
    if directives.is_garbled {
        return Err(Reason::Unreadable);
    }
    if directives.private {
        return Err(Reason::Private);
    }
    if directives.no_store {
        return Err(Reason::NoStore);
    }
    let is_part = |value: &[u8]| value.to_ascii_lowercase().starts_with(b"bytes");
    if answer.status == 206 || answer.fields.values("content-range").any(is_part) {
        return Err(Reason::Partial);
    }
    let is_understood = UNDERSTOOD.contains(&answer.status);
    if answer.status < 200
        || answer.status == 304
        || answer.status > 599
        || (directives.must_understand && !is_understood)
    {
        return Err(Reason::Status);
    }
    Ok(())
}

fn asker_allows(asker: Asker, said: &Said, policy: &Policy<'_>) -> Result<(), Reason> {
    let says_so = said.directives.are_for_all() || said.is_targeted;
    match asker {
        Asker::WithCredentials if !said.is_for_all(policy) => Err(Reason::Credentials),
        Asker::WithCookies if !says_so => Err(Reason::Cookies),
        _ => Ok(()),
    }
}

/// What an answer says of its storing.
struct Said {
    directives: Directives,
    /// It says so in a targeted field: `Cache-Control` and `Expires` do not count (RFC 9213 §2.2).
    is_targeted: bool,
}

impl Said {
    fn of(answer: &impl Fields, policy: &Policy<'_>) -> Said {
        if let Some(directives) = Directives::targeted(answer, policy.targeted) {
            return Said {
                directives,
                is_targeted: true,
            };
        }
        let mut directives = Directives::of(answer);
        // PHP's sessions say it so, for caches of HTTP/1.0.
        directives.no_cache |=
            !answer.has("cache-control") && answer.has_token("pragma", "no-cache");
        Said {
            directives,
            is_targeted: false,
        }
    }

    /// Whether it may also be stored and used for requests with credentials (RFC 9111 §3.5).
    fn is_for_all(&self, policy: &Policy<'_>) -> bool {
        let said = &self.directives;
        said.are_for_all() || (said.must_revalidate && policy.must_revalidate_is_for_all)
    }

    fn life<A: Fields>(&self, answer: &Answer<'_, A>, policy: &Policy<'_>) -> Result<Life, Reason> {
        let said = &self.directives;
        let is_error = answer.status >= 500;
        if is_error && policy.longest_error == 0 {
            return Err(Reason::Error);
        }
        let named = self.lifetime(answer);
        let given = policy.ttl.filter(|_| LASTING.contains(&answer.status));
        let age = age(answer);
        let lifetime = match named.or(given) {
            // An age that cannot be read may be any.
            _ if age.is_none() || said.no_cache => 0,
            Some(lifetime) if is_error => lifetime.min(policy.longest_error),
            Some(lifetime) => lifetime,
            None => 0,
        };
        let leave = |seconds: Seconds| seconds.clear().unwrap_or(0) * 1000;
        let life = Life {
            made: answer.answered.saturating_sub(age.unwrap_or(0)),
            lifetime,
            stale_while_revalidate: leave(said.stale_while_revalidate),
            stale_if_error: leave(said.stale_if_error),
            staleness: if said.no_cache || said.must_revalidate || said.proxy_revalidate || is_error
            {
                Staleness::Forbidden
            } else if said.s_maxage != Seconds::Absent {
                Staleness::OriginsWord
            } else {
                Staleness::Allowed
            },
            is_for_all: self.is_for_all(policy),
        };
        let is_of_use = answer.answered < life.usable_until(policy.stale_if_error)
            || can_be_validated(answer.status, answer.fields);
        match (is_of_use, named.or(given)) {
            (true, _) => Ok(life),
            (false, None) if !said.no_cache => Err(Reason::NoLifetime),
            (false, _) => Err(Reason::Expired),
        }
    }

    /// The lifetime that the answer names (RFC 9111 §4.2.1).
    fn lifetime<A: Fields>(&self, answer: &Answer<'_, A>) -> Option<u64> {
        let said = &self.directives;
        let in_seconds = said.s_maxage.lifetime().or(said.max_age.lifetime());
        if in_seconds.is_some() || self.is_targeted {
            return in_seconds;
        }
        let fields = answer.fields;
        fields.has("expires").then(|| {
            let from = date(fields.values("date")).map_or(answer.answered, |date| date * 1000);
            let until = date(fields.values("expires")).unwrap_or(0) * 1000;
            until.saturating_sub(from).min(MOST_SECONDS * 1000)
        })
    }
}

/// How old an answer is when it arrives (RFC 9111 §4.2.3). `None`: its `Age` cannot be read.
fn age<A: Fields>(answer: &Answer<'_, A>) -> Option<u64> {
    let mut values = answer.fields.values("age");
    let said = match (values.next(), values.next()) {
        (None, _) => 0,
        (Some(age), None) => delta_seconds(age.trim_ascii())? * 1000,
        (Some(_), Some(_)) => return None,
    };
    let delay = answer.answered.saturating_sub(answer.asked);
    let apparent = date(answer.fields.values("date"))
        .map_or(0, |date| answer.answered.saturating_sub(date * 1000));
    // A date has no parts of a second.
    let apparent = apparent.saturating_sub(999);
    Some(apparent.max(said + delay))
}

impl Life {
    /// As bytes, for a store on disk: [`Life::from_bytes`] reads them.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LIFE_BYTES] {
        let mut bytes = [0; LIFE_BYTES];
        let times = [
            self.made,
            self.lifetime,
            self.stale_while_revalidate,
            self.stale_if_error,
        ];
        let words = [self.staleness as u8, u8::from(self.is_for_all)];
        let all = times.iter().flat_map(|time| time.to_le_bytes());
        for (byte, value) in bytes.iter_mut().zip(all.chain(words)) {
            *byte = value;
        }
        bytes
    }

    /// Reads what [`Life::to_bytes`] wrote; `None`: something else has written these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; LIFE_BYTES]) -> Option<Life> {
        let (times, words) = bytes.split_at(LIFE_BYTES - 2);
        let mut times = times.chunks_exact(8).map(|time| {
            time.iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        });
        Some(Life {
            made: times.next()?,
            lifetime: times.next()?,
            stale_while_revalidate: times.next()?,
            stale_if_error: times.next()?,
            staleness: *STALENESS.get(usize::from(words[0]))?,
            is_for_all: words[1] == 1,
        })
    }

    /// How old it is.
    #[must_use]
    pub fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.made)
    }

    /// Whether its lifetime has not passed.
    #[must_use]
    pub fn is_fresh(&self, now: u64) -> bool {
        self.age(now) < self.lifetime
    }

    /// For how many seconds it is still fresh; negative: since when it is stale.
    #[must_use]
    pub fn ttl(&self, now: u64) -> i64 {
        let seconds = |ms: u64| i64::try_from(ms / 1000).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.age(now)))
    }

    /// Until when it is of any use without being validated, if the configuration adds so much to its lifetime.
    #[must_use]
    pub fn usable_until(&self, stale: u64) -> u64 {
        let after = match self.staleness {
            Staleness::Forbidden => 0,
            Staleness::OriginsWord => self.longest_stale(),
            Staleness::Allowed => self.longest_stale().max(stale),
        };
        self.made
            .saturating_add(self.lifetime)
            .saturating_add(after)
    }

    /// What it is worth for a request.
    #[must_use]
    pub fn state(&self, now: u64, terms: &Terms) -> State {
        if terms.asker == Asker::WithCredentials && !self.is_for_all {
            return State::Withheld;
        }
        let (age, wishes) = (self.age(now), &terms.wishes);
        let left = self.lifetime.saturating_sub(age);
        if wishes.no_cache
            || wishes.max_age.is_some_and(|most| age > most)
            || wishes.min_fresh.is_some_and(|least| left < least)
        {
            return self.stale_state(now, terms, false);
        }
        match left > 0 {
            true => State::Fresh,
            false => self.stale_state(now, terms, true),
        }
    }

    /// Whether it may be used because the origin fails, in whichever state it is otherwise.
    #[must_use]
    pub fn may_stand_in(&self, now: u64, terms: &Terms) -> bool {
        match self.state(now, terms) {
            State::Fresh | State::StaleWhileRevalidate | State::StaleIfError => true,
            State::MustValidate | State::Withheld => false,
        }
    }

    /// `is_taken`: the client does not insist on a fresh one.
    fn stale_state(&self, now: u64, terms: &Terms, is_taken: bool) -> State {
        let by = self.stale_by(now);
        let allowed = |origin: u64, others: &[u64]| match self.staleness {
            Staleness::Forbidden => false,
            Staleness::OriginsWord => by < origin,
            Staleness::Allowed => by < origin || others.iter().any(|most| by < *most),
        };
        let wishes = &terms.wishes;
        if is_taken && allowed(0, &[wishes.max_stale.unwrap_or(0)]) {
            State::Fresh
        } else if is_taken && allowed(self.stale_while_revalidate, &[terms.stale_while_revalidate])
        {
            State::StaleWhileRevalidate
        } else if allowed(
            self.stale_if_error,
            &[terms.stale_if_error, wishes.stale_if_error.unwrap_or(0)],
        ) {
            State::StaleIfError
        } else {
            State::MustValidate
        }
    }

    /// For how long it has been stale.
    fn stale_by(&self, now: u64) -> u64 {
        self.age(now).saturating_sub(self.lifetime)
    }

    fn longest_stale(&self) -> u64 {
        self.stale_while_revalidate.max(self.stale_if_error)
    }
}

/// Whether the origin can be asked if a stored answer is still valid.
#[must_use]
pub fn can_be_validated(status: u16, fields: &impl Fields) -> bool {
    status == 200 && (fields.has("etag") || fields.has("last-modified"))
}

/// Statuses whose answers last, as a rule, so that a site can give them a lifetime (RFC 9110 §15.1).
pub const LASTING: [u16; 8] = [200, 203, 204, 300, 301, 308, 404, 410];

/// Length of [`Life::to_bytes`].
pub const LIFE_BYTES: usize = 34;

/// In the order of their numbers.
const STALENESS: [Staleness; 3] = [
    Staleness::Allowed,
    Staleness::OriginsWord,
    Staleness::Forbidden,
];

/// The statuses of RFC 9110 §15 whose answers this cache stores, for `must-understand`.
const UNDERSTOOD: [u16; 34] = [
    200, 201, 202, 203, 204, 205, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 406, 408,
    409, 410, 411, 413, 414, 415, 417, 421, 422, 426, 500, 501, 502, 503, 504,
];
