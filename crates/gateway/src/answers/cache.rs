//! The cache of pages: what scripts have answered is sent again, without a worker, to whom it may be sent.
//!
//! ```text
//! Upstream ─► look ─┬─ hit                              the stored page
//!                   ├─ stale ─► renewal                 an expired page, while one request of low priority renews it
//!                   ├─ Follow ─► look                   an equal request is on its way: thousands wait as one
//!                   └─ Ask … Worker ─► answered ─┬─ the stored page: it is still valid, or the application has failed
//!                                                └─ its answer, which is copied to the store while it is sent
//! ```
//! The rules of HTTP and the store are in `weir_cache`. What is decided here: which requests ask the cache, and for which page
//! ([`question`]); what a client gets of a stored page ([`hit`]); what becomes of an answer ([`answered`]); what an edit outdates
//! ([`purge`]). Steps and waiting are in `exchange/cached.rs`.
//!
//! All reactors share the store. Its locks are held for a few comparisons, and never while something waits.

mod answered;
pub(crate) mod bus;
mod hit;
mod page;
mod purge;
mod question;
mod rules;
pub(crate) mod show;

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::Method;
use weir_bus::{Bus, What};
use weir_cache::{
    Asker, Forward, State, Terms, Vary, Wishes,
    flights::{Flights, Following, Joined, Landing, Leader},
    key::{Key, KeyHash},
    purges::{Asked, Manner, Purge, Standing},
    store::{Found, OnDisk, ReadBack, Store},
};
use weir_config::Config;
use weir_http::Reply;
use weir_http1::{Name, ParsedFields};
use weir_observe::cache_use::CacheUse;
use weir_semantics::coding::Coding;

pub(crate) use self::{
    answered::{Becomes, PageCopy, answered, failed},
    page::StoredPage,
    rules::Cached,
};
use self::{
    page::Kept,
    question::{Apart, Page, Question},
    show::Refusals,
};
use crate::{dispatch::PoolHandle, record::Record, scripts::spool::Spooled};

/// The stored pages of all sites.
pub(crate) struct Pages {
    store: Arc<Store<Kept>>,
    flights: Arc<Flights<()>>,
    /// Larger pages are not stored, bytes.
    max_object: u64,
    refused: Mutex<Refusals>,
    /// The other nodes, if the configuration has a bus and it runs.
    bus: OnceLock<Bus>,
}

/// What the cache has for a request.
pub(crate) enum Looked {
    /// The answer.
    Found(Reply),
    /// An expired page. This request renews it, if no other one does.
    Stale(Reply, Option<Box<Fetch>>),
    /// An equal request is on its way.
    Follow(Following<()>),
    /// The disk has something, which a thread must read. Then [`look_again`] follows.
    Read(OnDisk<Kept>),
    /// The application must answer. What the cache needs of the request is in the record.
    Ask,
}

/// What the cache needs of a request that the application answers.
#[derive(Debug)]
pub(crate) enum Asking {
    /// Its answer is not stored.
    Apart(Apart),
    /// If it succeeds, what is stored of this page is outdated.
    Write(Page),
    /// Its answer may be stored.
    Page(Box<Fetch>),
}

/// A request for a page that is not stored, or must be validated.
#[derive(Debug)]
pub(crate) struct Fetch {
    key: Key,
    /// Why no stored page was sent.
    why: Forward,
    /// The expired page.
    stored: Option<Arc<StoredPage>>,
    /// That one was purged. Its application may not know by the page's validators that it has changed: dates have no parts of a
    /// second.
    is_purged: bool,
    /// The application is asked whether that one is still valid.
    validates: bool,
    /// Equal requests wait for this one.
    leader: Option<Leader<()>>,
    /// When the application was asked: for purges, and in milliseconds since 1970.
    asked: Asked,
    asked_at: u64,
    /// The client's fields, if the application does not see its conditions and ranges.
    said: Option<Box<ParsedFields>>,
    /// How often it has waited for equal requests, and for the disk.
    waited: u8,
    reads: u8,
}

/// What is stored for a request.
enum Held {
    Nothing,
    Page(Arc<StoredPage>, Standing),
    /// Perhaps a page, which must be read first.
    OnDisk(OnDisk<Kept>),
}

impl Pages {
    /// What is in its folder, if it has one. `chroot`: the gateway's.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or the kernel gives no random numbers.
    pub(crate) fn new(
        config: &Config,
        settings: &weir_config::Cache,
        chroot: Option<&Path>,
    ) -> io::Result<Pages> {
        let limits = page::limits(config, settings);
        let store = match &settings.disk {
            Some(folder) => Store::open(limits, page::disk(settings, folder, chroot)?)?,
            None => Store::new(limits)?,
        };
        Ok(Pages {
            store,
            flights: Flights::new(MOST_FOLLOWERS),
            max_object: settings.max_object,
            refused: Mutex::default(),
            bus: OnceLock::new(),
        })
    }

    /// Keeps the compressed form of a page, so that it is compressed once for all clients.
    pub(crate) fn keep_form(&self, page: &Arc<StoredPage>, coding: Coding, form: Bytes) {
        self.store.add_coded(page, coding as usize, form);
    }

    /// Makes pages outdated, here and on the other nodes.
    fn purge(&self, what: What, manner: Manner) {
        self.outdate(&what, manner);
        if let Some(bus) = self.bus.get() {
            let is_hard = manner == Manner::Hard;
            bus.tell(weir_bus::Purge { what, is_hard });
        }
    }

    /// Makes pages outdated here.
    fn outdate(&self, what: &What, manner: Manner) {
        let seed = self.store.seed();
        let purge = match what {
            What::Tag { site, tag } => Purge::Subject(seed.tag(site, tag)),
            What::Url { site, host, target } => Purge::Subject(seed.url(site, host, target)),
            What::Site { site } => Purge::Subject(seed.site(site)),
            What::Prefix { site, host, target } => Purge::Prefix {
                site: site.clone().into(),
                host: host.clone().map(Into::into),
                target: target.clone().into(),
            },
            What::All => Purge::All,
        };
        self.store.purge(&purge, manner);
    }

    /// Looks for the page, and for requests that fetch it.
    fn look(&self, record: &mut Record, cached: &Cached, mut fetch: Box<Fetch>) -> Looked {
        let (now, fields) = (now(), &record.head.fields);
        let wishes = match cached.said.client_directives {
            true => Wishes::of(fields),
            false => Wishes::default(),
        };
        let terms = Terms {
            asker: asker(fields, cached),
            wishes,
            stale_while_revalidate: 0,
            stale_if_error: millis(cached.said.grace),
        };
        let mut is_withheld = false;
        let held = self.held(&fetch.key, fields);
        if let Held::OnDisk(on_disk) = held {
            if fetch.reads < MOST_READS {
                fetch.reads += 1;
                record.rare_mut().asking = Some(Box::new(Asking::Page(fetch)));
                return Looked::Read(on_disk);
            }
        } else if let Held::Page(stored, standing) = held {
            let state = stored.head.life.state(now, &terms);
            let is_valid = standing == Standing::Valid;
            fetch.is_purged = !is_valid;
            match state {
                State::Fresh if is_valid => {
                    return Looked::Found(hit::fresh(record, cached, &stored, (&fetch, now)));
                }
                State::StaleWhileRevalidate if is_valid => {
                    fetch.stored = Some(stored);
                    return self.stale(record, cached, fetch, "renewed");
                }
                State::Fresh | State::StaleWhileRevalidate | State::StaleIfError
                    if record.pool.is_some_and(|pool| is_full(pool, cached)) =>
                {
                    fetch.stored = Some(stored);
                    return self.stale(record, cached, fetch, "busy");
                }
                State::Withheld => {
                    fetch.why = Forward::Miss;
                    is_withheld = true;
                }
                _ => {
                    fetch.why = match stored.head.life.ttl(now) > 0 && is_valid {
                        true => Forward::Request,
                        false => Forward::Stale,
                    };
                    fetch.stored = Some(stored);
                }
            }
        }
        if wishes.only_if_cached {
            return Looked::Found(hit::nothing(record, cached));
        }
        let is_joint = record.head.method == Method::GET
            && !is_withheld
            && !wishes.are_picky()
            && terms.asker != Asker::WithCredentials
            && fetch.waited < MOST_WAITS;
        if is_joint {
            match self.flights.join(self.flight(&fetch.key, fields), now) {
                Joined::Lead(leader) => fetch.leader = Some(leader),
                Joined::Follow(following) => {
                    record.rare_mut().asking = Some(Box::new(Asking::Page(fetch)));
                    return Looked::Follow(following);
                }
                Joined::Pass => {}
            }
        }
        self.ask(record, cached, fetch)
    }

    /// The application is asked for the page.
    fn ask(&self, record: &mut Record, cached: &Cached, mut fetch: Box<Fetch>) -> Looked {
        fetch.asked = self.store.asked();
        fetch.asked_at = now();
        record.cache = Some(match fetch.stored {
            Some(_) => CacheUse::Expired,
            None => CacheUse::Miss,
        });
        if record.head.method == Method::GET {
            question::hide_query(record, cached);
        }
        // Who follows nobody and leads nobody may have an answer that is not stored: the application does what it would do
        // without a cache.
        if fetch.leader.is_some() {
            fetch.prepare(&mut record.head.fields);
        }
        record.rare_mut().asking = Some(Box::new(Asking::Page(fetch)));
        Looked::Ask
    }

    /// An expired page. Whoever comes first renews it.
    fn stale(
        &self,
        record: &mut Record,
        cached: &Cached,
        mut fetch: Box<Fetch>,
        why: &'static str,
    ) -> Looked {
        let Some(stored) = fetch.stored.clone() else {
            return Looked::Ask;
        };
        let fields = &record.head.fields;
        let joined = self.flights.join(self.flight(&fetch.key, fields), now());
        let reply = hit::stale(record, cached, &stored, why);
        let renewal = match joined {
            Joined::Lead(leader) => {
                fetch.leader = Some(leader);
                Some(fetch)
            }
            Joined::Follow(_) | Joined::Pass => None,
        };
        Looked::Stale(reply, renewal)
    }

    /// What is stored for such a request.
    fn held(&self, key: &Key, fields: &ParsedFields) -> Held {
        for _ in 0..MOST_READS {
            match self.store.look(key, |names| selects(names, fields)) {
                Found::Miss => return Held::Nothing,
                Found::Hit(stored, standing) => return Held::Page(stored, standing),
                Found::OnDisk(on_disk) => match on_disk.read_cached() {
                    Some(ReadBack::Hit(stored, standing)) => return Held::Page(stored, standing),
                    Some(ReadBack::Miss) => return Held::Nothing,
                    Some(ReadBack::Again) => {}
                    None => return Held::OnDisk(on_disk),
                },
            }
        }
        Held::Nothing
    }

    /// The stored page for such a request, and what purges say of it, without waiting for the disk.
    fn stored(&self, key: &Key, fields: &ParsedFields) -> Option<(Arc<StoredPage>, Standing)> {
        match self.held(key, fields) {
            Held::Page(stored, standing) => Some((stored, standing)),
            Held::Nothing | Held::OnDisk(_) => None,
        }
    }

    /// Writes what waits to be written to the disk.
    pub(crate) fn flush(&self) {
        self.store.flush();
    }

    /// Why answers were not stored.
    fn refused(&self) -> MutexGuard<'_, Refusals> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By what equal requests know each other.
    fn flight(&self, key: &Key, fields: &ParsedFields) -> KeyHash {
        self.store.flight(key, |names| selects(names, fields))
    }
}

/// Looks for the answer to a request for a script of a site with a cache. `body`: of the request.
pub(crate) fn look(record: &mut Record, cached: &Cached, body: Option<&Spooled>) -> Looked {
    let Some(pages) = &record.gateway.pages else {
        return Looked::Ask;
    };
    let page = match Question::of(record, cached, body) {
        Question::Page(page) => page,
        Question::Apart(apart) => return passes(record, Asking::Apart(apart)),
        Question::Write(page) => return passes(record, Asking::Write(page)),
    };
    question::hide_cookies(&mut record.head.fields, cached);
    let site = record.site_name().unwrap_or_default().as_bytes();
    let fetch = Fetch {
        key: page.key(pages.store.seed(), site),
        why: Forward::UriMiss,
        stored: None,
        is_purged: false,
        validates: false,
        leader: None,
        asked: Asked::default(),
        asked_at: 0,
        said: None,
        waited: 0,
        reads: 0,
    };
    pages.look(record, cached, Box::new(fetch))
}

/// The equal request that this one has waited for is answered, or has left.
pub(crate) fn landed(record: &mut Record, cached: &Cached, landing: Landing<()>) -> Looked {
    let Some(pages) = &record.gateway.pages else {
        return Looked::Ask;
    };
    let Some(mut fetch) = taken(record) else {
        return Looked::Ask;
    };
    fetch.waited = fetch.waited.saturating_add(1);
    match landing {
        Landing::Look => pages.look(record, cached, fetch),
        Landing::Lead(leader) => {
            fetch.leader = Some(leader);
            pages.ask(record, cached, fetch)
        }
        Landing::Pass | Landing::Failed(()) => pages.ask(record, cached, fetch),
    }
}

/// What the disk had was read.
pub(crate) fn look_again(record: &mut Record, cached: &Cached) -> Looked {
    match (&record.gateway.pages, taken(record)) {
        (Some(pages), Some(fetch)) => pages.look(record, cached, fetch),
        _ => Looked::Ask,
    }
}

/// The request for a page that waits.
fn taken(record: &mut Record) -> Option<Box<Fetch>> {
    match *record.rare_mut().asking.take()? {
        Asking::Page(fetch) => Some(fetch),
        Asking::Apart(_) | Asking::Write(_) => None,
    }
}

/// This request renews an expired page.
pub(crate) fn renews(record: &mut Record, cached: &Cached, fetch: Box<Fetch>) {
    if let Some(pages) = &record.gateway.pages {
        pages.ask(record, cached, fetch);
    }
}

fn passes(record: &mut Record, asking: Asking) -> Looked {
    record.cache = Some(CacheUse::Bypass);
    record.rare_mut().asking = Some(Box::new(asking));
    Looked::Ask
}

impl Fetch {
    /// Replaces the client's conditions by those of the cache: for the stored page, or none, so that a complete answer comes, which can be
    /// stored.
    fn prepare(&mut self, fields: &mut ParsedFields) {
        let stored = self.stored.as_ref();
        if stored.is_none() && !fields.has_any(&PARTIAL) {
            return;
        }
        self.said = Some(Box::new(fields.clone()));
        for name in PARTIAL {
            fields.remove(name.as_str().as_bytes());
        }
        let Some(stored) = stored.filter(|_| !self.is_purged) else {
            return;
        };
        for (condition, validator) in [
            (Name::IfNoneMatch, Name::Etag),
            (Name::IfModifiedSince, Name::LastModified),
        ] {
            if let Some(value) = stored.head.fields.get(validator) {
                fields.set(condition.as_str().as_bytes(), value);
                self.validates = true;
            }
        }
    }
}

/// Whether the pool has no worker soon: none at all, or others wait for long, or would.
fn is_full(pool: &PoolHandle, cached: &Cached) -> bool {
    let limit = cached.said.stale_wait.as_micros();
    let waits = || {
        let stats = pool.stats();
        u128::from(stats.expected_wait.max(stats.oldest_wait).0) >= limit
    };
    pool.is_lost() || waits()
}

/// Who asks, as far as the application can know. If weir imposes lifetimes, the application sees only cookies of the key.
fn asker(fields: &ParsedFields, cached: &Cached) -> Asker {
    match fields.has(Name::Cookie) {
        _ if question::has_credentials(fields) => Asker::WithCredentials,
        true if !cached.is_imposed() => Asker::WithCookies,
        _ => Asker::Anybody,
    }
}

/// What a request says in the fields that a page varies by.
fn selects(names: &[u8], fields: &ParsedFields) -> Vec<u8> {
    // They are as `Judged` wrote them.
    Vary::from_bytes(names).map_or_else(Vec::new, |vary| vary.selects(fields))
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, millis)
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The fields by which a client asks for less than the whole page.
const PARTIAL: [Name; 4] = [
    Name::IfNoneMatch,
    Name::IfModifiedSince,
    Name::Range,
    Name::IfRange,
];

/// How many requests wait for one.
const MOST_FOLLOWERS: usize = 100_000;

/// How often a request waits for equal ones. A page of which each visitor gets another variant is not worth more.
const MOST_WAITS: u8 = 3;

/// How often a request waits for the disk: other requests may change meanwhile what is stored.
const MOST_READS: u8 = 3;
