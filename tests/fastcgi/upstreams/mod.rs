//! Servers that speak HTTP behind weir: what they get, what clients get of their answers, and what fails.

mod answers;
mod failures;
mod programs;
mod requests;
mod routes;
mod websockets;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use weir_test::{Setup, Weir};

/// A request that a server got.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Received {
    /// The connection that it came over, from 1.
    connection: usize,
    /// Its request line.
    line: String,
    /// Its fields, with names in lower case, in order.
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Received {
    fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| &**value).collect()
    }
}

/// A server that gives the answers of a test, byte by byte.
struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

/// Writes the answer to a request. `false`: the connection ends.
type Answer = dyn Fn(&Received, &mut TcpStream) -> bool + Send + Sync;

impl Server {
    fn start(answer: impl Fn(&Received, &mut TcpStream) -> bool + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let (all, answer) = (
            received.clone(),
            Arc::<Answer>::from(Box::new(answer) as Box<Answer>),
        );
        thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let (all, answer) = (all.clone(), answer.clone());
                let stream = stream.expect("a connection");
                thread::spawn(move || serve(stream, index + 1, &all, &*answer));
            }
        });
        Server { address, received }
    }

    /// A server that answers each request with these bytes.
    fn of(answer: &'static str) -> Server {
        Server::start(move |_, stream| stream.write_all(answer.as_bytes()).is_ok())
    }

    /// A server that says what it got.
    fn echo() -> Server {
        Server::start(|request, stream| {
            let body = format!("{}\n{:?}\n", request.line, request.fields);
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + &body).as_bytes()).is_ok()
        })
    }

    /// As weir.toml names it.
    fn name(&self) -> String {
        format!("\"{}\"", self.address)
    }

    /// The requests that it got.
    fn received(&self) -> Vec<Received> {
        self.received.lock().expect("the list").clone()
    }

    /// The last request that it got.
    fn last(&self) -> Received {
        self.received().pop().expect("a request")
    }
}

fn serve(stream: TcpStream, connection: usize, all: &Mutex<Vec<Received>>, answer: &Answer) {
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let mut input = BufReader::new(stream.try_clone().expect("a descriptor"));
    let mut stream = stream;
    while let Some(request) = read(&mut input, connection) {
        all.lock().expect("the list").push(request.clone());
        if !answer(&request, &mut stream) {
            return;
        }
    }
}

fn read(input: &mut BufReader<TcpStream>, connection: usize) -> Option<Received> {
    let mut line = || {
        let mut line = String::new();
        let count = input.read_line(&mut line).ok()?;
        (count > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    };
    let first = line()?;
    let mut fields = Vec::new();
    loop {
        let field = line()?;
        let Some((name, value)) = field.split_once(':') else {
            break;
        };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = fields.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(Received {
        connection,
        line: first,
        fields,
        body,
    })
}

/// A pool of these servers, with more lines.
fn pool(servers: &[&Server], lines: &str) -> String {
    let names: Vec<String> = servers.iter().map(|server| server.name()).collect();
    let list = names.join(", ");
    format!("runtime = \"servers\"\nprotocol = \"http\"\nservers = [{list}]\n{lines}\n")
}

/// A site without files whose requests all go to these servers.
fn start(servers: &[&Server], lines: &str) -> Weir {
    Setup::new().admin().pool(&pool(servers, lines)).start()
}
