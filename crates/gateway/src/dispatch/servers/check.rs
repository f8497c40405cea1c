//! Checks servers, independent of requests: opens a connection, or sends a small FastCGI request. A check does not
//! count as a request of the pool and does not wait in its queue.

use std::{
    future::poll_fn,
    io,
    time::{Duration, SystemTime},
};

use http::Method;
use tokio::io::ReadBuf;
use weir_config::{Address, Check, Runtime};
use weir_fcgi::{
    ProtocolStatus, Role,
    client::{self, Event, Params, ResponseDecoder},
};
use weir_http1::Limits;
use weir_observe::clock;
use weir_pool::{Micros, ServerId, mixed};
use weir_upstream::h1;

use super::CheckStatus;
use crate::{
    dispatch::PoolHandle,
    scripts::{fastcgi::cgi, run::connection::WorkerConn},
};

/// Checks a server until it is removed.
pub(super) async fn watch(pool: &'static PoolHandle, server: ServerId, serial: u64) {
    let Runtime::Servers(settings) = &pool.settings.runtime else {
        return;
    };
    let mut turn = 0;
    loop {
        let Some(address) = pool.address(server, serial) else {
            return;
        };
        if matches!(settings.check, Check::FastCgi(_)) {
            pool.make_room(server, serial);
        }
        let host = match settings.http.as_ref().and_then(|http| http.host.as_deref()) {
            Some(host) => host.to_owned(),
            None => authority(&address),
        };
        let (at, began) = (SystemTime::now(), clock::precise());
        let check = look(&address, &settings.check, &host);
        let result = tokio::time::timeout(settings.check_timeout, check).await;
        let took = Duration::from_micros(clock::precise() - began);
        let (good, what) = match result {
            Ok(Ok(CheckResult::Good(what))) => (Some(true), what),
            Ok(Ok(CheckResult::Busy)) => (None, "its accept queue is full".to_owned()),
            Ok(Err(what)) => (Some(false), what),
            // All workers of the server are busy and still finish requests. This is no reason to send requests
            // elsewhere.
            Err(_) if pool.has_answered_since(server, Micros(began)) => (
                None,
                "no answer in time, but requests were answered".to_owned(),
            ),
            Err(_) => (
                Some(false),
                format!("no answer within {} ms", settings.check_timeout.as_millis()),
            ),
        };
        pool.was_checked(
            server,
            serial,
            CheckStatus {
                at,
                good,
                what,
                took,
            },
        );
        turn += 1;
        tokio::time::sleep(jittered(settings.check_interval, mixed(serial) ^ turn)).await;
    }
}

enum CheckResult {
    Good(String),
    /// Neither up nor down.
    Busy,
}

/// One check, without a limit of time.
///
/// # Errors
///
/// What is wrong with the server, for the log.
async fn look(address: &Address, check: &Check, host: &str) -> Result<CheckResult, String> {
    let conn = match WorkerConn::connect(address).await {
        Ok(conn) => conn,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(CheckResult::Busy),
        Err(error) => return Err(format!("cannot connect: {error}")),
    };
    match check {
        Check::FastCgi(path) => ask(conn, path).await.map(CheckResult::Good),
        Check::Http { path, statuses } => {
            let asked = get(conn, path, host).await;
            let status = asked.map_err(|error| format!("its answer is not usable: {error}"))?;
            match statuses.has(status) {
                true => Ok(CheckResult::Good(format!("status {status}"))),
                false => Err(format!("it answered with status {status}")),
            }
        }
        Check::Off | Check::Tcp => Ok(CheckResult::Good("connected".to_owned())),
    }
}

/// Requests `path` over HTTP and returns the status.
async fn get(conn: WorkerConn, path: &str, host: &str) -> Result<u16, h1::Error> {
    // Checks run on the first reactor.
    let conn = conn.at_home(0).map_err(h1::Error::Unsent)?;
    let limits = Limits {
        head: MAX_HEAD as u32,
        ..Limits::default()
    };
    let mut conn = h1::Connection::new(conn, limits);
    let lines = format!("Host: {host}\r\nUser-Agent: weir-check\r\nConnection: close\r\n");
    conn.begin(&h1::Request {
        method: &Method::GET,
        target: path.as_bytes(),
        lines: lines.as_bytes(),
        length: Some(0),
        says_empty: false,
    })?;
    // Only the head matters, so the rest is not read.
    conn.exchange(&mut None::<String>).await?;
    Ok(conn.head().status())
}

/// The host of a server that is known by its address, for a check.
fn authority(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    }
}

/// Requests `path` and returns the status.
async fn ask(conn: WorkerConn, path: &str) -> Result<String, String> {
    let failed = |error: io::Error| format!("the connection failed: {error}");
    // Checks run on the first reactor.
    let mut conn = conn.at_home(0).map_err(failed)?;
    let request = request(path);
    let mut written = 0;
    while written < request.len() {
        let count = poll_fn(|cx| conn.poll_write(cx, &request[written..])).await;
        written += count.map_err(failed)?;
    }
    conn.written();
    let (mut decoder, mut output) = (ResponseDecoder::new(ID), Vec::new());
    let mut scratch = [0; 4096];
    loop {
        let mut buffer = ReadBuf::new(&mut scratch);
        let read = poll_fn(|cx| conn.poll_read(cx, &mut buffer)).await;
        read.map_err(failed)?;
        if buffer.filled().is_empty() {
            return Err("it closed the connection in the middle of its answer".to_owned());
        }
        let ended = decode(&mut decoder, buffer.filled(), &mut output)?;
        // Only the head matters, so the rest is not read.
        if let Some(end) = cgi::end_of_head(&output, &mut 0) {
            return judge(&output[..end]);
        }
        if ended {
            return Err(format!("its answer has no head, in {} bytes", output.len()));
        }
        if output.len() > MAX_HEAD {
            return Err(format!(
                "the head of its answer is longer than {MAX_HEAD} bytes"
            ));
        }
    }
}

/// True: the answer is complete.
fn decode(
    decoder: &mut ResponseDecoder,
    mut input: &[u8],
    output: &mut Vec<u8>,
) -> Result<bool, String> {
    loop {
        match decoder.next(&mut input) {
            Ok(Some(Event::Stdout(bytes))) => output.extend_from_slice(bytes),
            Ok(Some(Event::End {
                protocol_status, ..
            })) => {
                return match protocol_status {
                    ProtocolStatus::RequestComplete => Ok(true),
                    refused => Err(format!("it refused the request: {refused:?}")),
                };
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(false),
            Err(error) => return Err(format!("it does not speak FastCGI: {error}")),
        }
    }
}

fn judge(head: &[u8]) -> Result<String, String> {
    let (head, _) = cgi::parse(head).ok_or("its answer has no head")?;
    if let Some(bad) = &head.bad {
        return Err(format!("the head of its answer is wrong: {bad}"));
    }
    if let Some(lost) = &head.lost {
        return Err(format!("the head of its answer is wrong: {:?}", lost.line));
    }
    let status = head.status.as_u16();
    match status {
        200..=399 => Ok(format!("status {status}")),
        _ => Err(format!("it answered with status {status}")),
    }
}

/// A request that PHP-FPM's ping and status pages accept, and PHP scripts too.
fn request(path: &str) -> Vec<u8> {
    let mut request = Vec::new();
    client::begin_request(&mut request, ID, Role::Responder, false);
    let mut params = Params::new(&mut request, ID);
    let path = path.as_bytes();
    let pairs: [(&[u8], &[u8]); 13] = [
        (b"GATEWAY_INTERFACE", b"CGI/1.1"),
        (b"REQUEST_METHOD", b"GET"),
        (b"SCRIPT_NAME", path),
        (b"SCRIPT_FILENAME", path),
        (b"REQUEST_URI", path),
        (b"DOCUMENT_URI", path),
        (b"QUERY_STRING", b""),
        (b"SERVER_PROTOCOL", b"HTTP/1.1"),
        (b"SERVER_SOFTWARE", b"weir"),
        (b"SERVER_NAME", b"localhost"),
        (b"REMOTE_ADDR", b"127.0.0.1"),
        (b"REDIRECT_STATUS", b"200"),
        (b"HTTP_USER_AGENT", b"weir-check"),
    ];
    for (name, value) in pairs {
        params.pair(name, value);
    }
    params.finish();
    client::stdin_end(&mut request, ID);
    request
}

impl PoolHandle {
    /// The address of a server; `None` if it was removed.
    fn address(&self, server: ServerId, serial: u64) -> Option<Address> {
        let state = self.state();
        let group = state.group.as_ref()?;
        let mut staying = group.staying();
        let (_, member) = staying.find(|(id, _)| *id == server)?;
        (member.serial == serial).then(|| member.address.clone())
    }

    /// Closes an idle connection if there are as many as the server has workers. Each idle connection occupies a
    /// PHP-FPM worker, and without a free worker the check would get no answer, though no request runs there.
    fn make_room(&'static self, server: ServerId, serial: u64) {
        self.change(|state, now, effects| {
            let Some(group) = &mut state.group else {
                return;
            };
            let figures = group.balancer.figures(now, server);
            let member = group.member_mut(server);
            if let (Some(figures), Some(member)) = (figures, member)
                && member.serial == serial
                && !member.kept.is_empty()
                && figures.busy + member.kept.len() >= figures.limit
            {
                effects.close(Some(member.kept.remove(0)));
            }
        });
    }

    fn has_answered_since(&self, server: ServerId, time: Micros) -> bool {
        let state = self.state();
        let group = state.group.as_ref();
        group.is_some_and(|group| group.balancer.has_answered_since(server, time))
    }

    fn was_checked(&'static self, server: ServerId, serial: u64, check: CheckStatus) {
        self.change(|state, now, effects| {
            if let Some(group) = &mut state.group
                && let Some(member) = group.member_mut(server)
                && member.serial == serial
            {
                let cause = check.what.clone();
                let good = check.good;
                member.last_check = Some(check);
                let change = good.and_then(|good| group.balancer.checked(now, server, good));
                group.changed(server, change, Some(&cause), effects);
            }
            state.fit(self, now, effects);
        });
    }
}

/// Varies the interval by up to a fifth, so that checks do not all run at once.
fn jittered(interval: Duration, number: u64) -> Duration {
    interval * (80 + (mixed(number) % 41) as u32) / 100
}

/// The only request of its connection.
const ID: u16 = 1;

/// Maximum size of the response head of a check, bytes.
const MAX_HEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_judged() {
        for head in [
            "Status: 200 OK\r\n\r\n",
            "Content-Type: text/plain\n\n",
            "Status: 302\r\n\r\n",
        ] {
            assert!(judge(head.as_bytes()).is_ok(), "{head}");
        }
        for head in [
            "Status: 404 Not CheckResult\r\n\r\n",
            "Status: 500\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert!(judge(head.as_bytes()).is_err(), "{head}");
        }
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        let interval = Duration::from_secs(10);
        let all: Vec<Duration> = (0..500).map(|turn| jittered(interval, turn)).collect();
        assert!(all.iter().all(|pause| (8..=12).contains(&pause.as_secs())));
        assert!(
            all.iter().any(|pause| *pause < interval) && all.iter().any(|pause| *pause > interval)
        );
    }
}
