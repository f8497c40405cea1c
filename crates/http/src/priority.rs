//! How urgent an answer is (RFC 9218), for carriers with which several answers share a connection.

/// The priority of an answer: what `Priority` fields and PRIORITY_UPDATE frames say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// A part of the answer is useful: answers of the same urgency are sent in turns.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Priority {
        Priority {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// Takes over what this field says. Members that it does not have, or whose values are not valid, stay as they are
    /// (RFC 9218 §4, §8).
    pub fn update(&mut self, field: &[u8]) {
        for member in field.split(|byte| *byte == b',') {
            // Parameters of a member have no meaning.
            let member = member
                .split(|byte| *byte == b';')
                .next()
                .unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
    }

    /// The priority that this field alone says.
    pub fn of(field: &[u8]) -> Priority {
        let mut priority = Priority::default();
        priority.update(field);
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_says_urgency_and_whether_parts_are_useful() {
        for (field, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i,u=5", 5, true),
            ("i=?1;x=1 ,\tu=1;y", 1, true),
            ("i=?0", 3, false),
            ("u=8", 3, false),
            ("u=-1, i=1, u", 3, false),
            ("x, u=2, foo=\"a\"", 2, false),
            ("u=1, u=4", 4, false),
        ] {
            let priority = Priority::of(field.as_bytes());
            let expected = Priority {
                urgency,
                incremental,
            };
            assert_eq!(priority, expected, "{field}");
        }
    }

    #[test]
    fn an_answer_changes_only_what_it_says() {
        let mut priority = Priority::of(b"u=5, i");
        priority.update(b"u=1");
        assert_eq!((priority.urgency, priority.incremental), (1, true));
    }
}
