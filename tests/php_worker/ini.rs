//! Settings of the pool, of the front end, of php.ini's sections, and of the folders.

use super::{fpm::Both, support::*};

const LOOK: &str = "<?php
    foreach (['precision', 'memory_limit', 'user_agent', 'open_basedir', 'display_errors', 'default_charset', 'from', 'sendmail_from', 'file_uploads', 'upload_max_filesize'] as $name)
        echo $name, '=', var_export(ini_get($name), true), ' ', ini_get_all()[$name]['access'], ' ',
            var_export(ini_set($name, '7'), true), \"\\n\";
    echo get_cfg_var('user_agent'), in_array('strlen', explode(',', ini_get('disable_functions')));
    echo function_exists('strrev') ? strrev('ab') : 'gone', class_exists('SplStack') ? 'class' : 'gone';";

#[test]
fn values_of_the_pool() {
    let site = Scripts::new();
    let config = site
        .config()
        .with("ini", "user user_agent=of the pool")
        .with("ini", "user precision=5")
        .with("ini", "admin memory_limit=77M")
        .with("ini", "admin from=admin")
        .with("ini", "user open_basedir=/")
        .with("ini", "admin disable_functions=strrev,str_rot13")
        .with("ini", "admin disable_classes=SplStack")
        .with("ini", "user display_errors=1")
        .with("ini", "user file_uploads=0")
        .with("ini", "user upload_max_filesize=1M")
        .with("ini", "user no.such=1")
        .with("ini", "user zend.assertions=bad");
    let mut both = Both::start_with(site, &config);
    both.same_script(LOOK);
    both.same_script(LOOK);
    both.same_script("<?php str_rot13('x');");
    both.same_script("<?php var_export(ini_get_all(null, false));");
    both.master.said("PHP has no setting no.such");
}

#[test]
fn values_of_the_front_end() {
    let mut both = Both::start(&["user_ini.filename=.user.ini"]);
    both.site.script("look.php", LOOK);
    both.site.script(
        ".user.ini",
        "from = user.ini\nuser_agent = user.ini\nprecision = 9\n",
    );
    let plain = Request::get(&both.site, "/look.php");
    for (name, value) in [
        ("PHP_VALUE", "user_agent = \"of the front\"\nprecision=3"),
        ("PHP_ADMIN_VALUE", "memory_limit=55M\nfrom=admin"),
        ("PHP_VALUE", "file_uploads=0\nupload_max_filesize=9M"),
        ("PHP_VALUE", "[section]\nprecision=4"),
        ("PHP_VALUE", "a[] = b\n=c\nfrom"),
        ("PHP_VALUE", "no.such=1"),
        ("PHP_VALUE", "sendmail_from="),
        ("PHP_ADMIN_VALUE", "disable_functions=strrev"),
        ("PHP_VALUE", "memory_limit"),
    ] {
        // In PHP-FPM, these values remain for the following requests.
        let fpm = super::fpm::Fpm::start(&both.site, &both.config);
        let theirs = fpm.ask(&plain.clone().with(name, value));
        let ours = both.worker.ask(&plain.clone().with(name, value));
        assert_eq!(theirs.told(), ours.told(), "{value}");
    }
}

#[test]
fn values_of_the_front_end_are_gone_with_the_request() {
    let site = Scripts::new();
    site.script("look.php", LOOK);
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    let plain = Request::get(&site, "/look.php");
    let before = worker.ask(&plain);
    worker.ask(
        &plain
            .clone()
            .with("PHP_VALUE", "precision=3\nuser_agent=x")
            .with(
                "PHP_ADMIN_VALUE",
                "memory_limit=55M\nfrom=y\nopen_basedir=/",
            ),
    );
    assert_eq!(before.told(), worker.ask(&plain).told());
}

#[test]
fn values_of_php_ini_sections_and_user_ini() {
    /// Document roots below the folder of a variant. Each variant has its own, because PHP caches what it reads of a
    /// folder.
    const ROOTS: &[&str] = &[
        "",
        "/",
        "/a",
        "/a/",
        "/d",
        "/a/b/c/e/f",
        "/a/b/c/e/f/",
        "/elsewhere",
    ];
    let site = Scripts::new();
    let root = site.root();
    let ini = site.beside().join("php.ini");
    let mut text =
        String::from("log_errors=1\nhtml_errors=0\ndisplay_errors=0\nuser_agent=global\n");
    for variant in 0..ROOTS.len() {
        let root = format!("{root}/{variant}");
        text.push_str(&format!(
            "[PATH={root}/a]\nprecision=3\nfrom=path\n[PATH={root}/a/b]\nprecision=4\n"
        ));
        for name in [
            "look.php",
            "a/look.php",
            "a/b/look.php",
            "a/b/c/look.php",
            "d/look.php",
        ] {
            site.script(&format!("{variant}/{name}"), LOOK);
        }
        let file = |name: &str, text: &str| site.script(&format!("{variant}/{name}"), text);
        file(".user.ini", "user_agent = root\ndefault_charset = root\n");
        file(
            "a/b/.user.ini",
            "user_agent = b\nmemory_limit = 44M\n[section]\nprecision = 6\n",
        );
        file("d/.user.ini", "broken = [\n");
    }
    text.push_str("[HOST=shop.example]\nsendmail_from=shop\n");
    text.push_str("[HOST=other.example]\nsendmail_from=other\nmemory_limit=99M\n");
    std::fs::write(&ini, text).unwrap();
    let config = Config::default()
        .with("pool", "test")
        .with("php_ini", ini.to_str().unwrap())
        .with("ini", "admin memory_limit=33M");
    let mut both = Both::start_with(site, &config);
    for (variant, below) in ROOTS.iter().enumerate() {
        for name in [
            "look.php",
            "a/look.php",
            "a/b/look.php",
            "a/b/c/look.php",
            "d/look.php",
            "a/none.php",
        ] {
            let plain = Request::get(&both.site, &format!("/{variant}/{name}"));
            let plain = plain.with("DOCUMENT_ROOT", &format!("{root}/{variant}{below}"));
            both.same(&plain);
            both.same(&plain.clone().with("SERVER_NAME", "OTHER.example"));
            both.same(&plain.clone().without("SERVER_NAME"));
            both.same(&plain.clone().without("DOCUMENT_ROOT"));
        }
    }
}

#[test]
fn a_user_ini_is_read_again_when_its_time_is_over() {
    let site = Scripts::new();
    site.script("look.php", "<?php echo ini_get('user_agent');");
    site.script(".user.ini", "user_agent = first\n");
    let config = site.config().with("define", "user_ini.cache_ttl=0");
    let master = Master::start(&config);
    let mut worker = master.worker();
    assert_eq!(worker.get(&site, "/look.php").body(), "first");
    site.script(".user.ini", "user_agent = changed\n");
    wait_until("it is read again", || {
        worker.get(&site, "/look.php").body() == "changed"
    });
    std::fs::remove_file(site.path(".user.ini")).unwrap();
    wait_until("it is gone", || {
        worker.get(&site, "/look.php").body().is_empty()
    });
}

#[test]
fn a_user_ini_is_believed_for_its_time() {
    let site = Scripts::new();
    site.script("look.php", "<?php echo ini_get('user_agent');");
    site.script(".user.ini", "user_agent = first\n");
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    assert_eq!(worker.get(&site, "/look.php").body(), "first");
    site.script(".user.ini", "user_agent = second\n");
    assert_eq!(worker.get(&site, "/look.php").body(), "first");
    assert_eq!(master.worker().get(&site, "/look.php").body(), "second");
}

#[test]
fn settings_that_php_takes_only_at_its_start_are_taken_from_the_pool() {
    let site = Scripts::new();
    let config = with_opcache(site.config())
        .with("ini", "admin opcache.memory_consumption=24")
        .with("ini", "admin extension=ctype.so");
    let master = Master::start(&config);
    let mut worker = master.worker();
    site.script(
        "a.php",
        "<?php $s = opcache_get_status(false)['memory_usage']; echo round(array_sum(array_slice($s, 0, 3)) / 1048576), ctype_digit('1');",
    );
    assert_eq!(worker.get(&site, "/a.php").body(), "241");
}
