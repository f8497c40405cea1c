//! What became of the last order of a certificate, for `weir certificates`.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::Draft;

/// The file beside a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Why the last order failed; `None`: it did not.
    pub error: Option<String>,
    /// When that was (seconds since 1970).
    pub at: i64,
    /// When the next attempt is (seconds since 1970).
    pub next: i64,
    /// Orders that have failed since the last successful one.
    #[serde(default)]
    pub failures: u32,
    /// When the authority has said no, the last times (seconds since 1970).
    #[serde(default)]
    pub refused: Vec<i64>,
    /// When the certificate is to be renewed, as the authority says (seconds since 1970), and the certificate for which it said
    /// that: its serial number, hexadecimal.
    #[serde(default)]
    pub advised: Option<(String, i64)>,
    /// When the last certificate was made (seconds since 1970, by the authority's clock); 0: not known.
    #[serde(default)]
    pub made: i64,
    /// How many in a row were made soon after the one before.
    #[serde(default)]
    pub early: u32,
    /// TXT records that the operator must set, for dns-persist-01: names and values.
    #[serde(default)]
    pub records: Vec<(String, String)>,
}

impl State {
    /// Writes it beside a chain.
    ///
    /// # Errors
    /// The cause, with the path.
    pub fn write(&self, chain: &Path) -> Result<(), String> {
        let mut draft = Draft::new(&chain.with_file_name(NAME), 0o600)?;
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        draft.write(&text)?;
        draft.install()
    }

    /// Reads it. `None`: there is none.
    pub fn read(chain: &Path) -> Option<State> {
        let text = fs::read(chain.with_file_name(NAME)).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

const NAME: &str = "meta.json";
