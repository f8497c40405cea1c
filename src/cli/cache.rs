//! `weir cache`: what the running weir has stored for a URL and why, how much it stores, and purging.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use weir_manager::EX_SOFTWARE;
use weir_observe::{console, log_text};

use super::{AdminArgs, print};

#[derive(Debug, Subcommand)]
pub(super) enum CacheAction {
    /// Make stored answers outdated
    ///
    /// The next request renews an outdated answer, and equal requests wait for that one. Until then it is sent only while the pool is full or
    /// fails; with --hard never again. The purge is in force when the command ends.
    Purge(PurgeArgs),
    /// Say whether a URL is served from the cache, and which header, cookie or rule decided
    ///
    /// weir decides as for a request of a visitor without cookies, and asks no application. With --cookie and --header it decides as for
    /// that visitor.
    Why(WhyArgs),
    /// Show how much is stored, and how many requests of each site were served from it
    Stats(StatsArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["tag", "url", "prefix", "all"]))]
#[command(group = clap::ArgGroup::new("some").args(["tag", "url", "prefix", "all", "site"]).multiple(true).required(true))]
pub(super) struct PurgeArgs {
    /// Answers with this tag
    ///
    /// The application names tags in Surrogate-Key, Cache-Tag, xkey, X-Magento-Tags or Cache-Groups.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,

    /// The page at this URL, in all its variants
    #[arg(long, value_name = "URL", value_parser = url)]
    url: Option<String>,

    /// All pages whose URL begins like this; a path: on all hosts
    #[arg(long, value_name = "URL", value_parser = prefix)]
    prefix: Option<String>,

    /// All pages of this site; with --tag, and with the path of --prefix, those of them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "url"])]
    site: Option<String>,

    /// All pages of all sites
    #[arg(long)]
    all: bool,

    /// Never send the purged answers again, not even if the pool fails
    #[arg(long)]
    hard: bool,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(super) struct WhyArgs {
    /// The URL, with its host: https://shop.example/lamps?page=2
    #[arg(value_name = "URL", value_parser = url)]
    url: String,

    /// A cookie that the visitor sends: NAME=VALUE (can be repeated)
    #[arg(long, value_name = "COOKIE", value_parser = cookie)]
    cookie: Vec<String>,

    /// A header that the visitor sends: "NAME: VALUE" (can be repeated)
    #[arg(long, value_name = "HEADER", value_parser = header)]
    header: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    admin: AdminArgs,
}

/// A question to the cache of a running weir.
#[derive(Debug)]
pub struct CacheRequest {
    pub(super) method: Method,
    pub(super) path: String,
    show: Show,
}

/// How its answer is shown.
#[derive(Debug)]
enum Show {
    Json,
    Purged,
    Why,
    Stats,
}

impl CacheAction {
    pub(super) fn split(self) -> (CacheRequest, AdminArgs) {
        match self {
            Self::Purge(args) => {
                let pairs = [
                    ("tag", &args.tag),
                    ("url", &args.url),
                    ("prefix", &args.prefix),
                    ("site", &args.site),
                ];
                let flags = [("all", args.all), ("hard", args.hard)];
                let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
                let pairs = pairs.into_iter();
                let pairs = pairs.filter_map(|(name, value)| Some((name, value.as_deref()?)));
                let query = query(pairs.chain(flags.map(|(name, _)| (name, "yes"))));
                let request = CacheRequest {
                    method: Method::POST,
                    path: format!("/cache/purge?{query}"),
                    show: Show::Purged,
                };
                (request, args.admin)
            }
            Self::Why(args) => {
                let cookies = args.cookie.iter().map(|cookie| ("cookie", cookie.as_str()));
                let headers = args.header.iter().map(|header| ("header", header.as_str()));
                let url = std::iter::once(("url", args.url.as_str()));
                let query = query(url.chain(cookies).chain(headers));
                let request = CacheRequest {
                    method: Method::GET,
                    path: format!("/cache/why?{query}"),
                    show: shown(args.json, Show::Why),
                };
                (request, args.admin)
            }
            Self::Stats(args) => {
                let request = CacheRequest {
                    method: Method::GET,
                    path: "/cache".into(),
                    show: shown(args.json, Show::Stats),
                };
                (request, args.admin)
            }
        }
    }
}

fn shown(json: bool, text: Show) -> Show {
    match json {
        true => Show::Json,
        false => text,
    }
}

impl CacheRequest {
    /// Prints the answer.
    pub(super) fn print(&self, answer: &str) -> ExitCode {
        if matches!(self.show, Show::Json) {
            return print(&log_text::json_shown(answer));
        }
        let Ok(said) = serde_json::from_str::<serde_json::Value>(answer) else {
            console::say_error("the answer is not valid JSON".to_owned(), "");
            return ExitCode::from(EX_SOFTWARE);
        };
        match self.show {
            Show::Purged => {
                let what = log_text::shown(said["purged"].as_str().unwrap_or_default());
                let sites = said["sites"].as_array().into_iter().flatten();
                let sites: Vec<_> = sites.filter_map(|site| site.as_str()).collect();
                let of = match &sites[..] {
                    [site] => format!(" (site {site})"),
                    _ => String::new(),
                };
                let how = if said["hard"] == true {
                    "removed"
                } else {
                    "outdated"
                };
                print(&format!("{how}: {what}{of}\n"))
            }
            Show::Why => print(&weir_admin::cache_why_text(&said)),
            Show::Stats | Show::Json => print(&weir_admin::cache_text(&said)),
        }
    }
}

/// `name=value&…`, each value encoded.
fn query<'v>(pairs: impl Iterator<Item = (&'v str, &'v str)>) -> String {
    let encoded = pairs.map(|(name, value)| {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC);
        format!("{name}={value}")
    });
    encoded.collect::<Vec<_>>().join("&")
}

fn url(text: &str) -> Result<String, String> {
    let rest = text
        .strip_prefix("http://")
        .or(text.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(text.to_owned()),
        _ => Err("a URL with its host, for example https://shop.example/lamps".into()),
    }
}

/// The beginning of URLs, with a host or without.
fn prefix(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => url(text).map_err(|_| "a URL with its host, or a path: /blog/".into()),
    }
}

fn cookie(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("NAME=VALUE, for example session=1".into()),
    }
}

fn header(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((name, _)) if !name.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("NAME: VALUE, for example \"Accept-Encoding: br\"".into()),
    }
}
