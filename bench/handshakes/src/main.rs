//! Clients that open a TLS connection, end it, and open the next one.
//!
//! The group is always X25519, which every server has, so that servers with and without X25519MLKEM768 do the same
//! work. Each client has a thread. It waits until the server has closed the connection, so the server has done all of
//! its part.
//!
//! ```text
//! weir-bench-handshakes HOST:PORT NAME CA.pem [--clients N] [--seconds S] [--resume true]
//! ```
//!
//! Prints one line of JSON. With `--resume`, the first handshake of each client is full and does not count. A handshake
//! that is not of the wanted kind is an error.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    env,
    io::{self, Read as _},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};

fn main() -> ExitCode {
    let figures = Options::from_args(env::args().skip(1)).and_then(|options| run(&options));
    match figures {
        Ok(figures) => {
            figures.print();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("weir-bench-handshakes: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    server: SocketAddr,
    name: ServerName<'static>,
    roots: Arc<RootCertStore>,
    clients: usize,
    seconds: Duration,
    resume: bool,
}

impl Options {
    fn from_args(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut next = |what: &str| args.next().ok_or_else(|| format!("{what} is needed"));
        let (server, name, file) = (next("HOST:PORT")?, next("NAME")?, next("CA.pem")?);
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(&file).map_err(|e| format!("{file}: {e}"))?;
        roots.add(authority).map_err(|e| format!("{file}: {e}"))?;
        let mut options = Options {
            server: server.parse().map_err(|e| format!("{server}: {e}"))?,
            name: ServerName::try_from(name).map_err(|e| e.to_string())?,
            roots: Arc::new(roots),
            clients: 1,
            seconds: Duration::from_secs(1),
            resume: false,
        };
        while let Some(option) = args.next() {
            let value = args.next().unwrap_or_default();
            let number = value.parse().ok().filter(|number| *number > 0);
            match (option.as_str(), number) {
                ("--clients", Some(number)) => options.clients = number,
                ("--seconds", Some(number)) => options.seconds = Duration::from_secs(number as u64),
                ("--resume", _) => options.resume = value == "true",
                _ => return Err(format!("{option} {value}: unknown")),
            }
        }
        Ok(options)
    }

    /// The settings of one client, with a place of its own for tickets.
    fn config(&self) -> Result<ClientConfig, rustls::Error> {
        let provider = CryptoProvider {
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            ..aws_lc_rs::default_provider()
        };
        let builder = ClientConfig::builder_with_provider(provider.into());
        let builder = builder.with_safe_default_protocol_versions()?;
        let mut config = builder
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.resumption = match self.resume {
            true => Resumption::in_memory_sessions(8),
            false => Resumption::disabled(),
        };
        Ok(config)
    }
}

fn run(options: &Options) -> Result<Figures, String> {
    let mut figures = Figures::default();
    let end = Instant::now() + options.seconds;
    thread::scope(|scope| -> Result<(), String> {
        let mut clients = Vec::new();
        for _ in 0..options.clients {
            let config = Arc::new(options.config().map_err(|e| e.to_string())?);
            clients.push(scope.spawn(move || client(options, &config, end)));
        }
        for client in clients {
            figures.add(client.join().map_err(|_| "a client panicked")?);
        }
        Ok(())
    })?;
    figures.seconds = options.seconds.as_secs_f64();
    figures.waits.sort_unstable();
    Ok(figures)
}

fn client(options: &Options, config: &Arc<ClientConfig>, end: Instant) -> Figures {
    let mut figures = Figures::default();
    let wanted = match options.resume {
        true => HandshakeKind::Resumed,
        false => HandshakeKind::Full,
    };
    if options.resume
        && let Err(error) = connect(options, config)
    {
        figures.failed(error.to_string());
    }
    while Instant::now() < end {
        let begin = Instant::now();
        match connect(options, config) {
            Ok(Some(kind)) if kind == wanted => figures.done(begin.elapsed()),
            Ok(kind) => figures.failed(format!("the handshake was {kind:?}")),
            Err(error) => {
                figures.failed(error.to_string());
                // A server that refuses connections is not asked without a pause.
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    figures
}

/// One connection: the handshake, then its end by both sides.
fn connect(options: &Options, config: &Arc<ClientConfig>) -> io::Result<Option<HandshakeKind>> {
    let mut socket = TcpStream::connect_timeout(&options.server, TIMEOUT)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_nodelay(true)?;
    let tls = ClientConnection::new(config.clone(), options.name.clone());
    let mut tls = tls.map_err(io::Error::other)?;
    while tls.is_handshaking() {
        // The last flight stays here, to be sent with what follows it.
        tls.write_tls(&mut socket)?;
        if tls.read_tls(&mut socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        tls.process_new_packets().map_err(io::Error::other)?;
    }
    let kind = tls.handshake_kind();
    tls.send_close_notify();
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    // Tickets, and the end.
    loop {
        match tls.read_tls(&mut socket) {
            Ok(0) => return Ok(kind),
            Ok(_) => {
                tls.process_new_packets().map_err(io::Error::other)?;
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(kind),
            Err(error) => return Err(error),
        }
        // Nothing is sent to clients but tickets.
        let _ = tls.reader().read(&mut [0; 64]);
    }
}

/// The results, of one client or of all.
#[derive(Default)]
struct Figures {
    seconds: f64,
    /// Times of the handshakes that were as wanted, microseconds.
    waits: Vec<u32>,
    errors: BTreeMap<String, u64>,
}

impl Figures {
    fn done(&mut self, waited: Duration) {
        self.waits
            .push(u32::try_from(waited.as_micros()).unwrap_or(u32::MAX));
    }

    fn failed(&mut self, cause: String) {
        *self.errors.entry(cause).or_default() += 1;
    }

    fn add(&mut self, other: Figures) {
        self.waits.extend(other.waits);
        for (cause, count) in other.errors {
            *self.errors.entry(cause).or_default() += count;
        }
    }

    fn print(&self) {
        let at = |share: f64| {
            let last = self.waits.len().checked_sub(1)?;
            self.waits
                .get(((self.waits.len() as f64 * share) as usize).min(last))
        };
        let ms = |share: f64| match at(share) {
            Some(micros) => format!("{:.3}", f64::from(*micros) / 1e3),
            None => "null".to_owned(),
        };
        let errors: Vec<_> = self
            .errors
            .iter()
            .map(|(what, n)| format!("{what:?}:{n}"))
            .collect();
        println!(
            "{{\"requests\":{},\"bytes\":0,\"seconds\":{:.6},\"p50_ms\":{},\"p90_ms\":{},\"p99_ms\":{},\"longest_ms\":{},\"errors\":{{{}}}}}",
            self.waits.len(),
            self.seconds,
            ms(0.5),
            ms(0.9),
            ms(0.99),
            ms(1.0),
            errors.join(","),
        );
    }
}

/// How long a client waits for bytes.
const TIMEOUT: Duration = Duration::from_secs(10);
