//! Certificates that cannot be renewed, or have expired.

use serde_json::Value;

use super::{Cost, Trouble, list, name, number, trouble, were};
use crate::text::{span, text};

/// The worst first. Of certificates that fail for the same cause, only the first is told.
pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let mut all: Vec<&Value> = list(&status["certificates"]).iter().collect();
    all.sort_by_key(|one| one["expires_in"].as_i64().unwrap_or(i64::MIN));
    let mut found = Vec::new();
    let mut causes: Vec<(&str, usize, Cost)> = Vec::new();
    for one in all {
        if let Some(error) = one["last_error"].as_str() {
            if let Some(known) = causes.iter_mut().find(|(known, ..)| *known == error) {
                known.1 += 1;
                known.2 = known.2.min(cost_of(one));
                continue;
            }
            causes.push((error, 0, Cost::Nothing));
            found.push(failing(one, error));
        } else if let Some(left) = one["expires_in"].as_i64()
            && let Some(what) = expiry(one, left)
        {
            found.push(trouble(cost_of(one), what, renewal(one)));
        }
    }
    for (error, others, cost) in causes.into_iter().filter(|(_, others, _)| *others > 0) {
        let what = format!(
            "{} refused for the same cause: {}",
            were(others as u64, "other certificate"),
            text(&error.into())
        );
        found.push(trouble(cost, what, "`weir certificates` lists them"));
    }
    found.truncate(MOST);
    found
}

/// A site without a valid certificate is down for browsers.
fn cost_of(one: &Value) -> Cost {
    match one["expires_in"].as_i64() {
        Some(1..) => Cost::Nothing,
        _ => Cost::Site,
    }
}

/// An order has failed.
fn failing(one: &Value, error: &str) -> Trouble {
    let state = match one["expires_in"].as_i64() {
        None => "there is no certificate, and clients cannot connect with TLS".to_owned(),
        Some(left) if left <= 0 => "the certificate has expired, and browsers refuse it".to_owned(),
        Some(_) => format!(
            "the certificate cannot be renewed; clients get the old one, which expires in {}",
            span(&one["expires_in"])
        ),
    };
    let next = match one["next_order_in"].as_i64() {
        Some(1..) => format!("tried again in {}", span(&one["next_order_in"])),
        _ => "tried again now".to_owned(),
    };
    trouble(
        cost_of(one),
        format!(
            "certificate {}: {state}. The last order failed {} ago: {} ({} so far; {next})",
            name(one),
            span(&one["failed_ago"]),
            text(&error.into()),
            number(&one["failures"]),
        ),
        "check that this machine reaches the authority, that the names lead to this machine, and that ports 80 and 443 \
         are open; `weir doctor` and the error log say more",
    )
}

/// What is wrong with the validity of a certificate whose last order did not fail.
fn expiry(one: &Value, left: i64) -> Option<String> {
    if left <= 0 {
        return Some(format!(
            "certificate {} has expired, and browsers refuse it",
            name(one)
        ));
    }
    let is_late = match one["renewed_in"].as_i64() {
        Some(renewed_in) => renewed_in < -LATE,
        None => left < SOON,
    };
    is_late.then(|| {
        format!(
            "certificate {} expires in {}",
            name(one),
            span(&one["expires_in"])
        )
    })
}

fn renewal(one: &Value) -> &'static str {
    match one["renewed_by"].as_str() {
        Some("others") => {
            "renew it with the program that made it; weir uses changed files within a second"
        }
        _ => "weir should have renewed it: look into the error log",
    }
}

/// A certificate that weir does not renew is told when it expires within so many seconds.
const SOON: i64 = 7 * 86_400;

/// A renewal is told when it is late by so many seconds.
const LATE: i64 = 3_600;

/// Problems of certificates that are told, at most.
const MOST: usize = 10;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::troubles;

    #[test]
    fn certificates_that_cannot_be_renewed_are_told_and_good_ones_are_not() {
        let certificate = |name: &str, expires: Option<i64>, error: Option<&str>| {
            json!({
                "name": name, "expires_in": expires, "renewed_by": "ACME", "renewed_in": expires.map(|at| at - 1000),
                "last_error": error, "failures": 3, "failed_ago": 20, "next_order_in": 40,
            })
        };
        let told = |list: &[serde_json::Value]| -> Vec<String> {
            let found = troubles(&json!({ "certificates": list }));
            found.into_iter().map(|trouble| trouble.what).collect()
        };
        assert!(told(&[certificate("good", Some(5000), None)]).is_empty());
        let late = told(&[certificate("late", Some(-5), None)]);
        assert!(late[0].contains("late has expired"), "{late:?}");
        let away = told(&[
            certificate("old.example", Some(5000), Some("away")),
            certificate("new.example", None, Some("away")),
        ]);
        assert!(
            away[0].starts_with("certificate new.example: there is no certificate")
                && away[0].contains("away (3 so far; tried again in 40.0 s)"),
            "{away:?}"
        );
        assert!(away[1].starts_with("1 other certificate"), "{away:?}");
    }

    #[test]
    fn a_certificate_of_others_is_told_in_its_last_week() {
        let found = |left: i64| {
            troubles(&json!({ "certificates": [{
                "name": "bought", "expires_in": left, "renewed_by": "others", "renewed_in": null,
            }] }))
        };
        assert!(found(8 * 86_400).is_empty());
        assert!(
            found(86_400)[0]
                .help
                .starts_with("renew it with the program")
        );
    }
}
