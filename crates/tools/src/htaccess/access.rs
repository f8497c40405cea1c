//! Turns the directives of a `.htaccess` file into its effects.

use super::{About, Effect, Guard, Left, pattern};

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
        /// `denied` matches no more than the section.
        is_exact: bool,
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
    /// `Require …` in containers such as `<RequireAll>`, which are only understood as: not all clients are allowed.
    contained: Vec<String>,
    /// `Satisfy any`: what `Require` says does not matter for those whom `Allow` lets in.
    satisfies_any: bool,
    /// `Order allow,deny`: clients that are not named are denied.
    allow_then_deny: Option<bool>,
    allows: Vec<String>,
    denies: Vec<String>,
    /// Where all this was said: numbers and texts of lines.
    lines: Vec<(usize, String)>,
}

/// An open section.
struct Open {
    /// Whether its directives are used.
    active: bool,
    /// Whether it made its own scope.
    scoped: bool,
    name: String,
}

pub(super) fn effects(text: &str, folder: &str) -> (Vec<Effect>, Vec<Left>) {
    let mut reader = Reader {
        folder,
        scopes: vec![Access::new(Scope::Folder)],
        open: Vec::new(),
        effects: Vec::new(),
        left: Vec::new(),
        at: (0, String::new()),
        rewriting: false,
        conditions: Vec::new(),
        containers: 0,
    };
    for (number, line) in lines(text) {
        reader.at = (number, line.clone());
        reader.line(&line);
    }
    while let Some(access) = reader.scopes.pop() {
        reader.close(access);
    }
    reader.left.sort_by_key(|left| left.line);
    (reader.effects, reader.left)
}

struct Reader<'f> {
    folder: &'f str,
    scopes: Vec<Access>,
    open: Vec<Open>,
    effects: Vec<Effect>,
    left: Vec<Left>,
    /// Number and text of the current line.
    at: (usize, String),
    rewriting: bool,
    /// The arguments of each `RewriteCond`, which apply to the next rule.
    conditions: Vec<Vec<String>>,
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
                    is_exact: !is_expression || pattern::is_exact(&text),
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
            "if" => {
                scope =
                    Some(of_condition(argument).unwrap_or(Scope::Condition("a condition".into())));
            }
            "elseif" | "else" => scope = Some(Scope::Condition("a condition".into())),
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
        if self.access(name, &first, arguments) {
            return;
        }
        match name {
            "php_flag" | "php_admin_flag" if first == "engine" => {
                let value = arguments.get(1).map(|word| word.to_ascii_lowercase());
                if matches!(value.as_deref(), Some("off" | "0" | "false" | "no")) {
                    self.no_scripts();
                }
            }
            "removehandler" | "removetype" if arguments.iter().any(|word| is_php(word)) => {
                self.no_scripts();
            }
            // Another handler for PHP, for example of another version.
            "addhandler" | "addtype" | "sethandler"
                if arguments.iter().any(|word| is_php(word)) =>
            {
                self.effects.retain(|effect| *effect != Effect::NoScripts);
                self.leave(About::Other);
            }
            "sethandler" | "forcetype" if NO_HANDLERS.contains(&first.as_str()) => {
                self.no_scripts();
            }
            "rewriteengine" => self.rewriting = first == "on",
            "rewritecond" => self.conditions.push(arguments.to_vec()),
            "rewriterule" if self.rewriting => self.rewrite(arguments),
            "redirectmatch" => self.redirect(&first, arguments),
            "redirect" => self.redirect_prefix(&first, arguments),
            "redirectpermanent" | "redirecttemp" => self.push(Effect::Rewrites),
            "options" if !arguments.iter().any(|word| opens_more(word)) => {}
            _ if WITHOUT_EFFECT.contains(&name) => {}
            _ => self.leave(About::Other),
        }
    }

    /// Who may use the current scope. Returns whether the directive was about that.
    fn access(&mut self, name: &str, first: &str, arguments: &[String]) -> bool {
        let contained = self.containers > 0;
        let Some(access) = self.scopes.last_mut() else {
            return false;
        };
        match name {
            "require" => {
                let text = arguments.join(" ").to_ascii_lowercase();
                match contained && text != "all denied" {
                    true => access.contained.push(text),
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
            "satisfy" => access.satisfies_any = first == "any",
            _ => return false,
        }
        access.lines.push(self.at.clone());
        true
    }

    /// Scripts of the current scope do not run.
    fn no_scripts(&mut self) {
        let of_files = self
            .scopes
            .iter()
            .rev()
            .find_map(|access| match &access.scope {
                Scope::Files { denied, shown, .. } => Some((denied.clone(), shown.clone())),
                _ => None,
            });
        let Some((path, shown)) = of_files else {
            return self.push(Effect::NoScripts);
        };
        let Some(path) = path else {
            return self.push(Effect::Unclear(shown));
        };
        let regex = regex::Regex::new(&path);
        match regex.is_ok_and(|regex| regex.is_match(&format!("{}a-script.php", self.folder))) {
            true => self.push(Effect::NoScripts),
            false if path.contains("php") => self.push(Effect::DeniesFiles(path, shown)),
            false => {}
        }
    }

    fn rewrite(&mut self, arguments: &[String]) {
        let conditions = std::mem::take(&mut self.conditions);
        let [rule, _, rest @ ..] = arguments else {
            return;
        };
        let flags = flags(rest);
        if !flags.iter().any(|flag| REFUSING.contains(&flag.as_str())) {
            // A rule that changes nothing, for example one that sets a variable.
            return match arguments[1] == "-" {
                true => self.leave(About::Other),
                false => self.push(Effect::Rewrites),
            };
        }
        let shown = format!("URLs like {rule}");
        // A rule with `!` denies everything except what it matches.
        let is_for_hidden = !rule.starts_with('!') && pattern::is_for_hidden_files(rule, "");
        if is_for_hidden {
            return;
        }
        let ignores_case = has_no_case(&flags);
        let path = match rule.starts_with('!') {
            true => None,
            false => pattern::of_path(self.folder, rule, ignores_case),
        };
        let Some(path) = path else {
            return self.push(Effect::Unclear(format!("RewriteRule {rule}")));
        };
        if !pattern::is_exact(rule) {
            self.leave(About::Widened);
        }
        match self.exceptions(rule, &conditions) {
            None => self.push(Effect::Restricts(format!("a condition for {shown}"))),
            Some(Paths::All) => self.push(Effect::DeniesUrls(path, shown)),
            Some(Paths::But(open)) => self.push(Effect::DeniesUrlsBut(open, path, shown)),
            Some(Paths::These(paths)) => {
                for path in paths {
                    self.push(Effect::DeniesUrls(path, shown.clone()));
                }
            }
        }
    }

    /// Which of the paths of a denying rule its conditions are about. `None`: they are about more than the path.
    fn exceptions(&self, rule: &str, conditions: &[Vec<String>]) -> Option<Paths> {
        let (mut open, mut only) = (Vec::new(), Vec::new());
        let is_for_all = pattern::is_for_all_paths(rule);
        for condition in conditions {
            let [test, text, rest @ ..] = &condition[..] else {
                return None;
            };
            let flags = flags(rest);
            let test = test.to_ascii_uppercase();
            let is_or = flags.iter().any(|flag| flag == "or" || flag == "ornext");
            let of_file = ["%{REQUEST_FILENAME}", "%{SCRIPT_FILENAME}"].contains(&test.as_str());
            if of_file && ["-f", "-d", "-s", "-l", "-F"].contains(&text.as_str()) {
                // Without this condition, more is denied.
                continue;
            }
            // The end of a file's path is the end of its URL.
            let is_end = of_file && !text.trim_start_matches('!').starts_with('^');
            if test != "%{REQUEST_URI}" && !is_end || text.trim_start_matches('!').starts_with('-')
            {
                return None;
            }
            let ignores_case = has_no_case(&flags);
            match text.strip_prefix('!') {
                Some(text) if !is_or => {
                    let path = pattern::of_url(text, ignores_case, false)?;
                    open.push(path);
                }
                // Several of these are alternatives, or all must match: each of them denies more.
                None if is_for_all => only.push(pattern::of_url(text, ignores_case, true)?),
                None => {}
                Some(_) => return None,
            }
        }
        Some(match (open.is_empty(), only.is_empty()) {
            (true, true) => Paths::All,
            (true, false) => Paths::These(only),
            (false, true) => Paths::But(open),
            (false, false) => return None,
        })
    }

    /// `Redirect 403 /conf`: a path and what is below it.
    fn redirect_prefix(&mut self, status: &str, arguments: &[String]) {
        let path = arguments
            .get(1)
            .filter(|_| REFUSING_STATUSES.contains(&status));
        let Some(path) = path else {
            return self.push(Effect::Rewrites);
        };
        let expression = format!("^{}(?:/.*)?$", pattern::literal(path.trim_end_matches('/')));
        self.push(Effect::DeniesUrls(expression, format!("URLs below {path}")));
    }

    /// Matches the whole URL path, unlike a RewriteRule.
    fn redirect(&mut self, status: &str, arguments: &[String]) {
        if !REFUSING_STATUSES.contains(&status) {
            return self.push(Effect::Rewrites);
        }
        let Some(rule) = arguments.get(1) else {
            return;
        };
        if pattern::is_for_hidden_files(rule, "/") {
            return;
        }
        let shown = format!("URLs like {rule}");
        if !pattern::is_exact(rule) {
            self.leave(About::Widened);
        }
        self.push(match pattern::of_url(rule, false, true) {
            Some(path) => Effect::DeniesUrls(path, shown),
            None => Effect::Unclear(format!("RedirectMatch {rule}")),
        });
    }

    fn close(&mut self, access: Access) {
        for guard in [Guard::Require, Guard::Order] {
            let Some(effect) = access.effect(guard) else {
                continue;
            };
            let is_wide = matches!(effect, Effect::DeniesFiles(..)) && !access.is_exact();
            for at in &access.lines {
                self.at = at.clone();
                self.push(effect.clone());
                if is_wide {
                    self.leave(About::Widened);
                }
            }
        }
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
        match &effect {
            Effect::Restricts(_) | Effect::Unclear(_) => self.leave(About::Access),
            Effect::LetsSomeIn(..) => self.leave(About::SomeClients),
            Effect::Rewrites => self.leave(About::Rewriting),
            _ => {}
        }
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }

    /// Notes that the current line has no equivalent.
    fn leave(&mut self, about: About) {
        let (line, text) = self.at.clone();
        if let Some(known) = self.left.iter_mut().find(|left| left.line == line) {
            // What is not refused matters more than what is refused too widely.
            if known.about == About::Widened {
                known.about = about;
            }
        } else if self.left.len() < MOST_LEFT {
            self.left.push(Left { line, text, about });
        }
    }
}

/// Which paths of a rule are denied.
enum Paths {
    All,
    /// All but these.
    But(Vec<String>),
    /// These alone.
    These(Vec<String>),
}

/// Which clients are allowed.
enum Verdict {
    Nothing,
    Open,
    Denied,
    /// Nobody but some.
    Some(String),
    /// Everybody but some.
    Most(String),
}

impl Access {
    fn new(scope: Scope) -> Self {
        Self {
            scope,
            requires: Vec::new(),
            contained: Vec::new(),
            satisfies_any: false,
            allow_then_deny: None,
            allows: Vec::new(),
            denies: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// What is denied and allowed by one of the two guards, which must both let a client in.
    fn effect(&self, guard: Guard) -> Option<Effect> {
        let verdict = match (guard, self.required(), self.compat()) {
            (_, Verdict::Denied | Verdict::Some(_), Verdict::Open)
            | (_, Verdict::Open, Verdict::Denied | Verdict::Some(_))
                if self.satisfies_any =>
            {
                Verdict::Open
            }
            (Guard::Require, required, _) => required,
            (Guard::Order, _, compat) => compat,
        };
        Some(match (&self.scope, verdict) {
            (_, Verdict::Nothing) => return None,
            (Scope::Folder, Verdict::Denied) => Effect::DeniesAll(guard),
            (Scope::Folder, Verdict::Open) => Effect::Opens(guard),
            (Scope::Folder, Verdict::Some(how)) => Effect::LetsSomeIn(None, how),
            (Scope::Folder, Verdict::Most(how)) => Effect::Restricts(how),
            (Scope::Files { denied, shown, .. }, Verdict::Denied) => match denied {
                Some(path) => Effect::DeniesFiles(path.clone(), shown.clone()),
                None => Effect::Unclear(shown.clone()),
            },
            (Scope::Files { open, shown, .. }, Verdict::Open) => {
                Effect::OpensFiles(guard, open.clone()?, shown.clone())
            }
            (Scope::Files { denied, shown, .. }, Verdict::Some(how)) => match denied {
                Some(path) => Effect::LetsSomeIn(Some(path.clone()), format!("{how} for {shown}")),
                None => Effect::Unclear(shown.clone()),
            },
            (Scope::Files { shown, .. }, Verdict::Most(how)) => {
                Effect::Restricts(format!("{how} for {shown}"))
            }
            (Scope::Condition(_), Verdict::Open) => return None,
            (Scope::Condition(what), _) => Effect::Restricts(what.clone()),
        })
    }

    fn is_exact(&self) -> bool {
        !matches!(
            self.scope,
            Scope::Files {
                is_exact: false,
                ..
            }
        )
    }

    /// One matching `Require` is enough.
    fn required(&self) -> Verdict {
        let is = |text: &str| self.requires.iter().any(|require| require == text);
        let others = self
            .requires
            .iter()
            .find(|require| !matches!(require.as_str(), "all denied" | "all granted"));
        match others {
            _ if is("all granted") => Verdict::Open,
            Some(require) => Verdict::Some(kind_of(require)),
            None if self
                .contained
                .iter()
                .any(|require| require == "all granted") =>
            {
                Verdict::Most("a condition".into())
            }
            None if !self.contained.is_empty() => Verdict::Some("a condition".into()),
            None if is("all denied") => Verdict::Denied,
            None => Verdict::Nothing,
        }
    }

    /// `Order`, `Allow` and `Deny`.
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
            true if allows => Verdict::Most("address".into()),
            // Allow wins; clients that are not named are allowed.
            false if allows || self.denies.is_empty() => Verdict::Open,
            false if denies && self.allows.is_empty() => Verdict::Denied,
            false if !denies => Verdict::Most("address".into()),
            _ => Verdict::Some("address".into()),
        }
    }
}

/// `<If "%{REQUEST_URI} =~ m#…#">`, a section for URLs. `None`: it is for something else.
fn of_condition(argument: &str) -> Option<Scope> {
    let (what, expression) = argument.trim_matches('"').split_once("=~")?;
    if what.trim() != "%{REQUEST_URI}" {
        return None;
    }
    let expression = expression.trim().trim_start_matches('m');
    let delimiter = expression.chars().next()?;
    let (expression, flags) = expression[delimiter.len_utf8()..].rsplit_once(delimiter)?;
    let denied = pattern::of_url(expression, flags.contains('i'), true)?;
    Some(Scope::Files {
        denied: Some(denied),
        open: None,
        shown: format!("URLs like {expression}"),
        is_exact: pattern::is_exact(expression),
    })
}

/// What a `Require` asks of clients.
fn kind_of(require: &str) -> String {
    match require.split(' ').next() {
        Some("valid-user" | "user" | "group" | "ldap-user" | "ldap-group") => "password".into(),
        Some("ip" | "host" | "local" | "forward-dns") => "address".into(),
        _ => "a condition".into(),
    }
}

/// The flags of a RewriteRule or a RewriteCond, in lower case.
fn flags(words: &[String]) -> Vec<String> {
    let text = words.concat().to_ascii_lowercase();
    let inner = text.trim_matches(['[', ']']).split(',');
    inner.map(|flag| flag.trim().to_owned()).collect()
}

fn has_no_case(flags: &[String]) -> bool {
    flags
        .iter()
        .any(|flag| ["nc", "nocase"].contains(&flag.as_str()))
}

/// Whether a word of `Options` allows something that weir does not do by itself.
fn opens_more(word: &str) -> bool {
    let word = word.trim_start_matches('+').to_ascii_lowercase();
    ["includes", "includesnoexec", "execcgi", "all", "indexes"].contains(&word.as_str())
}

fn is_php(word: &str) -> bool {
    let word = word.trim_start_matches('.').to_ascii_lowercase();
    word.starts_with("php") || word.starts_with("phtml") || word.contains("x-httpd-php")
}

/// Lines without comments, with their numbers; a backslash at the end joins the next line.
fn lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut rest = text.lines().zip(1..);
    std::iter::from_fn(move || {
        let (line, number) = rest.next()?;
        let mut line = line.trim_end().to_owned();
        while line.ends_with('\\') {
            line.pop();
            match rest.next() {
                Some((more, _)) => line.push_str(more.trim_end()),
                None => break,
            }
        }
        Some((number, line.trim().to_owned()))
    })
    .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
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

/// Handlers and types with which a script is sent as it is.
const NO_HANDLERS: [&str; 5] = [
    "none",
    "default-handler",
    "default",
    "text/plain",
    "application/octet-stream",
];
/// Statuses of redirects that refuse.
const REFUSING_STATUSES: [&str; 4] = ["403", "404", "410", "gone"];
/// Flags of rules that refuse.
const REFUSING: [&str; 9] = [
    "f",
    "forbidden",
    "g",
    "gone",
    "r=403",
    "r=404",
    "r=410",
    "redirect=403",
    "redirect=404",
];
/// Directives that weir needs no equivalent for: what they ask for is always so.
const WITHOUT_EFFECT: [&str; 12] = [
    "adddefaultcharset",
    "authbasicprovider",
    "authgroupfile",
    "authname",
    "authtype",
    "authuserfile",
    "directoryslash",
    "fileetag",
    "indexignore",
    "indexoptions",
    "rewritebase",
    "serversignature",
];
/// Maximum number of lines without an equivalent that are kept of a file.
const MOST_LEFT: usize = 200;
