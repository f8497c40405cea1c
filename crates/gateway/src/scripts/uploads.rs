//! Requests whose body is being read, so that operators see slow uploads while they run. Bodies that arrived with their
//! head are not recorded and cost nothing.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use weir_observe::clock;

use crate::record::Record;

/// All of them, by the number of the request.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<u64, Upload>>);

#[derive(Debug)]
struct Upload {
    /// When the head was complete ([`clock::now`]).
    since: u64,
    method: String,
    /// Without the query, which may hold private data.
    path: String,
    /// `None`: the request does not say it.
    length: Option<u64>,
}

/// Ends the note of a body.
pub(crate) struct Reading<'u> {
    uploads: &'u Uploads,
    request: u64,
}

impl Uploads {
    /// The body of this request is being read.
    pub(crate) fn begin(&self, record: &Record, length: Option<u64>) -> Reading<'_> {
        let path = record.asked_uri().split(|byte| *byte == b'?').next();
        let path = path.unwrap_or_default();
        let upload = Upload {
            since: record.head_whole,
            method: record.method().as_str().to_owned(),
            path: String::from_utf8_lossy(&path[..path.len().min(LONGEST)]).into_owned(),
            length,
        };
        self.all().insert(record.id, upload);
        Reading {
            uploads: self,
            request: record.id,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    /// Their number, and the oldest ones.
    pub(crate) fn status(&self) -> Value {
        let all = self.all();
        let mut oldest: Vec<(&u64, &Upload)> = all.iter().collect();
        oldest.sort_by_key(|(_, upload)| upload.since);
        let now = clock::precise();
        let show = |(request, upload): (&u64, &Upload)| {
            json!({
                "request": request,
                "method": upload.method,
                "uri": upload.path,
                "length": upload.length,
                "time": now.saturating_sub(upload.since) as f64 / 1e6,
            })
        };
        json!({
            "reading": all.len(),
            "oldest": oldest.into_iter().take(MOST_SHOWN).map(show).collect::<Vec<_>>(),
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u64, Upload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.uploads.all().remove(&self.request);
    }
}

/// Paths are cut to this length, bytes.
const LONGEST: usize = 400;

/// Maximum number of bodies that are shown.
const MOST_SHOWN: usize = 8;
