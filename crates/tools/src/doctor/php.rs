//! PHP's information about itself: its settings from `-i` of weir-php, run as the pool's user with the pool's php.ini.
//!
//! The pool's own `php_value` and the like are not included: they are set for each request.

use std::{
    collections::{BTreeMap, HashMap},
    io::{IsTerminal, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use weir_config::{Checked, Config, Diagnostic, Severity};
use weir_observe::console;
use weir_sys::identity;

use super::{
    people::{People, Who},
    rights::{self, Need},
};

/// Why a PHP was not run.
const NOT_ASKED: &str = "not checked, because its pool has no user to run it";
/// Settings that load extensions; they are in no list.
const LOADING: [&str; 2] = ["extension", "zend_extension"];

/// The row of `-l` (php/cli.c).
const LOAD: &str = "Load that pools may share";

/// The output of a PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Php {
    /// `8.2.29`
    pub(super) version: String,
    /// Settings by name.
    settings: BTreeMap<String, String>,
    /// Its messages during the start: syntax errors in php.ini, missing extensions.
    pub(super) complaints: Vec<String>,
    /// The files that it has read besides php.ini.
    scanned: Vec<PathBuf>,
}

impl Php {
    /// A setting; `None` if this PHP does not know it. "no value" becomes an empty text.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Why pools cannot share a load of it; `None`: they can.
    pub(super) fn needs_own_load(&self) -> Option<&str> {
        self.setting(LOAD).filter(|said| *said != "yes")
    }

    /// The files and folders that PHP reports to read at its start.
    fn files(&self) -> Vec<(PathBuf, Need)> {
        let named = |name: &str| self.setting(name).filter(|path| path.starts_with('/'));
        let ini = named("Loaded Configuration File").map(|path| (path.into(), Need::Read));
        let folders = ["Scan this dir for additional .ini files", "extension_dir"];
        let folders = folders.into_iter().filter_map(named);
        let more = self.scanned.iter().map(|path| (path.into(), Need::Read));
        ini.into_iter()
            .chain(folders.map(|path| (path.into(), Need::Enter)))
            .chain(more)
            .collect()
    }

    /// Parses the output of phpinfo(), and of standard error.
    pub(super) fn of(info: &str, errors: &str) -> Self {
        let mut settings = BTreeMap::new();
        let mut complaints: Vec<String> = Vec::new();
        let mut version = String::new();
        let scanned = scanned(info);
        for line in info.lines() {
            let mut fields = line.split(" => ");
            let (Some(name), Some(value)) = (fields.next(), fields.next()) else {
                complaints.extend(complaint(line));
                continue;
            };
            let value = match value {
                "no value" => "",
                value => value,
            };
            if name == "PHP Version" && version.is_empty() {
                version = value.to_owned();
            }
            // Each setting has two values, and the first one is effective; later lines with the name belong to other
            // tables.
            settings
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        for line in errors.lines() {
            complaints.extend(complaint(line));
        }
        complaints.sort();
        complaints.dedup();
        Self {
            version,
            settings,
            complaints,
            scanned,
        }
    }
}

/// The list of additional files, which is one to a line, with commas.
fn scanned(info: &str) -> Vec<PathBuf> {
    let Some((_, list)) = info.split_once("Additional .ini files parsed => ") else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for line in list.lines() {
        let (path, more) = match line.trim().strip_suffix(',') {
            Some(path) => (path, true),
            None => (line.trim(), false),
        };
        files.extend(path.starts_with('/').then(|| path.into()));
        if !more {
            break;
        }
    }
    files
}

/// What a PHP says, or why it says nothing.
pub(super) type Answer = Result<Arc<Php>, String>;

/// Asks the PHP of each pool whose workers weir runs. Pools that would get the same answer share one: a machine may have a
/// thousand of them. `php_starts` of `[server]` says how many run at the same time.
pub(super) fn ask(config: &Config, people: &People) -> Vec<Option<Answer>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut by_start: HashMap<Start<'_>, usize> = HashMap::new();
    for (index, pool) in config.pools.iter().enumerate() {
        let Some(php) = pool.php() else {
            continue;
        };
        let start = Start::of(php);
        let group = *by_start.entry(start).or_insert_with(|| {
            groups.push(Group {
                start,
                pools: Vec::new(),
            });
            groups.len() - 1
        });
        let who = people.pools.get(index).and_then(Option::as_ref);
        groups[group].pools.push((index, who));
    }
    let at_once = match config.server.php_starts {
        0 => thread::available_parallelism().map_or(2, |cores| cores.get().max(2)),
        starts => starts,
    };
    let progress = Progress::of(config.pools.len());
    let answers = Mutex::new(vec![None; config.pools.len()]);
    // First one user of each group. Further users are asked only if they may not read the files that the first user has
    // read.
    let rest = Mutex::new(Vec::new());
    in_parallel(at_once, groups, |group| {
        let (answer, others) = group.ask_first(&progress);
        lock(&rest).extend(others);
        let mut answers = lock(&answers);
        for (index, answer) in answer {
            answers[index] = Some(answer);
        }
    });
    let rest = rest.into_inner().unwrap_or_else(PoisonError::into_inner);
    in_parallel(at_once, rest, |(start, index, who)| {
        let answer = start.ask(who);
        progress.done(1);
        lock(&answers)[index] = Some(answer);
    });
    progress.end();
    answers.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How a PHP is started. Two PHPs with equal values give the same information, if their users may read the same files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Start<'c> {
    version: Option<&'c str>,
    no_ini: bool,
    ini: Option<&'c Path>,
    define: &'c [(String, String)],
}

/// Pools whose PHP is started in the same way, with their users.
struct Group<'c> {
    start: Start<'c>,
    pools: Vec<(usize, Option<&'c Who>)>,
}

/// Whether the answer holds for a pool with this user.
type IsLike<'a> = Box<dyn Fn(Option<&Who>) -> bool + 'a>;

/// A pool that needs a PHP of its own.
type Alone<'c> = (Start<'c>, usize, Option<&'c Who>);

impl<'c> Group<'c> {
    /// Runs the PHP of one pool. Returns its answer for each pool for which it holds, and the other pools.
    fn ask_first(self, progress: &Progress) -> (Vec<(usize, Answer)>, Vec<Alone<'c>>) {
        let (start, pools) = (self.start, self.pools);
        let has_user = |(_, who): &&(usize, Option<&Who>)| who.is_some();
        let Some((_, asked)) = pools.iter().find(has_user).or(pools.first()).copied() else {
            return Default::default();
        };
        let answer = start.ask(asked);
        let user = |who: Option<&Who>| who.map(|who| (who.identity.uid, who.identity.gid));
        let is_other = |(_, who): &&(usize, Option<&Who>)| user(*who) != user(asked);
        let is_like: IsLike<'_> = match &answer {
            Ok(php) => {
                let files = php.files();
                let of_asked = asked.map(|asked| rights::may_all(asked, &files));
                Box::new(move |who| who.map(|who| rights::may_all(who, &files)) == of_asked)
            }
            // A PHP that fails for two users fails for all of them.
            Err(_) => {
                let second = pools.iter().filter(has_user).find(is_other);
                let fails = second.is_some_and(|(_, who)| start.ask(*who).is_err());
                Box::new(move |who| fails && who.is_some())
            }
        };
        let is_like = |who| user(who) == user(asked) || is_like(who);
        let (like, others): (Vec<_>, Vec<_>) =
            pools.iter().copied().partition(|(_, who)| is_like(*who));
        progress.done(like.len());
        let answers = like.into_iter().map(|(index, _)| (index, answer.clone()));
        let others = others.into_iter().map(|(index, who)| (start, index, who));
        (answers.collect(), others.collect())
    }
}

impl<'c> Start<'c> {
    fn of(php: &'c weir_config::Php) -> Self {
        Self {
            version: php.version.as_deref(),
            no_ini: php.no_ini,
            ini: php.ini.as_deref(),
            define: &php.define,
        }
    }

    /// Runs it as `who`.
    fn ask(&self, who: Option<&Who>) -> Answer {
        let program = weir_machine::php::find(self.version).map_err(|(cause, _)| cause)?;
        if let Err((cause, mend)) = weir_machine::php::check_build(&program.object) {
            return Err(format!("{cause}; {mend}"));
        }
        let mut command = program.command(Vec::new());
        if self.no_ini {
            command.arg("-n");
        }
        if let Some(ini) = self.ini {
            command.arg("-c").arg(ini);
        }
        for (name, value) in self.define {
            command.arg("-d").arg(format!("{name}={value}"));
        }
        match run(command.args(["-i", "-l"]), who) {
            Ok(php) => Ok(Arc::new(php)),
            Err(error) => Err(format!("{}: {error}", program.shown())),
        }
    }
}

/// Gives each of `works` to `work`, on up to `most` threads.
fn in_parallel<T: Send>(most: usize, works: Vec<T>, work: impl Fn(T) + Sync) {
    let threads = most.min(works.len());
    let works = Mutex::new(works.into_iter());
    let next = || lock(&works).next();
    let until_none_is_left = || {
        while let Some(one) = next() {
            work(one);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(until_none_is_left);
        }
        until_none_is_left();
    });
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the progress on a terminal, if the check takes long.
struct Progress {
    all: usize,
    done: AtomicUsize,
    began: Instant,
    /// Whether a line was written.
    shown: AtomicBool,
}

impl Progress {
    fn of(all: usize) -> Self {
        Self {
            all,
            done: AtomicUsize::new(0),
            began: Instant::now(),
            shown: AtomicBool::new(false),
        }
    }

    fn done(&self, more: usize) {
        let done = self.done.fetch_add(more, Relaxed) + more;
        if done < self.all && self.began.elapsed() > QUICK && std::io::stderr().is_terminal() {
            self.shown.store(true, Relaxed);
            console::say(format_args!(
                "\rPHP was asked for {done} of {} pools",
                self.all
            ));
        }
    }

    fn end(&self) {
        if self.shown.load(Relaxed) {
            // Erases the line (ECMA-48, EL).
            console::say("\r\x1b[K");
        }
    }
}

/// What the kernel's error is called if a user may not execute a program.
const DENIED: &str = "Permission denied (os error 13)";

/// Problems with PHP in a configuration: it cannot be loaded, or has no such setting.
pub(super) fn troubles(checked: &Checked, asked: &[Option<Answer>]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (pool, asked) in checked.config.pools.iter().zip(asked) {
        let (Some(settings), Some(asked)) = (pool.php(), asked) else {
            continue;
        };
        let mut push = |severity, key: &str, message: String, hint: String| {
            found.push(Diagnostic {
                severity,
                span: checked.places.of(&format!("pool.{}.{key}", pool.name)),
                message,
                hint: Some(hint),
            });
        };
        let php = match asked {
            Ok(php) => php,
            // Another user may start weir.
            Err(error) if error.contains(NOT_ASKED) => continue,
            Err(error) => {
                let key = match settings.version {
                    Some(_) => "php",
                    None => "runtime",
                };
                let hint = match error.contains(DENIED) {
                    true => {
                        "the pool's user must be able to execute it, and to enter the folders on the way to it"
                    }
                    false => {
                        "`weir --version` names the PHP programs that weir can use; `weir fpm -v` runs one"
                    }
                };
                let message = format!("PHP cannot be loaded: {error}");
                push(Severity::Error, key, message, hint.into());
                continue;
            }
        };
        let written = settings.settings.iter().map(|setting| {
            let key = match (setting.admin, setting.flag) {
                (false, false) => "php_value",
                (false, true) => "php_flag",
                (true, false) => "php_admin_value",
                (true, true) => "php_admin_flag",
            };
            (key, setting.name.as_str())
        });
        let defined = settings
            .define
            .iter()
            .map(|(name, _)| ("php_define", name.as_str()));
        for (key, name) in written.chain(defined) {
            if php.setting(name).is_some() || LOADING.contains(&name) {
                continue;
            }
            let known = php.settings.keys().map(String::as_str);
            let hint = match weir_config::nearest_name(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "it may belong to an extension that is not loaded; `php -i` lists all settings"
                        .to_owned()
                }
            };
            let message = format!("PHP {} has no setting `{name}`", php.version);
            push(Severity::Warning, key, message, hint);
        }
    }
    found
}

/// Never as root, because extensions named in php.ini are loaded.
fn run(command: &mut Command, who: Option<&Who>) -> Result<Php, String> {
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if identity::is_root() {
        let Some(who) = who.filter(|who| !who.is_root()) else {
            return Err(NOT_ASKED.into());
        };
        command.gid(who.identity.gid).uid(who.identity.uid);
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let told = reader(child.stdout.take());
    let complained = reader(child.stderr.take());
    let status = wait(&mut child)?;
    let info = told.join().unwrap_or_default();
    let errors = complained.join().unwrap_or_default();
    match info.is_empty() {
        true => Err(match errors.lines().next() {
            Some(first) => first.to_owned(),
            None => format!("it printed nothing and ended with {status}"),
        }),
        false => Ok(Php::of(&info, &errors)),
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // The part that was read is used, even after an error.
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus, String> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if began.elapsed() < PATIENCE => thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = PATIENCE.as_secs();
                return Err(format!(
                    "it gave no answer within {seconds} s and was stopped"
                ));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// A line with a message of PHP; other lines are ignored.
fn complaint(line: &str) -> Option<String> {
    let line = line.trim();
    let text = line.strip_prefix("PHP").unwrap_or(line);
    let text = text.trim_start_matches([':', ' ']);
    let bad = [
        "Warning",
        "Fatal error",
        "Parse error",
        "Deprecated",
        "syntax error",
    ];
    bad.iter()
        .any(|word| text.starts_with(word))
        .then(|| text.to_owned())
}

/// A size in php.ini's notation, bytes; `None`: no limit, or not a size.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        Some((at, unit)) => (&text[..at], Some(unit.to_ascii_uppercase())),
        None => (text, None),
    };
    let number: u64 = digits.parse().ok()?;
    let shift = match unit {
        None => 0,
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some(_) => return None,
    };
    number.checked_mul(1 << shift).filter(|size| *size > 0)
}

/// PHP usually starts at once; on a busy machine it takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// If the check takes longer, the progress is shown.
const QUICK: Duration = Duration::from_secs(1);

/// Pause between two checks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);

/// phpinfo() prints some hundred KiB.
const MAX_OUTPUT: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_complaints_are_read_from_what_php_prints() {
        let info = "phpinfo()\nPHP Version => 8.2.29\n\nmemory_limit => 128M => 256M\nopen_basedir => no value => no value\n\
                    Warning: PHP Startup: Unable to load dynamic library 'x.so' in Unknown on line 0\n";
        let errors = "PHP:  syntax error, unexpected '(' in /etc/php.ini on line 3\nnothing\n";
        let php = Php::of(info, errors);
        assert_eq!(php.version, "8.2.29");
        assert_eq!(php.setting("memory_limit"), Some("128M"));
        assert_eq!(php.setting("open_basedir"), Some(""));
        assert_eq!(php.setting("nothing"), None);
        assert_eq!(php.complaints.len(), 2, "{:?}", php.complaints);
        assert!(
            php.complaints[1].starts_with("syntax error"),
            "{:?}",
            php.complaints
        );
    }

    #[test]
    fn sizes_are_read_as_php_reads_them() {
        assert_eq!(size("128M"), Some(128 << 20));
        assert_eq!(size("1g"), Some(1 << 30));
        assert_eq!(size("512"), Some(512));
        assert_eq!(size("-1"), None);
        assert_eq!(size("0"), None);
        assert_eq!(size("lots"), None);
    }

    #[test]
    fn a_program_that_says_nothing_or_is_not_there_is_told() {
        let who = Who::named("nobody", None);
        let error = run(&mut Command::new("/no/such/program"), who.as_ref()).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
        let error = run(&mut Command::new("true"), who.as_ref()).unwrap_err();
        assert!(error.contains("printed nothing"), "{error}");
    }
}
