//! Reads the files of php-fpm.conf into `[global]` and pools, or reports PHP-FPM's messages about errors.

use super::Level;
use super::{
    Diagnostics, Message, Options, System,
    directives::{GLOBAL, Global, POOL, Pool, boolean, text},
    line::{self, Meaning, Statement},
    paths::full_path,
};

/// The content of the files, not yet checked.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) global: Global,
    pub(super) pools: Vec<Pool>,
}

/// The file is not accepted. The reason was reported.
pub(super) struct Failed;

/// Reads `file` and what it includes.
pub(super) fn load(
    file: &str,
    options: &Options,
    system: &dyn System,
    diagnostics: &mut Diagnostics,
) -> Result<Loaded, Failed> {
    let mut loader = Loader {
        options,
        system,
        diagnostics,
        loaded: Loaded {
            global: Global::new(),
            pools: Vec::new(),
        },
        pool: None,
        include: None,
        depth: 0,
    };
    loader.file(file)?;
    Ok(loader.loaded)
}

struct Loader<'a> {
    options: &'a Options,
    system: &'a dyn System,
    diagnostics: &'a mut Diagnostics,
    loaded: Loaded,
    /// The pool of the current section. `None`: `[global]`.
    pool: Option<usize>,
    /// The value of `include` in the current line.
    include: Option<String>,
    depth: usize,
}

/// A place in a file: `[file:line] `.
struct Position<'a> {
    file: &'a str,
    line: usize,
}

impl Loader<'_> {
    fn file(&mut self, file: &str) -> Result<(), Failed> {
        if file.is_empty() {
            return Err(self.error("configuration filename is empty".into()));
        }
        let content = match self.system.read(file) {
            Ok(content) => content,
            Err(error) => {
                let message = Message::system(
                    format!("failed to open configuration file '{file}'"),
                    &error,
                );
                self.diagnostics.push(message);
                return Err(Failed);
            }
        };
        if self.depth > DEEPEST {
            let message = format!(
                "failed to include more than {} files recursively",
                DEEPEST + 1
            );
            return Err(self.error(message));
        }
        self.depth += 1;
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let place = Position {
                file,
                line: index + 1,
            };
            self.line(line, &place)?;
            if let Some(pattern) = self.include.take() {
                self.includes(&pattern, &place)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn line(&mut self, text: &[u8], place: &Position<'_>) -> Result<(), Failed> {
        let mut line = text.to_vec();
        line.push(b'\n');
        let variable = |name: &str| self.system.variable(name);
        let meaning = Meaning {
            variable: &variable,
            fallbacks: self.options.php >= (8, 3),
        };
        let (statements, mistake) = line::read(&line, &meaning);
        let mut failed = None;
        for statement in statements {
            let taken = match statement {
                Statement::Section(name) => self.section(&name, place),
                Statement::Entry(name, value) => self.entry(&name, value.as_deref(), place),
                Statement::Element { name, key, value } => self.element(&name, &key, &value, place),
            };
            if taken.is_err() {
                // PHP parses the rest of the line, but uses nothing of it.
                failed = Some(Failed);
                break;
            }
        }
        if let Some(mistake) = mistake {
            self.diagnostics.push(Message::of_php(&mistake));
            failed = Some(Failed);
        }
        match failed {
            Some(failed) => Err(failed),
            None => Ok(()),
        }
    }

    fn includes(&mut self, pattern: &str, place: &Position<'_>) -> Result<(), Failed> {
        let pattern = full_path(pattern, None, self.options, "/usr");
        let (file, line) = (place.file, place.line);
        let files = match self.system.glob(&pattern) {
            Ok(files) => files,
            Err(code) => {
                let message = format!(
                    "Unable to globalize '{pattern}' (ret={code}) from {file} at line {line}."
                );
                return Err(self.error(message));
            }
        };
        if files.is_empty() {
            let message = format!(
                "Nothing matches the include pattern '{pattern}' from {file} at line {line}."
            );
            self.diagnostics.push(Message::new(Level::Warning, message));
        }
        for included in files.iter().filter(|path| !path.ends_with('/')) {
            if self.file(included).is_err() {
                let message = format!("Unable to include {included} from {file} at line {line}");
                return Err(self.error(message));
            }
        }
        Ok(())
    }

    fn section(&mut self, name: &[u8], place: &Position<'_>) -> Result<(), Failed> {
        if name.eq_ignore_ascii_case(b"global") {
            self.pool = None;
            return Ok(());
        }
        let Ok(name) = str::from_utf8(name) else {
            return Err(self.at(place, "the pool's name is not UTF-8".into()));
        };
        let known = self.loaded.pools.iter();
        let known = known
            .clone()
            .position(|pool| pool.name.eq_ignore_ascii_case(name));
        self.pool = Some(known.unwrap_or_else(|| {
            self.loaded.pools.push(Pool::new(name.to_owned()));
            self.loaded.pools.len() - 1
        }));
        Ok(())
    }

    fn entry(
        &mut self,
        name: &[u8],
        value: Option<&[u8]>,
        place: &Position<'_>,
    ) -> Result<(), Failed> {
        let Some(value) = value else {
            let message = "value is NULL for a ZEND_INI_PARSER_ENTRY";
            return Err(self.at(place, message.into()));
        };
        if name == b"include" {
            if self.include.is_some() {
                return Err(self.at(place, "two includes at the same time !".into()));
            }
            let Ok(pattern) = str::from_utf8(value) else {
                return Err(self.at(place, "the pattern of include is not UTF-8".into()));
            };
            self.include = Some(pattern.to_owned());
            return Ok(());
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let taken = match self.pool.and_then(|at| self.loaded.pools.get_mut(at)) {
            None => GLOBAL
                .iter()
                .find(|(known, _)| is(known))
                .map(|(known, slot)| (*known, slot.set(&mut self.loaded.global, value, None))),
            Some(pool) => {
                let pool_name = pool.name.clone();
                POOL.iter()
                    .find(|(known, _)| is(known))
                    .map(|(known, slot)| (*known, slot.set(pool, value, Some(&pool_name))))
            }
        };
        let message = match taken {
            Some((_, Ok(()))) => return Ok(()),
            Some((known, Err(why))) => {
                format!("unable to parse value for entry '{known}': {why}")
            }
            None => format!("unknown entry '{}'", String::from_utf8_lossy(name)),
        };
        Err(self.at(place, message))
    }

    fn element(
        &mut self,
        name: &[u8],
        key: &[u8],
        value: &[u8],
        place: &Position<'_>,
    ) -> Result<(), Failed> {
        let shown = String::from_utf8_lossy(name).into_owned();
        let mut wrong = Vec::new();
        if name == b"access.suppress_path" {
            if !key.is_empty() {
                wrong.push("Keys provided to field 'access.suppress_path' are ignored".to_owned());
            }
            if !value.starts_with(b"/") {
                wrong.push(
                    "Values provided to field 'access.suppress_path' must begin with '/'"
                        .to_owned(),
                );
            }
        } else if key.is_empty() {
            wrong.push(format!("You must provide a key for field '{shown}'"));
        }
        if !wrong.is_empty() {
            let mut failed = Failed;
            for message in wrong {
                failed = self.at(place, message);
            }
            return Err(failed);
        }
        let Some(pool) = self.pool.and_then(|at| self.loaded.pools.get_mut(at)) else {
            let message = "Array are not allowed in the global section";
            return Err(self.at(place, message.into()));
        };
        let pool_name = pool.name.clone();
        let as_text = |value| text(value, Some(&pool_name));
        let as_flag = |value| boolean(value).map(|on| if on { "1" } else { "0" }.to_owned());
        let (list, value) = match name {
            b"env" if value.is_empty() => {
                return Err(self.at(place, "empty value".into()));
            }
            b"env" => (&mut pool.env, as_text(value)),
            b"php_value" => (&mut pool.php_values, as_text(value)),
            b"php_admin_value" => (&mut pool.php_admin_values, as_text(value)),
            b"php_flag" => (&mut pool.php_values, as_flag(value)),
            b"php_admin_flag" => (&mut pool.php_admin_values, as_flag(value)),
            b"access.suppress_path" => {
                let taken = as_text(value);
                return match taken {
                    Ok(path) => {
                        pool.access_suppress_path.insert(0, path);
                        Ok(())
                    }
                    Err(why) => {
                        Err(self.at(place, format!("error while parsing '{shown}[]' : {why}")))
                    }
                };
            }
            _ => return Err(self.at(place, format!("unknown directive '{shown}'"))),
        };
        let key_text = str::from_utf8(key).map_err(|_| "its name is not UTF-8");
        match (key_text, value) {
            (Ok(key), Ok(value)) => {
                list.insert(0, (key.to_owned(), value));
                Ok(())
            }
            (Err(why), _) | (_, Err(why)) => {
                let key = String::from_utf8_lossy(key);
                let message = format!("error while parsing '{shown}[{key}]' : {why}");
                Err(self.at(place, message))
            }
        }
    }

    fn at(&mut self, place: &Position<'_>, message: String) -> Failed {
        self.error(format!("[{}:{}] {message}", place.file, place.line))
    }

    fn error(&mut self, message: String) -> Failed {
        self.diagnostics.push(Message::new(Level::Error, message));
        Failed
    }
}

/// Maximum depth of included files.
const DEEPEST: usize = 4;
