//! Matches normalised paths: globs and regular expressions of routes, scripts, hidden files.
//!
//! A path is bytes, not text. Expressions are compiled without Unicode classes, so that `.` matches bytes that are
//! not UTF-8, too. Otherwise such bytes could bypass a rule.

use std::{cell::RefCell, collections::HashMap};

use regex::bytes::{Regex, RegexBuilder};
use weir_config::{PathPattern, ValuePattern};

/// The default of `script`.
pub(crate) const DEFAULT_SCRIPT: &str = r"^(/.+\.php)(/.*)?$";

/// Which paths a route applies to, or which values a rule.
#[derive(Debug)]
pub(crate) enum Matcher {
    Glob(Glob),
    Regex(Regex),
}

impl Matcher {
    pub(crate) fn of_path(pattern: &PathPattern) -> Result<Self, String> {
        Ok(match pattern {
            PathPattern::Glob(glob) => Self::Glob(Glob::new(glob)),
            PathPattern::Regex(regex) => Self::Regex(compile(regex, true)?),
        })
    }

    /// Compiles the pattern for a part of a request.
    ///
    /// # Errors
    ///
    /// If an expression cannot be compiled.
    pub(crate) fn of_value(pattern: &ValuePattern) -> Result<Self, String> {
        Ok(match pattern {
            ValuePattern::Glob(glob) => Self::Glob(Glob::new(glob)),
            ValuePattern::Regex(regex) => Self::Regex(compile(regex, true)?),
        })
    }

    /// The expression, if it is one; a rewrite may use its groups.
    pub(crate) fn regex(&self) -> Option<&Regex> {
        match self {
            Self::Glob(_) => None,
            Self::Regex(regex) => Some(regex),
        }
    }

    /// Whether the path matches.
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
    /// No star and no question mark.
    Exact(Box<[u8]>),
    /// One star, at the end.
    Prefix(Box<[u8]>),
    /// Anything else.
    Pattern(Box<[u8]>),
}

impl Glob {
    pub(crate) fn new(glob: &str) -> Self {
        let plain = |text: &str| !text.contains(['*', '?']);
        match glob.strip_suffix('*') {
            _ if plain(glob) => Self::Exact(glob.as_bytes().into()),
            Some(prefix) if plain(prefix) => Self::Prefix(prefix.as_bytes().into()),
            _ => Self::Pattern(glob.as_bytes().into()),
        }
    }

    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => **exact == *path,
            Self::Prefix(prefix) => path.starts_with(prefix),
            Self::Pattern(pattern) => glob_matches(pattern, path),
        }
    }
}

/// Which paths are scripts, and where the name of the script ends.
#[derive(Debug)]
pub(crate) enum ScriptPattern {
    /// [`DEFAULT_SCRIPT`], matched without a regular expression.
    Default,
    Regex(Regex),
}

impl ScriptPattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        if pattern == DEFAULT_SCRIPT {
            return Ok(Self::Default);
        }
        compile(pattern, false).map(Self::Regex)
    }

    /// Calls `found` for each script that `path` may name with something after it, the longest first, until `found`
    /// returns true. If the longest does not exist, workers may use a shorter one (PHP's `cgi.fix_pathinfo`), so
    /// rules must check all of them. False if there are more than [`MAX_NAMES`].
    pub(crate) fn with_path_info(&self, path: &[u8], mut found: impl FnMut(&[u8]) -> bool) -> bool {
        let mut rest = path;
        let mut left = MAX_NAMES;
        while let Some((name, info)) = self.split(rest) {
            if !(info.is_empty() && rest.len() == path.len()) {
                if left == 0 {
                    return false;
                }
                left -= 1;
                if found(name) {
                    return true;
                }
            }
            let Some(slash) = memchr::memrchr(b'/', name).filter(|slash| *slash > 0) else {
                return true;
            };
            rest = &path[..slash];
        }
        true
    }

    /// Script name (first group, otherwise the whole match) and path-info (second group, otherwise empty).
    ///
    /// With the default pattern, a path with a newline is not a script: it has misled worker programs that read
    /// parameters line by line or with regular expressions.
    pub(crate) fn split<'p>(&self, path: &'p [u8]) -> Option<(&'p [u8], &'p [u8])> {
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

/// Which paths are hidden, as if they did not exist.
///
/// The operator's own expressions match the URL and the script's name, whether the file exists or not. The default
/// expressions are about files: if there is no file with such a name, the path belongs to the application.
#[derive(Debug)]
pub(crate) struct Hidden {
    /// Which of the default expressions are used, by their position.
    default: [bool; 3],
    others: Vec<Regex>,
}

/// Why the default hides a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HiddenFile {
    /// A dot-file or dot-folder: this many bytes of the path name it.
    Dot(usize),
    /// The name of a copy that an editor or an administrator has made.
    Copy,
}

impl Hidden {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, String> {
        let all = weir_config::default_hide_files();
        let mut default = [false; 3];
        let mut others = Vec::new();
        for pattern in patterns {
            match all.iter().position(|known| known == pattern) {
                Some(at) => default[at] = true,
                None => others.push(compile(pattern, true)?),
            }
        }
        Ok(Self { default, others })
    }

    /// Whether one of the operator's own expressions matches.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        self.others.iter().any(|regex| regex.is_match(path))
    }

    /// Whether the operator has configured own expressions.
    pub(crate) fn has_own(&self) -> bool {
        !self.others.is_empty()
    }

    /// Whether the default hides a file with this name, if it exists.
    pub(crate) fn file(&self, name: &[u8]) -> Option<HiddenFile> {
        let [root, deeper, copies] = self.default;
        if (root || deeper)
            && memchr::memchr_iter(b'.', name).any(|dot| dot > 0 && name[dot - 1] == b'/')
            && let Some(end) = dot_segment(name, root, deeper)
        {
            return Some(HiddenFile::Dot(end));
        }
        (copies && is_copy(name)).then_some(HiddenFile::Copy)
    }
}

/// The end of the first hidden segment that begins with a dot. `/.well-known` in the root is not hidden.
fn dot_segment(path: &[u8], root: bool, deeper: bool) -> Option<usize> {
    memchr::memmem::find_iter(path, b"/.").find_map(|at| {
        let rest = &path[at + 1..];
        let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
        let hidden = match at {
            0 => root && &rest[..end] != b".well-known",
            _ => deeper,
        };
        hidden.then_some(at + 1 + end)
    })
}

/// The third default expression, without a regular expression.
fn is_copy(path: &[u8]) -> bool {
    let name = last_segment(path);
    match name.last() {
        Some(b'~') => true,
        Some(b'#') => name.len() > 1 && name[0] == b'#',
        Some(_) => extension(name).is_some_and(|extension| {
            COPIES
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known.as_bytes()))
        }),
        None => false,
    }
}

/// Whether a name is that of a PHP source: it has an extension that PHP packages run, or such an extension with
/// something after it (`x.php.bak`, `x.php~`, `#x.php#`, `x.php.1`). Such a file is a program: if no rule runs it,
/// clients must not get its source. Files that are made for reading (`x.php.html`, `x.php.txt`) are not sources.
pub(crate) fn is_php_source(path: &[u8]) -> bool {
    let name = last_segment(path);
    memchr::memchr_iter(b'.', name).any(|dot| {
        let rest = &name[dot + 1..];
        let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric());
        let (extension, behind) = rest.split_at(end.unwrap_or(rest.len()));
        is_php_extension(extension) && !is_published(behind)
    })
}

fn is_php_extension(extension: &[u8]) -> bool {
    let is = |known: &str| extension.eq_ignore_ascii_case(known.as_bytes());
    match extension {
        [_, _, _, digit] if digit.is_ascii_digit() => extension[..3].eq_ignore_ascii_case(b"php"),
        [_, _, _] | [_, _, _, _] | [_, _, _, _, _] => {
            ["php", "phtml", "phar", "pht", "phps"].into_iter().any(is)
        }
        _ => false,
    }
}

/// Whether the part after a script's extension makes it a file for reading.
fn is_published(behind: &[u8]) -> bool {
    extension(behind).is_some_and(|extension| {
        PUBLISHED
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known.as_bytes()))
    })
}

fn last_segment(path: &[u8]) -> &[u8] {
    let slash = last(b'/', path);
    slash.map_or(path, |slash| &path[slash + 1..])
}

fn extension(name: &[u8]) -> Option<&[u8]> {
    last(b'.', name).map(|dot| &name[dot + 1..])
}

/// Maximum number of script names in one path.
const MAX_NAMES: usize = 16;

/// Extensions of copies that are never meant for clients, and of include files.
const COPIES: [&str; 9] = [
    "bak", "old", "orig", "save", "dist", "inc", "swn", "swo", "swp",
];

/// Extensions of files that are made from scripts for reading, and of signatures of published archives.
const PUBLISHED: [&str; 39] = [
    "html", "htm", "xhtml", "txt", "text", "md", "css", "js", "mjs", "json", "xml", "svg", "png",
    "jpg", "jpeg", "gif", "webp", "avif", "ico", "pdf", "map", "woff", "woff2", "mp3", "mp4",
    "webm", "ogg", "csv", "rss", "atom", "asc", "sig", "md5", "sha1", "sha256", "sha512", "scss",
    "less", "wasm",
];

/// Where the last of these bytes is. Most are a few bytes before the end, where this finds them sooner than `memrchr`.
fn last(byte: u8, text: &[u8]) -> Option<usize> {
    text.iter().rposition(|found| *found == byte)
}

/// [`DEFAULT_SCRIPT`] without a regular expression: the last `.php` before a slash or the end.
fn split_php(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut before = path.len();
    while let Some(dot) = last(b'.', &path[..before]) {
        // A slash, at least one character, and the dot.
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

/// `dot_matches_newline` is set where a match forbids, so that a newline cannot bypass the rule, and not where a
/// match runs a script.
fn compile(pattern: &str, dot_matches_newline: bool) -> Result<Regex, String> {
    let known = COMPILED.with_borrow(|known| {
        known
            .get(pattern)
            .filter(|(newline, _)| *newline == dot_matches_newline)
            .map(|(_, regex)| regex.clone())
    });
    if let Some(regex) = known {
        return Ok(regex);
    }
    let regex = build(pattern, dot_matches_newline)?;
    COMPILED.with_borrow_mut(|known| {
        if known.len() < MAX_COMPILED {
            known.insert(pattern.to_owned(), (dot_matches_newline, regex.clone()));
        }
    });
    Ok(regex)
}

/// Forgets which expressions were compiled for the rules; they have their own references.
pub(crate) fn forget_compiled() {
    COMPILED.take();
}

thread_local! {
    /// The expressions of the configuration that is being compiled, and whether a dot matches a newline: many sites write
    /// the same ones, and share them.
    static COMPILED: RefCell<HashMap<String, (bool, Regex)>> = RefCell::default();
}

/// Maximum number of these.
const MAX_COMPILED: usize = 256;

fn build(pattern: &str, dot_matches_newline: bool) -> Result<Regex, String> {
    let build = |unicode| {
        RegexBuilder::new(pattern)
            .unicode(unicode)
            .dot_matches_new_line(dot_matches_newline)
            .build()
    };
    // Classes such as `\p{L}` need Unicode.
    build(false)
        .or_else(|_| build(true))
        .map_err(|error| format!("`{pattern}`: {error}"))
}

/// Backtracks only to the last star: at most pattern × path steps.
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

/// Length of the first character in bytes; 1 if it is not UTF-8.
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
        let hidden = Hidden::new(&[r"/\.".into(), r"^/private/.*\.sql$".into()]).unwrap();
        for path in [
            &b"/.git/config"[..],
            b"/a/.env",
            b"/private/a\xff.sql",
            b"/private/a\n.sql",
        ] {
            assert!(hidden.matches(path), "{path:?}");
        }
        assert!(!hidden.matches(b"/a.b/c"));
    }

    #[test]
    fn the_default_hides_dot_files_and_copies_and_nothing_else() {
        let hidden = Hidden::new(&weir_config::default_hide_files()).unwrap();
        for (path, end) in [
            ("/.git/config", 5),
            ("/a/.env", 7),
            ("/.well-known2", 13),
            ("/.well-known/.git/x", 17),
            ("/a/.well-known/x", 14),
        ] {
            let found = hidden.file(path.as_bytes());
            assert_eq!(found, Some(HiddenFile::Dot(end)), "{path}");
            assert!(!hidden.matches(path.as_bytes()), "{path}");
        }
        for path in [
            "/wp-config.php.bak",
            "/x.php~",
            "/x.OLD",
            "/a.inc",
            "/dir/#x.php#",
            "/x.php.swp",
            "/x.orig",
            "/x.php.dist",
            "/x.save",
        ] {
            let found = hidden.file(path.as_bytes());
            assert_eq!(found, Some(HiddenFile::Copy), "{path}");
        }
        for path in [
            "/",
            "/a.b/c",
            "/.well-known/acme-challenge/x",
            "/a/b./c",
            "/a.bak/c",
            "/~user/",
            "/film.swf",
            "/#a",
            "/bak",
            "/dump.sql",
            "/x.inc.html",
        ] {
            assert_eq!(hidden.file(path.as_bytes()), None, "{path}");
        }
    }

    #[test]
    fn sources_are_known_by_their_names() {
        for path in [
            "/a.php",
            "/a.PHP",
            "/a.phtml",
            "/a.php5",
            "/a.phps",
            "/.php",
            "/a.b.phar",
            "/wp-config.php.bak",
            "/x.php~",
            "/x.php.old",
            "/x.php.1",
            "/x.php.2024-01-31",
            "/#x.php#",
            "/.x.php.swp",
            "/x.php_old",
            "/x.php-",
            "/x.php,v",
            "/x.php copy",
            "/x.php.html.bak",
            "/x.phtml.orig",
            "/x.php.gz",
        ] {
            assert!(is_php_source(path.as_bytes()), "{path}");
        }
        for path in [
            "/a.html",
            "/php",
            "/a.php.txt",
            "/a.php.html",
            "/a.phpx",
            "/a.",
            "/",
            "/a.php/b",
            "/a.phar.asc",
            "/class.phpmailer.txt",
            "/php.ini",
        ] {
            assert!(!is_php_source(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn rules_see_every_script_that_a_path_may_name() {
        let names = |pattern: &str, path: &str| {
            let mut names = Vec::new();
            let pattern = ScriptPattern::new(pattern).unwrap();
            let all = pattern.with_path_info(path.as_bytes(), |name| {
                names.push(String::from_utf8_lossy(name).into_owned());
                false
            });
            (names.join(" "), all)
        };
        for pattern in [DEFAULT_SCRIPT, r"^(/.+\.(?:php))(/.*)?$"] {
            for (path, expected) in [
                ("/x.php", ""),
                ("/x.php/", "/x.php"),
                ("/x.php/a/b", "/x.php"),
                ("/a.php/b.php", "/a.php"),
                ("/a.php/b.php/c", "/a.php/b.php /a.php"),
                ("/a.php/b/c.php/d", "/a.php/b/c.php /a.php"),
                ("/style.css", ""),
            ] {
                assert_eq!(names(pattern, path), (expected.into(), true), "{path}");
            }
        }
        let many = "/x.php".repeat(MAX_NAMES + 2);
        assert!(!names(DEFAULT_SCRIPT, &many).1);
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
        fn the_default_hidden_by_hand_is_its_expressions(path in "/[/.~#a]{0,4}(\\.well-known|bak|old|swp|\\.inc|\\.BAK|#)?[/a~#]{0,2}") {
            let default = weir_config::default_hide_files();
            let hidden = Hidden::new(&default).unwrap();
            let matches = default.iter().any(|one| compile(one, true).unwrap().is_match(path.as_bytes()));
            prop_assert_eq!(hidden.file(path.as_bytes()).is_some(), matches, "{}", path);
        }

        #[test]
        fn a_glob_is_its_regular_expression(glob in "[/ab*?]{0,8}", path in "[/ab]{0,8}") {
            let pattern = glob.replace('*', ".*").replace('?', ".");
            let regex = compile(&format!("^(?:{pattern})$"), true).unwrap();
            prop_assert_eq!(Glob::new(&glob).matches(path.as_bytes()), regex.is_match(path.as_bytes()));
        }
    }
}
