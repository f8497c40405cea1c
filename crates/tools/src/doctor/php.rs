//! PHP's information about itself: its settings from `-i` of weir-php, run as the pool's user with the pool's php.ini.
//!
//! The pool's own `php_value` and the like are not included: they are set for each request.

use std::{
    collections::BTreeMap,
    io::Read,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use weir_config::{Checked, Config, Diagnostic, Severity};
use weir_sys::identity;

use super::people::{People, Who};

/// Why a PHP was not run.
const NOT_ASKED: &str = "not checked, because its pool has no user to run it";
/// Settings that load extensions; they are in no list.
const LOADING: [&str; 2] = ["extension", "zend_extension"];

/// The output of a PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Php {
    /// `8.2.29`
    pub(super) version: String,
    /// Settings by name.
    settings: BTreeMap<String, String>,
    /// Its messages during the start: syntax errors in php.ini, missing extensions.
    pub(super) complaints: Vec<String>,
}

impl Php {
    /// A setting; `None` if this PHP does not know it. "no value" becomes an empty text.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Parses the output of phpinfo(), and of standard error.
    pub(super) fn of(info: &str, errors: &str) -> Self {
        let mut settings = BTreeMap::new();
        let mut complaints: Vec<String> = Vec::new();
        let mut version = String::new();
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
        }
    }
}

/// Runs the PHP of each pool whose workers weir runs.
pub(super) fn ask(config: &Config, people: &People) -> Vec<Option<Result<Php, String>>> {
    let ask = |(index, pool): (usize, &weir_config::Pool)| {
        let php = pool.php()?;
        let program = match weir_machine::php::find(php.version.as_deref()) {
            Ok(found) => found,
            Err((cause, _)) => return Some(Err(cause)),
        };
        if let Err((cause, mend)) = weir_machine::php::check_build(program.file()) {
            return Some(Err(format!("{cause}; {mend}")));
        }
        let mut command = program.command(Vec::new());
        if php.no_ini {
            command.arg("-n");
        }
        if let Some(ini) = &php.ini {
            command.arg("-c").arg(ini);
        }
        for (name, value) in &php.define {
            command.arg("-d").arg(format!("{name}={value}"));
        }
        let who = people.pools.get(index).and_then(Option::as_ref);
        Some(run(command.arg("-i"), who).map_err(|error| format!("{}: {error}", program.shown())))
    };
    config.pools.iter().enumerate().map(ask).collect()
}

/// Problems with PHP in a configuration: it cannot be loaded, or has no such setting.
pub(super) fn troubles(
    checked: &Checked,
    asked: &[Option<Result<Php, String>>],
) -> Vec<Diagnostic> {
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
                push(
                    Severity::Error,
                    "runtime",
                    format!("PHP cannot be loaded: {error}"),
                    "`weir --version` names the PHP programs that weir can use; `weir fpm -v` runs one".into(),
                );
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
