//! The times of schedules, compared with those that another program finds: `schedules/make.py` wrote them.

use weir_config::{Environment, Schedule, read};

#[test]
fn times_are_those_of_another_implementation_of_cron() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schedules/times.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let (schedule, times) = line.split_once('\t').unwrap();
        let times: Vec<i64> = times
            .split('\t')
            .map(|time| time.parse().unwrap())
            .collect();
        let schedule = parsed(schedule);
        let found = std::iter::successors(Some(times[0]), |time| schedule.next(*time));
        let found: Vec<i64> = found.take(times.len()).collect();
        if found != times {
            wrong.push(format!("{line}: {found:?}"));
        }
    }
    assert!(text.lines().count() >= 400);
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

fn parsed(schedule: &str) -> Schedule {
    let text = format!(
        "[listen.web]\naddress = \"127.0.0.1:80\"\n[site.a]\nroot = \"/srv\"\n\
         [program.a]\ncommand = [\"true\"]\nschedule = \"{schedule}\"\n"
    );
    let environment = Environment {
        folder: "/".into(),
        cores: 1,
        memory: 1 << 30,
        open_files: 1 << 20,
    };
    let checked = read("weir.toml", &text, &environment).unwrap_or_else(|wrong| panic!("{wrong}"));
    checked.config.programs[0].schedule.clone().unwrap()
}
