//! Turns Apache's file name patterns into expressions for URL paths, as routes use them.

use regex::Regex;

/// Text as a literal expression. What is not UTF-8 in it is any part of a name.
pub fn literal(text: &str) -> String {
    let escaped = regex::escape(text).replace(char::REPLACEMENT_CHARACTER, "[^/]+");
    // These have a meaning only in a class, or with the flag `x`.
    escaped
        .replace("\\-", "-")
        .replace("\\ ", " ")
        .replace("\\#", "#")
}

/// `<Files "*.sql">`: a name with wildcards, in a folder or below it.
pub(super) fn of_glob(folder: &str, glob: &str) -> Option<String> {
    let mut expression = format!("^{}(?:.*/)?", literal(folder));
    let mut rest = glob.chars();
    while let Some(character) = rest.next() {
        match character {
            '*' => expression.push_str("[^/]*"),
            '?' => expression.push_str("[^/]"),
            '[' => {
                let class: String = rest.by_ref().take_while(|c| *c != ']').collect();
                if class.is_empty() {
                    return None;
                }
                let class = class.replace('\\', "\\\\").replace('[', "\\[");
                let class = class.replacen('!', "^", usize::from(class.starts_with('!')));
                expression.push_str(&format!("[{class}]"));
            }
            other => expression.push_str(&literal(&other.to_string())),
        }
    }
    expression.push('$');
    usable(expression)
}

/// `<FilesMatch "\.(inc|sql)$">`: an expression for any part of a file's name, in a folder or below it. `widens`: if
/// it cannot be translated exactly, it may match more names.
pub(super) fn of_name(folder: &str, expression: &str, widens: bool) -> Option<String> {
    let (flag, expression) = flagged(expression, false);
    let perl = Perl::read(expression, true);
    if !perl.is_exact && !widens {
        return None;
    }
    let any = alternatives(&perl.text, widens, "[^/]*")?;
    let whole = usable(format!("^{}(?:.*/)?(?{flag}:{any})$", literal(folder)));
    whole.filter(|whole| perl.is_exact || !is_for_all(whole, folder))
}

/// `RewriteRule "^(conf|data)/" - [F]`: an expression over the path below a folder.
pub(super) fn of_path(folder: &str, expression: &str, ignores_case: bool) -> Option<String> {
    let (flag, expression) = flagged(expression, ignores_case);
    let perl = Perl::read(expression, false);
    let any = alternatives(&perl.text, true, ".*")?;
    let whole = usable(format!("^{}(?{flag}:{any})$", literal(folder)));
    whole.filter(|whole| perl.is_exact || !is_for_all(whole, folder))
}

/// `RedirectMatch 403 ^/conf/`: an expression over the whole URL path. `widens` as in [`of_name`].
pub(super) fn of_url(expression: &str, ignores_case: bool, widens: bool) -> Option<String> {
    if !widens && !Perl::read(expression, false).is_exact {
        return None;
    }
    let (anchor, rest) = match expression.strip_prefix('^') {
        Some(rest) => ("^", rest),
        None => ("", expression),
    };
    match rest.strip_prefix('/') {
        Some(rest) if !anchor.is_empty() => of_path("/", &format!("^{rest}"), ignores_case),
        _ => of_path("", expression, ignores_case),
    }
}

/// The flag for letters of both cases, and the expression without it.
fn flagged(expression: &str, ignores_case: bool) -> (&'static str, &str) {
    match expression.strip_prefix("(?i)") {
        Some(rest) => ("i", rest),
        None if ignores_case => ("i", expression),
        None => ("", expression),
    }
}

/// Whether an expression for the paths below a folder matches every path.
pub(super) fn is_for_all_paths(expression: &str) -> bool {
    let regex = of_path("/", expression, false).and_then(|path| Regex::new(&path).ok());
    let all = PLAIN.iter().chain(&["", "a/", "x"]);
    regex.is_some_and(|regex| {
        all.into_iter()
            .all(|path| regex.is_match(&format!("/{path}")))
    })
}

/// Whether what is made of an expression matches the same, and not more.
pub(super) fn is_exact(expression: &str) -> bool {
    Perl::read(expression, false).is_exact
}

/// Whether an expression for paths that begin with `prefix` matches hidden files alone, which weir refuses by default.
pub(super) fn is_for_hidden_files(expression: &str, prefix: &str) -> bool {
    let Ok(regex) = Regex::new(&Perl::read(expression, false).text) else {
        return false;
    };
    let matches = |path: &&str| regex.is_match(&format!("{prefix}{path}"));
    [".git/config", ".env", ".htaccess"].iter().any(matches) && !PLAIN.iter().any(matches)
}

/// Whether an expression matches files of all kinds: then nothing is left of what it was about.
fn is_for_all(expression: &str, folder: &str) -> bool {
    let regex = Regex::new(expression);
    regex.is_ok_and(|regex| {
        let mut paths = PLAIN.iter().filter(|path| !path.contains('/'));
        paths.all(|path| regex.is_match(&format!("{folder}{path}")))
    })
}

/// Paths of ordinary files.
const PLAIN: [&str; 6] = [
    "index.php",
    "page.html",
    "style.min.css",
    "a/picture.jpg",
    "a/b.c/script.js",
    "README",
];

/// An expression of Apache (PCRE) as one of ours, which has neither look-around nor possessive repetition.
struct Perl {
    text: String,
    /// It matches the same; otherwise more.
    is_exact: bool,
    /// The next plus sign is written as a star.
    plus_is_star: bool,
}

impl Perl {
    /// `in_name`: it is for a name, without slashes.
    fn read(expression: &str, in_name: bool) -> Self {
        let mut out = Self {
            text: String::new(),
            is_exact: true,
            plus_is_star: false,
        };
        let mut rest = expression;
        let mut in_class = false;
        while let Some(character) = rest.chars().next() {
            let behind = &rest[character.len_utf8()..];
            let mut taken = character.len_utf8();
            match character {
                '\\' => {
                    taken += behind.chars().next().map_or(0, char::len_utf8);
                    match behind.chars().next() {
                        Some('Z') => out.text.push_str("\\z"),
                        Some(c @ ('<' | '>' | '_')) => out.text.push(c),
                        _ => out.text.push_str(&rest[..taken]),
                    }
                }
                // In our classes a bracket begins another class, and doubled signs are operators.
                '[' if in_class && !behind.starts_with(':') => out.text.push_str("\\["),
                '&' | '~' if in_class => {
                    out.text.push('\\');
                    out.text.push(character);
                }
                '[' if in_class => {
                    let end = behind.find(']').map_or(behind.len(), |end| end + 1);
                    taken += end;
                    out.text.push_str(&rest[..taken]);
                }
                '[' => {
                    in_class = true;
                    let negated = behind.strip_prefix('^');
                    out.text.push_str(match negated {
                        Some(_) if in_name => "[^/",
                        Some(_) => "[^",
                        None => "[",
                    });
                    taken += usize::from(negated.is_some());
                    // As the first character, this one is itself.
                    if negated.unwrap_or(behind).starts_with(']') {
                        out.text.push_str("\\]");
                        taken += 1;
                    }
                }
                ']' if in_class => {
                    in_class = false;
                    out.text.push(']');
                }
                '+' if !in_class && out.plus_is_star => {
                    out.plus_is_star = false;
                    out.text.push('*');
                }
                '+' if !in_class && ends_in_repetition(&out.text) => {}
                '.' if !in_class && in_name => out.text.push_str("[^/]"),
                '(' if !in_class => taken += out.group(behind, in_name),
                other => out.text.push(other),
            }
            rest = &rest[taken..];
        }
        out
    }

    /// What follows an opening bracket. Returns how much of it was taken.
    fn group(&mut self, behind: &str, in_name: bool) -> usize {
        if behind.starts_with("?>") {
            self.text.push_str("(?:");
            return 2;
        }
        let look = ["?!", "?=", "?<!", "?<="];
        let Some(look) = look.into_iter().find(|look| behind.starts_with(look)) else {
            self.text.push('(');
            return 0;
        };
        let inner = &behind[look.len()..];
        let Some(end) = closing(inner) else {
            self.text.push('(');
            return 0;
        };
        let (inner, after) = (&inner[..end], &inner[end + 1..]);
        let words = (look == "?!").then(|| literals(inner)).flatten();
        match words.zip(what_follows(after)) {
            Some((words, repetition)) => {
                // A repetition with a plus sign is for at least one character.
                let is_empty_too = repetition != Some('+');
                let not = not_beginning(&words, is_empty_too);
                self.text.push_str(&match in_name {
                    true => not.replace("[^", "[^/").replace("(?s:.)", "[^/]"),
                    false => not,
                });
                // What was read to know it may have been all that there is.
                self.plus_is_star = repetition == Some('+');
            }
            None => self.is_exact = false,
        }
        look.len() + end + 1
    }
}

/// The texts that a look-ahead is for; the dollar sign at the end of one is kept. `None`: it is for more than texts.
fn literals(expression: &str) -> Option<Vec<String>> {
    let inner = expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(expression);
    let literal = |word: &str| {
        let (plain, end) = match word.strip_suffix('$') {
            Some(plain) => (plain, "$"),
            None => (word, ""),
        };
        let mut text = String::new();
        let mut rest = plain.chars();
        while let Some(character) = rest.next() {
            match character {
                '\\' => text.push(rest.next().filter(char::is_ascii_punctuation)?),
                c if c.is_alphanumeric() || "-_/ ,".contains(c) => text.push(c),
                _ => return None,
            }
        }
        (!text.is_empty()).then(|| text + end)
    };
    inner.split('|').map(literal).collect()
}

/// If what follows a look-ahead matches any text of one kind, or is nothing: how that is repeated.
fn what_follows(after: &str) -> Option<Option<char>> {
    if after.is_empty() {
        return Some(None);
    }
    let behind = match after.strip_prefix('[') {
        Some(class) => class.find(']').map(|end| &class[end + 1..]),
        None => after.strip_prefix('.'),
    };
    let repetition = behind?.chars().next()?;
    ['*', '+'].contains(&repetition).then_some(Some(repetition))
}

/// An expression for what begins with none of these texts, as far as that must be read to know it.
/// `or_nothing`: nothing does so, too.
fn not_beginning(words: &[String], or_nothing: bool) -> String {
    if words.iter().any(|word| word == "$") {
        return "(?s:.)".into();
    }
    let mut firsts: Vec<char> = words
        .iter()
        .filter_map(|word| word.chars().next())
        .collect();
    firsts.sort_unstable();
    firsts.dedup();
    let class: String = firsts.iter().map(|c| in_class(*c)).collect();
    let nothing = if or_nothing { r"\z|" } else { "" };
    let mut out = format!("(?:{nothing}[^{class}]");
    for first in firsts {
        let rests = words.iter().filter_map(|word| word.strip_prefix(first));
        let rests: Vec<String> = rests.map(str::to_owned).collect();
        // A text that ends here is one of them, whatever follows.
        if !rests.iter().any(String::is_empty) {
            out.push('|');
            out.push_str(&literal(&first.to_string()));
            out.push_str(&not_beginning(&rests, true));
        }
    }
    out.push(')');
    out
}

/// A character in a class.
fn in_class(character: char) -> String {
    match character {
        '-' => "\\-".into(),
        other => literal(&other.to_string()),
    }
}

/// Where the bracket is closed whose content this text begins with.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut escaped) = (0_usize, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether a plus sign would make the repetition before it possessive.
fn ends_in_repetition(text: &str) -> bool {
    let escaped = |text: &str| {
        let backslashes = text.len() - text.trim_end_matches('\\').len();
        backslashes % 2 == 1
    };
    match text.strip_suffix(['*', '+', '?', '}']) {
        Some(before) => !escaped(before) && !before.is_empty() && !before.ends_with('('),
        None => false,
    }
}

/// An expression that matches anywhere as one that matches the whole; `any` is what may be around it. `widens`: if an
/// anchor is within it, it may match more.
fn alternatives(expression: &str, widens: bool, any: &str) -> Option<String> {
    let mut all = Vec::new();
    for part in parts(expression) {
        let marks = anchors(part);
        let at_start = part.starts_with('^');
        let at_end = part.ends_with('$') && marks.contains(&(part.len() - 1));
        let mut inner = String::new();
        for (at, character) in part.char_indices() {
            if !marks.contains(&at) {
                inner.push(character);
                continue;
            }
            let is_outer = at == 0 || at + 1 == part.len();
            // Without the anchor, an expression matches more.
            if !is_outer && !widens {
                return None;
            }
        }
        let (before, after) = (
            if at_start { "" } else { any },
            if at_end { "" } else { any },
        );
        all.push(format!("{before}{inner}{after}"));
    }
    Some(all.join("|"))
}

/// Positions of `^` and `$` as anchors: neither escaped nor in a class.
fn anchors(expression: &str) -> Vec<usize> {
    let (mut found, mut escaped, mut in_class) = (Vec::new(), false, false);
    for (at, character) in expression.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if !in_class => in_class = true,
            ']' => in_class = false,
            '^' | '$' if !in_class => found.push(at),
            _ => {}
        }
    }
    found
}

/// The alternatives outside of all groups: an anchor belongs to one of them.
fn parts(expression: &str) -> Vec<&str> {
    let (mut depth, mut escaped, mut in_class) = (0_usize, false, false);
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, character) in expression.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if !in_class => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => {
                parts.push(&expression[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&expression[begin..]);
    parts
}

/// Apache's expressions may have back-references, ours may not.
fn usable(expression: String) -> Option<String> {
    Regex::new(&expression).is_ok().then_some(expression)
}
