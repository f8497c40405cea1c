//! A FastCGI responder that does nothing.
//!
//! It answers every request with the same short page in one write, on as many kept connections as the gateway likes, so
//! a benchmark measures the gateway. It does not use `weir-fcgi` to read the protocol: if both ends shared that crate,
//! a mistake in it would stay hidden.
//!
//! ```text
//! weir-bench-responder [--listen PATH] [--counters PATH] [--threads N] [--body BYTES]
//! ```
//!
//! Without `--listen` the listening socket is descriptor 0, as in FastCGI 1.0 §2.2. A client that connects to the
//! `--counters` socket reads how many connections were accepted, how many are open, and how many requests were
//! answered. This shows whether a gateway keeps its connections.

#![forbid(unsafe_code)]

use std::{
    env, fs,
    future::poll_fn,
    io,
    io::Write as _,
    os::{
        fd::AsFd as _,
        unix::{fs::PermissionsExt as _, net::UnixListener as StdListener},
    },
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use tokio::net::UnixListener;
use weir_sys::socket::send as send_now;
use weir_sys::watch::Watched;

fn main() -> ExitCode {
    match Options::from_args(env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-bench-responder: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The options of the command line.
struct Options {
    listen: Option<String>,
    counters: Option<String>,
    threads: usize,
    body: usize,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            listen: None,
            counters: None,
            threads: 1,
            body: 100,
        };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} takes a value"))?;
            let number = || {
                value
                    .parse::<usize>()
                    .map_err(|_| format!("{name} takes a number, not {value}"))
            };
            match name.as_str() {
                "--listen" => options.listen = Some(value),
                "--counters" => options.counters = Some(value),
                "--threads" => options.threads = number()?.max(1),
                "--body" => options.body = number()?.min(MAX_BODY),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

fn run(options: Options) -> Result<(), String> {
    let listener = match &options.listen {
        Some(path) => bind(path)?,
        None => {
            let stdin = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|e| format!("descriptor 0: {e}"))?;
            StdListener::from(stdin)
        }
    };
    listener
        .set_nonblocking(true)
        .map_err(|e| format!("listening socket: {e}"))?;
    if let Some(path) = &options.counters {
        let counters = bind(path)?;
        thread::spawn(move || tell_counters(&counters));
    }
    let page = page(options.body);
    let threads: Vec<_> = (0..options.threads)
        .map(|_| {
            let listener = listener
                .try_clone()
                .map_err(|e| format!("listening socket: {e}"))?;
            let page = page.clone();
            Ok(thread::spawn(move || serve(listener, page)))
        })
        .collect::<Result<_, String>>()?;
    for thread in threads {
        thread
            .join()
            .map_err(|_| "a thread panicked".to_owned())?
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Binds a unix socket that every user may connect to (gateways drop their privileges).
fn bind(path: &str) -> Result<StdListener, String> {
    let listener = StdListener::bind(path).map_err(|e| format!("{path}: {e}"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))
        .map_err(|e| format!("{path}: {e}"))?;
    Ok(listener)
}

fn tell_counters(listener: &StdListener) {
    for stream in listener.incoming() {
        let text = format!(
            "accepted {} open {} requests {}\n",
            ACCEPTED.load(Relaxed),
            OPEN.load(Relaxed),
            REQUESTS.load(Relaxed)
        );
        // The client may have left; then the error does not matter.
        let _ = stream.and_then(|mut s| s.write_all(text.as_bytes()));
    }
}

/// One thread: accepts and serves connections in an endless loop.
fn serve(listener: StdListener, page: Vec<u8>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = UnixListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            // For reading only. Otherwise the responder would wake up each time the gateway has read an answer, and
            // that costs the gateway time.
            let stream = Watched::for_reading(stream.into_std()?.into())?;
            let page = page.clone();
            tokio::spawn(async move {
                ACCEPTED.fetch_add(1, Relaxed);
                OPEN.fetch_add(1, Relaxed);
                if let Err(error) = converse(stream, page).await {
                    eprintln!("weir-bench-responder: connection: {error}");
                }
                OPEN.fetch_sub(1, Relaxed);
            });
        }
    })
}

/// Serves one connection, until the gateway closes it or a request without FCGI_KEEP_CONN has been answered.
async fn converse(stream: Watched, mut page: Vec<u8>) -> io::Result<()> {
    let mut input = vec![0; INPUT];
    let mut filled = 0;
    let mut keep = true;
    loop {
        let read = poll_fn(|cx| stream.poll_receive(cx, &mut input[filled..])).await?;
        if read == 0 {
            return if filled == 0 {
                Ok(())
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        filled += read;
        let mut taken = 0;
        while let Some(record) = Record::first(&input[taken..filled])? {
            taken += record.len;
            match record.kind {
                BEGIN_REQUEST => {
                    keep = record
                        .content
                        .get(2)
                        .is_some_and(|flags| flags & KEEP_CONN != 0)
                }
                STDIN if record.content.is_empty() => {
                    REQUESTS.fetch_add(1, Relaxed);
                    set_request(&mut page, record.request);
                    answer(&stream, &page)?;
                    if !keep {
                        return Ok(());
                    }
                }
                GET_VALUES => answer(&stream, NO_VALUES)?,
                _ => {}
            }
        }
        input.copy_within(taken..filled, 0);
        filled -= taken;
    }
}

/// Sends an answer, which is small. If it does not fit into the socket, the gateway has stopped reading.
fn answer(stream: &Watched, bytes: &[u8]) -> io::Result<()> {
    match send_now(stream.as_fd(), bytes)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// A record of FastCGI 1.0 §3.3.
struct Record<'a> {
    kind: u8,
    request: [u8; 2],
    content: &'a [u8],
    /// Header, content and padding.
    len: usize,
}

impl<'a> Record<'a> {
    /// The first record of `input`. `None` while it is incomplete.
    fn first(input: &'a [u8]) -> io::Result<Option<Self>> {
        let Some(header) = input.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        if header[0] != VERSION {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "not FastCGI version 1",
            ));
        }
        let content = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let len = HEADER + content + usize::from(header[6]);
        if input.len() < len {
            return Ok(None);
        }
        let request = [header[2], header[3]];
        Ok(Some(Self {
            kind: header[1],
            request,
            content: &input[HEADER..HEADER + content],
            len,
        }))
    }
}

/// The complete answer to request 0: a STDOUT record, and END_REQUEST as PHP sends it (no empty STDOUT record).
fn page(body: usize) -> Vec<u8> {
    let mut content = b"Content-Type: text/plain; charset=utf-8\r\n\r\n".to_vec();
    content.extend(b"nothing was done \n".iter().cycle().take(body));
    let padding = content.len().wrapping_neg() % 8;
    let length = u16::try_from(content.len()).expect("a page is limited to MAX_BODY");
    let mut page = vec![
        VERSION,
        STDOUT,
        0,
        0,
        0,
        0,
        u8::try_from(padding).expect("less than eight"),
        0,
    ];
    page[4..6].copy_from_slice(&length.to_be_bytes());
    page.extend(content);
    page.resize(page.len() + padding, 0);
    page.extend([VERSION, END_REQUEST, 0, 0, 0, 8, 0, 0]);
    page.extend([0; 8]);
    page
}

/// Puts the request's id into both records of a page.
fn set_request(page: &mut [u8], request: [u8; 2]) {
    let end = page.len() - END_REQUEST_LEN;
    page[2..4].copy_from_slice(&request);
    page[end + 2..end + 4].copy_from_slice(&request);
}

static ACCEPTED: AtomicU64 = AtomicU64::new(0);
static OPEN: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);

const VERSION: u8 = 1;
const HEADER: usize = 8;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const GET_VALUES: u8 = 9;
const KEEP_CONN: u8 = 1;
const END_REQUEST_LEN: usize = 16;
/// A GET_VALUES_RESULT without any name (FastCGI 1.0 §4.1).
const NO_VALUES: &[u8] = &[VERSION, 10, 0, 0, 0, 0, 0, 0];
/// Size of a connection's buffer in bytes: more than the largest record with its padding.
const INPUT: usize = 66 * 1024;
/// Largest body of a page in bytes: together with its head it fits into one record.
const MAX_BODY: usize = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_two_whole_records_of_the_request() {
        for body in [0, 1, 100, MAX_BODY] {
            let mut page = page(body);
            set_request(&mut page, [3, 4]);
            let stdout = Record::first(&page).unwrap().unwrap();
            assert_eq!((stdout.kind, stdout.request), (STDOUT, [3, 4]));
            assert_eq!(stdout.len % 8, 0);
            let head = stdout
                .content
                .windows(4)
                .position(|w| w == b"\r\n\r\n")
                .unwrap()
                + 4;
            assert_eq!(stdout.content.len() - head, body);
            let end = Record::first(&page[stdout.len..]).unwrap().unwrap();
            assert_eq!(
                (end.kind, end.request, end.content),
                (END_REQUEST, [3, 4], &[0; 8][..])
            );
            assert_eq!(stdout.len + end.len, page.len());
        }
    }

    #[test]
    fn a_record_is_not_read_before_its_padding_is_there() {
        let page = page(100);
        let len = Record::first(&page).unwrap().unwrap().len;
        assert!((0..len).all(|cut| Record::first(&page[..cut]).unwrap().is_none()));
        assert!(Record::first(&[2, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
