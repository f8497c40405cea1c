//! The end of a connection.
//!
//! Lingering: the client still sends a body that nobody needs, or may send something while the answer is on its way. weir reads on for
//! some seconds, because closing at once would send a reset, which may overtake the answer. An answer that cannot be sent whole ends
//! with a reset on purpose: then no client takes it for complete.

use std::os::fd::AsFd;

use http::StatusCode;
use tokio::io::AsyncWriteExt;
use weir_http1::Error;
use weir_net::{LAST_WRITE, Socket, linger};

use super::{Front, head::Refused};
use crate::{Tunnel, closing::Closing};

/// How a connection ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// The kernel has all answers, or no answer is due, and the client has announced nothing more.
    Clean,
    /// The kernel has the answer, but the client may still be sending: a body that nobody reads, or a request that it does not know
    /// to be refused.
    Linger,
    /// Part of a head arrived, but the rest did not arrive in time. Names the limit.
    HeadTimeout(&'static str),
    /// The bytes are not an acceptable head.
    Refused(Refused),
    /// The same, and they are those of a TLS connection.
    Tls,
    /// The bytes begin a connection of HTTP/2, which the listener accepts.
    Http2,
    /// The client's stream continues as a tunnel. With the bytes that were already read from it.
    Tunnel(Tunnel, Vec<u8>),
    /// The announced answer cannot be sent completely: the client must not take it for complete.
    Abort,
}

impl Ending {
    /// For bytes that are no head.
    pub(super) fn of(error: Error) -> Ending {
        match error {
            Error::Tls => Ending::Tls,
            error => Ending::Refused(error.into()),
        }
    }
}

/// Closes the connection. `None`: that is done.
pub(super) fn close(ending: Ending, socket: Socket, front: &impl Front) -> Option<Closing> {
    let refused = match ending {
        // Others have the connection: see `Connection::end`.
        Ending::Http2 | Ending::Tunnel(..) => return None,
        Ending::Clean => return Some(Closing::new(front.state(), weir_net::close(socket)?)),
        Ending::Abort => {
            // If the option cannot be set, the connection is closed normally; the missing length or last chunk still
            // shows the error.
            let _ = weir_sys::socket::reset_on_close(socket.as_fd());
            return None;
        }
        Ending::Linger => return Some(Closing::new(front.state(), linger(socket))),
        Ending::HeadTimeout(limit) => Refused {
            status: StatusCode::REQUEST_TIMEOUT,
            reason: "header_timeout",
            why: limit.to_owned(),
        },
        Ending::Tls => {
            front.met_tls();
            Error::Tls.into()
        }
        Ending::Refused(refused) => refused,
    };
    let status = refused.status;
    front.state().begin_request();
    front.refused(status, refused.reason, &refused.why);
    let fields = front.refusal_fields(status);
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\n{fields}content-length: 0\r\n\r\n");
    let mut socket = socket;
    Some(Closing::new(front.state(), async move {
        let _ = tokio::time::timeout(LAST_WRITE, socket.write_all(head.as_bytes())).await;
        linger(socket).await;
    }))
}
