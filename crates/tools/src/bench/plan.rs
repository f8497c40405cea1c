//! Turns the command line into a plan, or reports why it is impossible. Nothing is sent here.

use std::{
    fs,
    io::Read,
    net::{IpAddr, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use super::{
    Stop,
    args::BenchArgs,
    client::Dial,
    replay,
    target::{Endpoint, Url},
    urls,
    work::{Arrivals, End, Requests, Shot},
};

/// A load, with everything that it needs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The URL as it is shown in reports.
    pub shown: String,
    /// The addresses of the URL; the first one that answers is used.
    pub places: Vec<Endpoint>,
    /// Addresses to connect from, in turns; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The requests.
    pub requests: Requests,
    /// The kind of load.
    pub load: Load,
    /// When it ends.
    pub end: End,
    /// Timeout of an answer.
    pub timeout: Duration,
    /// Whether connections are reused.
    pub keepalive: bool,
    /// Requests in this time at the start do not count.
    pub warm_up: Duration,
    /// Number of sending threads.
    pub threads: usize,
    /// Seed of random numbers.
    pub seed: u64,
    /// Notes for the reader of the report.
    pub notes: Vec<String>,
}

/// What decides when the next request is sent.
#[derive(Debug, Clone)]
pub enum Load {
    /// This many users; each sends when its last answer has arrived (closed loop).
    Users(u32),
    /// The clock (open loop).
    Arrivals {
        /// When.
        arrivals: Arrivals,
        /// Maximum number of connections.
        connections: u32,
    },
}

impl Plan {
    /// Makes the plan for a command line.
    ///
    /// # Errors
    /// What is wrong with it, or that the target is not this machine.
    pub fn of(args: &BenchArgs) -> Result<Plan, Stop> {
        let url = Url::read(&args.url, args.unix.as_deref()).map_err(Stop::usage)?;
        let places = url.places().map_err(Stop::unavailable)?;
        if !args.yes {
            expect_own(&url, &places)?;
        }
        expect_sources(&args.source, &places)?;
        let mut notes = Vec::new();
        let (requests, log) = requests(args, &url, &mut notes)?;
        let load = match (log, args.rate) {
            (Some(log), _) => arrivals(args, Arrivals::Log(log)),
            (None, Some(rate)) if args.poisson => arrivals(args, Arrivals::Poisson(rate)),
            (None, Some(rate)) => arrivals(args, Arrivals::Even(rate)),
            // More users than requests make no sense.
            (None, None) => Load::Users(users(args)?.min(most_users(args.requests))),
        };
        let is_log = matches!(
            load,
            Load::Arrivals {
                arrivals: Arrivals::Log(_),
                ..
            }
        );
        let time = match args.time {
            Some(time) => Some(time + args.warm_up),
            None if args.requests.is_none() && !is_log => Some(USUAL_TIME + args.warm_up),
            None => None,
        };
        if time.is_some_and(|time| time <= args.warm_up) {
            return Err(Stop::usage(
                "-t 0 would send nothing: give a time, for example -t 10s",
            ));
        }
        if args.timeout.is_zero() {
            return Err(Stop::usage(
                "--timeout 0 does not wait for an answer: give a time, for example --timeout 2s",
            ));
        }
        let threads = match args.threads {
            Some(threads) => usize::from(threads),
            None => thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        };
        let most = match &load {
            Load::Users(users) => *users,
            Load::Arrivals { connections, .. } => *connections,
        };
        Ok(Plan {
            shown: args.url.clone(),
            places,
            sources: args.source.clone(),
            requests,
            load,
            end: End {
                requests: args.requests,
                time,
            },
            timeout: args.timeout,
            keepalive: !args.no_keepalive,
            warm_up: args.warm_up,
            threads: threads.clamp(1, most as usize),
            seed: args.seed,
            notes,
        })
    }

    /// How long requests are sent, without the warm-up; `None`: until enough were answered.
    pub fn window(&self) -> Option<Duration> {
        let whole = match (&self.load, self.end.requests, self.end.time) {
            (Load::Arrivals { arrivals, .. }, requests, time) => {
                let last = match arrivals {
                    Arrivals::Even(rate) | Arrivals::Poisson(rate) => {
                        requests.map(|count| Duration::from_secs_f64(count as f64 / rate))
                    }
                    Arrivals::Log(log) => {
                        let count = requests.map_or(usize::MAX, |count| {
                            usize::try_from(count).unwrap_or(usize::MAX)
                        });
                        log.iter().take(count).next_back().map(|(at, _)| *at)
                    }
                };
                [last, time].into_iter().flatten().min()
            }
            // Whichever comes first; only the time is known in advance.
            (Load::Users(_), None, time) => time,
            (Load::Users(_), Some(_), _) => None,
        };
        // A log of a single moment has no duration.
        whole.map(|whole| whole.saturating_sub(self.warm_up).max(SHORTEST))
    }

    /// The complete requests.
    pub fn requests(&self) -> Vec<Request<Full<Bytes>>> {
        let request = |shot: &Shot| {
            let mut request = Request::new(Full::new(self.requests.body.clone()));
            *request.method_mut() = shot.method.clone();
            *request.uri_mut() = shot.uri.clone();
            *request.headers_mut() = self.requests.headers.clone();
            request
        };
        self.requests.shots.iter().map(request).collect()
    }

    /// The ways to connect: one per source address.
    pub fn dials(&self) -> Vec<Dial> {
        let place = match self.places.first() {
            Some(place) => place.clone(),
            None => Endpoint::Unix("/".into()),
        };
        let dial = |source| Dial {
            place: place.clone(),
            source,
        };
        match self.sources.is_empty() {
            true => vec![dial(None)],
            false => self.sources.iter().map(|ip| dial(Some(*ip))).collect(),
        }
    }

    /// Maximum number of connections.
    pub fn connections(&self) -> u64 {
        match &self.load {
            Load::Users(users) => (*users).into(),
            Load::Arrivals { connections, .. } => (*connections).into(),
        }
    }

    /// Maximum number of descriptors.
    pub fn descriptors(&self) -> u64 {
        self.connections() + OTHER_DESCRIPTORS * self.threads as u64
    }

    /// Limits the connections; false: this would change the load.
    pub fn limit_connections(&mut self, most: u32) -> bool {
        match &mut self.load {
            Load::Users(_) => false,
            Load::Arrivals { connections, .. } => {
                *connections = most.min(*connections);
                true
            }
        }
    }
}

fn arrivals(args: &BenchArgs, arrivals: Arrivals) -> Load {
    Load::Arrivals {
        arrivals,
        connections: args.max_connections,
    }
}

fn users(args: &BenchArgs) -> Result<u32, Stop> {
    let Some(text) = &args.users else {
        return Ok(USUAL_USERS);
    };
    match text.parse::<u32>() {
        Ok(users) if (1..=MOST_USERS).contains(&users) => Ok(users),
        _ if Path::new(text).exists() => Err(Stop::usage(format!(
            "-c {text}: -c is the number of users; it is a configuration file only with --advise"
        ))),
        _ => Err(Stop::usage(format!(
            "-c {text}: the number of users must be 1 to {MOST_USERS}"
        ))),
    }
}

fn most_users(requests: Option<u64>) -> u32 {
    let requests = requests.unwrap_or(u64::MAX);
    u32::try_from(requests).unwrap_or(u32::MAX)
}

/// Without --yes, only targets on this machine may be loaded.
fn expect_own(url: &Url, places: &[Endpoint]) -> Result<(), Stop> {
    let Some(far) = places.iter().find(|place| !place.is_own()) else {
        return Ok(());
    };
    let far = match far {
        Endpoint::Tcp(address) if address.ip().to_string() != url.host => {
            format!("{} is {}, which", url.host, address.ip())
        }
        _ => url.host.clone(),
    };
    Err(Stop {
        hint: "if you are allowed to send load to it, add --yes".into(),
        ..Stop::usage(format!("{far} is not this machine"))
    })
}

fn expect_sources(sources: &[IpAddr], places: &[Endpoint]) -> Result<(), Stop> {
    for source in sources {
        for place in places {
            match place {
                Endpoint::Unix(_) => {
                    return Err(Stop::usage(
                        "--source is for TCP, and this is a unix socket",
                    ));
                }
                Endpoint::Tcp(address) if address.is_ipv4() != source.is_ipv4() => {
                    return Err(Stop::usage(format!(
                        "--source {source} cannot reach {}: one is IPv4, the other IPv6",
                        address.ip()
                    )));
                }
                Endpoint::Tcp(_) => {}
            }
        }
        if let Err(error) = UdpSocket::bind((*source, 0)) {
            return Err(Stop::usage(format!(
                "--source {source}: this machine does not have that address: {error}"
            )));
        }
    }
    Ok(())
}

/// A time and an index into the requests for each entry.
type Log = Vec<(Duration, u32)>;

fn requests(
    args: &BenchArgs,
    url: &Url,
    notes: &mut Vec<String>,
) -> Result<(Requests, Option<Log>), Stop> {
    let body = body(args.body.as_deref())?;
    let usual = match (&args.method, &args.body) {
        (Some(method), _) => method.clone(),
        (None, Some(_)) => Method::POST,
        (None, None) => Method::GET,
    };
    let (shots, log) = match (&args.urls, &args.replay) {
        (Some(file), _) => {
            let text = read(file, "--urls")?;
            (
                urls::read(file, &text, url, &usual).map_err(Stop::usage)?,
                None,
            )
        }
        (None, Some(file)) => {
            let replay = replay::read(file, args.unsafe_methods).map_err(Stop::usage)?;
            notes.extend(replay.notes());
            let mut log = replay.log;
            for (at, _) in &mut log {
                *at = at.div_f64(args.speed);
            }
            (replay.shots, Some(log))
        }
        (None, None) => {
            let shot = Shot {
                method: usual,
                uri: Uri::from(url.path.clone()),
            };
            (vec![shot], None)
        }
    };
    let requests = Requests {
        shots,
        headers: headers(args, url)?,
        body,
        random: args.random,
    };
    Ok((requests, log))
}

fn headers(args: &BenchArgs, url: &Url) -> Result<HeaderMap, Stop> {
    let mut headers = HeaderMap::new();
    let mut usual = |name, value: &str| {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Stop::usage(format!("{value:?} cannot be in a header")))?;
        headers.insert(name, value);
        Ok(())
    };
    usual(header::HOST, &url.authority)?;
    usual(
        header::USER_AGENT,
        concat!("weir-bench/", env!("CARGO_PKG_VERSION")),
    )?;
    usual(header::ACCEPT, "*/*")?;
    if args.no_keepalive {
        usual(header::CONNECTION, "close")?;
    }
    if args.body.is_some() {
        usual(header::CONTENT_TYPE, "application/x-www-form-urlencoded")?;
    }
    for (name, _) in &args.headers {
        headers.remove(name);
    }
    for (name, value) in &args.headers {
        headers.append(name, value.clone());
    }
    Ok(headers)
}

fn body(text: Option<&str>) -> Result<Bytes, Stop> {
    let Some(text) = text else {
        return Ok(Bytes::new());
    };
    let Some(file) = text.strip_prefix('@') else {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    };
    let wrong = |why: String| Stop::usage(format!("--body @{file}: {why}"));
    Ok(contents(Path::new(file)).map_err(wrong)?.into())
}

/// A file that is kept in memory.
fn contents(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    fs::File::open(file)
        .and_then(|opened| opened.take(LARGEST_BODY + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST_BODY {
        let most = LARGEST_BODY >> 20;
        return Err(format!(
            "is larger than {most} MB, the limit because it is kept in memory"
        ));
    }
    Ok(bytes)
}

fn read(file: &Path, flag: &str) -> Result<String, Stop> {
    let wrong = |why: String| Stop::usage(format!("{flag} {}: {why}", file.display()));
    let bytes = contents(file).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|_| wrong("this file is not UTF-8 text".into()))
}

/// The default without -t and -n.
const USUAL_TIME: Duration = Duration::from_secs(10);

/// The default without -c, -r and --replay.
const USUAL_USERS: u32 = 10;

/// Maximum number of users: each is a task and a connection.
const MOST_USERS: u32 = 1_000_000;

/// Maximum size of a body and of a file of URLs, bytes.
const LARGEST_BODY: u64 = 256 << 20;

/// Minimum duration, to avoid a division by zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// Descriptors of a reactor, and the standard ones.
const OTHER_DESCRIPTORS: u64 = 16;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        let typed = Typed::try_parse_from(words).map_err(|error| error.to_string())?;
        Plan::of(&typed.args).map_err(|stop| stop.message)
    }

    const URL: &str = "http://127.0.0.1:8080/a";

    #[test]
    fn ten_users_for_ten_seconds_is_what_is_usual() {
        let plan = plan(URL).unwrap();
        assert!(matches!(plan.load, Load::Users(10)));
        assert_eq!(plan.end.time, Some(Duration::from_secs(10)));
        assert_eq!(plan.end.requests, None);
        assert_eq!(plan.requests.shots[0].method, Method::GET);
        assert!(plan.keepalive);
    }

    #[test]
    fn a_number_of_requests_has_no_time_unless_it_is_said() {
        let some = plan(&format!("{URL} -n 100 -c 3")).unwrap();
        assert_eq!((some.end.time, some.end.requests), (None, Some(100)));
        assert_eq!(some.window(), None);
        let few = plan(&format!("{URL} -n 3 -c 10")).unwrap();
        assert!(matches!(few.load, Load::Users(3)));
        let both = plan(&format!("{URL} -n 100 -t 2s --warm-up 1s")).unwrap();
        assert_eq!(both.end.time, Some(Duration::from_secs(3)));
    }

    #[test]
    fn rates_make_an_open_loop() {
        let even = plan(&format!("{URL} -r 500 -t 4s --warm-up 1s --timeout 2s")).unwrap();
        assert!(matches!(
            even.load,
            Load::Arrivals {
                arrivals: Arrivals::Even(500.0),
                connections: 10_000
            }
        ));
        assert_eq!(even.window(), Some(Duration::from_secs(4)));
        let counted = plan(&format!("{URL} -r 500 -n 100 --poisson")).unwrap();
        assert_eq!(counted.window(), Some(Duration::from_millis(200)));
    }

    #[test]
    fn bodies_are_posted_as_forms_unless_it_is_said_otherwise() {
        let form = plan(&format!("{URL} --body a=b")).unwrap();
        assert_eq!(form.requests.shots[0].method, Method::POST);
        assert_eq!(
            form.requests.headers["content-type"],
            "application/x-www-form-urlencoded"
        );
        let json = plan(&format!(
            "{URL} --body {{}} -m put -H Content-Type:application/json"
        ))
        .unwrap();
        assert_eq!(json.requests.shots[0].method, Method::PUT);
        assert_eq!(
            json.requests.headers.get_all("content-type").iter().count(),
            1
        );
        let host = plan(&format!("{URL} -H Host:shop.example --no-keepalive")).unwrap();
        assert_eq!(host.requests.headers["host"], "shop.example");
        assert_eq!(host.requests.headers["connection"], "close");
        assert!(
            plan(&format!("{URL} --body @/no/such/file"))
                .unwrap_err()
                .contains("/no/such/file")
        );
    }

    #[test]
    fn other_hosts_need_a_word() {
        let wrong = plan("http://192.0.2.1/").unwrap_err();
        assert!(wrong.contains("192.0.2.1 is not this machine"), "{wrong}");
        assert!(plan("http://192.0.2.1/ --yes").is_ok());
        assert!(plan("http://192.0.2.1/ --unix /run/a.sock").is_ok());
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        for (line, word) in [
            ("http://127.0.0.1/ -c 0", "users"),
            ("http://127.0.0.1/ -c many", "users"),
            ("http://127.0.0.1/ -c /etc/passwd", "--advise"),
            ("http://127.0.0.1/ -c 3 -r 3", "cannot be used with"),
            ("http://127.0.0.1/ --poisson", "--rate"),
            ("http://127.0.0.1/ --speed 2", "--replay"),
            ("http://127.0.0.1/ -t 0", "-t 0"),
            ("http://127.0.0.1/ -t 1.5h", "smaller unit"),
            ("unix:/run/a --source 127.0.0.2", "TCP"),
            ("http://127.0.0.1/ --source ::1", "IPv6"),
            ("http://127.0.0.1/ --source 192.0.2.1", "does not have"),
            ("http://127.0.0.1/ --urls /no/such/file", "/no/such/file"),
            ("http://127.0.0.1/ --replay /no/such/file", "/no/such/file"),
        ] {
            let wrong = plan(line).expect_err(line);
            assert!(wrong.contains(word), "{line}: {wrong}");
        }
    }
}
