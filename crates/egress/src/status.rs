//! The egress in the admin interface: the object `egress` of its status, and the rows `weir_egress_*`.

use std::{path::Path, sync::Arc, time::SystemTime};

use serde_json::{Value, json};
use weir_config::{Address, Egress};
use weir_observe::{
    log_text,
    metrics::{FINE, Metric, Page},
};

use super::{
    figures::{ALL_PROTOCOLS, BreakerNow, Figures, HostFigures, get},
    record::CacheUse,
};

/// The data of the egress for the admin interface.
pub(crate) struct View {
    figures: Arc<Figures>,
    /// As in weir.toml.
    listen: Vec<String>,
    max_connections: usize,
    cache_size: u64,
}

impl View {
    /// Shows this configuration and these counters.
    /// `own`: the workers' own socket.
    pub(crate) fn new(config: &Egress, own: Option<&Path>, figures: Arc<Figures>) -> View {
        let own = own.map(|path| Address::Unix(path.to_owned()).to_string());
        let listen = config.listen.iter().map(ToString::to_string);
        View {
            figures,
            listen: listen.chain(own).collect(),
            max_connections: config.max_connections,
            cache_size: config.cache_size,
        }
    }
}

impl View {
    /// The object `egress` of `GET /status`.
    pub(crate) fn status(&self) -> Value {
        let figures = &self.figures;
        let hosts = figures.hosts();
        let (callers, accepted) = figures.callers();
        let (lookups, failed) = figures.lookups();
        let refused: serde_json::Map<String, Value> = figures
            .refusals()
            .map(|(kind, count)| (kind.reason().to_owned(), count.into()))
            .collect();
        json!({
            "listen": self.listen,
            "connections": { "now": callers, "max": self.max_connections, "accepted": accepted },
            "refused_by": refused,
            "names": { "lookups": lookups, "failed": failed },
            "cache": figures.cache_now().map(|cache| json!({
                "bytes": cache.bytes,
                "max": self.cache_size,
                "answers": cache.answers,
                "hits": hosts.iter().map(|host| used(host, CacheUse::Hit)).sum::<u64>(),
                "misses": hosts.iter().map(|host| used(host, CacheUse::Miss)).sum::<u64>(),
            })),
            "hosts": hosts.iter().map(|host| host_status(host)).collect::<Vec<_>>(),
        })
    }

    /// Hosts that workers of this pool are calling, with the number of calls; the most called one first.
    pub(crate) fn running_calls(&self, pool: &str) -> Vec<(String, u64)> {
        let hosts = self.figures.hosts().into_iter();
        let mut called: Vec<(String, u64)> = hosts
            .map(|host| (host.name.clone(), host.running_calls(pool)))
            .filter(|(_, count)| *count > 0)
            .collect();
        called.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        called.truncate(MOST_CALLED);
        called
    }

    /// Adds the rows `weir_egress_*` to the page.
    pub(crate) fn put_metrics(&self, page: &mut Page) {
        let figures = &self.figures;
        for host in figures.hosts() {
            put_host(page, &host);
        }
        for (kind, count) in figures.refusals() {
            page.put(Metric::EgressRefused, &[kind.reason()], count as f64);
        }
        if let Some(cache) = figures.cache_now() {
            page.put(Metric::EgressCacheBytes, &[], cache.bytes as f64);
            page.put(Metric::EgressCacheAnswers, &[], cache.answers as f64);
        }
        let (lookups, failed) = figures.lookups();
        let done = lookups.saturating_sub(failed);
        page.put(Metric::EgressLookups, &["done"], done as f64);
        page.put(Metric::EgressLookups, &["failed"], failed as f64);
        let (callers, accepted) = figures.callers();
        page.put(Metric::EgressCallers, &[], callers as f64);
        page.put(Metric::EgressCallersAccepted, &[], accepted as f64);
    }
}

/// Maximum number of hosts that are listed for a pool.
const MOST_CALLED: usize = 8;

fn host_status(host: &HostFigures) -> Value {
    let now = host.now();
    let opened = host.connections_opened();
    let (calls, kept) = (host.calls(), get(&host.kept));
    let [_, done, redirected, refused, failed] = host.statuses.each_ref().map(get);
    let failures: serde_json::Map<String, Value> = host
        .failures()
        .map(|(kind, count)| (kind.reason().to_owned(), count.into()))
        .collect();
    json!({
        "name": host.name,
        "host": host.origin.as_ref().map(|origin| &origin.host),
        "scheme": host.origin.as_ref().map(|origin| origin.scheme.as_str()),
        "port": host.origin.as_ref().map(|origin| origin.port),
        "breaker": now.map(|now| now.breaker.as_str()),
        // For how many seconds it still refuses calls.
        "breaker_pause": now.map(|now| now.pause as f64 / 1e6),
        "breaker_opened": get(&host.breaker_opened),
        "at_work": now.map(|now| now.at_work),
        "waiting": now.map(|now| now.waiting),
        "connections": now.map(|now| json!({
            "idle": now.idle,
            "busy": now.busy,
            "connecting": now.connecting,
        })),
        "protocol": host.protocol().map(|protocol| protocol.as_str()),
        "calls": calls,
        "statuses": { "2xx": done, "3xx": redirected, "4xx": refused, "5xx": failed },
        "failed": host.failed_calls(),
        // Answers that are the host's own, unlike those of `statuses`.
        "server_errors": get(&host.server_errors),
        "last_minute": {
            "calls": host.lately.calls.minute(),
            "failed": host.lately.failed.minute(),
            "server_errors": host.lately.server_errors.minute(),
            "rejected": host.lately.rejected.minute(),
        },
        "failed_by": failures,
        "callers_left": get(&host.callers_left),
        "retries": get(&host.retries),
        "opened": opened,
        "kept": kept,
        // Share of the calls with a connection; a connection that was made in advance counts as kept.
        "reuse": host.reuse(),
        "handshakes": {
            "full": get(&host.handshakes),
            "resumed": get(&host.resumed),
            "unverified": get(&host.unverified),
        },
        "tunnels": get(&host.tunnels),
        "bytes_in": get(&host.received),
        "bytes_out": get(&host.sent),
        "cache": { "hits": used(host, CacheUse::Hit), "misses": used(host, CacheUse::Miss) },
        "times": {
            "wait": host.waited.durations().to_json(),
            "connect": host.connect.durations().to_json(),
            "first_byte": host.first_byte.durations().to_json(),
            "total": host.total.durations().to_json(),
        },
        "last_server_error": host.last_server_error().map(|(status, age)| json!({
            "status": status,
            "age": age as f64 / 1e6,
        })),
        "last_error": host.last_error().map(|error| json!({
            "time": utc(error.at),
            "age": error.at.elapsed().unwrap_or_default().as_secs_f64(),
            "reason": error.kind.reason(),
            "message": error.message,
        })),
    })
}

fn put_host(page: &mut Page, host: &HostFigures) {
    let name = host.name.as_str();
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    // weir itself sends no 1xx answers.
    for (class, count) in classes.iter().zip(&host.statuses).skip(1) {
        page.put(Metric::EgressCalls, &[name, class], get(count) as f64);
    }
    for (kind, count) in host.failures() {
        let labels = [name, kind.reason()];
        page.put(Metric::EgressFailures, &labels, count as f64);
    }
    for (protocol, count) in ALL_PROTOCOLS.iter().zip(&host.opened) {
        let labels = [name, protocol.as_str()];
        page.put(Metric::EgressOpened, &labels, get(count) as f64);
    }
    for (kind, count) in [("full", &host.handshakes), ("resumed", &host.resumed)] {
        page.put(Metric::EgressHandshakes, &[name, kind], get(count) as f64);
    }
    for (used, count) in CacheUse::ALL.iter().zip(&host.cache) {
        if let Some(word) = used.as_str()
            && get(count) > 0
        {
            page.put(Metric::EgressCache, &[name, word], get(count) as f64);
        }
    }
    let counters = [
        (Metric::EgressServerErrors, &host.server_errors),
        (Metric::EgressCallersLeft, &host.callers_left),
        (Metric::EgressRetries, &host.retries),
        (Metric::EgressBreakerOpened, &host.breaker_opened),
        (Metric::EgressKept, &host.kept),
        (Metric::EgressUnverified, &host.unverified),
        (Metric::EgressTunnels, &host.tunnels),
        (Metric::EgressReceived, &host.received),
        (Metric::EgressSent, &host.sent),
    ];
    for (metric, count) in counters {
        page.put(metric, &[name], get(count) as f64);
    }
    let histograms = [
        (Metric::EgressWait, &host.waited),
        (Metric::EgressFirstByte, &host.first_byte),
        (Metric::EgressTotal, &host.total),
        (Metric::EgressConnect, &host.connect),
    ];
    for (metric, histogram) in histograms {
        page.put_durations(metric, &[name], &histogram.durations(), FINE);
    }
    let Some(now) = host.now() else {
        return;
    };
    page.put(Metric::EgressWorking, &[name], now.at_work as f64);
    page.put(Metric::EgressWaiting, &[name], now.waiting as f64);
    let connections = [
        ("idle", now.idle),
        ("busy", now.busy),
        ("connecting", now.connecting),
    ];
    for (state, count) in connections {
        page.put(Metric::EgressConnections, &[name, state], count as f64);
    }
    for state in BreakerNow::ALL {
        let is = f64::from(u8::from(state == now.breaker));
        page.put(Metric::EgressBreaker, &[name, state.as_str()], is);
    }
}

/// How often this happened in the cache for calls of this host.
fn used(host: &HostFigures, what: CacheUse) -> u64 {
    let mut counts = CacheUse::ALL.iter().zip(&host.cache);
    let found = counts.find(|(used, _)| **used == what);
    found.map_or(0, |(_, count)| get(count))
}

fn utc(time: SystemTime) -> String {
    let mut text = Vec::new();
    log_text::put_time_utc(time, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use http::StatusCode;
    use weir_config::{Address, HostSettings, Scheme};

    use super::*;
    use crate::{
        fault::{Fault, Kind},
        figures::{
            CacheNow, CacheState, HostNow, HostState,
            tests::{call, connection, origin},
        },
        record::CallRecord,
    };
    use weir_upstream::{Counters, HostCounters};

    #[derive(Debug)]
    struct Still;

    impl HostState for Still {
        fn now(&self) -> HostNow {
            HostNow {
                breaker: BreakerNow::Open,
                pause: 2_000_000,
                at_work: 2,
                waiting: 3,
                idle: 4,
                busy: 1,
                connecting: 1,
            }
        }
    }

    impl CacheState for Still {
        fn now(&self) -> CacheNow {
            CacheNow {
                bytes: 1_000,
                answers: 7,
            }
        }
    }

    fn view() -> (View, Arc<Still>) {
        let figures = Figures::new(8);
        let api = origin(Scheme::Https, "api.example.com", 443);
        let host = figures.host(&api);
        host.connection_opened(&connection(true), true);
        host.call_ended(&call(&api));
        host.call_ended(&CallRecord {
            connection: Some(connection(false)),
            cache: CacheUse::Hit,
            ..call(&api)
        });
        let fault = Fault::unsent(Kind::ConnectTimeout, "192.0.2.7:443 does not answer");
        host.failed(&fault);
        host.call_ended(&CallRecord {
            status: Some(StatusCode::GATEWAY_TIMEOUT),
            fault: Some(fault.kind),
            connection: None,
            ..call(&api)
        });
        let still = Arc::new(Still);
        let weak: Weak<Still> = Arc::downgrade(&still);
        host.watch(weak.clone());
        figures.watch_cache(weak);
        figures.refused(Kind::NotAllowed);
        figures.looked_up(true);
        figures.caller_came();
        let config = Egress {
            listen: vec![Address::Tcp("127.0.0.1:8083".parse().expect("an address"))],
            socket: weir_config::SocketPath::Off,
            owner: None,
            group: None,
            mode: 0o660,
            token_file: None,
            threads: 0,
            max_connections: 100,
            max_hosts: 8,
            allow: Vec::new(),
            upgrade: Vec::new(),
            connect: false,
            cache_size: 4_000,
            cache_max_object: 0,
            defaults: HostSettings::usual(),
            hosts: Vec::new(),
        };
        (View::new(&config, Some("/run/s".as_ref()), figures), still)
    }

    #[test]
    fn the_status_has_each_host() {
        let (view, _still) = view();
        let status = view.status();
        assert_eq!(status["listen"], json!(["127.0.0.1:8083", "unix:/run/s"]));
        assert_eq!(
            status["connections"],
            json!({ "now": 1, "max": 100, "accepted": 1 })
        );
        assert_eq!(status["refused_by"], json!({ "not_allowed": 1 }));
        let cache = json!({ "bytes": 1_000, "max": 4_000, "answers": 7, "hits": 1, "misses": 0 });
        assert_eq!(status["cache"], cache);
        let host = &status["hosts"][0];
        for (key, value) in [
            ("name", json!("api.example.com")),
            ("scheme", json!("https")),
            ("port", json!(443)),
            ("breaker", json!("open")),
            ("waiting", json!(3)),
            (
                "connections",
                json!({ "idle": 4, "busy": 1, "connecting": 1 }),
            ),
            ("protocol", json!("h2")),
            ("calls", json!(3)),
            ("failed", json!(1)),
            ("failed_by", json!({ "connect_timeout": 1 })),
            ("reuse", json!(0.5)),
            (
                "handshakes",
                json!({ "full": 1, "resumed": 0, "unverified": 0 }),
            ),
        ] {
            assert_eq!(host[key], value, "{key}");
        }
        assert_eq!(host["times"]["total"]["count"], 3);
        assert!(
            host["times"]["first_byte"]["p99"].as_f64() > Some(0.01),
            "{host}"
        );
        assert_eq!(host["last_error"]["reason"], "connect_timeout");
        assert_eq!(
            host["last_error"]["message"],
            "192.0.2.7:443 does not answer"
        );
    }

    #[test]
    fn a_host_of_which_nothing_is_kept_has_its_counts() {
        let (view, still) = view();
        drop(still);
        let status = view.status();
        assert_eq!(status["cache"], Value::Null);
        assert_eq!(status["hosts"][0]["connections"], Value::Null);
        assert_eq!(status["hosts"][0]["calls"], 3);
    }

    #[test]
    fn the_metrics_have_each_host() {
        let (view, _still) = view();
        let mut page = Page::new();
        view.put_metrics(&mut page);
        let text = String::from_utf8(page.text()).expect("text");
        for line in [
            "weir_egress_calls_total{host=\"api.example.com\",code=\"2xx\"} 2",
            "weir_egress_failures_total{host=\"api.example.com\",reason=\"connect_timeout\"} 1",
            "weir_egress_refused_total{reason=\"not_allowed\"} 1",
            "weir_egress_breaker{host=\"api.example.com\",state=\"open\"} 1",
            "weir_egress_breaker{host=\"api.example.com\",state=\"closed\"} 0",
            "weir_egress_connections{host=\"api.example.com\",state=\"idle\"} 4",
            "weir_egress_connections_opened_total{host=\"api.example.com\",protocol=\"h2\"} 1",
            "weir_egress_kept_calls_total{host=\"api.example.com\"} 1",
            "weir_egress_tls_handshakes_total{host=\"api.example.com\",kind=\"full\"} 1",
            "weir_egress_call_duration_seconds_count{host=\"api.example.com\"} 3",
            "weir_egress_cache_calls_total{host=\"api.example.com\",use=\"hit\"} 1",
            "weir_egress_cache_answers 7",
            "weir_egress_dns_lookups_total{result=\"done\"} 1",
            "weir_egress_callers_connections 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
    }
}
