//! The rules of the cache, for any heads of requests and answers.

use weir_cache::{
    Answer, Asker, Directives, FieldList, Fields, Life, Lines, Method, Policy, Request, State,
    Terms, Vary, Wishes,
    conditions::{self, Serving},
    judge, update,
};

const NOW: u64 = 1_800_000_000_000;
const LENGTH: u64 = 100;

/// `choice` has the policy and the status. What is judged storable is nobody's own, keeps its bounds, and is the same after it was written and read.
pub fn rules(choice: [u8; 2], request: &[u8], answer: &[u8]) {
    let (asked, said) = (Lines(request), Lines(answer));
    let policy = Policy {
        ttl: (choice[0] & 1 == 1).then_some(60_000),
        longest_error: u64::from(choice[0] & 2) * 5000,
        stale_if_error: u64::from(choice[0] & 4) * 5000,
        targeted: &["cdn-cache-control"],
        must_revalidate_is_for_all: choice[0] & 8 != 0,
    };
    let asker = Asker::of(&asked);
    let request = Request {
        method: Method::Get,
        fields: &asked,
        asker,
        has_body: false,
    };
    let with = Answer {
        status: 200 + u16::from(choice[1]) * 2,
        fields: &said,
        asked: NOW - 500,
        answered: NOW,
    };
    let mut stored = update::stored_fields(&said);
    assert!(FieldList::from_bytes(stored.as_bytes().to_vec()).is_ok());
    assert!(!stored.has("connection") && !stored.has("age"));
    if let Ok(verdict) = judge(request, with, &policy) {
        assert!(!said.has("set-cookie") && !asked.has("range"));
        forbids_nothing(&said, &policy);
        let life = verdict.life;
        assert!(asker != Asker::WithCredentials || life.is_for_all);
        assert_eq!(Life::from_bytes(&life.to_bytes()), Some(life));
        assert_eq!(
            Vary::from_bytes(&verdict.vary.to_bytes()),
            Some(verdict.vary.clone())
        );
        bounds(&life, asker, &asked);
    }
    let _ = update::freshen(&mut stored, 200, with, asker, &policy);
    assert!(FieldList::from_bytes(stored.as_bytes().to_vec()).is_ok());
    let whole = conditions::Stored {
        status: 200,
        fields: &stored,
        length: LENGTH,
        made: NOW,
    };
    if let Serving::Part(span) = conditions::serve(request, whole, NOW) {
        assert!(span.start < span.end && span.end <= LENGTH);
    }
}

/// As another reader sees it: where nothing is quoted, commas divide.
fn forbids_nothing(said: &impl Fields, policy: &Policy<'_>) {
    if Directives::targeted(said, policy.targeted).is_some() {
        return;
    }
    for value in said
        .values("cache-control")
        .filter(|value| !value.contains(&b'"'))
    {
        for directive in value.split(|byte| *byte == b',') {
            let directive = directive.trim_ascii();
            for forbidden in [&b"private"[..], b"no-store"] {
                assert!(!directive.eq_ignore_ascii_case(forbidden), "{directive:?}");
            }
        }
    }
}

/// It is never used for longer than it says.
fn bounds(life: &Life, asker: Asker, asked: &impl Fields) {
    let terms = Terms {
        asker,
        wishes: Wishes::default(),
        stale_while_revalidate: 0,
        stale_if_error: 0,
    };
    let end = life.usable_until(0);
    assert_eq!(life.state(end, &terms), State::MustValidate);
    if life.is_fresh(NOW) {
        assert_eq!(life.state(NOW, &terms), State::Fresh);
    }
    let patient = Terms {
        wishes: Wishes::of(asked),
        ..terms
    };
    let _ = life.state(end, &patient);
}
