//! The log lines of a head that never became a request.

use std::time::SystemTime;

use http::StatusCode;
use weir_observe::clock;

use crate::{
    Gateway,
    access_log::Entry,
    connections::{client::Conn, tls_settings},
    tally::FinishedRequest,
    template,
};

/// Logs a request head that the connection's carrier has refused.
pub(crate) fn refused_head(
    gateway: &Gateway,
    conn: &Conn,
    status: StatusCode,
    reason: &'static str,
    why: &str,
) {
    let (id, started) = (gateway.next_request(), conn.head_started());
    let (code, from) = (status.as_u16(), conn.endpoints.remote_addr());
    log::info!(request = id; "{code} {reason}: {why}, from {from}");
    let time = clock::now() - started;
    gateway.tally.ended(&FinishedRequest {
        site: None,
        pool: None,
        status: status.as_u16(),
        bytes_in: 0,
        bytes_out: 0,
        total: time,
        left_running: false,
        cache: None,
    });
    gateway.access_log.write(&Entry {
        time: SystemTime::now(),
        request_id: id,
        remote_addr: conn.endpoints.remote_addr(),
        peer_addr: conn.endpoints.peer_addr(),
        remote_user: None,
        method: "",
        uri: b"",
        protocol: "",
        host: b"",
        status: status.as_u16(),
        bytes_in: 0,
        bytes_out: 0,
        compression: None,
        bytes_uncompressed: None,
        cache: None,
        tls: tls_settings::logged(&conn.endpoints),
        referer: None,
        user_agent: None,
        site: None,
        pool: None,
        worker: None,
        time_head: time,
        time_body: None,
        time_queue: None,
        time_first_byte: None,
        time_total: time,
        queue: None,
        retries: 0,
        priority: None,
        time_limit: None,
        reason: Some(reason),
        request: &NoRequest,
    });
}

/// Stands for a request whose head could not be read.
struct NoRequest;

impl template::Variables for NoRequest {
    fn put(&self, _: &weir_config::Variable, _: &mut Vec<u8>) {}
}
