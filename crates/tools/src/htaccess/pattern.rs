//! Turns Apache's file name patterns into expressions for URL paths, as routes use them.

use regex::Regex;

/// Text as a literal expression.
pub(super) fn literal(text: &str) -> String {
    regex::escape(text)
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
    let part = Part::of(expression, widens)?;
    let (before, after) = (part.before("[^/]*"), part.after("[^/]*"));
    usable(format!(
        "^{}(?:.*/)?{before}(?:{}){after}$",
        literal(folder),
        part.inner
    ))
}

/// `RewriteRule "^(conf|data)/" - [F]`: an expression over the path below a folder.
pub(super) fn of_path(folder: &str, expression: &str, ignores_case: bool) -> Option<String> {
    let part = Part::of(expression, true)?;
    let (before, after) = (part.before(".*"), part.after(".*"));
    let flag = if ignores_case { "(?i)" } else { "" };
    usable(format!(
        "{flag}^{}{before}(?:{}){after}$",
        literal(folder),
        part.inner
    ))
}

/// An expression without the anchors at its ends.
struct Part {
    inner: String,
    at_start: bool,
    at_end: bool,
}

impl Part {
    fn of(expression: &str, widens: bool) -> Option<Self> {
        let marks = anchors(expression);
        let in_front = expression.starts_with('^');
        let behind = expression.ends_with('$') && marks.contains(&(expression.len() - 1));
        let alternatives = has_alternatives(expression);
        let (at_start, at_end) = (in_front && !alternatives, behind && !alternatives);
        let mut inner = String::new();
        for (at, character) in expression.char_indices() {
            if !marks.contains(&at) {
                inner.push(character);
                continue;
            }
            let is_outer = at == 0 && at_start || at + 1 == expression.len() && at_end;
            // Without the anchor, an expression matches more.
            if !is_outer && !widens {
                return None;
            }
        }
        Some(Self {
            inner,
            at_start,
            at_end,
        })
    }

    fn before<'a>(&self, any: &'a str) -> &'a str {
        if self.at_start { "" } else { any }
    }

    fn after<'a>(&self, any: &'a str) -> &'a str {
        if self.at_end { "" } else { any }
    }
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

/// Alternatives outside of all groups: an anchor would belong to only one of them.
fn has_alternatives(expression: &str) -> bool {
    let (mut depth, mut escaped, mut in_class) = (0_usize, false, false);
    for character in expression.chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if !in_class => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth = depth.saturating_sub(1),
            '|' if !in_class && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Apache's expressions may have look-around and back-references, ours may not.
fn usable(expression: String) -> Option<String> {
    Regex::new(&expression).is_ok().then_some(expression)
}
