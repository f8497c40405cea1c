//! Reloads, and pools that are restarted: OPcache's contents are kept or carried over, and no request is lost.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::*;

/// How many times OPcache had to compile: `misses`. Also whether it has this script.
const CACHE: &str = "<?php $s = opcache_get_status(true); echo 'misses=', $s['opcache_statistics']['misses'], ' ', \
                     json_encode(array_keys($s['scripts']), JSON_UNESCAPED_SLASHES), ' ';";

#[test]
fn a_reload_keeps_the_master_of_a_pool_that_did_not_change() {
    let site = php_site("max_children = 2");
    let weir = site.start();
    let before = weir.get("/who.php");
    let gateway = weir.gateway().pid;
    site.log("access = \"off\"\nlevel = \"notice\"")
        .write_toml();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    wait_until("the old gateway is gone", || !is_alive(gateway));
    let after = weir.get("/who.php");
    assert_eq!(number(&after, "master"), number(&before, "master"));
    assert_ne!(number(&after, "pid"), number(&before, "pid"));
    // PHP-FPM's signal restarts PHP, as it does there.
    weir.signal(Signal::USR2);
    weir.log_line("reloaded: the new configuration serves");
    weir.get_until("/who.php", |answer| {
        number(answer, "master") != number(&before, "master")
    });
    wait_until("the old master is gone", || {
        !is_alive(number(&before, "master"))
    });
}

#[test]
fn a_pool_that_changed_is_warmed_before_it_takes_over_and_no_request_is_lost() {
    let site = php_site("max_children = 2");
    old_script(&site.path("root/cache.php"), CACHE);
    for n in 0..20 {
        old_script(
            &site.path(&format!("root/n{n}.php")),
            &format!("<?php echo 'n', {n};"),
        );
    }
    let weir = site.start();
    let before = weir.get("/who.php");
    (0..20).for_each(|n| {
        assert!(
            weir.get(&format!("/n{n}.php"))
                .text()
                .ends_with(&format!("n{n}"))
        )
    });
    let address = weir.address();
    let over = Arc::new(AtomicBool::new(false));
    let hammer = std::thread::spawn({
        let over = over.clone();
        move || {
            let mut count = 0;
            while !over.load(Relaxed) {
                assert_eq!(get(address, "/hello.php").text(), "hello");
                count += 1;
            }
            count
        }
    });
    site.pool("php_admin_value = { memory_limit = \"77M\" }")
        .write_toml();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    weir.get_until("/who.php", |answer| {
        answer.text().contains("master=") && number(answer, "master") != number(&before, "master")
    });
    over.store(true, Relaxed);
    assert!(hammer.join().unwrap() > 0);
    let cache = weir.get("/cache.php").text();
    for n in 0..20 {
        let script = weir.root().join(format!("n{n}.php"));
        assert!(cache.contains(script.to_str().unwrap()), "{n}: {cache}");
    }
}

#[test]
fn an_upgrade_compiles_the_scripts_that_the_earlier_weir_had_in_opcache() {
    let site = php_site("max_children = 2").admin();
    old_script(&site.path("root/cache.php"), CACHE);
    let script = |n: usize| site.path(&format!("root/n{n}.php"));
    (0..20).for_each(|n| old_script(&script(n), &format!("<?php echo 'n', {n};")));
    let weir = site.start();
    (0..20).for_each(|n| drop(weir.get(&format!("/n{n}.php")).expect(200)));
    // Each master gets the list from the previous one, which has run none of the scripts.
    for _ in 0..2 {
        let before = weir.get("/who.php");
        let output = weir.command(&["upgrade"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let cache = weir.get("/cache.php").text();
        for n in 0..20 {
            assert!(cache.contains(script(n).to_str().unwrap()), "{n}: {cache}");
        }
        assert_ne!(
            number(&weir.get("/who.php"), "master"),
            number(&before, "master")
        );
    }
}

#[test]
fn a_pool_whose_php_cannot_be_loaded_ends_the_reload_and_the_old_one_goes_on() {
    let site = php_site("max_children = 1");
    let weir = site.start();
    let before = weir.get("/who.php");
    let broken = "php_define = { \"opcache.preload\" = \"/no/such/preload.php\", \
                  \"opcache.preload_user\" = \"www-data\" }";
    site.pool(broken).write_toml();
    weir.signal(Signal::HUP);
    weir.log_line("reload failed, nothing was changed");
    let line = weir.log_line("[pool.app] PHP cannot be started: ");
    assert!(line.contains("preload"), "{line}");
    let after = weir.get("/who.php");
    assert_eq!(number(&after, "pid"), number(&before, "pid"));
    wait_until("what was tried is gone", || {
        // The gateway and the master.
        weir.children().len() == 2
    });
}

#[test]
fn a_root_that_is_switched_starts_a_watched_pool_anew_with_its_scripts_compiled() {
    let site = php_site("");
    for release in ["one", "two"] {
        let root = folder(&site, &format!("releases/{release}"));
        old_script(
            &root.join("release.php"),
            &format!("<?php echo '{release}';"),
        );
        old_script(&root.join("cache.php"), CACHE);
        let who = fs::read_to_string(site.path("root/who.php")).unwrap();
        old_script(&root.join("who.php"), &who);
        (0..20).for_each(|n| old_script(&root.join(format!("n{n}.php")), "<?php"));
    }
    let (current, next) = (site.path("current"), site.path("next"));
    symlink(site.path("releases/one"), &current).unwrap();
    let pool = "pm = \"static\"\nmax_children = 2\nwatch_root = true\n\
                php_define = { \"opcache.validate_timestamps\" = \"0\" }";
    let root = format!("root = \"{}\"", current.display());
    let weir = site.clone().pool(pool).site(&root).start();
    assert_eq!(weir.get("/release.php").text(), "one");
    let before = weir.get("/who.php");
    weir.get("/cache.php");
    (0..20).for_each(|n| drop(weir.get(&format!("/n{n}.php")).expect(200)));
    symlink(site.path("releases/two"), &next).unwrap();
    fs::rename(&next, &current).unwrap();
    weir.log_line("a site's root now leads to another folder");
    weir.get_until("/release.php", |answer| answer.text() == "two");
    wait_until("the old master is gone", || {
        !is_alive(number(&before, "master"))
    });
    for _ in 0..10 {
        assert_eq!(weir.get("/release.php").text(), "two");
    }
    let cache = weir.get("/cache.php").text();
    assert!(cache.contains("/releases/two/who.php"), "{cache}");
    // A request that was on its way may have brought its own script along. Nothing was carried over.
    assert!(!cache.contains("/releases/one/who.php"), "{cache}");
}

#[test]
fn many_reloads_leave_no_process_behind() {
    let site = php_site("pm = \"static\"\nmax_children = 1");
    let weir = site.start();
    weir.get("/who.php");
    for n in 0..10 {
        let children = format!("max_children = {}", 1 + n % 2);
        site.clone().pool(&children).write_toml();
        weir.signal(match n % 3 {
            0 => Signal::USR2,
            _ => Signal::HUP,
        });
        weir.log_line("reloaded: the new configuration serves");
        assert!(weir.get("/hello.php").text().ends_with("hello"));
    }
    site.write_toml();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    wait_until("gateway, master and worker are left", || {
        offspring(weir.pid()).len() == 3
    });
}

#[test]
fn a_library_that_was_replaced_is_seen_at_a_reload_also_where_the_manager_may_not_look_into_the_master()
 {
    let site = php_site("max_children = 1");
    let library = site.path("preloaded.so");
    // Any library works: this test process has loaded one that exists.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut loaded = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    let any = loaded.find(|path| path.contains("libgcc_s.so")).unwrap();
    fs::copy(any, &library).unwrap();
    // PHP starts with weir's own environment.
    let variable = format!("LD_PRELOAD={}", library.display());
    let weir = site.clone().under(&["env", &variable]).start();
    let reload = || {
        weir.signal(Signal::HUP);
        weir.log_line("reloaded: the new configuration serves");
        number(&who(&weir), "master")
    };
    let first = number(&weir.get("/who.php"), "master");
    assert_eq!(reload(), first, "nothing has changed");
    // As an upgrade replaces it.
    let new = site.path("new.so");
    fs::copy(any, &new).unwrap();
    fs::rename(&new, &library).unwrap();
    let mut second = first;
    wait_until("another master serves", || {
        second = number(&weir.get("/who.php"), "master");
        second != first || {
            second = reload();
            second != first
        }
    });
    assert_eq!(reload(), second, "nothing has changed since");
}

/// Workers of a gateway end with it. If many end at once, they take processor time from the workers that the next
/// gateway starts.
#[test]
fn idle_workers_of_a_reload_do_not_all_end_at_once() {
    let site = php_site("pm = \"static\"\nmax_children = 80");
    let weir = site.start();
    let gateway = weir.gateway().pid;
    let masters = || {
        let weir = offspring(weir.pid());
        let is_master = |pid: &u32| offspring(*pid).len() >= 80;
        weir.into_iter().find(is_master)
    };
    let mut master = None;
    wait_until("80 workers are there", || {
        master = masters();
        master.is_some()
    });
    let master = master.expect("a master");
    let old = offspring(master);
    weir.signal(Signal::HUP);
    let there = |pid: u32| std::path::Path::new(&format!("/proc/{pid}/stat")).exists();
    wait_until("the old gateway has ended", || !there(gateway));
    let runs = |pid: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let left = old.iter().filter(runs).count();
    assert!(left <= 40, "{left} of the old workers end with it");
}
