//! Parses and evaluates HTTP's fields and URLs (RFC 9110, RFC 3986), without I/O: bytes in, decisions out.
//!
//! | module | reads | for |
//! |---|---|---|
//! | [`authority`] | `HOST[:PORT]` | a server's own names, or the one host that a client connects to |
//! | [`path`] | a URL's path | one path without dot segments and escapes, which a file system reads in one way |
//! | [`conditions`] | `If-Match` and its relatives | 304 and 412 |
//! | [`ranges`] | `Range` | the bytes of a 206 |
//! | [`cookies`] | `Cookie` | the values of one cookie |
//! | [`fields`] | lists, quoted strings, weights | any field |
//! | [`coding`] | `Accept-Encoding` | the content coding that a client prefers |
//! | [`forwarded`] | `X-Forwarded-For` and its relatives, `Forwarded` | the client behind trusted proxies |
//! | [`proxy_protocol`] | the header of the PROXY protocol | the client behind a proxy that passes on connections |
//! | [`compression`] | `Content-Type`, `Cache-Control`, `ETag` | whether an answer may be compressed, and its tag then |
//!
//! Nothing here depends on a connection, a version of HTTP, or the way a head is stored: fields are given as the bytes
//! of their values. Every function takes any bytes, and its work is proportional to their number. Nothing reads a
//! clock: the time is an argument.
//!
//! ```
//! use weir_semantics::coding::{Accepted, Coding};
//! use weir_semantics::ranges::{self, Ranges, Span};
//!
//! let path = weir_semantics::path::normalise(b"/docs//a%20b/../c.txt")?;
//! assert_eq!(*path.path, *b"/docs/c.txt");
//!
//! let part = ranges::parse(b"bytes=-100", 1000);
//! assert_eq!(part, Ranges::One(Span { start: 900, end: 1000 }));
//!
//! let accepted = Accepted::of([&b"gzip, br;q=0.5"[..]].into_iter());
//! let order = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
//! assert_eq!(accepted.choose(order, |_| true), Some(Coding::Gzip));
//! # Ok::<(), weir_semantics::path::PathError>(())
//! ```
#![forbid(unsafe_code)]

pub mod authority;
pub mod coding;
pub mod compression;
pub mod conditions;
pub mod cookies;
pub mod fields;
pub mod forwarded;
pub mod path;
pub mod proxy_protocol;
pub mod ranges;
