//! The report as text: siege's lines, and additional ones.

use std::fmt::Write;

use super::summary::{PERCENTILES, Summary};

/// All of it.
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}", summary.url, summary.load);
    if let Some(unfinished) = summary.stopped {
        let _ = writeln!(
            out,
            "ended early; {unfinished} unfinished requests are not counted"
        );
    }
    out.push('\n');
    lines(&mut out, summary);
    percentiles(&mut out, summary);
    failures(&mut out, summary);
    fairness(&mut out, summary);
    histogram(&mut out, summary);
    own(&mut out, summary);
    for warning in &summary.warnings {
        let _ = writeln!(out, "\nwarning: {warning}");
    }
    out
}

/// The lines that siege prints.
fn lines(out: &mut String, summary: &Summary) {
    let mut line = |name: &str, value: String, unit: &str| {
        let line = format!("{:<25}{value:>12} {unit}", format!("{name}:"));
        let _ = writeln!(out, "{}", line.trim_end());
    };
    let times = &summary.times;
    let tail = match summary.tail >= 0.01 {
        true => format!("secs, and {:.2} until the last answer", summary.tail),
        false => "secs".to_owned(),
    };
    line("Transactions", summary.good.to_string(), "hits");
    match summary.availability {
        Some(percent) => line("Availability", floor(percent), "%"),
        None => line("Availability", "-".into(), ""),
    }
    line("Elapsed time", format!("{:.2}", summary.elapsed), &tail);
    line("Data transferred", megabytes(summary.bytes as f64), "MB");
    line("Response time", seconds(times.mean), "secs");
    line(
        "Transaction rate",
        format!("{:.2}", summary.rate),
        "trans/sec",
    );
    line("Throughput", megabytes(summary.throughput), "MB/sec");
    line("Concurrency", format!("{:.2}", summary.concurrency), "");
    line("Successful transactions", summary.good.to_string(), "");
    line(
        "Failed transactions",
        (summary.refused + summary.failed).to_string(),
        "",
    );
    line("Longest transaction", seconds(times.longest), "");
    line("Shortest transaction", seconds(times.shortest), "");
}

/// A table with a column for each kind of result that occurred.
fn percentiles(out: &mut String, summary: &Summary) {
    let columns = summary.columns();
    if columns.is_empty() {
        return;
    }
    let _ = write!(out, "\n{:<12}", "within");
    for (name, _) in &columns {
        let _ = write!(out, "{name:>12}");
    }
    out.push('\n');
    for (index, (name, _)) in PERCENTILES.iter().enumerate() {
        let _ = write!(out, "  {name:<10}");
        for (_, times) in &columns {
            let _ = write!(out, "{:>12}", span(times.percentiles[index]));
        }
        out.push('\n');
    }
    let _ = write!(out, "  {:<10}", "longest");
    for (_, times) in &columns {
        let _ = write!(out, "{:>12}", span(times.longest));
    }
    out.push('\n');
}

fn failures(out: &mut String, summary: &Summary) {
    if summary.reasons.is_empty() {
        return;
    }
    out.push_str("\nrefused and failed\n");
    for (status, reason, count) in &summary.reasons {
        let status = match status {
            0 => "no answer".to_owned(),
            status => status.to_string(),
        };
        let line = format!("{count:>12}  {status} {reason}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if summary.refused > 0 {
        let _ = writeln!(out, "{}", come_again(summary));
    }
}

/// Retry-After values of refusals.
pub(super) fn come_again(summary: &Summary) -> String {
    let said = &summary.retry_after;
    match said.count {
        0 => "no refusal has Retry-After".to_owned(),
        count => format!(
            "{count} of {} refusals have Retry-After: {} to {} s",
            summary.refused, said.soonest, said.latest
        ),
    }
}

fn fairness(out: &mut String, summary: &Summary) {
    let Some(fair) = summary.fairness.filter(|fair| fair.clients > 1) else {
        return;
    };
    let _ = writeln!(
        out,
        "\n{} clients: the least served got {} answers, the most served {} (half got {} or more)",
        fair.clients, fair.least, fair.most, fair.middle
    );
    let _ = writeln!(
        out,
        "longest wait of a client: {} at worst, {} in the middle, {} at best",
        span(fair.worst_wait),
        span(fair.middle_wait),
        span(fair.best_wait)
    );
    if fair.starved > 0 {
        let _ = writeln!(out, "{} clients were never served", fair.starved);
    }
}

fn histogram(out: &mut String, summary: &Summary) {
    let most = summary.histogram.iter().map(|bar| bar.count).max();
    let Some(most) = most.filter(|most| *most > 0) else {
        return;
    };
    out.push_str("\nanswers within\n");
    for bar in &summary.histogram {
        let width = (bar.count as f64 * WIDTH as f64 / most as f64).ceil() as usize;
        let _ = writeln!(
            out,
            "{:>10} {:>10}  {}",
            span(bar.to),
            bar.count,
            "#".repeat(width)
        );
    }
}

fn own(out: &mut String, summary: &Summary) {
    let own = &summary.own;
    let _ = write!(
        out,
        "\nload generator: {:.1} µs of CPU a request, busiest of {} {} {:.0} %, {} connections",
        own.cpu_per_request,
        own.threads,
        if own.threads == 1 {
            "thread"
        } else {
            "threads"
        },
        own.busiest * 100.0,
        own.connections,
    );
    if own.sent_again > 0 {
        let _ = write!(
            out,
            ", {} requests sent again because the server had closed the connection",
            own.sent_again
        );
    }
    if let Some(late) = summary.late.filter(|late| late.count > 0) {
        let _ = write!(out, ", sent late by {} (p99)", span(late.percentiles[4]));
    }
    out.push('\n');
}

/// Two digits, never rounded up: 99.999 % is not 100 %.
fn floor(percent: f64) -> String {
    format!("{:.2}", (percent * 100.0).floor() / 100.0)
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2}")
}

/// In siege's unit: 1024 × 1024.
pub(super) fn megabytes(bytes: f64) -> String {
    format!("{:.2}", bytes / (1024.0 * 1024.0))
}

/// A time in a suitable unit.
pub fn span(seconds: f64) -> String {
    let three = |value: f64| match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    match seconds {
        s if s >= 0.9995 => format!("{} s", three(s)),
        s if s >= 0.000_999_5 => format!("{} ms", three(s * 1e3)),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// Width of the longest bar, characters.
const WIDTH: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (seconds, text) in [
            (0.0, "0 µs"),
            (0.000_42, "420 µs"),
            (0.001_234, "1.23 ms"),
            (0.0999, "99.9 ms"),
            (0.099_99, "100 ms"),
            (0.9996, "1.00 s"),
            (12.345, "12.3 s"),
            (123.4, "123 s"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn almost_all_is_not_all() {
        assert_eq!(floor(99.9999), "99.99");
        assert_eq!(floor(100.0), "100.00");
    }
}
