//! Where a node is in the stream, and whether it can read on from there.

use std::fmt;

/// The number of an entry: milliseconds of the server's clock, and a count within them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Id {
    ms: u64,
    count: u64,
}

impl Id {
    pub(crate) fn parse(text: &str) -> Option<Id> {
        let (ms, count) = text.split_once('-')?;
        Some(Id {
            ms: ms.parse().ok()?,
            count: count.parse().ok()?,
        })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.count)
    }
}

/// The last entry that a node has read.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// `None`: it has never been connected.
    last: Option<Id>,
}

impl Place {
    /// After a connection: `first` and `newest` entry of the stream. Returns whether entries may have been missed; then the
    /// node goes on after the newest.
    ///
    /// | the stream | then |
    /// |---|---|
    /// | was never read | what was stored before is unknown |
    /// | has the place, or begins before it | nothing was missed |
    /// | begins after the place | it was cut, perhaps in between |
    /// | ends before the place, or is empty | it is another one: the server has lost its data |
    pub(crate) fn resume(&mut self, first: Option<Id>, newest: Option<Id>) -> bool {
        let newest = newest.unwrap_or_default();
        let is_there = match (self.last, first) {
            (Some(last), Some(first)) => first <= last && last <= newest,
            _ => false,
        };
        if !is_there {
            self.last = Some(newest);
        }
        !is_there
    }

    /// An entry was read.
    pub(crate) fn passed(&mut self, id: Id) {
        self.last = Some(id);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.last.unwrap_or_default().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<Id> {
        Id::parse(text)
    }

    #[test]
    fn ids_are_ordered_by_number() {
        assert!(id("9-2") < id("10-1"));
        assert!(id("10-9") < id("10-10"));
        assert_eq!(id("10-1").unwrap().to_string(), "10-1");
        for wrong in ["", "10", "10-", "a-1", "-1"] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_node_reads_on_only_where_nothing_is_missing() {
        let at = |text| Place { last: id(text) };
        for (last, first, newest, missed, then) in [
            // never connected
            ("", "", "", true, "0-0"),
            ("", "5-1", "9-1", true, "9-1"),
            // still there
            ("7-1", "5-1", "9-1", false, "7-1"),
            ("7-1", "7-1", "7-1", false, "7-1"),
            // cut
            ("4-1", "5-1", "9-1", true, "9-1"),
            ("0-0", "5-1", "9-1", true, "9-1"),
            // another stream
            ("7-1", "1-1", "3-1", true, "3-1"),
            ("7-1", "", "", true, "0-0"),
        ] {
            let mut place = at(last);
            assert_eq!(
                place.resume(id(first), id(newest)),
                missed,
                "{last} {first} {newest}"
            );
            assert_eq!(place.to_string(), then, "{last} {first} {newest}");
        }
    }
}
