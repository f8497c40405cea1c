//! Text with `${variable}` in it.
//!
//! `$${` is a literal `${`. Which variables exist is one table, [`Variable`]; a name that is not in it is a
//! diagnostic when the configuration is checked, never an empty string at run time.

use alloc::{string::String, vec::Vec};

/// A checked template: literal pieces and variables, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    /// The pieces.
    pub pieces: Vec<Piece>,
}

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is.
    Text(String),
    /// A variable's value.
    Variable(Variable),
}

/// What a template may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// `method`
    Method,
    /// `scheme`: `http` or `https`
    Scheme,
    /// `host`: of the request, lower case, without port
    Host,
    /// `uri`: path and query as received
    Uri,
    /// `path`: decoded and normalised
    Path,
    /// `query`: without the question mark
    Query,
    /// `args`: the query with its question mark, or nothing
    Args,
    /// `protocol`: `HTTP/1.1`
    Protocol,
    /// `remote_addr`
    RemoteAddr,
    /// `remote_port`
    RemotePort,
    /// `server_addr`
    ServerAddr,
    /// `server_port`
    ServerPort,
    /// `site`
    Site,
    /// `pool`
    Pool,
    /// `document_root`
    DocumentRoot,
    /// `script_name`
    ScriptName,
    /// `path_info`
    PathInfo,
    /// `http_NAME`: a request header, underscores for dashes, lower case (kept as the header's name)
    Header(String),
    /// `time`: local, as in the combined format. Log only, like all below.
    Time,
    /// `time_iso`: RFC 3339 with milliseconds
    TimeIso,
    /// `status`
    Status,
    /// `bytes_in`: body bytes from the client
    BytesIn,
    /// `bytes_out`: body bytes to the client
    BytesOut,
    /// `time_head`: seconds (3 decimals) from connection's first byte of the request to the whole head
    TimeHead,
    /// `time_queue`: seconds waiting in the queue
    TimeQueue,
    /// `time_first_byte`: seconds from dispatch to the worker's first byte
    TimeFirstByte,
    /// `time_total`: seconds from the first byte of the request to the last byte of the answer
    TimeTotal,
    /// `worker`: pid of the worker, or its server's address
    Worker,
    /// `queue`: length of the queue on arrival
    QueueLength,
    /// `reason`: why an answer is an error (`queue_full`, `client_left`, …)
    Reason,
    /// `request_id`: number of the request in this process, as the error log names it
    RequestId,
    /// `retries`: how often it was given to another worker
    Retries,
}
