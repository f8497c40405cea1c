//! A DNS server inside the test that returns what the test sets: addresses, at once or late, "no such name", invalid bytes, or
//! nothing.
//!
//! It writes its messages by hand (RFC 1035 §4), so that it can write wrong ones.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::free_address;

/// A name server on UDP. It stops when it is dropped.
pub struct Dns {
    address: SocketAddr,
    socket: UdpSocket,
    shared: Arc<Shared>,
}

/// The answer for a name.
#[derive(Debug, Clone)]
pub enum Says {
    /// These addresses, with this TTL in seconds. They are all of one family. The other family has no addresses.
    Addresses(Vec<IpAddr>, u32),
    /// The same, but not before [`Dns::answer_late`].
    Late(Vec<IpAddr>, u32),
    /// There is no such name.
    NoSuchName,
    /// The server has failed.
    Failure,
    /// No answer.
    Silence,
    /// Bytes that are not a message.
    Garbage,
}

#[derive(Default)]
struct Shared {
    names: Mutex<BTreeMap<String, Says>>,
    asked: AtomicUsize,
    stopping: AtomicBool,
    /// Questions that wait for [`Dns::answer_late`], with the addresses of those who asked. `None`: it has been called.
    late: Mutex<Option<Vec<Question>>>,
}

/// The bytes of a question, and who asked.
type Question = (Vec<u8>, SocketAddr);

impl Dns {
    /// Starts a server that knows no name.
    pub fn start() -> Dns {
        Dns::at(SocketAddr::new(free_address().ip(), 0))
    }

    /// The same at this address. Programs that read /etc/resolv.conf ask port 53, which only root may open.
    pub fn at(address: SocketAddr) -> Dns {
        let socket = UdpSocket::bind(address).expect("bind");
        let address = socket.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        *shared.late.lock().expect("no holder panics") = Some(Vec::new());
        let (server, ours) = (shared.clone(), socket.try_clone().expect("a socket"));
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                if server.stopping.load(Ordering::SeqCst) {
                    return;
                }
                server.asked.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer(&server, &buffer[..length], from) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Dns {
            address,
            socket: ours,
            shared,
        }
    }

    /// The address, in the format of `resolver`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the answer for this name from now on.
    pub fn says(&self, name: &str, says: Says) {
        let mut names = self.shared.names.lock().expect("no holder panics");
        names.insert(name.to_owned(), says);
    }

    /// Answers the questions that wait ([`Says::Late`]). From now on, none waits.
    pub fn answer_late(&self) {
        let late = self.shared.late.lock().expect("no holder panics").take();
        for (question, from) in late.unwrap_or_default() {
            if let Some(answer) = answer(&self.shared, &question, from) {
                self.socket.send_to(&answer, from).expect("an answer");
            }
        }
    }

    /// The number of questions so far.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Ok(socket) = UdpSocket::bind((self.address.ip(), 0)) {
            let _ = socket.set_write_timeout(Some(Duration::from_secs(1)));
            let _ = socket.send_to(b"end", self.address);
        }
    }
}

fn answer(shared: &Shared, question: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
    let (name, kind, end) = read_question(question)?;
    let says = shared
        .names
        .lock()
        .expect("no holder panics")
        .get(&name)
        .cloned();
    let (code, addresses, ttl) = match says.unwrap_or(Says::NoSuchName) {
        Says::Addresses(addresses, ttl) => (0, addresses, ttl),
        Says::Late(addresses, ttl) => {
            let mut late = shared.late.lock().expect("no holder panics");
            if let Some(late) = late.as_mut() {
                late.push((question.to_owned(), from));
                return None;
            }
            (0, addresses, ttl)
        }
        Says::NoSuchName => (3, Vec::new(), 0),
        Says::Failure => (2, Vec::new(), 0),
        Says::Silence => return None,
        Says::Garbage => return Some(vec![0xFF; 40]),
    };
    let data: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(ip), A) => Some(ip.octets().to_vec()),
            (IpAddr::V6(ip), AAAA) => Some(ip.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut message = question[..2].to_vec();
    // The header of an answer, with recursion available and one question.
    message.extend([0x81, 0x80 | code, 0, 1, 0, data.len() as u8, 0, 0, 0, 0]);
    message.extend(&question[12..end]);
    for data in data {
        // The name of the question (a compression pointer), class IN.
        message.extend([0xC0, 12]);
        message.extend(kind.to_be_bytes());
        message.extend(1_u16.to_be_bytes());
        message.extend(ttl.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(data);
    }
    Some(message)
}

/// Returns the name of the question, the type, and where the question ends.
fn read_question(message: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = message.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    message.get(at + 3)?;
    Some((labels.join("."), kind, at + 4))
}

const A: u16 = 1;
const AAAA: u16 = 28;
