//! Turns the directives of a `.htaccess` file into its effects.

use super::{Effect, pattern};

/// The scope of a section's directives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// The folder.
    Folder,
    /// Files in the folder: an expression for their URL path (`None`: it cannot be expressed), and the section's
    /// text.
    Files {
        denied: Option<String>,
        open: Option<String>,
        shown: String,
    },
    /// Only requests of some kind.
    Condition(String),
}

/// The access rules of one scope that have been read so far.
#[derive(Debug)]
struct Access {
    scope: Scope,
    /// `Require …`, without those in containers.
    requires: Vec<String>,
    /// A container such as `<RequireAll>` is only understood as: not all clients are allowed.
    container: bool,
    /// `Order allow,deny`: clients that are not named are denied.
    allow_then_deny: Option<bool>,
    allows: Vec<String>,
    denies: Vec<String>,
}

/// An open section.
struct Open {
    /// Whether its directives are used.
    active: bool,
    /// Whether it made its own scope.
    scoped: bool,
    name: String,
}

pub(super) fn effects(text: &str, folder: &str) -> Vec<Effect> {
    let mut reader = Reader {
        folder,
        scopes: vec![Access::new(Scope::Folder)],
        open: Vec::new(),
        effects: Vec::new(),
        rewriting: false,
        conditions: false,
        containers: 0,
    };
    for line in lines(text) {
        reader.line(&line);
    }
    while let Some(access) = reader.scopes.pop() {
        reader.close(access);
    }
    reader.effects
}

struct Reader<'f> {
    folder: &'f str,
    scopes: Vec<Access>,
    open: Vec<Open>,
    effects: Vec<Effect>,
    rewriting: bool,
    /// A `RewriteCond` applies to the next rule.
    conditions: bool,
    /// Number of open `<RequireAll>` and similar containers.
    containers: usize,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) {
        if let Some(section) = line.strip_prefix("</") {
            return self.end(section.trim_end_matches('>').trim());
        }
        if let Some(section) = line.strip_prefix('<') {
            let section = section.trim_end_matches('>');
            let (name, argument) = section
                .split_once(char::is_whitespace)
                .unwrap_or((section, ""));
            return self.begin(&name.to_ascii_lowercase(), argument.trim());
        }
        if self.open.iter().all(|section| section.active) {
            let words = words(line);
            if let Some((name, arguments)) = words.split_first() {
                self.directive(&name.to_ascii_lowercase(), arguments);
            }
        }
    }

    fn begin(&mut self, name: &str, argument: &str) {
        let mut active = true;
        let mut scope = None;
        match name {
            "ifmodule" => active = !argument.starts_with('!'),
            // The version is only known to be 2.4.
            "ifversion" => active = !argument.starts_with('<') && !argument.starts_with('!'),
            "ifdefine" => active = argument.starts_with('!'),
            "files" | "filesmatch" => {
                let words = words(argument);
                let is_expression = name == "filesmatch" || words.first().is_some_and(|w| w == "~");
                let text = words.last().cloned().unwrap_or_default();
                let (denied, open) = match is_expression {
                    true => (
                        pattern::of_name(self.folder, &text, true),
                        pattern::of_name(self.folder, &text, false),
                    ),
                    false => {
                        let glob = pattern::of_glob(self.folder, &text);
                        (glob.clone(), glob)
                    }
                };
                let shown = format!("files like {text}");
                scope = Some(Scope::Files {
                    denied,
                    open,
                    shown,
                });
            }
            "limit" => {
                let reads = argument
                    .split_whitespace()
                    .any(|m| m.eq_ignore_ascii_case("GET"));
                if !reads {
                    scope = Some(Scope::Condition(format!("the methods {argument}")));
                }
            }
            "limitexcept" => scope = Some(Scope::Condition(format!("methods but {argument}"))),
            "if" | "elseif" | "else" => scope = Some(Scope::Condition("a condition".into())),
            "requireall" | "requireany" | "requirenone" => self.containers += 1,
            _ => {}
        }
        active &= self.open.iter().all(|section| section.active);
        let scoped = scope.is_some() && active;
        if let Some(scope) = scope.filter(|_| active) {
            self.scopes.push(Access::new(scope));
        }
        self.open.push(Open {
            active,
            scoped,
            name: name.to_owned(),
        });
    }

    fn end(&mut self, name: &str) {
        let name = name.to_ascii_lowercase();
        let Some(at) = self.open.iter().rposition(|section| section.name == name) else {
            return;
        };
        for section in self.open.drain(at..).collect::<Vec<_>>().into_iter().rev() {
            if section.name.starts_with("require") {
                self.containers = self.containers.saturating_sub(1);
            }
            if section.scoped
                && let Some(access) = self.scopes.pop()
            {
                self.close(access);
            }
        }
    }

    fn directive(&mut self, name: &str, arguments: &[String]) {
        let first = arguments.first().map(|word| word.to_ascii_lowercase());
        let first = first.unwrap_or_default();
        let contained = self.containers > 0;
        let Some(access) = self.scopes.last_mut() else {
            return;
        };
        match name {
            "require" => {
                let text = arguments.join(" ").to_ascii_lowercase();
                match contained && text != "all denied" {
                    true => access.container = true,
                    false => access.requires.push(text),
                }
            }
            "order" => {
                let order = arguments.concat().to_ascii_lowercase();
                access.allow_then_deny = Some(order == "allow,deny" || order == "mutual-failure");
            }
            "allow" | "deny" if first == "from" => {
                let who = arguments[1..].iter().map(|word| word.to_ascii_lowercase());
                match name {
                    "allow" => access.allows.extend(who),
                    _ => access.denies.extend(who),
                }
            }
            "php_flag" | "php_admin_flag" if first == "engine" => {
                let value = arguments.get(1).map(|word| word.to_ascii_lowercase());
                if matches!(value.as_deref(), Some("off" | "0" | "false" | "no")) {
                    self.push(Effect::NoScripts);
                }
            }
            "removehandler" | "removetype" if arguments.iter().any(|word| is_php(word)) => {
                self.push(Effect::NoScripts);
            }
            "sethandler" | "forcetype"
                if [
                    "none",
                    "default-handler",
                    "default",
                    "text/plain",
                    "application/octet-stream",
                ]
                .contains(&first.as_str()) =>
            {
                self.push(Effect::NoScripts);
            }
            "rewriteengine" => self.rewriting = first == "on",
            "rewritecond" => self.conditions = true,
            "rewriterule" if self.rewriting => self.rewrite(arguments),
            "redirectmatch" => self.redirect(&first, arguments),
            "redirect" => self.push(Effect::Rewrites),
            _ => {}
        }
    }

    fn rewrite(&mut self, arguments: &[String]) {
        let conditional = std::mem::take(&mut self.conditions);
        let [rule, _, rest @ ..] = arguments else {
            return;
        };
        let flags = rest.concat().to_ascii_lowercase();
        let flags: Vec<&str> = flags
            .trim_matches(['[', ']'])
            .split(',')
            .map(str::trim)
            .collect();
        let forbids = flags.iter().any(|flag| {
            [
                "f",
                "forbidden",
                "g",
                "gone",
                "r=403",
                "r=404",
                "r=410",
                "redirect=403",
                "redirect=404",
            ]
            .contains(flag)
        });
        if !forbids {
            return self.push(Effect::Rewrites);
        }
        let shown = format!("URLs like {rule}");
        if conditional {
            return self.push(Effect::Restricts(format!("a condition for {shown}")));
        }
        let ignores_case = flags.iter().any(|flag| ["nc", "nocase"].contains(flag));
        // A rule with `!` denies everything except what it matches.
        let path = match rule.starts_with('!') {
            true => None,
            false => pattern::of_path(self.folder, rule, ignores_case),
        };
        self.push(match path {
            Some(path) => Effect::DeniesFiles(path, shown),
            None => Effect::Unclear(format!("RewriteRule {rule}")),
        });
    }

    /// Matches the whole URL path, unlike a RewriteRule.
    fn redirect(&mut self, status: &str, arguments: &[String]) {
        if !["403", "404", "410", "gone"].contains(&status) {
            return self.push(Effect::Rewrites);
        }
        let Some(rule) = arguments.get(1) else {
            return;
        };
        let path = match rule.strip_prefix("^/") {
            Some(rest) => pattern::of_path("/", &format!("^{rest}"), false),
            None => pattern::of_path("/", rule.trim_start_matches('/'), false),
        };
        let shown = format!("URLs like {rule}");
        self.push(match path {
            Some(path) => Effect::DeniesFiles(path, shown),
            None => Effect::Unclear(format!("RedirectMatch {rule}")),
        });
    }

    fn close(&mut self, access: Access) {
        let verdict = access.verdict();
        let effect = match (access.scope, verdict) {
            (_, Verdict::Nothing) => return,
            (Scope::Folder, Verdict::Denied) => Effect::DeniesAll,
            (Scope::Folder, Verdict::Open) => Effect::Opens,
            (Scope::Folder, Verdict::Some(how)) => Effect::Restricts(how),
            (Scope::Files { denied, shown, .. }, Verdict::Denied) => match denied {
                Some(path) => Effect::DeniesFiles(path, shown),
                None => Effect::Unclear(shown),
            },
            (Scope::Files { open, shown, .. }, Verdict::Open) => match open {
                Some(path) => Effect::OpensFiles(path, shown),
                None => return,
            },
            (Scope::Files { shown, .. }, Verdict::Some(how)) => {
                Effect::Restricts(format!("{how} for {shown}"))
            }
            (Scope::Condition(_), Verdict::Open) => return,
            (Scope::Condition(what), _) => Effect::Restricts(what),
        };
        self.push(effect);
    }

    fn push(&mut self, effect: Effect) {
        // An effect under a condition applies only to some requests.
        let effect = match self
            .scopes
            .iter()
            .rev()
            .find_map(|access| match &access.scope {
                Scope::Condition(what) => Some(what),
                _ => None,
            }) {
            Some(what) if effect != Effect::Rewrites => Effect::Restricts(what.clone()),
            _ => effect,
        };
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }
}

/// Which clients are allowed.
enum Verdict {
    Nothing,
    Open,
    Denied,
    Some(String),
}

impl Access {
    fn new(scope: Scope) -> Self {
        Self {
            scope,
            requires: Vec::new(),
            container: false,
            allow_then_deny: None,
            allows: Vec::new(),
            denies: Vec::new(),
        }
    }

    /// One matching `Require` is enough; the rules of mod_access_compat count in addition.
    fn verdict(&self) -> Verdict {
        let compat = self.compat();
        let is = |text: &str| self.requires.iter().any(|require| require == text);
        let others = self
            .requires
            .iter()
            .find(|require| !matches!(require.as_str(), "all denied" | "all granted"));
        let required = match (others, self.container) {
            _ if is("all granted") => Verdict::Open,
            (Some(require), _) => Verdict::Some(match require.split(' ').next() {
                Some("valid-user" | "user" | "group" | "ldap-user" | "ldap-group") => {
                    "password".into()
                }
                Some("ip" | "host" | "local" | "forward-dns") => "address".into(),
                _ => "a condition".into(),
            }),
            (None, true) => Verdict::Some("a condition".into()),
            (None, false) if is("all denied") => Verdict::Denied,
            (None, false) => Verdict::Nothing,
        };
        match (required, compat) {
            (Verdict::Denied, _) | (_, Verdict::Denied) => Verdict::Denied,
            (Verdict::Some(how), _) | (_, Verdict::Some(how)) => Verdict::Some(how),
            (Verdict::Nothing, Verdict::Nothing) => Verdict::Nothing,
            _ => Verdict::Open,
        }
    }

    fn compat(&self) -> Verdict {
        let all = |list: &[String]| list.iter().any(|who| who == "all");
        let strict = self.allow_then_deny == Some(true);
        let (allows, denies) = (all(&self.allows), all(&self.denies));
        if self.allow_then_deny.is_none() && self.allows.is_empty() && self.denies.is_empty() {
            return Verdict::Nothing;
        }
        match strict {
            // Deny wins; clients that are not named are denied.
            true if denies || self.allows.is_empty() => Verdict::Denied,
            true if allows && self.denies.is_empty() => Verdict::Open,
            // Allow wins; clients that are not named are allowed.
            false if allows || self.denies.is_empty() => Verdict::Open,
            false if denies && self.allows.is_empty() => Verdict::Denied,
            _ => Verdict::Some("address".into()),
        }
    }
}

fn is_php(word: &str) -> bool {
    let word = word.trim_start_matches('.').to_ascii_lowercase();
    word.starts_with("php") || word.starts_with("phtml") || word.contains("x-httpd-php")
}

/// Lines without comments; a backslash at the end joins the next line.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.lines();
    std::iter::from_fn(move || {
        let mut line = rest.next()?.trim_end().to_owned();
        while line.ends_with('\\') {
            line.pop();
            match rest.next() {
                Some(more) => line.push_str(more.trim_end()),
                None => break,
            }
        }
        Some(line.trim().to_owned())
    })
    .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The words of a directive; quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            '"' | '\'' => {
                let inner = &rest[1..];
                let end = inner.find(first).unwrap_or(inner.len());
                (&inner[..end], inner.get(end + 1..).unwrap_or_default())
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                rest.split_at(end)
            }
        };
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    words
}
