//! The steps of a request for a script that has no body: the usual way to its answer, in little memory. Anything else is
//! left to [`super::answer`].

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use weir_http::{Answer, Begun, RequestBody, RequestState, Steps};
use weir_http1::Name;

use super::{First, answer, path_translated_now, respond, set_request_headers};
use crate::{
    conn::{Client, Conn},
    dispatch::PoolHandle,
    record::Record,
    route::Rules,
    script::{Resume, Usual},
};

/// The steps, from the script on.
pub(super) struct ScriptSteps {
    /// The other steps, once they are needed.
    others: Option<Steps<Box<Record>>>,
    /// `None` before the first step, and at the end. Freed before the record, which logs how the script ended.
    usual: Option<Usual>,
    /// `None` at the end.
    request: Option<(Box<Record>, &'static Rules)>,
    client: Client,
}

/// The parts of a request, returned if other steps are needed.
type NotUsual = (Box<Record>, Option<&'static Rules>);

/// Begins the steps. The request's script is in the record.
///
/// # Errors
///
/// What was given, if other steps are needed.
pub(super) fn begin(
    mut record: Box<Record>,
    (conn, request): (&Rc<Conn>, &Rc<RequestState>),
    body: &RequestBody,
    rules: Option<&'static Rules>,
) -> Result<ScriptSteps, NotUsual> {
    let has_body = !body.is_none() || record.head.fields.has(Name::ContentLength);
    let pool = rules.as_ref().and_then(|rules| rules.settings.pool);
    let pool = pool.and_then(|pool| record.gateway.pools.get(pool.0).cloned());
    match (rules, pool) {
        (Some(rules), Some(pool)) if !has_body && knows_path(&mut record, pool) => {
            rules.policy.apply(&mut record);
            record.pool = Some(pool);
            set_request_headers(&mut record, &rules.settings);
            Ok(ScriptSteps {
                others: None,
                usual: None,
                request: Some((record, rules)),
                client: Client {
                    conn: conn.clone(),
                    request: request.clone(),
                },
            })
        }
        (rules, _) => Err((record, rules)),
    }
}

/// Notes what the script's path-info means as a file name. False: that is not known without waiting.
fn knows_path(record: &mut Record, pool: &PoolHandle) -> bool {
    let Some(script) = &record.script else {
        return false;
    };
    if script.path_info.is_empty() {
        return true;
    }
    let known = path_translated_now(script, pool);
    match known {
        Some(translated) => {
            record.rare_mut().path_translated = translated;
            true
        }
        None => false,
    }
}

impl ScriptSteps {
    fn poll_usual(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Begun<Box<Record>>, Option<Resume>>> {
        let Some((record, rules)) = &mut self.request else {
            return Poll::Ready(Err(None));
        };
        let usual = match &mut self.usual {
            Some(usual) => usual,
            usual => match Usual::new(record, &self.client) {
                Ok(begun) => usual.insert(begun),
                Err(resume) => return Poll::Ready(Err(Some(resume))),
            },
        };
        let done = ready!(usual.poll(cx, record, &self.client, &rules.settings));
        self.usual = None;
        Poll::Ready(match (done, self.request.take()) {
            (Ok(answered), Some((record, rules))) => {
                Ok(respond(record, &self.client.conn, answered, Some(rules)))
            }
            (done, request) => {
                self.request = request;
                Err(done.err())
            }
        })
    }
}

impl Future for ScriptSteps {
    type Output = Answer<Box<Record>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.others.is_none() {
            let steps: Option<Steps<Box<Record>>> = match ready!(this.poll_usual(cx)) {
                Ok(Begun::Answered(answer)) => return Poll::Ready(answer),
                Ok(Begun::Steps(steps)) => Some(steps),
                Err(resume) => {
                    let resume = resume.unwrap_or(Resume::Prepared);
                    this.usual = None;
                    this.request.take().map(|(record, rules)| {
                        let (client, first) = (this.client.clone(), First::Script(resume));
                        let none = RequestBody::none();
                        let others = answer(record, client, none, Some(rules), first);
                        Box::pin(others) as Steps<Box<Record>>
                    })
                }
            };
            this.others = steps;
        }
        match &mut this.others {
            Some(others) => others.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request that waits for a worker has one of these.
    #[test]
    fn a_request_that_waits_for_a_script_holds_little() {
        assert!(
            size_of::<ScriptSteps>() <= 192,
            "{}",
            size_of::<ScriptSteps>()
        );
    }
}
