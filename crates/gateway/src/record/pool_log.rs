//! The data of a request for its pool's own log ([`weir_observe::pool_log`]).
//!
//! Instead of PHP-FPM, weir must write the same lines. PHP-FPM's process writes a line when the script has ended:
//! with the script that it found, the parameters as it changed them, and the status and headers at that time. So
//! weir's own PHP reports these in NOTE records, and the line is written when the worker is free, even if the client
//! has left. A worker that dies leaves no line.

use std::{
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use weir_fcgi::nv::{Decoder, Limits, Pairs};

use weir_http::Fields;
use weir_observe::pool_log::{Cost, MAX_NOTE, PoolLogEntry};

use super::Record;
use crate::{Gateway, connections::client::Conn, dispatch::PoolHandle};

/// When the worker became free after the request ([`weir_observe::clock::now`]), and the cost that it reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptEnd {
    pub(crate) at: u64,
    pub(crate) cost: Cost,
}

/// Values of a request that only this log needs.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Set when the worker is free again; never for a page of the gateway.
    pub(crate) ended: Arc<OnceLock<ScriptEnd>>,
    /// The parameters for the worker, if the format uses one.
    pub(crate) params: Option<Pairs>,
    /// The headers of the response, if the format uses one.
    pub(crate) headers: Option<Fields>,
    /// The peer: the client, or the web server in front.
    pub(crate) peer: String,
    /// The gateway answered this request itself.
    pub(crate) own: bool,
    /// For such a page, if weir runs instead of PHP-FPM: parameters and headers.
    pub(crate) note: Option<Pairs>,
}

/// The line of a request at a worker.
pub(crate) struct Line {
    gateway: &'static Gateway,
    decoder: Decoder,
    note: Option<Pairs>,
    begun: SystemTime,
    peer: String,
    method: Vec<u8>,
    query: Vec<u8>,
    authorization: Vec<u8>,
    content_length: u64,
}

impl Line {
    /// The line of a request that is about to be sent to a worker.
    pub(crate) fn new(record: &Record, conn: &Conn) -> Box<Line> {
        Box::new(Line {
            gateway: record.gateway,
            decoder: Decoder::new(Limits {
                bytes: MAX_NOTE,
                ..Limits::default()
            }),
            note: None,
            begun: SystemTime::now(),
            peer: conn.endpoints.remote_addr().to_owned(),
            method: record.method().as_str().into(),
            query: record.log_query().to_vec(),
            authorization: record.header("authorization").unwrap_or_default().to_vec(),
            content_length: record.declared_length(),
        })
    }

    /// Takes the content of a NOTE record; an empty one ends the note. `false`: its content is invalid.
    pub(crate) fn take(&mut self, content: &[u8]) -> bool {
        match content {
            b"" => {
                self.note = self.decoder.finish().ok();
                self.note.is_some()
            }
            content => self.note.is_none() && self.decoder.feed(content).is_ok(),
        }
    }

    /// Writes it, if the worker has sent its values.
    pub(crate) fn write(self: Box<Self>, pool: &PoolHandle, pid: u32) {
        let Some(note) = &self.note else { return };
        let Some(Some(log)) = self.gateway.pool_logs.get(usize::from(pool.id)) else {
            return;
        };
        let text = |name: &[u8]| note.get(name).unwrap_or_default();
        let number = |name: &[u8]| {
            let digits = str::from_utf8(text(name)).unwrap_or_default();
            digits.parse::<u64>().unwrap_or_default()
        };
        let cost = Cost {
            cpu: number(b"cpu"),
            user: number(b"user"),
            memory: number(b"memory"),
            resident: 0,
        };
        log.write(&PoolLogEntry {
            cost: Some(cost),
            params: None,
            header: &|_| None,
            peer: &self.peer,
            note: Some(note),
            begun: self.begun,
            written: SystemTime::now(),
            duration: number(b"microseconds"),
            pool: &pool.settings.name,
            pid: Some(pid),
            method: &self.method,
            path: text(b"uri"),
            query: &self.query,
            script: text(b"script"),
            content_length: self.content_length,
            status: number(b"status") as u16,
            authorization: &self.authorization,
        });
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}
