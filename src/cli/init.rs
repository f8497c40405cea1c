//! `weir init`: writes the weir.toml that fits a folder.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use clap::Args;
use weir_config::{Environment, Machine, is_local_name, read};
use weir_machine::ThisMachine;
use weir_manager::EX_SOFTWARE;
use weir_observe::console;
use weir_sys::identity;
use weir_tools::{
    command::{print, refuse_config},
    folder::{self, Looked, Php, Runtime, Service, Wanted, left_lines},
    htaccess::About,
};

use super::{
    domain,
    folder::{from_here, incomplete, look, owner, parent, php_for, program, unmet},
    listen_address,
    trust::own_certificates,
};

/// Flags of `weir init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder of the application [default: .]
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,

    /// Name of the site, which gets a certificate by itself and is served over https (can be repeated)
    #[arg(long, value_name = "NAME", value_parser = domain)]
    pub domain: Vec<String>,

    /// Address to listen on: host:port or unix:PATH (can be repeated) [default: :80 for root and for public names, otherwise 127.0.0.1:8080]
    #[arg(short, long, value_name = "ADDR", value_parser = listen_address)]
    pub listen: Vec<String>,

    /// Address for https, with --domain (can be repeated) [default: :443 or 127.0.0.1:8443]
    #[arg(long, value_name = "ADDR", value_parser = listen_address, requires = "domain")]
    pub listen_https: Vec<String>,

    /// The file to write [default: FOLDER/weir.toml; for root /etc/weir/weir.toml, if weir is installed as a service]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,

    /// Print the configuration, and write nothing
    #[arg(long, conflicts_with_all = ["output", "force"])]
    pub print: bool,
}

/// Runs `weir init`.
pub fn main(args: &InitArgs) -> ExitCode {
    run(args).unwrap_or_else(|code| code)
}

fn run(args: &InitArgs) -> Result<ExitCode, ExitCode> {
    let typed = args.folder.as_deref().unwrap_or(Path::new("."));
    let looked = look_at(typed)?;
    let file = match &args.output {
        Some(file) => file.clone(),
        None => usual_output(typed, identity::is_root(), Path::new(SERVICE_FOLDER)),
    };
    if !args.print {
        may_write(&file, args.force)?;
    }
    let (php, without_php) = php_of(&looked);
    let wanted = wanted(args, &looked, &file, php);
    let text = folder::text(&wanted);
    // What is written must be right, whatever the folder's names are.
    let environment = Environment::of_this_machine(&parent(&file));
    if let Err(wrong) = read(&file.display().to_string(), &text, &environment) {
        console::say(wrong.render(false));
        console::say_error(
            "the configuration for this folder is wrong, and was not written",
            "",
        );
        return Err(ExitCode::from(EX_SOFTWARE));
    }
    if args.print {
        warn(&looked, &wanted, without_php.as_ref());
        return Ok(print(&text));
    }
    write(&file, &text).map_err(|error| {
        refuse_config(
            &format!("{} cannot be written: {error}", file.display()),
            "choose another file with -o FILE, or see the text with --print",
        )
    })?;
    warn(&looked, &wanted, without_php.as_ref());
    Ok(print(&summary(&looked, &wanted, &file)))
}

fn look_at(typed: &Path) -> Result<Looked, ExitCode> {
    match fs::metadata(typed) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            let message = format!("{} is not a folder", typed.display());
            return Err(refuse_config(
                &message,
                "give the folder of the application: weir init FOLDER",
            ));
        }
        Err(error) => {
            let message = format!("{}: {error}", typed.display());
            return Err(refuse_config(
                &message,
                "give the folder of the application: weir init FOLDER",
            ));
        }
    }
    let looked = look(typed)?;
    let shown = typed.display();
    if looked.is_empty {
        let hint = "put the application there first: weir init looks at its files";
        return Err(refuse_config(&format!("{shown} is empty"), hint));
    }
    if let Some(foreign) = looked.foreign {
        let message = format!(
            "{shown} has {}: this is {}, which weir does not run by itself",
            foreign.file, foreign.what
        );
        return Err(refuse_config(&message, foreign.hint));
    }
    Ok(looked)
}

/// The file that is written if none is given.
fn usual_output(folder: &Path, is_root: bool, service: &Path) -> PathBuf {
    match is_root && service.is_dir() {
        true => service.join("weir.toml"),
        false => folder.join("weir.toml"),
    }
}

/// Refuses to replace a file, unless it is the one that a package installed.
fn may_write(file: &Path, force: bool) -> Result<(), ExitCode> {
    if force || fs::symlink_metadata(file).is_err() || is_as_installed(file) {
        return Ok(());
    }
    let message = format!("{} exists already, and was not changed", file.display());
    let hint =
        "write another file with -o FILE, see the text with --print, or replace it with --force";
    Err(refuse_config(&message, hint))
}

/// Whether a file is the default of the package, unchanged.
fn is_as_installed(file: &Path) -> bool {
    fs::read(file).is_ok_and(|text| text == PACKAGED)
}

/// The PHP for the folder; and if there is none, a message and a hint.
fn php_of(looked: &Looked) -> (Option<Php>, Option<(String, String)>) {
    if !looked.has_php {
        return (None, None);
    }
    let (runtime, version, missing) = match php_for(looked) {
        Ok((runtime, version)) => (runtime, version, None),
        Err(missing) => (Runtime::Own, None, Some(missing)),
    };
    let php = Php {
        runtime,
        version,
        workers: None,
    };
    let missing = missing.or_else(|| unmet(looked, &php));
    (Some(php), missing)
}

fn wanted<'l>(args: &InitArgs, looked: &'l Looked, file: &Path, php: Option<Php>) -> Wanted<'l> {
    let is_root = identity::is_root();
    let folder = fs::canonicalize(parent(file)).unwrap_or_else(|_| parent(file));
    // Other files there are for other services, each with paths of its own.
    let is_of_service = folder == Path::new(SERVICE_FOLDER) && file.ends_with("weir.toml");
    let root = fs::canonicalize(&looked.root).unwrap_or_else(|_| looked.root.clone());
    let user = owner(&looked.root);
    // The gateway's own user has the fewest rights. If that one may not read the files, their owner does.
    let own = ["weir", "www-data", "nobody"]
        .into_iter()
        .find(|name| ThisMachine.has_user(name));
    let is_barred = own.is_some_and(|own| is_root && ThisMachine.barred(&root, own).is_some());
    Wanted {
        looked,
        head: head(looked, file),
        is_service: is_root,
        listen: from_here(&args.listen),
        listen_https: from_here(&args.listen_https),
        domains: args.domain.clone(),
        certificates: own_certificates().filter(|_| !is_root),
        gateway_user: user.clone().filter(|_| is_barred),
        user: user.filter(|_| php.is_some()),
        php,
        is_inside: folder.starts_with(&root),
        service: is_of_service.then_some(SERVICE),
    }
}

/// The first lines of the file.
fn head(looked: &Looked, file: &Path) -> Vec<String> {
    let shown = file.display();
    let mut lines = vec![
        format!(
            "{} in {}. `weir init` wrote this file.",
            looked.what(),
            looked.folder.display()
        ),
        format!("After each change: weir check -c {shown}, then weir reload -c {shown}"),
    ];
    for found in &looked.applications {
        let application = found.application;
        lines.push(format!(
            "{} recommends: {}",
            application.name, application.source
        ));
        let notes = application.notes.iter();
        lines.extend(notes.map(|note| format!("{}: {note}", application.name)));
    }
    lines
}

/// Writes a file as a whole: others see the old one or the new one.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut draft = OsString::from(".");
    draft.push(file.file_name().unwrap_or_default());
    draft.push(format!(".{}", process::id()));
    let folder = parent(file);
    let draft = folder.join(draft);
    let written = || -> io::Result<()> {
        let mut out = fs::File::create_new(&draft)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&draft, file)?;
        fs::File::open(&folder)?.sync_all()
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}

/// What the user has to know: on stderr.
fn warn(looked: &Looked, wanted: &Wanted<'_>, without_php: Option<&(String, String)>) {
    if let Some((message, hint)) = without_php {
        console::say_warning(message, hint);
    }
    if let Some(php) = &wanted.php
        && let Some(program) = program(php)
    {
        let missing = folder::missing(&program, &looked.extensions);
        if !missing.is_empty() {
            let message = format!(
                "{} needs extensions that {} does not have: {}",
                looked.what(),
                program.display(),
                missing.join(", ")
            );
            let hint = format!(
                "install them; Debian: apt-get install {}",
                folder::packages(&missing)
            );
            console::say_warning(message, &hint);
        }
    }
    warn_of_folder(looked, wanted);
    warn_of_htaccess(looked);
}

/// Applications that are not served as they should be, and what users of this machine cannot see.
fn warn_of_folder(looked: &Looked, wanted: &Wanted<'_>) {
    let root = looked.root.display();
    if !looked.others.is_empty() {
        let message = format!(
            "{} has the files of {} and of {}; this configuration is for {}",
            looked.folder.display(),
            looked.what(),
            looked.others.join(" and "),
            looked.what()
        );
        console::say_warning(message, "remove what is not used: all its files are public");
    }
    for (folder, name) in &looked.own_sites {
        let message = format!(
            "{} has {name}, whose document root is inside: all its files are public",
            folder.display()
        );
        console::say_warning(
            message,
            &format!(
                "move it out of {root}, and give it a site: weir init {}",
                folder.display()
            ),
        );
    }
    if let Some((link, target)) = looked.broken_link() {
        let message = format!(
            "{} leads out of the folder, to {}, so clients get 403 there",
            link.display(),
            target.display()
        );
        console::say_warning(
            message,
            "follow_symlinks = true in the site allows such links",
        );
    }
    if wanted.service.is_some()
        && HIDDEN_FROM_SERVICE
            .iter()
            .any(|home| looked.root.starts_with(home))
    {
        let message = format!("the service does not see {root}: ProtectHome=yes in its unit");
        let hint = "move the folder, for example to /srv; or systemctl edit weir, and write `[Service]` and `ProtectHome=no`";
        console::say_warning(message, hint);
    }
    if let Some(who) = wanted.user.as_deref().or(wanted.gateway_user.as_deref())
        && let Some(barrier) = ThisMachine.barred(&looked.root, who)
    {
        let message = format!("{who} may not read {}", barrier.display());
        console::say_warning(
            message,
            &format!(
                "chmod o+rx {}, or change the user in the file",
                barrier.display()
            ),
        );
    }
}

/// What of `.htaccess` files is not in force, or more so than in Apache.
fn warn_of_htaccess(looked: &Looked) {
    for (about, end) in [
        (
            About::SomeClients,
            "is for some clients: weir refuses it to all",
        ),
        (
            About::Widened,
            "has look-around: weir refuses more URLs than Apache does",
        ),
        (
            About::Access,
            "is NOT refused: it depends on more than the path, or weir does not understand it",
        ),
    ] {
        for line in left_lines(looked, about) {
            console::say_warning(format!("{line}: {end}"), "");
        }
    }
    let others = [About::Rewriting, About::Other].into_iter();
    let count = others.flat_map(|about| left_lines(looked, about)).count();
    if count > 0 {
        console::say_warning(
            format!("{count} other lines of .htaccess files are not in the configuration"),
            "they are listed at its end",
        );
    }
    if looked.htaccess.incomplete {
        console::say_warning(
            incomplete(&looked.root),
            &format!("find -L {} -name .htaccess", looked.root.display()),
        );
    }
}

/// What was written, and what comes next: on stdout.
fn summary(looked: &Looked, wanted: &Wanted<'_>, file: &Path) -> String {
    let shown = file.display();
    let mut lines = vec![format!(
        "{shown} is written: {} in {}",
        looked.what(),
        looked.root.display()
    )];
    for found in looked
        .applications
        .iter()
        .filter(|found| !found.base.is_empty())
    {
        lines.push(format!(
            "  also {} at {}/",
            found.application.name, found.base
        ));
    }
    for domain in &wanted.domains {
        let whose = match is_local_name(domain.trim_matches(['[', ']'])) {
            true => "a certificate of weir's local CA (weir trust)",
            false => "weir gets a certificate by itself",
        };
        lines.push(format!("  https://{domain}/: {whose}"));
    }
    if let Some(user) = &wanted.user {
        lines.push(format!("  scripts run as {user}"));
    }
    let denying = looked
        .htaccess
        .files
        .iter()
        .filter_map(|file| Some((file, file.denies()?)));
    let denying: Vec<_> = denying.collect();
    for (file, denies) in denying.iter().take(MOST_FILES) {
        lines.push(format!("  as {}.htaccess: {denies}", &file.folder[1..]));
    }
    if denying.len() > MOST_FILES {
        lines.push(format!(
            "  and as {} more .htaccess files say",
            denying.len() - MOST_FILES
        ));
    }
    for found in &looked.applications {
        let notes = found.application.notes.iter();
        lines.extend(notes.map(|note| format!("  {}: {note}", found.application.name)));
    }
    lines.push(format!("next: weir check -c {shown}"));
    lines.push(match file == Path::new(SERVICE_FOLDER).join("weir.toml") {
        true => "      systemctl reload-or-restart weir".to_owned(),
        false => format!("      weir serve -c {shown}"),
    });
    lines.join("\n") + "\n"
}

/// The configuration that packages install.
const PACKAGED: &[u8] = include_bytes!("../../packaging/weir.toml");
/// Where the service has its configuration.
const SERVICE_FOLDER: &str = "/etc/weir";
/// Maximum number of `.htaccess` files that are listed.
const MOST_FILES: usize = 20;
/// What the service has, and the rotation of its logs.
const SERVICE: Service = Service {
    pid_file: "/run/weir/weir.pid",
    logs: "/var/log/weir",
};
/// Folders that the service does not see (ProtectHome= in its unit).
const HIDDEN_FROM_SERVICE: [&str; 3] = ["/home", "/root", "/run/user"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_writes_the_file_of_the_service() {
        let service = tempfile::tempdir().unwrap();
        let none = service.path().join("none");
        let output = |is_root, service| usual_output(Path::new("site"), is_root, service);
        assert_eq!(
            output(true, service.path()),
            service.path().join("weir.toml")
        );
        for file in [output(true, &none), output(false, service.path())] {
            assert_eq!(file, Path::new("site/weir.toml"));
        }
    }
}
