//! Clients that request one page again and again. Each sends its next request when it has its answer, and checks every
//! answer.
//!
//! Unlike the usual load generators, this program checks each body, knows the longest wait of every client, and counts
//! the clients that never got an answer. It uses one thread, to take little processor time from the servers on the same
//! machine.
//!
//! ```text
//! weir-bench-clients http://HOST:PORT/PATH [--clients N] [--seconds S | --requests N] [--close true]
//!     [--expect FILE | --contains TEXT | --post true] [--timeout S] [--drain S] [--progress N]
//! ```
//!
//! Prints one line of JSON. With `--progress` it also prints a line with the number of answers after each N.

#![forbid(unsafe_code)]

mod client;
mod response;

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write as _},
    net::SocketAddr,
    os::fd::OwnedFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use client::{Client, Expected, Outcome, Plan, Wants};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
};

fn main() -> ExitCode {
    match Options::from_args(env::args().skip(1)).and_then(|options| {
        let figures = run(&options).map_err(|e| e.to_string())?;
        print(&figures).map_err(|e| e.to_string())
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench-clients: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The options of the command line.
struct Options {
    plan: Plan,
    clients: usize,
    /// New requests start for this time,
    seconds: Duration,
    /// or until this many have started.
    requests: u64,
    /// How long to wait for answers after that.
    drain: Duration,
    progress: u64,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let url = args.next().ok_or("a URL is needed")?;
        let (server, path) = parts(&url).ok_or_else(|| format!("{url}: no http://ADDRESS/PATH"))?;
        let mut options = Self {
            plan: Plan {
                server,
                path,
                close: false,
                post: false,
                expected: Expected::Any,
                timeout: Duration::from_secs(30),
            },
            clients: 1,
            seconds: Duration::from_secs(1),
            requests: u64::MAX,
            drain: Duration::from_secs(10),
            progress: u64::MAX,
        };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} takes a value"))?;
            let number = || {
                let number = value.parse::<u64>();
                number.map_err(|_| format!("{name} takes a number, not {value}"))
            };
            let seconds = || {
                let seconds = value.parse().map(Duration::try_from_secs_f64);
                seconds
                    .ok()
                    .and_then(Result::ok)
                    .ok_or_else(|| format!("{name} takes seconds, not {value}"))
            };
            match name.as_str() {
                "--clients" => options.clients = usize::try_from(number()?.max(1)).unwrap_or(1),
                "--seconds" => options.seconds = seconds()?,
                "--requests" => {
                    options.requests = number()?;
                    options.seconds = FOR_EVER;
                }
                "--close" => options.plan.close = value == "true",
                "--post" => options.plan.post = value == "true",
                "--expect" => {
                    let body = fs::read(&value).map_err(|e| format!("{value}: {e}"))?;
                    options.plan.expected = Expected::Exactly(body);
                }
                "--contains" => options.plan.expected = Expected::Containing(value.into_bytes()),
                "--timeout" => options.plan.timeout = seconds()?,
                "--drain" => options.drain = seconds()?,
                "--progress" => options.progress = number()?.max(1),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

/// The results.
#[derive(Default)]
struct Figures {
    /// Answers, right and wrong ones.
    requests: u64,
    /// Answers that came while new requests were still started.
    in_time: u64,
    bytes: u64,
    /// The time during which requests were started.
    seconds: f64,
    /// Waits for right answers, microseconds.
    waits: Vec<u32>,
    errors: BTreeMap<String, u64>,
    failed_posts: Vec<String>,
    sent_again: u64,
    /// For each client: its right and wrong answers, and its longest wait.
    clients: Vec<(u64, Duration)>,
}

fn run(options: &Options) -> io::Result<Figures> {
    let mut loop_ = Loop::new(options)?;
    loop_.run()?;
    Ok(loop_.figures())
}

struct Loop<'a> {
    options: &'a Options,
    epoll: OwnedFd,
    clients: Vec<Client>,
    /// Numbers of clients that pause for a moment because the server refuses connections.
    resting: Vec<usize>,
    begin: Instant,
    begun: u64,
    over: Option<Instant>,
    figures: Figures,
}

impl<'a> Loop<'a> {
    fn new(options: &'a Options) -> io::Result<Self> {
        Ok(Self {
            options,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            clients: (0..options.clients).map(Client::new).collect(),
            resting: Vec::new(),
            begin: Instant::now(),
            begun: 0,
            over: None,
            figures: Figures::default(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 256 * 1024];
        let mut events = Vec::with_capacity(EVENTS);
        let mut looked = Instant::now();
        for number in 0..self.clients.len() {
            self.next(number)?;
        }
        loop {
            let now = Instant::now();
            if now.duration_since(looked) >= TICK {
                looked = now;
                for number in std::mem::take(&mut self.resting) {
                    self.next(number)?;
                }
                for number in 0..self.clients.len() {
                    let outcome = self.clients[number].expire(&self.options.plan, now);
                    self.after(number, outcome)?;
                }
            }
            if self.over.is_none() && now.duration_since(self.begin) >= self.options.seconds {
                self.over = Some(now);
            }
            if let Some(over) = self.over {
                let busy = self.clients.iter().any(|c| c.wants() != Wants::Nothing);
                if !busy || now.duration_since(over) >= self.options.drain {
                    return Ok(());
                }
            }
            events.clear();
            let tick = Timespec::try_from(TICK).expect("a short time");
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                if let Some(client) = self.clients.get_mut(number) {
                    let outcome = client.go_on(&self.options.plan, &mut buffer);
                    self.after(number, outcome)?;
                }
            }
        }
    }

    /// Starts the next request of a client, if there is one.
    fn next(&mut self, number: usize) -> io::Result<()> {
        if self.begun >= self.options.requests {
            self.over.get_or_insert_with(Instant::now);
        }
        if self.over.is_some() {
            return Ok(());
        }
        self.begun += 1;
        let outcome = self.clients[number].begin(&self.options.plan, Instant::now());
        self.after(number, outcome)
    }

    /// Observes the client's socket for what the client needs now, or starts its next request.
    fn after(&mut self, number: usize, outcome: Option<Outcome>) -> io::Result<()> {
        if let Some(outcome) = outcome {
            let failed = outcome.failure.is_some();
            self.count(number, outcome);
            // After a failure the client pauses before its next request. A right answer does not lead to a recursion.
            if failed {
                self.resting.push(number);
                return Ok(());
            }
            return self.next(number);
        }
        let client = &mut self.clients[number];
        let (wants, is_new) = (client.wants(), std::mem::take(&mut client.is_new));
        let Some(socket) = client.socket() else {
            return Ok(());
        };
        // Every client except one that is still connecting waits for its answer. So this is the only change.
        let flags = match wants {
            Wants::Room => epoll::EventFlags::OUT,
            Wants::Answer | Wants::Nothing => epoll::EventFlags::IN,
        };
        let data = epoll::EventData::new_u64(number as u64);
        if is_new {
            epoll::add(&self.epoll, socket, data, flags)?;
        } else if client.observed != flags {
            epoll::modify(&self.epoll, socket, data, flags)?;
        }
        self.clients[number].observed = flags;
        Ok(())
    }

    fn count(&mut self, number: usize, outcome: Outcome) {
        let figures = &mut self.figures;
        figures.requests += 1;
        figures.in_time += u64::from(self.over.is_none());
        figures.bytes += outcome.bytes as u64;
        match outcome.failure {
            None => {
                let waited = u32::try_from(outcome.waited.as_micros()).unwrap_or(u32::MAX);
                figures.waits.push(waited);
            }
            Some(failure) => {
                *figures.errors.entry(failure).or_default() += 1;
                if self.options.plan.post && figures.failed_posts.len() < MOST_NAMES {
                    figures.failed_posts.push(self.clients[number].post_name());
                }
            }
        }
        if figures.requests.is_multiple_of(self.options.progress) {
            println!("{}", figures.requests);
        }
    }

    fn figures(mut self) -> Figures {
        let over = self.over.unwrap_or_else(Instant::now);
        for number in 0..self.clients.len() {
            if let Some(outcome) = self.clients[number].give_up() {
                self.count(number, outcome);
            }
        }
        let mut figures = self.figures;
        figures.seconds = over.duration_since(self.begin).as_secs_f64();
        figures.sent_again = self.clients.iter().map(|client| client.sent_again).sum();
        figures.clients = self.clients.iter().map(|c| (c.asked, c.longest)).collect();
        figures.waits.sort_unstable();
        figures
    }
}

fn print(figures: &Figures) -> io::Result<()> {
    let at = |share: f64| {
        let last = figures.waits.len().checked_sub(1)?;
        // A share of a count stays below it.
        let index = (figures.waits.len() as f64 * share) as usize;
        figures.waits.get(index.min(last)).copied()
    };
    let percentile = |share| match at(share) {
        Some(micros) => format!("{:.3}", f64::from(micros) / 1e3),
        None => "null".to_owned(),
    };
    let ms = |wait: Duration| format!("{:.3}", wait.as_secs_f64() * 1e3);
    let longest = |pick: fn(Duration, Duration) -> Duration| {
        let waits = figures.clients.iter().map(|(_, longest)| *longest);
        ms(waits.reduce(pick).unwrap_or_default())
    };
    let errors: Vec<_> = figures
        .errors
        .iter()
        .map(|(what, n)| format!("{what:?}:{n}"))
        .collect();
    let posts: Vec<_> = figures
        .failed_posts
        .iter()
        .map(|name| format!("{name:?}"))
        .collect();
    let asked = figures.clients.iter().map(|(asked, _)| *asked);
    writeln!(
        io::stdout(),
        "{{\"requests\":{},\"in_time\":{},\"bytes\":{},\"seconds\":{:.6},\"p50_ms\":{},\"p90_ms\":{},\"p99_ms\":{},\
         \"longest_ms\":{},\"errors\":{{{}}},\"failed_posts\":[{}],\"sent_again\":{},\
         \"fewest\":{},\"most\":{},\"luckiest_longest_ms\":{}}}",
        figures.requests,
        figures.in_time,
        figures.bytes,
        figures.seconds,
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        longest(Duration::max),
        errors.join(","),
        posts.join(","),
        figures.sent_again,
        asked.clone().min().unwrap_or(0),
        asked.max().unwrap_or(0),
        longest(Duration::min),
    )
}

/// Address and path of an http URL. The address must be numeric.
fn parts(url: &str) -> Option<(SocketAddr, String)> {
    let rest = url.strip_prefix("http://")?;
    let (server, path) = rest.split_at(rest.find('/')?);
    Some((server.parse().ok()?, path.to_owned()))
}

const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
/// How often the program checks the clients that pause or wait too long.
const TICK: Duration = Duration::from_millis(10);
/// How many events are taken at once.
const EVENTS: usize = 512;
/// How many failed POSTs are named; the others are only counted.
const MOST_NAMES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_an_address_and_a_path() {
        let (server, path) = parts("http://127.0.0.1:8080/a?b=c").unwrap();
        assert_eq!(server, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(path, "/a?b=c");
        assert!(parts("http://127.0.0.1:8080").is_none());
        assert!(parts("ftp://127.0.0.1:8080/").is_none());
    }
}
