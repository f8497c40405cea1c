//! Functions and classes that the front end disables for a request, with OPcache and its JIT.

use std::os::unix::fs::PermissionsExt;

use super::{fpm::Fpm, support::*};

/// Calls a function so often that the JIT compiles it. The compiled call does no further checks.
const CALL: &str = "<?php
    function name() { return gethostname(); }
    for ($i = 0; $i < 200; $i++) try { $x = name(); } catch (Error $e) { echo $e->getMessage(); break; }
    echo isset($x) ? 'called' : '';";

/// Defines its own function if PHP's function is disabled.
const OWN: &str = "<?php
    if (!function_exists('gethostname')) { function gethostname() { return 'of the script'; } }
    for ($i = 0; $i < 200; $i++) $x = gethostname();
    echo $x === 'of the script' ? 'own' : 'PHP';";

const CLASS: &str = "<?php
    function many() { $a = new SplObjectStorage; $a->attach(new stdClass); return $a->count(); }
    for ($i = 0; $i < 200; $i++) try { $x = @many(); } catch (Error $e) { echo $e->getMessage(); break; }
    echo isset($x) ? 'used' : '', class_exists('SplObjectStorage') ? ' there' : ' gone';";

const UNDEFINED: &str = "Call to undefined function gethostname()";

fn disabling(request: &Request, what: &str) -> Request {
    request.clone().with("PHP_ADMIN_VALUE", what)
}

fn config_with(site: &Scripts, settings: &[&str]) -> Config {
    let mut config = with_opcache(site.config());
    for setting in [
        "opcache.enable=1",
        "opcache.file_update_protection=0",
        "opcache.revalidate_freq=0",
    ]
    .iter()
    .chain(settings)
    {
        config = config.with("define", setting);
    }
    config
}

/// PHP 8.5 has no `disable_classes`.
fn has_no_disabled_classes() -> bool {
    is_at_least("8.5")
}

#[test]
fn what_is_disabled_for_a_request_is_out_of_reach_for_cached_scripts_and_the_jit() {
    for settings in [
        &[][..],
        &["opcache.jit=tracing", "opcache.jit_buffer_size=16M"],
        &["opcache.jit=function", "opcache.jit_buffer_size=16M"],
        &["opcache.jit=1255", "opcache.jit_buffer_size=16M"],
        &["opcache.jit=1205", "opcache.jit_buffer_size=16M"],
        &["opcache.optimization_level=0"],
    ] {
        let site = Scripts::new();
        site.script("call.php", CALL);
        site.script("own.php", OWN);
        site.script("class.php", CLASS);
        let settings = [
            settings,
            &["opcache.jit_hot_func=3", "opcache.jit_hot_loop=3"],
        ]
        .concat();
        let master = Master::start(&config_with(&site, &settings));
        let (mut one, mut other) = (master.worker(), master.worker());
        let call = Request::get(&site, "/call.php");
        let own = Request::get(&site, "/own.php");
        let class = Request::get(&site, "/class.php");
        for round in 0..3 {
            for worker in [&mut one, &mut other] {
                let about = format!("{settings:?}, round {round}");
                assert_eq!(worker.ask(&call).body(), "called", "{about}");
                assert_eq!(worker.ask(&own).body(), "PHP", "{about}");
                assert_eq!(worker.ask(&class).body(), "used there", "{about}");
                let without = |request| disabling(request, "disable_functions=gethostname");
                assert_eq!(worker.ask(&without(&call)).body(), UNDEFINED, "{about}");
                assert_eq!(worker.ask(&without(&own)).body(), "own", "{about}");
                if has_no_disabled_classes() {
                    continue;
                }
                let without = disabling(&class, "disable_classes=SplObjectStorage");
                assert_eq!(
                    worker.ask(&without).body(),
                    "Call to undefined method SplObjectStorage::attach() there",
                    "{about}"
                );
            }
        }
    }
}

/// If all requests disable the same functions, OPcache serves them. A request that disables others runs without it.
#[test]
fn requests_that_disable_what_the_first_did_use_opcache() {
    let site = Scripts::new();
    site.script("call.php", CALL);
    site.script(
        "cached.php",
        "<?php $status = opcache_get_status(false);
         echo $status && $status['opcache_enabled'] ? 'on' : 'off', opcache_is_script_cached(__FILE__) ? ' cached' : '';",
    );
    let master = Master::start(&config_with(&site, &[]));
    let mut worker = master.worker();
    let (call, cached) = (
        Request::get(&site, "/call.php"),
        Request::get(&site, "/cached.php"),
    );
    let same = |request| disabling(request, "disable_functions=gethostname, EXEC");
    let less = |request| disabling(request, "disable_functions=exec");
    for _ in 0..2 {
        assert_eq!(worker.ask(&same(&call)).body(), UNDEFINED);
        assert_eq!(worker.ask(&same(&cached)).body(), "on cached");
        assert_eq!(worker.ask(&less(&call)).body(), "called");
        assert_eq!(worker.ask(&less(&cached)).body(), "off");
        assert_eq!(worker.ask(&call).body(), "called");
        assert_eq!(worker.ask(&cached).body(), "off");
        worker = master.worker();
    }
}

/// A pool that preloads `text`.
fn preloading(site: &Scripts, text: &str) -> Config {
    std::fs::set_permissions(site.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    site.script("preload.php", text);
    let preload = format!("opcache.preload={}", site.path("preload.php").display());
    let user = match rustix::process::geteuid().is_root() {
        true => "opcache.preload_user=nobody",
        false => "opcache.preload_user=",
    };
    config_with(site, &[&preload, user])
}

const PRELOADED: &str = "<?php class Preloaded { function name() { $f = function () { return gethostname(); }; return $f(); } }";

#[test]
fn a_request_that_disables_what_preloaded_code_calls_is_refused() {
    let site = Scripts::new();
    site.script(
        "call.php",
        "<?php echo (new Preloaded)->name() ? 'called' : '';",
    );
    let master = Master::start(&preloading(&site, PRELOADED));
    let mut worker = master.worker();
    let call = Request::get(&site, "/call.php");
    assert_eq!(worker.ask(&call).body(), "called");
    let refused = worker.ask(&disabling(&call, "disable_functions=gethostname"));
    assert!(refused.status().starts_with("500"), "{refused:?}");
    assert!(refused.stderr.contains("opcache.preload"), "{refused:?}");
    if !has_no_disabled_classes() {
        let refused = worker.ask(&disabling(&call, "disable_classes=SplObjectStorage"));
        assert!(refused.status().starts_with("500"), "{refused:?}");
    }
    let other = worker.ask(&disabling(&call, "disable_functions=exec"));
    assert_eq!(other.body(), "called");
    assert_eq!(worker.ask(&call).body(), "called");
}

#[test]
fn what_the_pool_disables_is_disabled_before_code_is_preloaded() {
    let site = Scripts::new();
    site.script(
        "call.php",
        "<?php try { (new Preloaded)->name(); } catch (Error $e) { echo $e->getMessage(); }
         echo ' ', ini_get('disable_functions'), function_exists('exec') ? '' : ' no exec';",
    );
    let config = preloading(&site, PRELOADED)
        .with("define", "disable_functions=exec")
        .with("ini", "admin disable_functions=gethostname");
    let master = Master::start(&config);
    let answer = master.worker().ask(&Request::get(&site, "/call.php"));
    assert_eq!(answer.body(), format!("{UNDEFINED} gethostname no exec"));
}

#[test]
fn disabled_classes_are_seen_as_under_php_fpm() {
    let site = Scripts::new();
    site.script(
        "look.php",
        "<?php
        class Mine extends ArrayObject { public $a = 1; }
        foreach (['ArrayObject', 'SplStack', 'Mine'] as $name) try {
            $object = new $name;
            echo $name, class_exists($name) ? ' exists ' : ' gone ', count(get_class_methods($name)),
                $object instanceof Countable ? ' counts ' : ' ', var_export($object, true);
            echo count($object), \"\\n\";
        } catch (Error $e) { echo get_class($e), ': ', $e->getMessage(), \"\\n\"; }
        try { $clone = clone new ArrayObject; foreach ($clone as $one) echo $one; echo json_encode($clone); }
        catch (Error $e) { echo get_class($e), ': ', $e->getMessage(); }",
    );
    let config = site.config();
    let master = Master::start(&config);
    let mut worker = master.worker();
    let plain = Request::get(&site, "/look.php");
    let before = worker.ask(&plain).told();
    for what in [
        "disable_classes=ArrayObject",
        "disable_classes=arrayobject,SplStack DateTime None",
        "disable_classes=",
        "disable_classes=\"SplStack,SplStack\"",
        "disable_classes=SplStack\ndisable_functions=count",
    ] {
        let fpm = Fpm::start(&site, &config);
        let request = disabling(&plain, what);
        assert_eq!(
            fpm.ask(&request).told(),
            worker.ask(&request).told(),
            "{what}"
        );
        assert_eq!(worker.ask(&plain).told(), before, "{what}");
    }
}
