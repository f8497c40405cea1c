//! `weir bench --advise`: it measures, and weir accepts the configuration that it proposes.

use std::fs;
use std::process::Command;

use serde_json::Value;

use weir_test::php::own_pool;
use weir_test::weir::program;
use weir_test::{Setup, Weir};

use super::server::{Server, answer};
use super::{bench, number, text};

/// A weir with four workers whose script sleeps for 20 ms, and an admin interface.
fn sleepy() -> Weir {
    let setup = Setup::new()
        .file("run.php", "<?php usleep(20000); echo 'x';")
        .file("other.php", "<?php echo 'y';");
    let admin = setup.folder().join("admin.sock");
    let server = format!("admin = \"unix:{}\"", admin.display());
    let pool = format!("{}queue.maxconn = 4 # four\n", own_pool(4));
    setup.server(&server).pool(&pool).start()
}

/// Puts each `key = value` of a fragment into a weir.toml: it replaces an existing line, or adds the line to its table.
fn merge(toml: &str, fragment: &str) -> String {
    let mut lines: Vec<String> = toml.lines().map(str::to_owned).collect();
    let mut table = String::new();
    for line in fragment.lines() {
        if line.starts_with('[') {
            table = line.to_owned();
        }
        let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let (table, key) = match table.strip_suffix(".queue]") {
            Some(pool) => (format!("{pool}]"), format!("queue.{key}")),
            None => (table.clone(), key.to_owned()),
        };
        let header = lines.iter().position(|line| *line == table);
        let header = header.unwrap_or_else(|| panic!("{table} is in no line of {toml}"));
        let end = lines[header + 1..]
            .iter()
            .position(|line| line.starts_with('['));
        let end = end.map_or(lines.len(), |end| header + 1 + end);
        let is_old = |line: &String| line.split('=').next().is_some_and(|old| old.trim() == key);
        let section: Vec<String> = lines
            .drain(header + 1..end)
            .filter(|line| !is_old(line))
            .collect();
        lines.splice(header + 1..header + 1, section);
        lines.insert(header + 1, format!("{key} = {value}"));
    }
    lines.join("\n")
}

#[test]
fn what_is_proposed_is_taken_and_is_for_the_pool_that_was_loaded() {
    let weir = sleepy();
    let file = weir.folder().join("weir.toml");
    let config = file.display().to_string();
    let url = format!("http://{}/run.php", weir.address());
    let output = bench(&["--advise", "-c", &config, &url, "-t", "400ms"]);
    let (fragment, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    for words in [
        "[pool.app]\nmax_children = ",
        "[pool.app.queue]\nmaxconn = ",
        "timeout = \"1s\"",
        "# - a worker needs",
    ] {
        assert!(fragment.contains(words), "{words}: {fragment}");
    }
    assert!(!fragment.contains("conflicts"), "{fragment}");
    assert!(
        said.contains("8 users"),
        "the steps are told as they go: {said}"
    );
    let merged = merge(&fs::read_to_string(&file).expect("weir.toml"), &fragment);
    let other = weir.folder().join("merged.toml");
    fs::write(&other, &merged).expect("write");
    let check = Command::new(program())
        .arg("check")
        .arg("-c")
        .arg(&other)
        .output()
        .expect("weir");
    assert_eq!(
        check.status.code(),
        Some(0),
        "{}\n{merged}",
        text(&check.stderr)
    );

    let output = bench(&[
        "--advise",
        "-c",
        &config,
        &url,
        "-t",
        "400ms",
        "--target-wait",
        "250ms",
        "--json",
    ]);
    let advice: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(advice["pool"], "app");
    assert_eq!(advice["timeout"], 0.25);
    // A script that sleeps occupies its worker for that time, whatever else this machine does.
    let service = advice["service_time"].as_f64().expect("a time");
    assert!((0.02..2.0).contains(&service), "{advice:#}");
    assert!(number(&advice["worker_memory"]) > 100_000, "{advice:#}");
    let steps = advice["steps"].as_array().expect("steps");
    assert!(
        steps.len() >= 3 && number(&steps[1]["users"]) == 2,
        "{advice:#}"
    );
    // Four workers with 20 ms for each request cannot serve more.
    assert!(
        advice["rate_measured"].as_f64().expect("a rate") < 220.0,
        "{advice:#}"
    );
}

#[test]
fn a_url_that_needs_no_worker_is_no_ground_for_advice() {
    let weir = sleepy();
    fs::write(weir.root().join("file.txt"), "a file").expect("write");
    let config = weir.folder().join("weir.toml").display().to_string();
    let url = format!("http://{}/file.txt", weir.address());
    for more in [&[][..], &["--pool", "app"]] {
        let words = ["--advise", "-c", &config, &url, "-t", "200ms"];
        let output = bench(&[&words, more].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(
            said.contains("none of the requests reached pool app"),
            "{said}"
        );
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    }
}

#[test]
fn without_a_running_weir_it_says_what_it_does_not_know() {
    let server = Server::start(|talk| {
        while talk.request().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(5));
            if !talk.say(answer("200 OK", "", "")) {
                break;
            }
        }
    });
    let setup = Setup::new().pool(&own_pool(3));
    let config = setup.write_toml().display().to_string();
    let output = bench(&["--advise", "-c", &config, &server.url("/"), "-t", "200ms"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(said.contains("no figures from the running weir"), "{said}");
    assert!(
        said.contains("the memory of a worker could not be measured"),
        "{said}"
    );
    assert!(said.contains("[pool.app]\nmax_children = "), "{said}");
}

#[test]
fn which_configuration_and_which_pool_is_meant_must_be_clear() {
    let server = Server::always(answer("200 OK", "", ""));
    let url = server.url("/");
    let two = Setup::new()
        .pool(&own_pool(3))
        .more(&format!("[pool.other]\n{}", own_pool(2)));
    let config = two.write_toml().display().to_string();
    let none = Setup::new();
    let empty = none.write_toml().display().to_string();
    for (words, code, says) in [
        (
            vec!["--advise", "-c", "100"],
            64,
            "-c takes the configuration file",
        ),
        (vec!["--advise", "-c", "/no/such.toml"], 78, "/no/such.toml"),
        (vec!["--advise", "-c", &empty], 64, "no pool"),
        (
            vec!["--advise", "-c", &config, "--pool", "thrid"],
            64,
            "app, other",
        ),
        (
            vec!["--advise", "-c", &config, "-t", "100ms"],
            64,
            "--pool NAME: app, other",
        ),
        (vec!["--advise", "-r", "5"], 64, "cannot be used with"),
        (vec!["--pool", "app"], 64, "--advise"),
    ] {
        let words: Vec<&str> = words.into_iter().chain([url.as_str()]).collect();
        let output = bench(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    // A server that only fails is no basis for advice.
    let failing = Server::always(answer("500 Internal Server Error", "", ""));
    let output = bench(&[
        "--advise",
        "-c",
        &config,
        "--pool",
        "app",
        &failing.url("/"),
        "-t",
        "100ms",
    ]);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("no step got good answers"));
}
