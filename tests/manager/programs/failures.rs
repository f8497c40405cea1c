//! Programs that do not run, do not end, or leave something behind.

use super::*;

fn problem(weir: &Weir, words: &str) -> String {
    let mut found = String::new();
    wait_until(words, || {
        let output = weir.command(&["status"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        found = text.split_whitespace().collect::<Vec<_>>().join(" ");
        found.contains(words)
    });
    found
}

#[test]
fn a_program_that_ends_at_once_is_started_with_pauses_and_told_with_its_last_words() {
    let weir = site(
        &[
            "php",
            "-r",
            "fwrite(STDERR, \"no such table: jobs\\n\"); exit(3);",
        ],
        "",
    )
    .start();
    let line = weir
        .log_line("3 times in a row within seconds (exit code 3); it said: no such table: jobs");
    assert!(
        line.contains("error") && line.contains("program=queue"),
        "{line}"
    );
    let text = problem(&weir, "program queue does not run: it has ended");
    assert!(
        text.contains("(exit code 3); it said: no such table: jobs"),
        "{text}"
    );
    let started = || weir.status()["programs"][0]["started"].as_u64().unwrap();
    wait_until("pauses of seconds", || {
        weir.status()["programs"][0]["again_in"].as_f64() > Some(1.0)
    });
    assert!(started() < 10, "{}", started());
    let (_, metrics) = weir.admin_get("/metrics");
    weir.expect_sound_metrics(&metrics);
    assert!(
        metrics.contains("weir_program_processes{program=\"queue\"} 0"),
        "{metrics}"
    );
}

#[test]
fn a_program_that_is_done_at_once_is_not_started_without_end() {
    let weir = site(&["true"], "").start();
    let text = problem(&weir, "program queue does not run");
    assert!(
        text.contains("(exit code 0)") && text.contains("write a schedule"),
        "{text}"
    );
    drop(weir);
    let weir = site(&["true"], "restart = \"on-failure\"").start();
    wait_until("its end", || {
        weir.status()["programs"][0]["state"] == "ended"
    });
    assert_eq!(weir.status()["programs"][0]["started"], 1);
    reload(&weir);
    wait_until("another start", || {
        weir.status()["programs"][0]["started"] == 2
    });
}

#[test]
fn what_a_program_has_started_ends_with_it() {
    // The first one listens to SIGTERM, the second one does not.
    let script = "sleep 600 & echo gentle=$!; (trap '' TERM; while :; do sleep 1; done) & echo deaf=$!; sleep 600";
    let weir = site(&["sh", "-c", script], "stop_timeout = \"1s\"").start();
    let pid = |name: &str| -> u32 {
        let line = weir.log_line(&format!("said: {name}="));
        let (_, rest) = line.split_once(&format!("{name}=")).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (gentle, deaf) = (pid("gentle"), pid("deaf"));
    let main = weir.status()["programs"][0]["processes"][0]["pid"]
        .as_u64()
        .unwrap();
    signal(u32::try_from(main).unwrap(), Signal::KILL);
    wait_until("SIGTERM for the first", || !is_alive(gentle));
    weir.log_line(
        "the program has ended, but what it has started still runs (stop_timeout): killed",
    );
    wait_until("SIGKILL for the second", || !is_alive(deaf));
    // Only now another one is started.
    let again = weir.log_line("said: deaf=");
    assert!(!again.contains(&format!("deaf={deaf} ")), "{again}");
}

#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let keys = "max_runtime = \"500ms\"\nstop_timeout = \"200ms\"";
    let weir = site(
        &["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
        keys,
    )
    .start();
    weir.log_line("it has run for 0.5 s (max_runtime): stopped");
    weir.log_line("was told to end, but still runs (stop_timeout): killed");
    wait_until("another one", || {
        weir.status()["programs"][0]["started"].as_u64() > Some(1)
    });
    let status = weir.status()["programs"][0].clone();
    assert_eq!(status["last_end"]["how"], "SIGKILL, because of max_runtime");
}

#[test]
fn output_without_end_and_without_lines_takes_no_memory_and_closed_output_no_time() {
    let script = "$line = str_repeat('x', 1 << 16); for ($i = 0; $i < 320; $i++) fwrite(STDOUT, $line); \
                  fclose(STDOUT); fclose(STDERR); file_put_contents('notes', 'silent ' . getmypid() . \"\\n\"); sleep(600);";
    let weir = site(&["php", "-r", script], "").start();
    noted(&weir, "silent", 1);
    weir.log_line("[goes on]");
    // 20 MB went through.
    let manager = weir_test::process::resident(weir.pid());
    assert!(manager < 100 << 20, "{manager}");
    // Closed pipes do not wake the manager again and again.
    let before = weir_test::process::cpu_time(weir.pid());
    let (_, status) = (weir.status(), weir.status());
    assert_eq!(status["programs"][0]["state"], "running");
    let used = weir_test::process::cpu_time(weir.pid()) - before;
    assert!(used < Duration::from_secs(1), "{used:?}");
}

#[test]
fn a_program_that_cannot_run_here_is_told_before_anything_starts() {
    for (command, words) in [
        (
            "/no/such/program",
            "program /no/such/program: No such file or directory",
        ),
        (
            "no-such-program",
            "program \"no-such-program\" was not found in PATH",
        ),
        ("/etc/passwd", "/etc/passwd is not an executable file"),
    ] {
        let (status, said) = site(&[command], "").start_in_vain();
        assert_eq!(status.code(), Some(78), "{said}");
        assert!(
            said.contains("program.queue.command") && said.contains(words),
            "{said}"
        );
        let place = said.lines().any(|line| line.contains(" | command = ["));
        assert!(place, "{said}");
    }
    let (_, said) = site(
        &["true"],
        "timezone = \"Europe/Nowhere\"\nschedule = \"@daily\"",
    )
    .start_in_vain();
    assert!(
        said.contains("\"Europe/Nowhere\" is not a time zone of this machine"),
        "{said}"
    );
    let weir = site(&["sleep", "600"], "").start();
    let running = weir.status()["programs"][0]["processes"][0]["pid"].clone();
    let wrong = site(&["/no/such/program"], "").toml();
    fs::write(weir.path("weir.toml"), wrong).unwrap();
    let output = weir.command(&["reload"]).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(
        weir.status()["programs"][0]["processes"][0]["pid"],
        running,
        "nothing was changed"
    );
}

#[test]
fn a_program_of_a_pool_has_its_user_and_environment_and_is_restarted_with_it() {
    let pool = format!(
        "runtime = \"php\"\nmax_children = 1\nenv = {{ SHOP = \"x\" }}\n{}",
        weir_test::php::identity()
    );
    let script = "echo \"I am $(id -u):$SHOP:$OWN\"; exec sleep 600";
    let weir = site(
        &["sh", "-c", script],
        "pool = \"app\"\nenv = { OWN = \"y\" }",
    )
    .pool(&pool)
    .start();
    weir.log_line(&format!("said: I am {}:x:y", id(&web_user_or_us())));
    let running = || weir.status()["programs"][0]["processes"][0]["pid"].as_u64();
    let first = running().unwrap();
    pid(&weir);
    assert_eq!(
        running(),
        Some(first),
        "PHP that is loaded for the first time restarts nothing"
    );
    let output = weir.command(&["pool", "app", "restart"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    wait_until("another process", || {
        running().is_some_and(|pid| pid != first)
    });
}
