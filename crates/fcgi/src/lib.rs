//! FastCGI 1.0 without I/O: both sides of the protocol, with bytes as input and events and bytes as output.
//!
//! [`client`] is the web server's side, [`server`] the application's; [`nv`] has the name-value pairs and [`record`]
//! the record's header and the protocol's numbers. Encoders append to a buffer. Decoders take pieces of any size and
//! give events whose payloads are slices of the input. Nothing here owns a socket, reads a clock or waits.
//!
//! # A request and its response
//!
//! ```
//! use weir_fcgi::client::{self, Event, Params, ResponseDecoder};
//! use weir_fcgi::{ProtocolStatus, Role, server};
//!
//! // A whole request, to be sent with one write.
//! let mut request = Vec::new();
//! client::begin_request(&mut request, 1, Role::Responder, true);
//! let mut params = Params::new(&mut request, 1);
//! params.pair(b"SCRIPT_FILENAME", b"/srv/shop/public/index.php");
//! params.pair(b"REQUEST_METHOD", b"POST");
//! params.pair(b"CONTENT_LENGTH", b"4");
//! params.header(b"accept-language", b"en"); // HTTP_ACCEPT_LANGUAGE
//! params.finish();
//! client::stdin(&mut request, 1, b"a=12");
//! client::stdin_end(&mut request, 1);
//!
//! // What an application might answer.
//! let mut response = Vec::new();
//! server::stdout(&mut response, 1, b"Status: 404\r\n\r\nnot here");
//! server::stderr(&mut response, 1, b"no such page");
//! server::end_request(&mut response, 1, 0, ProtocolStatus::RequestComplete);
//!
//! // Read as it comes, here in pieces of 10 bytes.
//! let mut decoder = ResponseDecoder::new(1);
//! let mut page = Vec::new();
//! for mut piece in response.chunks(10) {
//!     while let Some(event) = decoder.next(&mut piece)? {
//!         match event {
//!             Event::Stdout(bytes) => page.extend_from_slice(bytes),
//!             Event::Stderr(bytes) => eprint!("{}", String::from_utf8_lossy(bytes)),
//!             Event::End { protocol_status, .. } => {
//!                 assert_eq!(protocol_status, ProtocolStatus::RequestComplete);
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! assert!(decoder.is_ended() && decoder.at_record_boundary());
//! assert_eq!(page, b"Status: 404\r\n\r\nnot here");
//! # Ok::<(), weir_fcgi::ProtocolError>(())
//! ```
//!
//! # Peers
//!
//! The specification leaves choices; these were made for existing applications, PHP first.
//!
//! - **Only [`server::stderr`] pads** its records. FastCGI 1.0 §3.3 recommends contents aligned to 8 bytes, for readers
//!   that work in place. PHP copies what it reads, and reads the padding of each `FCGI_STDIN` record with a system call
//!   of its own; after the empty `FCGI_PARAMS` record it does not expect padding at all. It also refuses a record whose
//!   content and padding together pass 65,535 bytes, so with padding less content would fit.
//! - **A pair stays in one record where it can.** PHP decodes each `FCGI_PARAMS` record on its own and closes the
//!   connection on a pair that continues in the next. [`client::Params`] therefore begins a new record if a pair would
//!   not fit into the present one. A pair that is longer than a record cannot reach PHP: compare [`nv::encoded_len`]
//!   with [`MAX_CONTENT`] before a worker is asked for. [`server::RequestDecoder`] takes pairs cut anywhere.
//! - **The end is `FCGI_END_REQUEST`.** PHP does not send the empty `FCGI_STDOUT` record before it.
//! - **Types above 11 are refused**, unless both sides have agreed on them:
//!   [`client::ResponseDecoder::allow_extensions`], [`client::extension`].
//! - **One request at a time on a connection.** PHP never multiplexes. A client that multiplexes would let one request
//!   wait for the reader of another request. [`server::RequestDecoder`] reports a second request, which the caller
//!   refuses.
//!
//! # Limits
//!
//! | held | at most |
//! |---|---|
//! | by [`client::ResponseDecoder`] | 8 bytes, and a management record of [`MAX_MANAGEMENT`] |
//! | by [`server::RequestDecoder`] | 8 bytes, a management record of [`MAX_MANAGEMENT`], and [`server::Limits`] |
//! | by [`nv::Decoder`] | [`nv::Limits`] |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
pub mod nv;
pub mod record;
pub mod server;

mod error;
mod frame;

pub use error::ProtocolError;
pub use record::{
    HEADER_LEN, Header, MAX_CONTENT, MAX_EXTENSION, MAX_MANAGEMENT, ProtocolStatus, RecordType,
    Role, VERSION,
};
