//! THE OPERATOR'S WINDOW: what weir does now, and how it is told to do something else, over HTTP on a unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | pools, workers, queues, listeners as they are now (JSON) |
//! | `GET /healthz` | 200 while the gateway lives |
//! | `GET /readyz` | 200 while it takes requests and can answer them, else 503 and why |
//! | `POST /reload` | the configuration is read again; 409 and what is wrong with it where nothing was changed |
//! | `POST /pool/NAME/restart` | that pool starts anew beside its old workers |
//! | `POST /stop`, `POST /stop?now` | weir stops, gracefully or at once |
//!
//! [`server`] runs in the gateway, which is there at saturation too: no request waits for a worker. Who may connect
//! is said by the socket's permissions: its owner alone. [`client`] is what `weir status` and the like are made of,
//! and [`text`] what they print.

pub mod client;
pub mod server;
mod text;

pub use text::status as status_text;
