//! Roots that move, and programs without weir-php.

use std::path::Path;

use super::*;
use weir_machine::php::Program;
use weir_sys::limits::OpenFiles;

fn spec(chroot: Option<&str>, roots: &[(&str, &str)]) -> Spec {
    let named = |(site, path): &(&str, &str)| ((*site).to_owned(), PathBuf::from(path));
    Spec {
        pool: "a".into(),
        program: Program {
            version: "8.2".into(),
            path: "/bin/false".into(),
            object: "/nowhere/weir-php.so".into(),
        },
        environment: Rc::new([]),
        identity: None,
        chroot: chroot.map(PathBuf::from),
        open_files: OpenFiles { soft: 1, hard: 1 },
        core_size: None,
        processes: None,
        priority: None,
        config: Vec::new(),
        sites: Vec::new(),
        roots: roots.iter().map(named).collect(),
        watch: false,
        boot_limit: None,
        zygote: false,
        own_load: false,
        loading: crate::php::Loading::Own(""),
    }
}

#[test]
fn a_program_without_weir_php_is_described_by_the_loader_s_line() {
    let words =
        "ERROR: ld.so: object '/w.so' from LD_PRELOAD cannot be preloaded: ignored. / Usage: php";
    let said = not_loaded(Path::new("/bin/php"), Path::new("/w.so"), words);
    assert!(
        said.starts_with("/bin/php has run without weir-php, and has ended: /w.so was not"),
        "{said}"
    );
    assert!(said.ends_with("; the loader's message: ERROR: ld.so: object '/w.so' from LD_PRELOAD cannot be preloaded: ignored."), "{said}");
    let said = not_loaded(Path::new("/bin/php"), Path::new("/w.so"), "Usage: php");
    assert!(said.ends_with("ld.so(8))"), "{said}");
}

#[test]
fn scripts_of_a_root_that_has_moved_are_looked_for_where_it_is_now() {
    let before = [
        ("shop", "/srv/shop/releases/1"),
        ("blog", "/srv/blog"),
        ("gone", "/srv/gone"),
    ];
    let now = [
        ("shop", "/srv/shop/releases/2"),
        ("blog", "/srv/blog"),
        ("new", "/srv/new"),
    ];
    let moves = |chroot| {
        let before = spec(chroot, &before);
        let moves = spec(chroot, &now).moves(&before.roots);
        let text = |(from, to): &(PathBuf, PathBuf)| format!("{} {}", from.display(), to.display());
        moves.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(moves(None), ["/srv/shop/releases/1 /srv/shop/releases/2"]);
    assert_eq!(moves(Some("/srv/shop")), ["/releases/1 /releases/2"]);
    assert_eq!(moves(Some("/home")), [""; 0]);
}

#[test]
fn a_root_has_moved_when_its_link_leads_elsewhere_and_not_while_it_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let switch = |to: &str| {
        let _ = std::fs::remove_file(path("current"));
        std::os::unix::fs::symlink(path(to), path("current")).unwrap();
    };
    std::fs::create_dir(path("one")).unwrap();
    std::fs::create_dir(path("two")).unwrap();
    switch("one");
    let mut spec = spec(None, &[]);
    spec.sites = vec![("shop".into(), path("current"))];
    let spec = spec.renewed();
    assert!(!spec.roots_have_moved());
    switch("none");
    assert!(!spec.roots_have_moved());
    switch("two");
    assert!(spec.roots_have_moved());
    assert!(!spec.renewed().roots_have_moved());
}
