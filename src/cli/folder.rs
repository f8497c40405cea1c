//! `weir serve ROOT`: makes a configuration for a folder.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::ExitCode};

use weir_config::{Environment, Folder, FolderPhp, FolderRuntime, Machine, folder_toml};
use weir_machine::ThisMachine;
use weir_observe::console;
use weir_sys::identity;
use weir_tools::htaccess::{self, Refusals};

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
        let root = match fs::canonicalize(typed) {
            Ok(root) if root.is_dir() => root,
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
        if root.to_str().is_none() {
            let message = format!("{}: the name of the folder is not UTF-8", root.display());
            return Err(refuse_config(&message, ""));
        }
        let user = folder_user(&root);
        if let Some(who) = &user
            && let Some(barrier) = ThisMachine.barred(&root, who)
        {
            let message = format!(
                "{} cannot be served: {who} may not read {}",
                root.display(),
                barrier.display()
            );
            let hint = format!("chmod o+rx {}, or serve another folder", barrier.display());
            return Err(refuse_config(&message, &hint));
        }
        let php = match Folder::has_php(&root) {
            true => Some(FolderPhp {
                runtime: folder_php()?,
                workers: self.workers.map(|workers| workers as usize),
                index: root.join("index.php").is_file(),
            }),
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
        say_inner_root(typed, &root);
        let refusals = refused(&root);
        let text = folder_toml(&Folder {
            root: root.clone(),
            listen: from_here(&self.listen),
            listen_https: from_here(&self.listen_https),
            domains: self.domain.clone(),
            certificates: own_certificates(),
            php,
            user,
            routes: refusals.routes,
            deny_scripts: refusals.deny_scripts,
        });
        Ok(Source {
            name: format!("(made for {})", root.display()),
            text,
            environment: Environment::of_this_machine(&root),
            file: None,
            folder: Some(root),
        })
    }
}

/// Refuses what `.htaccess` files in the folder deny to all, and prints what else they limit.
fn refused(root: &Path) -> Refusals {
    let found = htaccess::find(root);
    for file in &found.files {
        let Some(denies) = file.denies() else {
            continue;
        };
        let path = file.path.display();
        match file.is_beyond() {
            true => log::warn!(
                "{path} {denies}. weir does not apply .htaccess files. It refuses what this file denies to everybody; the file's other limits have no effect"
            ),
            false => log::warn!(
                "{path} {denies}. weir refuses these requests too; later changes of the file have no effect"
            ),
        }
    }
    if found.incomplete {
        log::warn!(
            "{} has too many files to check all of them for .htaccess. Files that an unchecked .htaccess denies may be public",
            root.display()
        );
    }
    htaccess::refusals(&found.files)
}

/// Frameworks have their document root in a subfolder, and their secrets beside it.
fn say_inner_root(typed: &Path, root: &Path) {
    let is_empty = ["index.php", "index.html"]
        .iter()
        .all(|index| !root.join(index).exists());
    let inner = ["public", "web", "webroot", "pub", "htdocs", "public_html"]
        .into_iter()
        .find(|inner| is_empty && root.join(inner).join("index.php").is_file());
    if let Some(inner) = inner {
        let whose = match () {
            () if root.join("artisan").is_file() => "this looks like a Laravel application: ",
            () if root.join("bin/console").is_file() => "this looks like a Symfony application: ",
            () => "",
        };
        log::warn!(
            "{whose}its document root is {inner}/. Everything beside it becomes public too. Did you mean: weir serve {}",
            typed.join(inner).display()
        );
    }
}

/// A socket on the command line is relative to the current folder, not to the served one.
fn from_here(addresses: &[String]) -> Vec<String> {
    let from_here = |address: &String| {
        let absolute = address
            .strip_prefix("unix:")
            .and_then(|path| std::path::absolute(path).ok())
            .map(|path| format!("unix:{}", path.display()));
        absolute.unwrap_or_else(|| address.clone())
    };
    addresses.iter().map(from_here).collect()
}

/// The user who serves a folder if root starts weir: its owner, otherwise the web server's user of this system.
fn folder_user(root: &Path) -> Option<String> {
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

/// The program for a folder's scripts: weir's own PHP, otherwise php-cgi.
fn folder_php() -> Result<FolderRuntime, ExitCode> {
    if ThisMachine.php(None).is_ok() {
        return Ok(FolderRuntime::Own);
    }
    match ThisMachine.program("php-cgi") {
        Some(path) => Ok(FolderRuntime::Cgi(path.display().to_string())),
        None => Err(refuse_config(
            "the folder has PHP scripts, but no PHP was found: neither weir-php beside weir with a php-fpm for it, nor php-cgi in PATH",
            "install PHP and its headers (Debian: php-fpm, php-dev) and run `make`, or install php-cgi",
        )),
    }
}
