//! Programs that cannot run, or have no time to.

use serde_json::Value;

use super::{Cost, Trouble, count, list, name, number, said, seconds, trouble};
use crate::text::text;

pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let programs = list(&status["programs"]).iter();
    let found = programs.flat_map(|program| {
        [
            failing(program),
            failed_run(program),
            skips(program),
            forgets(program),
        ]
    });
    found.flatten().take(MOST).collect()
}

/// It ends as soon as it is started, or cannot be started.
fn failing(program: &Value) -> Option<Trouble> {
    let failures = number(&program["failures"]);
    if failures < MANY {
        return None;
    }
    let end = &program["last_end"];
    let mut what = format!(
        "program {} does not run: it has ended {failures} times in a row within seconds ({})",
        name(program),
        text(&end["how"]),
    );
    if let Some(output) = end["output"].as_str().filter(|output| !output.is_empty()) {
        what += &format!("; it said: {}", text(&output.into()));
    }
    what += &format!("; tried again in {}", said(seconds(&program["again_in"])));
    let help = match end["failure"].as_bool() {
        Some(false) => {
            "its exit code is 0: if it is done when its work is done, write a schedule; if it goes to the background, tell it not to"
        }
        _ => {
            "start its command by hand, as its user and in its folder; the error log has its output"
        }
    };
    Some(trouble(Cost::Nothing, what, help))
}

/// The last run of a schedule has failed.
fn failed_run(program: &Value) -> Option<Trouble> {
    let end = &program["last_end"];
    if program["schedule"].is_null() || end["failure"] != true || number(&program["failures"]) > 0 {
        return None;
    }
    let mut what = format!(
        "the last run of program {} failed {} ago, after {}: {}",
        name(program),
        said(seconds(&end["ago"])),
        said(seconds(&end["time"])),
        text(&end["how"]),
    );
    if let Some(output) = end["output"].as_str().filter(|output| !output.is_empty()) {
        what += &format!("; it said: {}", text(&output.into()));
    }
    Some(trouble(Cost::Nothing, what, "the error log has its output"))
}

/// It still runs when its time comes.
fn skips(program: &Value) -> Option<Trouble> {
    let runs = list(&program["processes"]).iter();
    let longest = runs
        .map(|process| seconds(&process["time"]))
        .fold(0.0, f64::max);
    let skipped = number(&program["skipped"]);
    if skipped == 0 || longest < LONG {
        return None;
    }
    let what = format!(
        "program {} has run for {}, and {} of its schedule passed meanwhile or before",
        name(program),
        said(longest),
        count(skipped, "time"),
    );
    let help = "if it hangs, stop its process and write max_runtime; if it needs that long, start it more seldom";
    Some(trouble(Cost::Nothing, what, help))
}

/// weir cannot note the times of its schedule.
fn forgets(program: &Value) -> Option<Trouble> {
    (program["forgets_at_restart"] == true).then(|| {
        let what = format!(
            "the times of program {} cannot be noted: after a restart of weir, missed times are not made up",
            name(program)
        );
        let help = "give `state_dir` of [server] a folder in which weir's user may write, on a disk that is not full; the error log has the cause";
        trouble(Cost::Nothing, what, help)
    })
}

/// After so many ends in a row, the program cannot run.
const MANY: u64 = 3;

/// A run that is shorter than this is no trouble, although it has taken the time of another one, s.
const LONG: f64 = 60.0;

/// Problems of programs that are told, at most.
const MOST: usize = 10;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::troubles;

    fn told(program: Value) -> Vec<String> {
        let found = troubles(&json!({ "programs": [program] })).into_iter();
        found
            .map(|trouble| format!("{} > {}", trouble.what, trouble.help))
            .collect()
    }

    #[test]
    fn a_program_that_ends_at_once_is_told_with_its_last_words() {
        let loops = |failure: bool| {
            json!({
                "name": "queue", "failures": 7, "again_in": 12.8, "schedule": null,
                "last_end": { "how": "exit code 1", "failure": failure, "output": "no such table\u{1b}", "ago": 1.0 },
            })
        };
        let found = told(loops(true));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .contains("7 times in a row within seconds (exit code 1); it said: no such table")
                && found[0].contains("tried again in 12.8 s > start its command by hand")
                && !found[0].contains('\u{1b}'),
            "{found:?}"
        );
        assert!(told(loops(false))[0].contains("write a schedule"));
    }

    #[test]
    fn runs_that_failed_or_take_too_long_are_told_and_good_ones_are_not() {
        let run = |failure: bool, time: f64, skipped: u64| {
            json!({
                "name": "cron", "schedule": "* * * * *", "failures": 0, "skipped": skipped,
                "processes": [{ "pid": 5, "time": time }], "forgets_at_restart": false,
                "last_end": { "how": "exit code 2", "failure": failure, "output": "", "ago": 30.0, "time": 4.0 },
            })
        };
        assert_eq!(told(run(false, 5.0, 9)), Vec::<String>::new());
        assert!(told(run(true, 5.0, 0))[0].contains("failed 30.0 s ago, after 4.0 s: exit code 2"));
        assert!(told(run(false, 600.0, 9))[0].contains("has run for 10 min, and 9 times"));
    }
}
