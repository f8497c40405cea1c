//! Prints the policy of requests, the same keys of sites, routes and FastCGI listeners.

use super::{Absent, Foreign, Printed, Value, duration, list, option, plain, quote};
use crate::model::{FairBy, OnClientLeft, Policy, RequestPart, SerializeBy, ValuePattern};

pub(super) fn policy(policy: &Policy, key: &str) -> Printed {
    match key {
        "timeout" => Value(duration(policy.timeout)),
        "timeout_header" => option(policy.timeout_header.as_deref().map(quote)),
        "priority" => plain(policy.priority),
        "priority_by" if policy.priority_by.is_empty() => Absent,
        "priority_by" => Value(list(policy.priority_by.iter().map(|rule| {
            let (part, name) = match &rule.part {
                RequestPart::Header(name) => ("header", name),
                RequestPart::Cookie(name) => ("cookie", name),
            };
            let value = match &rule.value {
                ValuePattern::Glob(glob) => glob.clone(),
                ValuePattern::Regex(regex) => format!("~{regex}"),
            };
            format!(
                "{{ {part} = {}, match = {}, priority = {} }}",
                quote(name),
                quote(&value),
                rule.priority
            )
        }))),
        "fair_by" => Value(match &policy.fair_by {
            FairBy::Off => "\"off\"".into(),
            FairBy::Address => "\"address\"".into(),
            FairBy::Part(part) => request_part(part),
        }),
        "serialize_by" => serialize_by(&policy.serialize_by),
        "on_client_left" => Value(
            match policy.on_client_left {
                OnClientLeft::Finish => "\"finish\"",
                OnClientLeft::Cancel => "\"cancel\"",
                OnClientLeft::FinishIfAnswering => "\"finish_if_answering\"",
            }
            .into(),
        ),
        _ => Foreign,
    }
}

pub(super) fn serialize_by(by: &SerializeBy) -> Printed {
    match by {
        SerializeBy::Pool => Absent,
        SerializeBy::Off => Value("\"off\"".into()),
        SerializeBy::Part(part) => Value(request_part(part)),
        SerializeBy::Auto => Value("\"auto\"".into()),
    }
}

fn request_part(part: &RequestPart) -> String {
    match part {
        RequestPart::Header(name) => quote(&format!("header:{name}")),
        RequestPart::Cookie(name) => quote(&format!("cookie:{name}")),
    }
}
