//! What the busy workers of a pool do (compute, or wait, and for what), and what helps.
//!
//! It is a function of what was observed: the CPU time of the workers, where slow scripts are, and which calls run.

use std::fmt::Write;

use serde_json::Value;

use super::{count, list, number, seconds};
use crate::text::text;

/// What was observed of a pool.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Share of their time in which busy workers compute, 0 to 1; `None`: not known.
    computing: Option<f64>,
    /// Processors that the pool uses, and that it may use.
    processors: (f64, f64),
    /// Busy share of the machine's processors, 0 to 1; `None`: not known.
    machine: Option<f64>,
    /// Where slow scripts are, the most frequent place first.
    places: Vec<Place>,
    /// Hosts that are called now, with the number of calls.
    calls: Vec<(String, u64)>,
    /// `serialize_by` is set for all requests.
    serialized: bool,
    /// Sites, routes and listeners for which it is not set, if it is set for others.
    not_serialized: Vec<String>,
    /// Stacks of slow scripts are written after so many seconds; 0: never.
    slow_after: f64,
    /// PHP is weir's own.
    is_php: bool,
    /// The pool's name.
    pool: String,
}

#[derive(Debug)]
struct Place {
    function: String,
    at: String,
    count: u64,
    wait: Wait,
}

/// What a function waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Session,
    Lock,
    Sleep,
    Name,
    Call,
    Database,
    Store,
    Program,
    Mail,
    /// A file, a socket or a stream: the function does not tell.
    Stream,
    /// The script is in no function that waits.
    Nothing,
}

/// What to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Help {
    pub(super) text: String,
    /// Whether more workers would answer more requests, if memory allows them.
    pub(super) more_workers: bool,
}

impl Work {
    /// From the status of a pool.
    pub(super) fn of(pool: &Value) -> Work {
        let work = &pool["work"];
        let place = |place: &Value| {
            let function = text(&place["function"]);
            Place {
                wait: Wait::of(&function),
                function,
                at: text(&place["at"]),
                count: number(&place["count"]),
            }
        };
        let call = |call: &Value| (text(&call["host"]), number(&call["count"]));
        Work {
            computing: work["computing"].as_f64(),
            processors: (
                seconds(&work["processors"]),
                seconds(&work["usable_processors"]),
            ),
            machine: work["machine"].as_f64(),
            places: list(&work["slow_at"]).iter().map(place).collect(),
            calls: list(&work["calls"]).iter().map(call).collect(),
            serialized: work["serialized"] == true,
            not_serialized: list(&work["not_serialized"]).iter().map(text).collect(),
            slow_after: seconds(&work["request_slowlog_timeout"]),
            is_php: pool["runtime"] == "php",
            pool: super::name(pool),
        }
    }

    /// `they wait (computing 2 % of the time): 4 in curl_exec() at /srv/a.php:7; 4 calls to api.example run`. `None`: nothing was
    /// observed.
    pub(super) fn told(&self) -> Option<String> {
        let mut told = match self.computing {
            Some(share) => {
                let percent = share * 100.0;
                match (self.computes(), self.is_starved()) {
                    (true, true) => format!(
                        "they compute: the processors are busy, and the pool gets {:.1} of {:.0}",
                        self.processors.0, self.processors.1
                    ),
                    (true, false) => format!("they compute ({percent:.0} % of the time)"),
                    (false, _) => format!("they wait (computing {percent:.0} % of the time)"),
                }
            }
            None if self.places.is_empty() && self.calls.is_empty() => return None,
            None => "they are slow".to_owned(),
        };
        let places = self.places.iter().take(MOST_PLACES);
        let places: Vec<String> = places
            .map(|place| format!("{} in {}() at {}", place.count, place.function, place.at))
            .collect();
        if !places.is_empty() {
            let _ = write!(told, ": {}", places.join(", "));
        }
        let calls = self.calls.iter().take(MOST_PLACES);
        for (host, running) in calls {
            let verb = if *running == 1 { "runs" } else { "run" };
            let _ = write!(told, "; {} to {host} {verb}", count(*running, "call"));
        }
        Some(told)
    }

    /// What helps against this. `limit`: the option that allows more requests at once.
    pub(super) fn help(&self, limit: &str) -> Help {
        if self.computes() {
            return self.for_computing(limit);
        }
        match self.cause() {
            // A stream may be one to a host.
            None | Some(Wait::Stream) if !self.calls.is_empty() => self.for_calls(),
            Some(cause) => self.for_waiting(cause),
            None => self.for_unknown(limit),
        }
    }

    /// Whether computing is what takes the time.
    fn computes(&self) -> bool {
        self.computing.is_some_and(|share| share >= COMPUTES) || self.is_starved()
    }

    /// Whether scripts wait for a processor: they would compute more if there were more.
    fn is_starved(&self) -> bool {
        let (used, usable) = self.processors;
        let computes_at_all = self.computing.is_some_and(|share| share >= SOMEWHAT);
        let all = usable > 0.0 && used >= usable * FULL;
        computes_at_all && (all || self.is_machine_busy())
    }

    fn is_machine_busy(&self) -> bool {
        self.machine.is_some_and(|busy| busy >= FULL)
    }

    /// What most slow scripts wait for. Scripts that wait for a lock wait for a script that does something else, so a
    /// few of the others are enough.
    fn cause(&self) -> Option<Wait> {
        let all: u64 = self.places.iter().map(|place| place.count).sum();
        let of = |wait: Wait| -> u64 {
            let such = self.places.iter().filter(|place| place.wait == wait);
            such.map(|place| place.count).sum()
        };
        for lock in [Wait::Session, Wait::Lock] {
            if of(lock) * 3 >= all && of(lock) > 0 {
                return Some(lock);
            }
        }
        let waits = self.places.iter().map(|place| place.wait);
        let waits = waits.filter(|wait| *wait != Wait::Nothing);
        // Of equal ones the first.
        waits.rev().max_by_key(|wait| of(*wait))
    }

    fn for_computing(&self, limit: &str) -> Help {
        let first = self.places.first();
        let place = match first {
            Some(place) => format!("look at {}() at {} first", place.function, place.at),
            None => "profile it".to_owned(),
        };
        let (used, usable) = self.processors;
        let is_full = self.is_starved() || self.is_machine_busy() || used >= usable * FULL;
        match is_full {
            true => help(format!(
                "make the script compute less ({place}; OPcache with JIT, caches), or use a machine with more processors. More \
                 workers would only share the same processors"
            )),
            false => Help {
                text: format!(
                    "make the script compute less ({place}). Processors are idle, so as many more workers as there are \
                     processors help: raise {limit}"
                ),
                more_workers: true,
            },
        }
    }

    fn for_waiting(&self, wait: Wait) -> Help {
        let text = match wait {
            Wait::Session if self.serialized => {
                "scripts of one visitor wait for each other: a script holds its session too long. Call session_write_close() as \
                 early as possible, or open sessions with read_and_close. More workers would wait, too"
            }
            Wait::Session if !self.not_serialized.is_empty() => return self.for_some_serialized(),
            Wait::Session => {
                "scripts of one visitor wait for each other, because one of them holds the session: call session_write_close() \
                 as early as possible. serialize_by = \"auto\" in [pool.NAME.queue] lets them wait in the queue instead of in \
                 workers, so that others are answered. More workers would wait, too"
            }
            Wait::Lock => {
                "scripts wait for a lock that another one holds: hold it for a shorter time (no calls and no sleep while \
                 it is held), use a lock for each object, or LOCK_NB and an error. More workers would wait for the same lock"
            }
            Wait::Sleep => {
                "the script pauses on purpose: take the pause out, or move the work into a program that runs outside of \
                 requests (a queue, cron). Each pause occupies a worker"
            }
            Wait::Name => {
                "looking up names is slow: check the DNS servers of /etc/resolv.conf (options timeout:1 attempts:1), install a \
                 local resolver, or call through [egress], which keeps names. More workers would wait for the same servers"
            }
            Wait::Database => {
                "the database is slow or has locks: see its list of running queries (SHOW PROCESSLIST, pg_stat_activity) and \
                 its slow query log; an index or a shorter transaction usually helps. More workers would load it more"
            }
            Wait::Store => {
                "the cache server is slow, away, or gives locks: check it (SLOWLOG GET, latency), and set a short timeout for \
                 its connections. More workers would wait for it, too"
            }
            Wait::Program => {
                "scripts wait for programs that they start: run these outside of requests (a queue, cron), or limit their time"
            }
            Wait::Mail => {
                "sending mail is slow: give it to a local mail server or a queue, which answers at once"
            }
            Wait::Stream => {
                "scripts wait for a file system, a socket or another stream: check the disk or the network share, and set \
                 timeouts (default_socket_timeout, stream_set_timeout)"
            }
            Wait::Call => return self.for_calls(),
            Wait::Nothing => "see the slow log for where the scripts are",
        };
        help(text.replace("NAME", &self.pool))
    }

    /// Sessions, where only some requests wait for their turn in the queue.
    fn for_some_serialized(&self) -> Help {
        let more = match self.not_serialized.len().saturating_sub(MOST_PLACES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let first = self.not_serialized.iter().take(MOST_PLACES);
        let first: Vec<&str> = first.map(String::as_str).collect();
        help(format!(
            "scripts of one visitor wait for each other, because one of them holds the session: call session_write_close() \
             as early as possible. serialize_by lets them wait in the queue instead of in workers; it is not set for {}{more}. \
             More workers would wait, too",
            first.join(", ")
        ))
    }

    fn for_calls(&self) -> Help {
        let who = match self.calls.first() {
            Some((host, _)) => format!("{host} answers slowly: ask its operator"),
            None => "another service answers slowly: ask its operator (with [egress], weir shows which host it is)"
                .to_owned(),
        };
        help(format!(
            "{who}, set a short timeout for the call (CURLOPT_TIMEOUT, default_socket_timeout, first_byte_timeout of [egress]), \
             keep its answers in a cache, or call it outside of requests. More workers would only wait for it, too"
        ))
    }

    fn for_unknown(&self, limit: &str) -> Help {
        if self.computing.is_none() {
            return Help {
                text: format!(
                    "raise {limit} if processor and memory allow it, or make the scripts faster"
                ),
                more_workers: true,
            };
        }
        let find = match (self.is_php, self.slow_after) {
            (true, 0.0) => "request_slowlog_timeout shows for what",
            (true, _) => "a shorter request_slowlog_timeout shows for what",
            _ => "find out for what",
        };
        Help {
            text: format!(
                "the scripts wait for something else than the processor ({find}). If that can take more requests at once, raise {limit} \
                 as far as memory allows"
            ),
            more_workers: true,
        }
    }
}

impl Wait {
    /// What a function of PHP waits for; methods have their class: `PDOStatement::execute`.
    fn of(function: &str) -> Wait {
        let name = function.trim_start_matches('\\').to_ascii_lowercase();
        let matches = |pattern: &str| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        };
        let mut waits = WAITS.iter();
        let found = waits.find(|(_, patterns)| patterns.split(' ').any(matches));
        found.map_or(Wait::Nothing, |(wait, _)| *wait)
    }
}

fn help(text: impl Into<String>) -> Help {
    Help {
        text: text.into(),
        more_workers: false,
    }
}

/// What functions wait for, by name; `*` at the end: any end. The first match counts.
const WAITS: &[(Wait, &str)] = &[
    (
        Wait::Session,
        "session_start session_regenerate_id session_reset sessionhandler::*",
    ),
    (
        Wait::Lock,
        "flock splfileobject::flock spltempfileobject::flock sem_acquire dio_fcntl apcu_entry syncmutex::* \
         syncsemaphore::* syncreaderwriter::* dba_open dba_popen",
    ),
    (Wait::Sleep, "sleep usleep time_nanosleep time_sleep_until"),
    (
        Wait::Name,
        "gethostby* dns_* checkdnsrr getmxrr socket_addrinfo_lookup",
    ),
    (
        Wait::Call,
        "curl_exec curl_multi_* soapclient::* fsockopen pfsockopen stream_socket_client stream_socket_enable_crypto \
         socket_* ldap_* ftp_* ssh2_* imap_* snmp* get_headers",
    ),
    (
        Wait::Database,
        "pdo::* pdostatement::* mysqli::* mysqli_* pg_* oci_* sqlsrv_* odbc_* db2_* sqlite3::* sqlite3stmt::* \
         sqlite3result::* mongodb\\* ibase_* fbird_*",
    ),
    (
        Wait::Store,
        "redis::* rediscluster::* redisarray::* memcached::* memcache::* memcache_* amqp*",
    ),
    (
        Wait::Program,
        "exec shell_exec system passthru proc_open proc_close popen pclose pcntl_wait*",
    ),
    (Wait::Mail, "mail mb_send_mail"),
    (
        Wait::Stream,
        "fopen fread fgets fgetc fgetcsv fwrite fputs fflush fsync fclose file file_get_contents file_put_contents \
         readfile fpassthru copy stream_* opendir readdir scandir glob stat file_exists is_file is_dir filemtime filesize \
         unlink rename mkdir rmdir touch splfileobject::* directoryiterator::*",
    ),
];

/// From this share on, computing is what takes the time.
const COMPUTES: f64 = 0.5;

/// From this share on, scripts that do not get a processor would compute more.
const SOMEWHAT: f64 = 0.1;

/// From this share on, processors count as fully used.
const FULL: f64 = 0.9;

/// Maximum number of places and hosts that are named.
const MOST_PLACES: usize = 3;

#[cfg(test)]
#[path = "work/tests.rs"]
mod tests;
