//! A folder to serve: what `weir serve FOLDER` and `weir init` find out about it, and `weir serve FOLDER` itself.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use weir_config::{Environment, Machine};
use weir_machine::{ThisMachine, php};
use weir_observe::console;
use weir_sys::identity;
use weir_tools::{
    folder::{self, Looked, Php, Runtime, Wanted},
    htaccess::Htaccess,
};

use super::{ServeArgs, Source, refuse_config, trust::own_certificates};

impl ServeArgs {
    /// The configuration for these flags: the file's, or one made for a folder. It is not checked yet.
    ///
    /// # Errors
    /// The exit code, if there is none; the error was printed.
    pub fn source(&self) -> Result<Source, ExitCode> {
        match &self.config {
            Some(file) => Source::of_file(file),
            None => self.folder(),
        }
    }

    fn folder(&self) -> Result<Source, ExitCode> {
        let typed = self.root.as_deref().unwrap_or(Path::new("."));
        let folder = match fs::canonicalize(typed) {
            Ok(folder) if folder.is_dir() => folder,
            Ok(_) => {
                let shown = typed.display();
                let hint = match typed
                    .extension()
                    .is_some_and(|extension| extension == "toml")
                {
                    true => format!("a configuration is given with -c: weir serve -c {shown}"),
                    false => "give a folder, or -c and a configuration file".to_owned(),
                };
                return Err(refuse_config(&format!("{shown} is not a folder"), &hint));
            }
            Err(error) => return Err(refuse_config(&format!("{}: {error}", typed.display()), "")),
        };
        let looked = look(&folder)?;
        let root = &looked.root;
        let user = owner(root);
        if let Some(who) = &user
            && let Some(barrier) = ThisMachine.barred(root, who)
        {
            let message = format!(
                "{} cannot be served: {who} may not read {}",
                root.display(),
                barrier.display()
            );
            let hint = format!("chmod o+rx {}, or serve another folder", barrier.display());
            return Err(refuse_config(&message, &hint));
        }
        let php = match looked.has_php {
            true => {
                let (runtime, version) = php_for(&looked).map_err(|(message, hint)| {
                    refuse_config(&format!("the folder has PHP scripts, but {message}"), &hint)
                })?;
                Some(Php {
                    runtime,
                    version,
                    workers: self.workers.map(|workers| workers as usize),
                })
            }
            false => None,
        };
        if php.is_none() && self.workers.is_some() {
            console::say_warning(
                format!(
                    "{} has no PHP scripts: --workers has no effect",
                    root.display()
                ),
                "",
            );
        }
        let configuration = typed.join("weir.toml");
        let configuration = configuration.strip_prefix(".").unwrap_or(&configuration);
        if configuration.exists() {
            let shown = configuration.display();
            log::warn!("{shown} is not used; did you mean: weir serve -c {shown}");
        }
        tell(&looked);
        let text = folder::text(&Wanted {
            looked: &looked,
            head: Vec::new(),
            is_service: false,
            listen: from_here(&self.listen),
            listen_https: from_here(&self.listen_https),
            domains: self.domain.clone(),
            certificates: own_certificates(),
            php,
            gateway_user: user.clone(),
            user,
            is_inside: true,
            service: None,
        });
        Ok(Source {
            name: format!("(made for {})", folder.display()),
            text,
            environment: Environment::of_this_machine(root),
            file: None,
            folder: Some(root.clone()),
        })
    }
}

/// Looks at a folder.
///
/// # Errors
/// The exit code, if it cannot be used; the error was printed.
pub(super) fn look(folder: &Path) -> Result<Looked, ExitCode> {
    let looked = folder::look(folder)
        .map_err(|error| refuse_config(&format!("{}: {error}", folder.display()), ""))?;
    if looked.root.to_str().is_none() {
        let message = format!(
            "{}: the name of the folder is not UTF-8",
            looked.root.display()
        );
        return Err(refuse_config(
            &message,
            "rename it: weir.toml is a text in UTF-8",
        ));
    }
    Ok(looked)
}

/// What the served folder is, and what its `.htaccess` files have and have not.
fn tell(looked: &Looked) {
    if looked.root != looked.folder {
        log::info!(
            "{} has {}: its document root is {}. What is beside it is not public",
            looked.folder.display(),
            looked
                .main()
                .map_or("a document root of its own", |main| main.name),
            looked.root.display()
        );
    }
    for file in &looked.htaccess.files {
        if let Some(said) = about_htaccess(file) {
            log::warn!("{said}");
        }
    }
    if looked.htaccess.incomplete {
        log::warn!("{}", incomplete(&looked.root));
    }
}

/// What a `.htaccess` file denies, and whether weir refuses the same. `None`: it denies nothing.
fn about_htaccess(file: &Htaccess) -> Option<String> {
    let path = file.path.display();
    let denies = file.denies()?;
    let end = match (file.is_beyond(), file.lets_some_in()) {
        (true, _) => {
            "weir does not apply .htaccess files. It refuses what this file denies by path; the file's other limits have no effect"
        }
        (false, true) => {
            "weir refuses these requests to everybody, also to clients whom the file lets in"
        }
        (false, false) => {
            "weir refuses these requests too; later changes of the file have no effect"
        }
    };
    Some(format!("{path} {denies}. {end}"))
}

/// That not all folders were searched.
pub(super) fn incomplete(root: &Path) -> String {
    format!(
        "{} has too many files, or folders that may not be read, to check all of them for .htaccess. Files that an unchecked .htaccess denies may be public",
        root.display()
    )
}

/// A socket on the command line is relative to the current folder, not to the served one.
pub(super) fn from_here(addresses: &[String]) -> Vec<String> {
    let from_here = |address: &String| {
        let absolute = address
            .strip_prefix("unix:")
            .and_then(|path| std::path::absolute(path).ok())
            .map(|path| format!("unix:{}", path.display()));
        absolute.unwrap_or_else(|| address.clone())
    };
    addresses.iter().map(from_here).collect()
}

/// The user of a folder's scripts if root starts weir: its owner, otherwise the web server's user of this system.
pub(super) fn owner(root: &Path) -> Option<String> {
    if !identity::is_root() {
        return None;
    }
    let owner = fs::metadata(root).ok().map(|metadata| metadata.uid());
    let owner = owner
        .filter(|uid| *uid != 0)
        .and_then(|uid| identity::user_by_id(uid).ok()?)
        .map(|user| user.name);
    let names = ["www-data", "nobody"].map(str::to_owned);
    owner
        .into_iter()
        .chain(names)
        .find(|name| ThisMachine.has_user(name))
}

/// The program for a folder's scripts: weir's own PHP, otherwise php-cgi. And its version, if it is not the newest,
/// because the application does not accept that.
///
/// # Errors
/// What is missing, and how to install it.
pub(super) fn php_for(looked: &Looked) -> Result<(Runtime, Option<String>), (String, String)> {
    if let Ok(newest) = php::find(None) {
        let version = match &looked.needs {
            Some(needs) if !needs.accepts(&newest.version) => {
                let mut versions: Vec<String> = php::all()
                    .into_iter()
                    .map(|program| program.version)
                    .collect();
                versions.retain(|version| needs.accepts(version));
                versions.pop()
            }
            _ => None,
        };
        return Ok((Runtime::Own, version));
    }
    match ThisMachine.program("php-cgi") {
        Some(path) => Ok((Runtime::Cgi(path.display().to_string()), None)),
        None => Err(no_php()),
    }
}

fn no_php() -> (String, String) {
    match php::all_objects().is_empty() {
        true => (
            "no PHP was found: neither weir-php beside weir with a php-fpm for it, nor php-cgi in PATH".into(),
            "install PHP and its headers (Debian: php-fpm, php-dev) and run `make`, or install php-cgi".into(),
        ),
        false => (
            "no PHP was found: neither a php-fpm for the weir-php that is installed, nor php-cgi in PATH".into(),
            "install PHP; Debian: apt-get install php-fpm".into(),
        ),
    }
}

/// The application's demand that no installed PHP meets: a message and a hint.
pub(super) fn unmet(looked: &Looked, php: &Php) -> Option<(String, String)> {
    let needs = looked.needs.as_ref()?;
    let newest = php::find(None).ok()?.version;
    if php.version.is_some() || needs.accepts(&newest) {
        return None;
    }
    Some((
        format!(
            "{} asks for PHP {}, and {newest} is the newest that is installed",
            needs.file, needs.constraint
        ),
        "install another PHP, or another version of the application".into(),
    ))
}

/// The program of this PHP.
pub(super) fn program(php: &Php) -> Option<PathBuf> {
    match &php.runtime {
        Runtime::Own => Some(php::find(php.version.as_deref()).ok()?.path),
        Runtime::Cgi(path) => Some(path.into()),
    }
}

/// The folder of a path.
pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
