//! Matchers over a normalised path: globs and regular expressions of routes, scripts, hidden files.
//!
//! A path is bytes, not text: expressions are compiled without Unicode classes, so that `.` takes a byte that is
//! no UTF-8 too. A rule that such a byte could slip past would be none.

use regex::bytes::{Regex, RegexBuilder};
use weir_config::{PathPattern, ValuePattern};

/// The pattern of `script` where the configuration gives none.
pub(super) const DEFAULT_SCRIPT: &str = r"^(/.+\.php)(/.*)?$";

/// Which paths a route is for, or which values a rule.
#[derive(Debug)]
pub(crate) enum Matcher {
    Glob(Glob),
    Regex(Regex),
}

impl Matcher {
    pub(super) fn of_path(pattern: &PathPattern) -> Result<Self, String> {
        Ok(match pattern {
            PathPattern::Glob(glob) => Self::Glob(Glob::new(glob)),
            PathPattern::Regex(regex) => Self::Regex(compile(regex, true)?),
        })
    }

    /// What a part of a request has to be.
    ///
    /// # Errors
    ///
    /// An expression that cannot be compiled.
    pub(crate) fn of_value(pattern: &ValuePattern) -> Result<Self, String> {
        Ok(match pattern {
            ValuePattern::Glob(glob) => Self::Glob(Glob::new(glob)),
            ValuePattern::Regex(regex) => Self::Regex(compile(regex, true)?),
        })
    }

    /// Whether this is one of them.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(path),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

/// A glob over a whole path: `*` is any run of characters, slashes included, `?` one character.
#[derive(Debug)]
pub(crate) enum Glob {
    /// No star, no question mark.
    Exact(Box<[u8]>),
    /// One star, at the end.
    Prefix(Box<[u8]>),
    /// Anything else.
    Pattern(Box<[u8]>),
}

impl Glob {
    pub(super) fn new(glob: &str) -> Self {
        let plain = |text: &str| !text.contains(['*', '?']);
        match glob.strip_suffix('*') {
            _ if plain(glob) => Self::Exact(glob.as_bytes().into()),
            Some(prefix) if plain(prefix) => Self::Prefix(prefix.as_bytes().into()),
            _ => Self::Pattern(glob.as_bytes().into()),
        }
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => **exact == *path,
            Self::Prefix(prefix) => path.starts_with(prefix),
            Self::Pattern(pattern) => glob_matches(pattern, path),
        }
    }
}

/// Which paths are scripts, and where the script's name ends.
#[derive(Debug)]
pub(super) enum ScriptPattern {
    /// [`DEFAULT_SCRIPT`], matched by hand.
    Default,
    Regex(Regex),
}

impl ScriptPattern {
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        if pattern == DEFAULT_SCRIPT {
            return Ok(Self::Default);
        }
        compile(pattern, false).map(Self::Regex)
    }

    /// Script name (1st group, else the whole match) and path-info (2nd group, else nothing).
    ///
    /// A path with a newline is no script under the default pattern: worker programs that read their parameters
    /// by lines or by regular expressions of their own have been misled by it.
    pub(super) fn split<'p>(&self, path: &'p [u8]) -> Option<(&'p [u8], &'p [u8])> {
        match self {
            Self::Default => split_php(path),
            Self::Regex(regex) => {
                let captures = regex.captures(path)?;
                let name = captures.get(1).or(captures.get(0))?.as_bytes();
                let info = captures.get(2).map_or(&b""[..], |group| group.as_bytes());
                (name.len() > 1 && name[0] == b'/').then_some((name, info))
            }
        }
    }
}

/// Which paths are as if they were not there.
#[derive(Debug)]
pub(super) struct Hidden {
    /// The default's, which hide only what has a dot behind a slash: most paths have none, which a search for two
    /// bytes tells sooner than any expression.
    dot_files: Vec<Regex>,
    others: Vec<Regex>,
}

impl Hidden {
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        let default = weir_config::default_hide_files();
        let (dot_files, others): (Vec<_>, Vec<_>) = patterns
            .iter()
            .partition(|pattern| default.contains(pattern));
        let compile = |patterns: Vec<&String>| -> Result<Vec<Regex>, String> {
            patterns
                .into_iter()
                .map(|pattern| compile(pattern, true))
                .collect()
        };
        Ok(Self {
            dot_files: compile(dot_files)?,
            others: compile(others)?,
        })
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let any = |patterns: &[Regex]| patterns.iter().any(|regex| regex.is_match(path));
        memchr::memmem::find(path, b"/.").is_some() && any(&self.dot_files) || any(&self.others)
    }
}

/// Whether a name has an extension that PHP's packages run. Such a file is a program: where no rule runs it, its
/// source is not for clients either.
pub(super) fn is_php_source(path: &[u8]) -> bool {
    let Some(dot) = memchr::memrchr(b'.', path) else {
        return false;
    };
    let extension = &path[dot + 1..];
    (3..=5).contains(&extension.len())
        && [
            "php", "phtml", "phar", "pht", "phps", "php3", "php4", "php5", "php7", "php8",
        ]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known.as_bytes()))
}

/// [`DEFAULT_SCRIPT`] by hand: the last `.php` that a slash or the end follows.
fn split_php(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut before = path.len();
    while let Some(dot) = memchr::memrchr(b'.', &path[..before]) {
        // The slash, one character at least, the dot.
        if dot < 2 {
            return None;
        }
        let end = dot + 4;
        if path[dot..].starts_with(b".php") && matches!(path.get(end), None | Some(b'/')) {
            return match memchr::memchr(b'\n', path) {
                None => Some(path.split_at(end)),
                Some(_) => None,
            };
        }
        before = dot;
    }
    None
}

/// A dot that takes newlines keeps rules tight where a match forbids, and loose where a match runs a script.
fn compile(pattern: &str, dot_matches_newline: bool) -> Result<Regex, String> {
    let build = |unicode| {
        RegexBuilder::new(pattern)
            .unicode(unicode)
            .dot_matches_new_line(dot_matches_newline)
            .build()
    };
    // Classes such as `\p{L}` exist with Unicode only.
    build(false)
        .or_else(|_| build(true))
        .map_err(|error| format!("`{pattern}`: {error}"))
}

/// Backtracks to the last star only: at most pattern × path steps.
fn glob_matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while s < path.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, s));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                s += char_len(&path[s..]);
            }
            Some(byte) if *byte == path[s] => {
                p += 1;
                s += 1;
            }
            _ => match star {
                None => return false,
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, s) = (at + 1, taken + 1);
                }
            },
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Bytes of the first character; 1 where it is no UTF-8.
fn char_len(bytes: &[u8]) -> usize {
    let len = match bytes[0] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    match bytes.get(..len) {
        Some(char) if core::str::from_utf8(char).is_ok() => len,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn globs_cover_the_whole_path() {
        for (glob, path, expected) in [
            ("/api/*", "/api/", true),
            ("/api/*", "/api/v1/users", true),
            ("/api/*", "/api", false),
            ("/api", "/api", true),
            ("/api", "/api/", false),
            ("*.css", "/a/b.css", true),
            ("*.css", "/a/b.css.map", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/x/y/c", true),
            ("/a/*/c", "/a/c", false),
            ("/?", "/x", true),
            ("/?", "/ü", true),
            ("/?", "/xy", false),
            ("/*a*b*", "/xaxbx", true),
            ("/*a*b*", "/xbxax", false),
            ("*", "/", true),
            ("", "/", false),
            ("/[a]{b}", "/[a]{b}", true),
        ] {
            assert_eq!(
                Glob::new(glob).matches(path.as_bytes()),
                expected,
                "{glob} {path}"
            );
        }
        assert!(Glob::new("/?x").matches(b"/\xffx"));
        assert!(Glob::new("/??x").matches(b"/\xe2\x82x"));
    }

    #[test]
    fn the_default_script_pattern_splits_at_the_last_script() {
        for (path, expected) in [
            ("/index.php", Some(("/index.php", ""))),
            ("/index.php/a/b", Some(("/index.php", "/a/b"))),
            ("/index.php/", Some(("/index.php", "/"))),
            ("/a.php/b.php/c", Some(("/a.php/b.php", "/c"))),
            ("/a.php/b.phpx", Some(("/a.php", "/b.phpx"))),
            ("/.php", None),
            ("/a/.php", Some(("/a/.php", ""))),
            ("/index.phpx", None),
            ("/index.PHP", None),
            ("/a\n.php", None),
            ("/style.css", None),
            ("/", None),
        ] {
            let got = ScriptPattern::Default.split(path.as_bytes());
            assert_eq!(
                got,
                expected.map(|(a, b)| (a.as_bytes(), b.as_bytes())),
                "{path}"
            );
        }
    }

    #[test]
    fn other_script_patterns_are_used_as_written() {
        let cgi = ScriptPattern::new(r"^(/cgi-bin/[^/]+)(/.*)?$").unwrap();
        assert_eq!(
            cgi.split(b"/cgi-bin/test"),
            Some((&b"/cgi-bin/test"[..], &b""[..]))
        );
        assert_eq!(
            cgi.split(b"/cgi-bin/test/x"),
            Some((&b"/cgi-bin/test"[..], &b"/x"[..]))
        );
        assert_eq!(cgi.split(b"/other"), None);
        let no_group = ScriptPattern::new(r"^/app$").unwrap();
        assert_eq!(no_group.split(b"/app"), Some((&b"/app"[..], &b""[..])));
        let no_slash = ScriptPattern::new(r"([a-z]+)\.php$").unwrap();
        assert_eq!(no_slash.split(b"/x.php"), None);
        assert!(ScriptPattern::new("(").is_err());
    }

    #[test]
    fn hidden_files_cannot_be_reached_by_odd_bytes() {
        let hidden = Hidden::new(&[r"/\.".into(), r"^/private/.*\.bak$".into()]).unwrap();
        for path in [
            &b"/.git/config"[..],
            b"/a/.env",
            b"/private/a\xff.bak",
            b"/private/a\n.bak",
        ] {
            assert!(hidden.matches(path), "{path:?}");
        }
        assert!(!hidden.matches(b"/a.b/c"));
    }

    #[test]
    fn the_default_hides_dot_files_and_nothing_else() {
        let hidden = Hidden::new(&weir_config::default_hide_files()).unwrap();
        for path in [
            "/.git/config",
            "/a/.env",
            "/.well-known2",
            "/a/.well-known/x",
            "/.well-known/.git",
        ] {
            assert!(hidden.matches(path.as_bytes()), "{path}");
        }
        for path in ["/", "/a.b/c", "/.well-known/acme-challenge/x", "/a/b./c"] {
            assert!(!hidden.matches(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn sources_are_known_by_their_extension() {
        for path in [
            "/a.php",
            "/a.PHP",
            "/a.phtml",
            "/a.php5",
            "/.php",
            "/a.b.phar",
        ] {
            assert!(is_php_source(path.as_bytes()), "{path}");
        }
        for path in ["/a.html", "/php", "/a.php.txt", "/a.phpx", "/a.", "/"] {
            assert!(!is_php_source(path.as_bytes()), "{path}");
        }
    }

    fn path() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"/".to_vec()),
            Just(b".php".to_vec()),
            Just(b".".to_vec()),
            Just(b"php".to_vec()),
            Just(b"\n".to_vec()),
            "[a-z]{1,2}".prop_map(String::into_bytes),
            any::<u8>().prop_map(|byte| vec![byte]),
        ];
        proptest::collection::vec(piece, 0..10).prop_map(|pieces| {
            let mut path = b"/".to_vec();
            path.extend(pieces.concat());
            path
        })
    }

    proptest! {
        #[test]
        fn the_default_pattern_by_hand_is_the_regular_expression(path in path()) {
            let regex = ScriptPattern::Regex(compile(DEFAULT_SCRIPT, false).unwrap());
            prop_assert_eq!(ScriptPattern::Default.split(&path), regex.split(&path));
        }

        #[test]
        fn a_glob_is_its_regular_expression(glob in "[/ab*?]{0,8}", path in "[/ab]{0,8}") {
            let pattern = glob.replace('*', ".*").replace('?', ".");
            let regex = compile(&format!("^(?:{pattern})$"), true).unwrap();
            prop_assert_eq!(Glob::new(&glob).matches(path.as_bytes()), regex.is_match(path.as_bytes()));
        }
    }
}
