//! Shows a [`Sample`]: as a table that is updated in place, or as a sequence of lines.

use std::fmt::Write;

use weir_machine::limits::set_sysctl;
use weir_observe::log_text;
use weir_sys::socket_owners::Process;

use super::sample::{Row, Sample, per_second};

/// The whole table. `colour`: full queues are red. `size`: available columns and rows; `None`: no limit.
pub fn table(sample: &Sample, every: &str, colour: bool, size: Option<(usize, usize)>) -> String {
    let (columns, lines) = size.unwrap_or((usize::MAX, usize::MAX));
    let mut out = vec![
        format!("{}  every {every}  {}", clock(sample), counters(sample)),
        String::new(),
    ];
    let width = widest(sample);
    out.push(heading(width));
    // Title, heading, notes and the line about hidden rows need room, too.
    let room = lines.saturating_sub(out.len() + MOST_NOTES + 3).max(2);
    let absent = sample.absent.iter().take(room / 2);
    let room = room - absent.len();
    let mut rows: Vec<&Row> = sample.rows.iter().collect();
    if rows.len() > room {
        // The most important rows are shown if there is not enough room.
        rows.sort_by_key(|row| std::cmp::Reverse((row.is_full(), row.length())));
    }
    for row in rows.iter().take(room) {
        let line = cut(&line(row, sample, width), columns);
        out.push(match colour && row.is_full() {
            true => format!("\x1b[1;31m{line}\x1b[0m"),
            false => line,
        });
    }
    if rows.len() > room {
        let more = rows.len() - room;
        let line = format!("and {more} more, which do not fit on this terminal");
        out.push(cut(&line, columns));
    }
    for (address, why) in absent {
        out.push(cut(&format!("{address:width$}  {why}"), columns));
    }
    let notes = notes(sample);
    if !notes.is_empty() {
        out.push(String::new());
        out.extend(
            notes
                .into_iter()
                .take(MOST_NOTES)
                .map(|note| cut(&note, columns)),
        );
    }
    let mut text = String::new();
    for (index, line) in out.iter().enumerate() {
        // The lines above were already cut to the terminal's width.
        match index < 3 {
            true => text.push_str(&cut(line, columns)),
            false => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// New lines below the last ones; `first`: with a heading.
pub fn lines(sample: &Sample, first: bool) -> String {
    let (time, width) = (clock(sample), widest(sample));
    let mut out = String::new();
    let counted = sample.new_overflows.unwrap_or_default();
    if first || counted.drops > 0 {
        let _ = writeln!(out, "{time}  {}", counters(sample));
    }
    if first {
        let _ = writeln!(out, "{:time$}  {}", "", heading(width), time = time.len());
    }
    for row in &sample.rows {
        let _ = writeln!(out, "{time}  {}", line(row, sample, width));
    }
    for (address, why) in &sample.absent {
        let _ = writeln!(out, "{time}  {address:width$}  {why}");
    }
    if first {
        for note in notes(sample) {
            let _ = writeln!(out, "{note}");
        }
    }
    out
}

fn clock(sample: &Sample) -> String {
    let mut time = Vec::new();
    log_text::put_time_formatted(sample.time, "%H:%M:%S", &mut time);
    String::from_utf8_lossy(&time).into_owned()
}

fn counters(sample: &Sample) -> String {
    let Some(all) = sample.overflows else {
        return "the number of dropped TCP connections is not known: /proc/net/netstat cannot be read".into();
    };
    let now = match (sample.new_overflows, sample.since) {
        (Some(new), Some(since)) => format!(
            "{}/s overflows, {}/s drops, ",
            per_second(new.overflows, since),
            per_second(new.drops, since)
        ),
        _ => String::new(),
    };
    format!(
        "TCP here, all programs: {now}{} and {} in all",
        all.overflows, all.drops
    )
}

fn heading(width: usize) -> String {
    format!(
        "{:width$}  {:>7}  {:>7}  {:>7}  {:>8}  {:11}  PROCESSES",
        "ADDRESS", "QUEUE", "LIMIT", "MAX", "DROPS/S", "STATE"
    )
}

fn line(row: &Row, sample: &Sample, width: usize) -> String {
    let drops = match (row.new_drops, sample.since, row.drops) {
        (Some(new), Some(since), _) => per_second(new, since).to_string(),
        (_, _, Some(all)) => format!("({all})"),
        _ => "-".into(),
    };
    let state = match (row.is_full(), row.is_cut(sample.somaxconn)) {
        (true, _) => "full",
        (false, true) => "=somaxconn",
        (false, false) => "",
    };
    let line = format!(
        "{:width$}  {:>7}  {:>7}  {:>7}  {drops:>8}  {state:11}  {}",
        address(row),
        row.length(),
        row.limit(),
        row.max,
        processes(&row.processes),
    );
    line.trim_end().to_owned()
}

fn address(row: &Row) -> String {
    match row.sockets.len() {
        0 | 1 => row.address.clone(),
        many => format!("{} ({many} sockets)", row.address),
    }
}

/// Each name once, with its first process and the number of others.
fn processes(processes: &[Process]) -> String {
    let mut names: Vec<(&str, u32, usize)> = Vec::new();
    for process in processes {
        match names.iter_mut().find(|(name, ..)| *name == process.name) {
            Some((_, _, more)) => *more += 1,
            None => names.push((&process.name, process.pid, 0)),
        }
    }
    let shown = names.into_iter().map(|(name, pid, more)| {
        let name: String = name
            .chars()
            .filter(|c| !weir_observe::log_text::is_hidden(*c))
            .collect();
        match more {
            0 => format!("{name} {pid}"),
            more => format!("{name} {pid} +{more}"),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Advice, and what could not be seen.
fn notes(sample: &Sample) -> Vec<String> {
    let mut notes = Vec::new();
    for row in &sample.rows {
        if row.is_full() {
            let then = match row.kind {
                "tcp" => "further connections wait for seconds or are refused",
                _ => "further connections wait in connect(), or fail with EAGAIN",
            };
            notes.push(format!(
                "{} is full: {then}. Its program accepts too slowly, or its backlog is too short",
                row.address
            ));
        }
        if row.is_cut(sample.somaxconn) && row.max > row.limit() / 2 {
            let limit = sample.somaxconn.unwrap_or_default();
            notes.push(format!(
                "the limit of {} is net.core.somaxconn ({limit}). If its program wants more, {}, then restart it",
                row.address,
                set_sysctl("net.core.somaxconn", "N")
            ));
        }
    }
    if sample.barred > 0 && sample.rows.iter().any(|row| row.processes.is_empty()) {
        notes.push(format!(
            "{} processes of other users are hidden; run as root to see all names",
            sample.barred
        ));
    }
    notes
}

fn widest(sample: &Sample) -> usize {
    let rows = sample.rows.iter().map(|row| address(row).chars().count());
    let absent = sample
        .absent
        .iter()
        .map(|(address, _)| address.chars().count());
    rows.chain(absent)
        .max()
        .unwrap_or(0)
        .clamp("ADDRESS".len(), WIDEST)
}

fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        Some((end, _)) => line[..end].to_owned(),
        None => line.to_owned(),
    }
}

/// Maximum number of notes below the table.
const MOST_NOTES: usize = 4;

/// Longer addresses shift the rest of their line.
const WIDEST: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};
    use weir_sys::net_stat::Overflows;

    fn sample() -> Sample {
        let process = |pid| Process {
            pid,
            name: "php-fpm8.2".into(),
        };
        let row = |address: &str, kind, sockets: &[(u32, u32, u32)]| Row {
            address: address.into(),
            kind,
            sockets: sockets.to_vec(),
            max: 3,
            drops: None,
            new_drops: None,
            uid: Some(0),
            processes: Vec::new(),
        };
        let mut fpm = row("unix:/run/php.sock", "unix", &[(7, 3, 2)]);
        fpm.processes = vec![process(20), process(21), process(22)];
        let mut web = row("0.0.0.0:80", "tcp", &[(8, 1, 4096), (9, 0, 4096)]);
        (web.drops, web.new_drops) = (Some(50), Some(3));
        Sample {
            time: UNIX_EPOCH + Duration::from_secs(1_000_000_000),
            since: Some(2.0),
            somaxconn: Some(4096),
            overflows: Some(Overflows {
                overflows: 91_855,
                drops: 91_860,
            }),
            new_overflows: Some(Overflows {
                overflows: 5,
                drops: 6,
            }),
            rows: vec![fpm, web],
            absent: vec![(":9999".into(), "nothing is listening there".into())],
            barred: 3,
        }
    }

    #[test]
    fn the_table_says_who_is_full_and_who_listens() {
        let shown = table(&sample(), "2s", false, None);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[0].contains("2.5/s overflows, 3/s drops, 91855 and 91860"),
            "{shown}"
        );
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(lines[3]),
            "unix:/run/php.sock 3 2 3 - full php-fpm8.2 20 +2"
        );
        assert_eq!(
            words(lines[4]),
            "0.0.0.0:80 (2 sockets) 1 8192 3 1.5 =somaxconn"
        );
        assert_eq!(words(lines[5]), ":9999 nothing is listening there");
        assert!(shown.contains("unix:/run/php.sock is full: "), "{shown}");
        assert!(!shown.contains('\x1b'));
        assert!(table(&sample(), "2s", true, None).contains("\x1b[1;31munix:"));
    }

    #[test]
    fn no_line_is_wider_and_no_table_higher_than_the_terminal() {
        let mut sample = sample();
        sample.rows = sample.rows.iter().cycle().take(100).cloned().collect();
        let shown = table(&sample, "1s", false, Some((40, 24)));
        assert!(shown.lines().count() <= 24, "{shown}");
        assert!(
            shown.lines().all(|line| line.chars().count() <= 60),
            "{shown}"
        );
        assert!(shown.contains("more, which"), "{shown}");
    }

    #[test]
    fn lines_have_their_heading_once() {
        assert!(lines(&sample(), true).contains("ADDRESS"));
        let later = lines(&sample(), false);
        assert!(
            !later.contains("ADDRESS") && later.lines().count() == 4,
            "{later}"
        );
    }

    #[test]
    fn the_object_has_all_keys() {
        let json = sample().to_json();
        let first = &json["listeners"][0];
        assert_eq!(
            (first["length"].as_u64(), first["limit"].as_u64()),
            (Some(3), Some(2))
        );
        assert_eq!(
            (&first["full"], &first["drops"]),
            (&true.into(), &().into())
        );
        assert_eq!(json["listeners"][1]["drops_per_second"], 1.5);
        assert_eq!(json["absent"][0]["address"], ":9999");
        assert_eq!(json["tcp_overflows_per_second"], 2.5);
    }
}
