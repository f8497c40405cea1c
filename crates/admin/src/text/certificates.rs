//! Certificates in `weir status`.

use std::fmt::Write;

use serde_json::Value;

use super::{Sheet, list, span, text};

/// How many there are, which ends first, and what became of those on demand.
pub(super) fn show(out: &mut Sheet, status: &Value) {
    let certificates = list(&status["certificates"]);
    let first = certificates
        .iter()
        .filter(|one| one["expires_in"].is_i64())
        .min_by_key(|one| one["expires_in"].as_i64());
    if let Some(first) = first {
        let line = format!(
            "{}, first expires {} in {}",
            certificates.len(),
            text(&first["name"]),
            span(&first["expires_in"]),
        );
        out.wrap("certificates ", &line);
    }
    let demand = &status["on_demand"];
    if demand.is_object() {
        let count = |key: &str| text(&demand[key]);
        let mut line = format!(
            "{} of {}, {} pending; names: {} allowed, {} refused, {} unanswered, {} limited; {} orders failed",
            count("certificates"),
            count("max"),
            count("pending"),
            count("allowed"),
            count("refused"),
            count("unanswered"),
            count("limited"),
            count("orders_failed"),
        );
        if demand["last_error"].is_string() {
            let _ = write!(line, "; {}", count("last_error"));
        }
        out.wrap("on demand   ", &line);
    }
}
