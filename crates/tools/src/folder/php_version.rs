//! Which versions of PHP an application accepts.

use std::{fs, path::Path};

use serde_json::Value;

/// What an application says of PHP's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// As composer.json writes it: `^8.2`.
    pub constraint: String,
    /// The file that says so, without folder.
    pub file: &'static str,
}

impl Needs {
    /// What the files of an application say.
    pub fn of(folder: &Path) -> Option<Self> {
        Self::of_composer(folder).or_else(|| Self::of_wordpress(folder))
    }

    fn of_composer(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("composer.json")).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let constraint = value.get("require")?.get("php")?.as_str()?;
        Some(Self {
            constraint: constraint.to_owned(),
            file: "composer.json",
        })
    }

    fn of_wordpress(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("wp-includes/version.php")).ok()?;
        let (_, rest) = text.split_once("$required_php_version")?;
        let version = rest.split(['\'', '"']).nth(1)?;
        Some(Self {
            constraint: format!(">={version}"),
            file: "wp-includes/version.php",
        })
    }

    /// Whether it accepts this version: `8.2`. What is not understood is accepted.
    pub fn accepts(&self, version: &str) -> bool {
        let Some(version) = numbers(version) else {
            return true;
        };
        let mut alternatives = self
            .constraint
            .split('|')
            .filter(|text| !text.trim().is_empty());
        alternatives.any(|all| {
            let words = all.replace(',', " ");
            // A sign may stand apart from its version: `>= 8.1`.
            let words = words
                .replace("= ", "=")
                .replace("> ", ">")
                .replace("< ", "<");
            words.split_whitespace().all(|word| is_met(word, version))
        })
    }
}

fn is_met(word: &str, version: (u32, u32)) -> bool {
    let digits = word
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(word.len());
    let (sign, rest) = word.split_at(digits);
    let Some(wanted) = numbers(rest) else {
        return true;
    };
    let depth = rest.split('.').filter(|part| *part != "*").count();
    match sign {
        ">=" => version >= wanted,
        // A later patch version of the same minor version is newer.
        ">" => version >= wanted,
        "<" => version < wanted || version == wanted && depth > 2,
        "<=" => version <= wanted,
        "^" => version >= wanted && version.0 == wanted.0,
        "~" if depth > 2 => version == wanted,
        "~" => version >= wanted && version.0 == wanted.0,
        "" | "=" if depth < 2 => version.0 == wanted.0,
        "" | "=" => version == wanted,
        _ => true,
    }
}

/// Major and minor version.
fn numbers(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next().and_then(|part| part.parse().ok());
    Some((major, minor.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_of_composer_are_understood() {
        for (constraint, accepted, refused) in [
            ("^8.1", &["8.1", "8.4"][..], &["8.0", "7.4", "9.0"][..]),
            (">=7.2.5", &["7.2", "8.4"], &["7.1", "5.6"]),
            (">= 8.1, < 8.4", &["8.1", "8.3"], &["8.4", "8.0"]),
            ("~8.2.0 || ~8.3.0", &["8.2", "8.3"], &["8.1", "8.4"]),
            ("^7.4|^8.0", &["7.4", "8.0", "8.4"], &["7.3"]),
            ("8.2.*", &["8.2"], &["8.3"]),
            ("8.*", &["8.2"], &["7.4"]),
            ("*", &["5.6", "8.2"], &[]),
            ("what?", &["8.2"], &[]),
            ("<8.4.99", &["8.4"], &["8.5"]),
        ] {
            let needs = Needs {
                constraint: constraint.into(),
                file: "composer.json",
            };
            for version in accepted {
                assert!(needs.accepts(version), "{constraint} {version}");
            }
            for version in refused {
                assert!(!needs.accepts(version), "{constraint} {version}");
            }
        }
    }
}
