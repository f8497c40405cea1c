//! Checks before the load whether the target answers.
//!
//! Sends one request if that is harmless (a method that changes nothing); otherwise only connects. Any status is
//! accepted, because some people load an error page on purpose; a status that is no success is reported.

use std::{
    io,
    time::{Duration, Instant},
};

use http::StatusCode;
use tokio::task::LocalSet;

use super::{
    Stop,
    client::{self, Dial},
    plan::Plan,
    record::{Failure, Outcome},
    target::Endpoint,
};

/// Probes once; the plan keeps only the address that answered.
///
/// # Errors
/// If nothing listens or answers.
pub fn ask(plan: &mut Plan) -> Result<(), Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Stop::internal(format!("the load: {error}")))?;
    let place = LocalSet::new().block_on(&runtime, find(plan))?;
    plan.places = vec![place];
    if let Some(note) = LocalSet::new().block_on(&runtime, first(plan))? {
        plan.notes.push(note);
    }
    Ok(())
}

/// The first address that accepts a connection.
async fn find(plan: &Plan) -> Result<Endpoint, Stop> {
    let mut said = Vec::new();
    for place in &plan.places {
        let dial = Dial {
            place: place.clone(),
            source: plan.sources.first().copied(),
        };
        match client::knock(&dial, plan.timeout.min(PATIENCE)).await {
            Ok(()) => return Ok(place.clone()),
            Err(error) => said.push(format!("{place}: {}", why(&error))),
        }
    }
    Err(Stop {
        hint: "start the server, or check the address".into(),
        ..Stop::unavailable(format!(
            "{} cannot be reached: {}",
            plan.shown,
            said.join("; ")
        ))
    })
}

/// Sends one request; returns a note about its answer.
async fn first(plan: &Plan) -> Result<Option<String>, Stop> {
    let (Some(request), Some(dial)) = (
        plan.requests().into_iter().next(),
        plan.dials().into_iter().next(),
    ) else {
        return Ok(None);
    };
    if !request.method().is_safe() {
        return Ok(None);
    }
    let limit = Instant::now() + plan.timeout;
    let (outcome, _) = client::exchange(&dial, &mut None, &request, limit).await;
    let what = format!("{} {}", request.method(), request.uri());
    match outcome {
        Outcome::Answered { status, .. } if (200..300).contains(&status) => Ok(None),
        Outcome::Answered { status, reason, .. } => {
            let phrase = StatusCode::from_u16(status).ok();
            let phrase = phrase.and_then(|status| status.canonical_reason());
            let phrase = phrase
                .map(|phrase| format!(" {phrase}"))
                .unwrap_or_default();
            let reason = reason
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            let follow = match status {
                300..400 => "; redirects are not followed",
                _ => "",
            };
            Ok(Some(format!(
                "{what} is answered with {status}{phrase}{reason}{follow}"
            )))
        }
        Outcome::Failed(failure) => Err(Stop {
            hint: "to start anyway, use --no-probe".into(),
            ..Stop::unavailable(format!(
                "{} accepts connections, but {what} is not answered: {}",
                plan.shown,
                no_answer(failure, plan.timeout)
            ))
        }),
    }
}

fn no_answer(failure: Failure, timeout: Duration) -> String {
    match failure {
        Failure::Timeout => format!("no complete answer within {timeout:?} (--timeout)"),
        Failure::Closed => "it closes the connection".into(),
        Failure::Reset => "it resets the connection".into(),
        Failure::Truncated => "the answer is cut off".into(),
        Failure::BadResponse => "the answer is not HTTP/1.1".into(),
        other => other.word().into(),
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing is listening there".into(),
        io::ErrorKind::NotFound => "this socket does not exist".into(),
        io::ErrorKind::TimedOut => "the connection is not accepted".into(),
        io::ErrorKind::WouldBlock => "its accept queue is full".into(),
        _ => error.to_string(),
    }
}

/// Timeout of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
