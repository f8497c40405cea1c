//! Stack traces of running scripts, as PHP-FPM writes them to its slow log.

use std::os::fd::{AsFd, OwnedFd};

use weir_sys::{message, poll};

use super::support::*;

/// A master with a slow log, a worker that runs a script, and the script's file.
struct Slow {
    site: Scripts,
    master: Master,
    log: OwnedFd,
    worker: Worker,
}

impl Slow {
    /// Runs a script until it reports that the trace can begin; `mark()` reports this.
    fn run(script: &str, config: impl Fn(Config) -> Config) -> Slow {
        let site = Scripts::new();
        let text = format!("<?php\nfunction mark() {{ touch(__DIR__ . '/marked'); }}\n{script}");
        site.script("a.php", &text);
        let (master, log) = Master::start_with_slow_log(&config(site.config()));
        let mut worker = master.worker();
        worker.send(&Request::get(&site, "/a.php"));
        wait_until("the script is there", || site.path("marked").exists());
        Slow {
            site,
            master,
            log,
            worker,
        }
    }

    /// The trace: the text after the name of the script, without addresses and folders.
    fn trace(&self) -> String {
        self.master.trace(&self.worker);
        self.next()
    }

    /// Whether a trace comes before the answer.
    fn has_traced(&self) -> bool {
        let has_come =
            || poll::readable(&[self.log.as_fd()], Some(std::time::Duration::ZERO)).unwrap()[0];
        wait_until("a trace or the answer", || {
            has_come() || !self.worker.is_silent()
        });
        has_come()
    }

    fn next(&self) -> String {
        let ready = poll::readable(&[self.log.as_fd()], Some(LIMIT)).unwrap();
        assert!(ready[0], "no trace: {}", self.master.output());
        let mut bytes = vec![0; 1 << 17];
        let (length, _) = message::receive(self.log.as_fd(), &mut bytes, true).unwrap();
        let (pid, text) = bytes[..length].split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_be_bytes(*pid), self.worker.pid);
        let text = String::from_utf8_lossy(text).replace(&self.site.root(), "");
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, "script_filename = /a.php");
        let lines = rest.lines().map(|line| {
            let (address, place) = line.split_once("] ").unwrap_or_else(|| panic!("{text}"));
            assert!(address.starts_with("[0x") && address.len() == 19, "{line}");
            place.to_owned() + "\n"
        });
        lines.collect()
    }
}

fn plain(config: Config) -> Config {
    config
}

#[test]
fn a_script_that_sleeps() {
    let mut slow = Slow::run(
        "function f() {\n g(1);\n}\nfunction g($x) {\n mark(); $left = sleep(2);\n echo $left;\n}\nf();",
        plain,
    );
    // `mark` returns before sleep() begins: ask again until then.
    let expected = "sleep() /a.php:7\ng() /a.php:4\nf() /a.php:10\n";
    wait_until("it sleeps", || slow.trace() == expected);
    assert_eq!(slow.trace(), expected);
    // It sleeps for the full time.
    assert_eq!(slow.worker.answer().body(), "0");
}

#[test]
fn a_script_in_a_loop() {
    let slow = Slow::run(
        "function f() {\n mark();\n while (true) { $a = 1; }\n}\nf();",
        plain,
    );
    wait_until("it is in the loop", || slow.trace() == "f() /a.php:7\n");
    let slow = Slow::run("mark();\nwhile (true) {\n $a = md5('x');\n}", plain);
    // PHP-FPM writes no trace of this script.
    wait_until("it is in the loop", || {
        let trace = slow.trace();
        assert!(trace.lines().count() == 1, "{trace}");
        trace.starts_with("{main}() /a.php:") || trace == "md5() /a.php:5\n"
    });
}

#[test]
fn a_deep_recursion_is_cut_at_the_depth_that_is_set() {
    let script =
        "function f($n) {\n if ($n) f($n - 1);\n else { mark(); sleep(100); }\n}\nf(5000);";
    let frames = |trace: &str| {
        trace
            .lines()
            .filter(|line| line.starts_with("f() "))
            .count()
    };
    for (depth, expected) in [("5", 4), ("20", 19)] {
        let slow = Slow::run(script, |config| config.with("trace_depth", depth));
        wait_until("it sleeps", || {
            slow.trace().starts_with("sleep() /a.php:5\nf() /a.php:4\n")
        });
        assert_eq!(frames(&slow.trace()), expected);
    }
    // Without a depth, only the size of a packet limits the trace.
    let slow = Slow::run(script, |config| config.with("trace_depth", "0"));
    wait_until("it sleeps", || slow.trace().starts_with("sleep() "));
    assert!(frames(&slow.trace()) > 500);
}

#[test]
fn callbacks_methods_includes_and_generators() {
    let script = "class C {\n static function s($x) {\n  foreach (h() as $v);\n }\n}\n\
                  function h() {\n yield 1;\n include __DIR__ . '/i.php';\n}\n\
                  array_map(['C', 's'], [1]);";
    let site = "<?php\n(function () {\n mark();\n eval('sleep(100);');\n})();";
    let slow = Slow::run(
        &format!("file_put_contents(__DIR__ . '/i.php', {site:?});\n{script}").replace("\\n", "\n"),
        plain,
    );
    // Since 8.4 a closure's name has its place.
    let closure = match is_at_least("8.4") {
        true => "{closure:/i.php:2}",
        false => "{closure}",
    };
    let expected = format!(
        "sleep() /i.php(4) : eval()'d code:1\n\
         [INCLUDE_OR_EVAL]() /i.php:4\n\
         {closure}() /i.php:5\n\
         [INCLUDE_OR_EVAL]() /a.php:"
    );
    wait_until("it sleeps", || slow.trace().starts_with(&expected));
    let trace = slow.trace();
    let names: Vec<&str> = trace
        .lines()
        .map(|line| line.split("()").next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "sleep",
            "[INCLUDE_OR_EVAL]",
            closure,
            "[INCLUDE_OR_EVAL]",
            "h",
            "s",
            "array_map"
        ]
    );
}

#[test]
fn a_script_in_a_long_function_of_php_or_behind_a_program() {
    // Neither reaches a safe point: the memory is read without one. With two arguments, preg_match() has no frame since 8.4.
    let sorting = "function f($a) { usort($a, 'cmp'); }\nfunction cmp($a, $b) { return $a <=> $b; }\n\
                   mark(); f(range(1, 100)); $x = str_repeat('a', 60);\n\
                   ini_set('pcre.backtrack_limit', '1000000000'); ini_set('pcre.jit', '0'); preg_match('~^(a+)+$~', $x . 'b', $found);";
    let slow = Slow::run(sorting, plain);
    wait_until("it is in the expression", || {
        slow.trace() == "preg_match() /a.php:6\n"
    });
    slow.master.signal(&slow.worker, 9);

    let slow = Slow::run("mark(); shell_exec('exec sleep 5');", plain);
    wait_until("it waits", || slow.trace() == "shell_exec() /a.php:3\n");
    slow.master.signal(&slow.worker, 9);
}

#[test]
fn a_trace_of_an_idle_worker_or_without_a_slow_log_is_nothing() {
    let site = Scripts::new();
    site.script("a.php", "<?php echo 1;");
    let (master, log) = Master::start_with_slow_log(&site.config());
    let mut worker = master.worker();
    assert_eq!(worker.get(&site, "/a.php").body(), "1");
    master.trace(&worker);
    master.signal(&worker, crate::workers::QUIT);
    assert_eq!(master.end_of(&worker), End::Code(0));
    assert!(!poll::readable(&[log.as_fd()], Some(std::time::Duration::ZERO)).unwrap()[0]);

    let master = Master::start(&site.config());
    let mut worker = master.worker();
    master.trace(&worker);
    assert_eq!(worker.get(&site, "/a.php").body(), "1");
}

#[test]
fn traces_in_quick_succession_disturb_nothing() {
    let mut slow = Slow::run(
        "mark(); $sum = 0;\nfor ($i = 0; $i < 3000000; $i++) { $sum += strlen(strrev(\"$i\")); }\necho $sum;",
        plain,
    );
    let mut count = 0;
    while slow.worker.is_silent() && count < 500 {
        slow.master.trace(&slow.worker);
        if slow.has_traced() {
            slow.next();
        }
        count += 1;
    }
    let digits: usize = (0..3_000_000_usize).map(|i| i.to_string().len()).sum();
    assert_eq!(slow.worker.answer().body(), digits.to_string());
}
