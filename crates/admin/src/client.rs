//! The client of a running weir's admin interface: for `weir status`, `weir reload`, `weir stop`, `weir pool NAME
//! restart`.

use std::{
    fmt::{self, Write},
    fs,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use http::Method;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use weir_http1::Limits;
use weir_observe::log_text;
use weir_upstream::h1::{self, Connection};

/// The address of an admin interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// On TCP.
    Tcp {
        /// This address.
        address: SocketAddr,
        /// The token for actions.
        token: Option<String>,
    },
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// Nobody could be asked.
    Unreachable {
        /// The admin address.
        place: Endpoint,
        /// Why.
        error: io::Error,
    },
    /// The admin interface was reached, but did not answer correctly.
    Broken(String),
    /// The connection was accepted, but no answer came: weir hangs, or is about to end.
    Silent {
        /// How long the client waited.
        limit: Duration,
        /// Processes of that weir that do not run, of those that are visible: `the gateway (process 8) is stopped`.
        seen: Vec<Stuck>,
    },
    /// weir refuses the request; with the reason.
    Refused(String),
}

/// A process that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Its role: `manager`, `gateway`.
    pub role: &'static str,
    /// Its process id.
    pub pid: u32,
    /// It was stopped by a signal; otherwise it waits for a disk.
    pub stopped: bool,
}

/// Sends a request to the admin interface at `place`, and waits for the text of the answer.
///
/// # Errors
/// See [`Error`].
pub fn ask(place: &Endpoint, method: Method, path: &str) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Broken(error.to_string()))?;
    runtime.block_on(async {
        if method == Method::GET {
            return within(place, SOON, exchange(place, method, path)).await;
        }
        // The action may take long. The probe shows at once whether weir answers.
        within(place, PROBE, exchange(place, Method::GET, "/healthz")).await?;
        within(place, PATIENCE, exchange(place, method, path)).await
    })
}

async fn within(
    place: &Endpoint,
    limit: Duration,
    asked: impl Future<Output = Result<String, Error>>,
) -> Result<String, Error> {
    match tokio::time::timeout(limit, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::Silent {
            limit,
            seen: manager_of(place).await.map(stuck).unwrap_or_default(),
        }),
    }
}

/// The process that listens on an admin socket.
async fn manager_of(place: &Endpoint) -> Option<u32> {
    let Endpoint::Unix(socket) = place else {
        return None;
    };
    let stream = UnixStream::connect(socket).await.ok()?;
    u32::try_from(stream.peer_cred().ok()?.pid()?).ok()
}

/// Which processes of a weir do not run.
fn stuck(manager: u32) -> Vec<Stuck> {
    let listed = |task: u32| fs::read_to_string(format!("/proc/{manager}/task/{task}/children"));
    let children = listed(manager).unwrap_or_default();
    let children = children.split_ascii_whitespace().flat_map(str::parse);
    let is_gateway = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"weir: gateway")
    };
    let gateways = children.filter(is_gateway).map(|pid| ("gateway", pid));
    let all = std::iter::once(("manager", manager)).chain(gateways);
    all.filter_map(|(role, pid)| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // proc_pid_stat(5): the state follows after the program's name, which may contain anything.
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        matches!(state, 'T' | 't' | 'D').then_some(Stuck {
            role,
            pid,
            stopped: state != 'D',
        })
    })
    .collect()
}

async fn exchange(place: &Endpoint, method: Method, path: &str) -> Result<String, Error> {
    let unreachable = |error| Error::Unreachable {
        place: place.clone(),
        error,
    };
    match place {
        Endpoint::Unix(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
            send(stream, &method, path, "host: weir\r\n").await
        }
        Endpoint::Tcp { address, token } => {
            let stream = TcpStream::connect(address).await.map_err(unreachable)?;
            let mut lines = format!("host: {address}\r\n");
            if let Some(token) = token {
                lines.push_str(&format!("authorization: Bearer {token}\r\n"));
            }
            send(stream, &method, path, &lines).await
        }
    }
}

async fn send<S>(stream: S, method: &Method, path: &str, lines: &str) -> Result<String, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error: h1::Error| Error::Broken(error.to_string());
    let mut connection = Connection::new(stream, Limits::default());
    let request = h1::Request {
        method,
        target: path.as_bytes(),
        lines: lines.as_bytes(),
        length: Some(0),
        says_empty: true,
    };
    connection.begin(&request).map_err(broken)?;
    let exchanged = connection.exchange(&mut None::<String>).await;
    exchanged.map_err(broken)?;
    let mut answer = Vec::new();
    while let Some(frame) = poll_fn(|cx| connection.poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            answer.extend_from_slice(&data);
        }
        if answer.len() > MAX_ANSWER {
            return Err(Error::Broken("its answer is too long".to_owned()));
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    match connection.head().status() {
        200 => Ok(text),
        _ => Err(Error::Refused(text)),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { place, error } => match place {
                Endpoint::Unix(socket) => {
                    write!(f, "no weir is running at {}: {error}", socket.display())
                }
                Endpoint::Tcp { address, .. } => {
                    write!(f, "no weir is running at {address}: {error}")
                }
            },
            Self::Broken(cause) => write!(f, "the running weir did not answer: {cause}"),
            Self::Silent { limit, seen } => {
                let seconds = limit.as_secs();
                write!(f, "weir is running, but has not answered for {seconds} s")?;
                seen.iter().try_for_each(|Stuck { role, pid, stopped }| {
                    let how = match stopped {
                        true => "is stopped",
                        false => "is waiting for a disk",
                    };
                    write!(f, "; its {role} (process {pid}) {how}")
                })
            }
            // Another program may have answered: its text must not move the cursor or change colours.
            Self::Refused(why) => why
                .trim_end()
                .chars()
                .take(LONGEST_REFUSAL)
                .filter(|c| !log_text::is_hidden(*c) || matches!(c, '\n' | '\t'))
                .try_for_each(|c| f.write_char(c)),
        }
    }
}

impl std::error::Error for Error {}

/// Limit for requests that are answered at once.
const SOON: Duration = Duration::from_secs(10);

/// Limit for the probe.
const PROBE: Duration = Duration::from_secs(5);

/// A reload warms up pools and starts a gateway before it is answered.
const PATIENCE: Duration = Duration::from_secs(310);

/// How many characters of a refusal are shown: errors in a configuration are shown completely.
const LONGEST_REFUSAL: usize = 64 << 10;

/// Maximum size of an answer, bytes: the status of a thousand pools.
const MAX_ANSWER: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_shown_as_text() {
        let shown = Error::Refused("no\u{1b}[31m\n\tbecause\r\n".into()).to_string();
        assert_eq!(shown, "no[31m\n\tbecause");
        let long = Error::Refused("x".repeat(1 << 20)).to_string();
        assert_eq!(long.len(), LONGEST_REFUSAL);
    }
}
