//! The command line of `weir bench`. [`super::plan`] interprets it.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;
use http::{HeaderName, HeaderValue, Method};

/// Flags of `weir bench`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = AFTER)]
pub struct BenchArgs {
    /// URL to test: http://HOST[:PORT]/PATH or unix:SOCKET[:/PATH]
    #[arg(value_name = "URL")]
    pub url: String,

    /// Number of users; each waits for its answer and asks again [default: 10]. With --advise: the configuration file
    #[arg(short = 'c', long = "users", value_name = "USERS", conflicts_with_all = ["rate", "replay"])]
    pub users: Option<String>,

    /// Requests per second, independent of the answers
    #[arg(short = 'r', long, value_name = "PER SECOND", value_parser = rate, conflicts_with = "replay")]
    pub rate: Option<f64>,

    /// How long to send requests [default: 10s, without -n]
    #[arg(short = 't', long, value_name = "TIME", value_parser = span)]
    pub time: Option<Duration>,

    /// How many requests to send
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,

    /// With -r: send at random times, like many independent people, instead of evenly
    #[arg(long, requires = "rate")]
    pub poisson: bool,

    /// With -r and --replay: most connections at a time. Further requests wait here, and this time counts
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,

    /// How long to wait for an answer. After that the connection is closed and the request has failed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span)]
    pub timeout: Duration,

    /// Open a new connection for each request
    #[arg(long)]
    pub no_keepalive: bool,

    /// A header of each request, as "Name: value" (can be repeated)
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = header)]
    pub headers: Vec<(HeaderName, HeaderValue)>,

    /// The method [default: GET; with --body POST]
    #[arg(short = 'm', long, value_name = "METHOD", value_parser = method)]
    pub method: Option<Method>,

    /// The body of each request: the text itself, or @FILE
    #[arg(long, value_name = "TEXT|@FILE")]
    pub body: Option<String>,

    /// A file of requests, one per line: [METHOD] /PATH or URL
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub urls: Option<PathBuf>,

    /// With --urls: send in random order
    #[arg(long, requires = "urls")]
    pub random: bool,

    /// An access log; its requests are sent again with the same pauses between them
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,

    /// With --replay: how many times faster
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed, requires = "replay")]
    pub speed: f64,

    /// With --replay: also send POST, DELETE and others that change data (without bodies, because logs have none)
    #[arg(long, requires = "replay")]
    pub unsafe_methods: bool,

    /// Connect to this unix socket; the URL gives only host and path
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// Connect from this address (can be repeated; they take turns)
    #[arg(long, value_name = "ADDRESS")]
    pub source: Vec<IpAddr>,

    /// Do not count requests sent during this time at the beginning
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = span)]
    pub warm_up: Duration,

    /// Number of threads that send [default: half of the cores]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// Seed of the random numbers for --poisson and --random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Allow a host that is not this machine
    #[arg(long)]
    pub yes: bool,

    /// Start without checking first that the URL answers
    #[arg(long)]
    pub no_probe: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Also write the report as an HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Test with more and more users, in steps of -t [default: 3s], and propose limits for the pool as lines of weir.toml
    #[arg(long, conflicts_with_all = ["rate", "replay", "requests", "html", "fail_below", "warm_up"])]
    pub advise: bool,

    /// With --advise: the pool [default: the only one, or the one that gets the requests]
    #[arg(long, value_name = "NAME", requires = "advise")]
    pub pool: Option<String>,

    /// With --advise: how long a request may wait for a worker
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span, requires = "advise")]
    pub target_wait: Duration,

    /// Exit with code 1 if availability is below this percentage
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_below: Option<f64>,
}

impl BenchArgs {
    /// Whether -c is a number, and not a configuration.
    pub fn users_is_number(&self) -> bool {
        let users = self.users.as_deref();
        users.is_some_and(|users| users.parse::<u64>().is_ok())
    }
}

const AFTER: &str = "Without --yes, only this machine can be tested. Redirects are not followed. \
    Ctrl-C ends the test and prints the report.\n\n\
    Exit codes: 0 success; 1 availability is below --fail-below; 64 wrong command line, or a host that needs --yes; \
    69 nothing answers there; 70 internal error.";

fn span(text: &str) -> Result<Duration, String> {
    weir_config::parse_duration(text)
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (0.001..=10_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("requests per second, between 0.001 and 10000000".into()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed.is_finite() && (0.001..=100_000.0).contains(&speed) => Ok(speed),
        _ => Err("a factor between 0.001 and 100000".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number between 0 and 100".into()),
    }
}

fn method(text: &str) -> Result<Method, String> {
    match text.to_ascii_uppercase().parse::<Method>() {
        Ok(Method::CONNECT) => Err("CONNECT opens a tunnel and cannot be tested".into()),
        Ok(method) => Ok(method),
        Err(_) => Err("not an HTTP method: write GET, POST, PUT, …".into()),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Some((name, value)) = text.split_once(':') else {
        return Err("write it as \"Name: value\"".into());
    };
    let name: HeaderName = name
        .trim()
        .parse()
        .map_err(|_| format!("{name:?} is not a header name"))?;
    if name == http::header::TRANSFER_ENCODING || name == http::header::CONTENT_LENGTH {
        return Err(format!("{name} is set by --body"));
    }
    let value = HeaderValue::from_str(value.trim()).map_err(|_| {
        format!("the value of {name} has characters that are not allowed in a header")
    })?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_a_name_and_a_value() {
        let (name, value) = header("X-Who:  me ").unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-who", "me"));
        for wrong in ["X-Who", ": x", "a b: c", "Content-Length: 3", "X: a\nb"] {
            assert!(header(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_have_limits() {
        assert_eq!(rate("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "many", "1e9"] {
            assert!(rate(wrong).is_err(), "{wrong}");
            assert!(speed(wrong).is_err(), "{wrong}");
        }
        assert!(percent("99.9").is_ok() && percent("101").is_err() && percent("nan").is_err());
        assert_eq!(method("post"), Ok(Method::POST));
        assert!(method("connect").is_err() && method("a b").is_err());
    }
}
