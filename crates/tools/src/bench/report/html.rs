//! The report as one page: figures, charts, and below each chart its values as a table. It needs no network, runs no
//! script, and declares that to the browser.

use std::fmt::Write;

use super::{
    chart::{self, Frame, Line, escape},
    summary::{Moment, PERCENTILES, Summary},
    text::{come_again, megabytes, span},
};

/// All of it.
pub fn html(summary: &Summary) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>weir bench: {url}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <main>\n<h1>{url}</h1>\n<p>{load}</p>\n",
        url = escape(&summary.url),
        load = escape(&summary.load),
    );
    remarks(&mut out, summary);
    figures(&mut out, summary);
    over_time(&mut out, summary);
    distribution(&mut out, summary);
    percentiles(&mut out, summary);
    failures(&mut out, summary);
    fairness(&mut out, summary);
    own(&mut out, summary);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn remarks(out: &mut String, summary: &Summary) {
    if let Some(unfinished) = summary.stopped {
        let _ = writeln!(
            out,
            "<p class=\"warning\">Ended early; {unfinished} unfinished requests are not counted.</p>"
        );
    }
    for warning in &summary.warnings {
        let _ = writeln!(out, "<p class=\"warning\">{}</p>", escape(warning));
    }
    for note in &summary.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
}

fn figures(out: &mut String, summary: &Summary) {
    out.push_str("<h2>Figures</h2>\n<dl>\n");
    let mut figure = |name: &str, value: String| {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    };
    let availability = summary.availability;
    figure("Transactions", summary.good.to_string());
    figure(
        "Availability",
        availability.map_or("-".into(), |percent| {
            format!("{:.2} %", (percent * 100.0).floor() / 100.0)
        }),
    );
    figure("Transaction rate", format!("{:.1} a second", summary.rate));
    figure("Response time", span(summary.times.mean));
    figure("Longest transaction", span(summary.times.longest));
    figure("Refused", summary.refused.to_string());
    figure("Failed", summary.failed.to_string());
    figure("Elapsed time", span(summary.elapsed));
    figure("Concurrency", format!("{:.1}", summary.concurrency));
    figure(
        "Throughput",
        format!("{} MB a second", megabytes(summary.throughput)),
    );
    figure(
        "Data transferred",
        format!("{} MB", megabytes(summary.bytes as f64)),
    );
    out.push_str("</dl>\n");
}

fn over_time(out: &mut String, summary: &Summary) {
    let points = &summary.points;
    let middle = |moment: &Moment| moment.at + moment.span / 2.0;
    let rate = |of: fn(&Moment) -> u64| -> Vec<(f64, f64)> {
        // A partial second at the end gives no reliable rate.
        let whole =
            |moment: &&Moment| points.len() == 1 || moment.span >= summary.step as f64 / 4.0;
        let point = |moment: &Moment| (middle(moment), of(moment) as f64 / moment.span);
        points.iter().filter(whole).map(point).collect()
    };
    let time = |of: fn(&Moment) -> f64, some: fn(&Moment) -> bool| -> Vec<(f64, f64)> {
        let with = points.iter().filter(|moment| some(moment));
        with.map(|moment| (middle(moment), of(moment))).collect()
    };
    let line = |name, class, points| Line {
        name,
        class,
        points,
    };
    // Nothing is sent while the last answers are awaited.
    let sent = points
        .iter()
        .filter(|moment| moment.at < summary.elapsed - 0.001)
        .map(|moment| {
            let span = moment.span.min(summary.elapsed - moment.at);
            (moment.at + span / 2.0, moment.sent as f64 / span)
        })
        .collect();
    let mut rates = vec![
        line("sent", "faint", sent),
        line("good", "good", rate(|moment| moment.good)),
    ];
    if summary.refused > 0 {
        rates.push(line("refused", "warn", rate(|moment| moment.refused)));
    }
    if summary.failed > 0 {
        rates.push(line("failed", "bad", rate(|moment| moment.failed)));
    }
    let description = format!(
        "Requests a second over {} s: {:.1} good answers a second on average, {} refused and {} failed in all.",
        summary.elapsed.round(),
        summary.rate,
        summary.refused,
        summary.failed
    );
    let goodput = Frame {
        id: "goodput",
        title: "Goodput: answers per second",
        description: &description,
        value: count,
    };
    figure(
        out,
        &goodput,
        &chart::lines(&goodput, &rates),
        &table(points, false),
    );

    let answered: fn(&Moment) -> bool = |moment| moment.good > 0;
    let mut waits = vec![
        line("p50", "good", time(|moment| moment.p50, answered)),
        line("p99", "warn", time(|moment| moment.p99, answered)),
        line("longest", "bad", time(|moment| moment.longest, answered)),
    ];
    if summary.refused > 0 {
        let refused: fn(&Moment) -> bool = |moment| moment.refused > 0;
        waits.push(line(
            "refusal",
            "faint",
            time(|moment| moment.refused_longest, refused),
        ));
    }
    let description = format!(
        "Times of good answers: half within {}, 99 of 100 within {}, the longest {}.",
        span(summary.times.percentiles[0]),
        span(summary.times.percentiles[4]),
        span(summary.times.longest)
    );
    let frame = Frame {
        id: "waits",
        title: "Waits: times of the answers in each second",
        description: &description,
        value: span,
    };
    figure(
        out,
        &frame,
        &chart::lines(&frame, &waits),
        &table(points, true),
    );
}

fn distribution(out: &mut String, summary: &Summary) {
    let bars: Vec<(String, u64)> = summary
        .histogram
        .iter()
        .map(|bar| (span(bar.to), bar.count))
        .collect();
    let frame = Frame {
        id: "distribution",
        title: "Distribution: number of good answers by time, up to",
        description: "Number of good answers by time. The time scale grows in steps.",
        value: count,
    };
    let mut rows =
        String::from("<tr><th scope=\"col\">up to</th><th scope=\"col\">answers</th></tr>\n");
    for (name, count) in &bars {
        let _ = writeln!(rows, "<tr><td>{name}</td><td>{count}</td></tr>");
    }
    figure(out, &frame, &chart::bars(&frame, &bars), &rows);
}

fn figure(out: &mut String, frame: &Frame<'_>, picture: &str, rows: &str) {
    let _ = writeln!(
        out,
        "<figure>\n<figcaption>{}</figcaption>\n{picture}<details><summary>As a table</summary>\n\
         <div class=\"wide\"><table>\n{rows}</table></div>\n</details>\n</figure>",
        escape(frame.title)
    );
}

fn table(points: &[Moment], times: bool) -> String {
    let names: &[&str] = match times {
        true => &["second", "p50", "p99", "longest", "longest refusal"],
        false => &["second", "sent", "good", "refused", "failed"],
    };
    let mut rows = String::from("<tr>");
    for name in names {
        let _ = write!(rows, "<th scope=\"col\">{name}</th>");
    }
    rows.push_str("</tr>\n");
    for moment in points {
        let cells = match times {
            true => [
                moment.p50,
                moment.p99,
                moment.longest,
                moment.refused_longest,
            ]
            .map(span),
            false => {
                [moment.sent, moment.good, moment.refused, moment.failed].map(|n| n.to_string())
            }
        };
        let _ = write!(rows, "<tr><td>{}</td>", moment.at);
        for cell in cells {
            let _ = write!(rows, "<td>{cell}</td>");
        }
        rows.push_str("</tr>\n");
    }
    rows
}

fn percentiles(out: &mut String, summary: &Summary) {
    let columns = summary.columns();
    out.push_str("<h2>Times</h2>\n<div class=\"wide\"><table>\n<tr><th scope=\"col\">within</th>");
    for (name, _) in &columns {
        let _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    out.push_str("</tr>\n");
    let names = PERCENTILES.iter().map(|(name, _)| *name).chain(["longest"]);
    for (index, name) in names.enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{name}</th>");
        for (_, times) in &columns {
            let value = times
                .percentiles
                .get(index)
                .copied()
                .unwrap_or(times.longest);
            let _ = write!(out, "<td>{}</td>", span(value));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn failures(out: &mut String, summary: &Summary) {
    if summary.reasons.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Refused and failed</h2>\n<div class=\"wide\"><table>\n\
         <tr><th scope=\"col\">status</th><th scope=\"col\">reason</th><th scope=\"col\">requests</th></tr>\n",
    );
    for (status, reason, count) in &summary.reasons {
        let status = match status {
            0 => "no answer".to_owned(),
            status => status.to_string(),
        };
        let _ = writeln!(
            out,
            "<tr><td>{status}</td><td>{}</td><td>{count}</td></tr>",
            escape(reason)
        );
    }
    out.push_str("</table></div>\n");
    if summary.refused > 0 {
        let _ = writeln!(out, "<p>{}</p>", escape(&come_again(summary)));
    }
}

fn fairness(out: &mut String, summary: &Summary) {
    let Some(fair) = summary.fairness.filter(|fair| fair.clients > 1) else {
        return;
    };
    let _ = writeln!(
        out,
        "<h2>Clients</h2>\n<p>{} clients: the least served got {} answers, the most served {}; {} were never served. \
         The longest wait of a client was {} at worst, {} in the middle, {} at best.</p>",
        fair.clients,
        fair.least,
        fair.most,
        fair.starved,
        span(fair.worst_wait),
        span(fair.middle_wait),
        span(fair.best_wait)
    );
}

fn own(out: &mut String, summary: &Summary) {
    let own = &summary.own;
    let late = summary.late.filter(|late| late.count > 0);
    let late = late.map_or(String::new(), |late| {
        format!(
            "; requests were sent late by {} (p99)",
            span(late.percentiles[4])
        )
    });
    let _ = writeln!(
        out,
        "<h2>Load generator</h2>\n<p>{:.1} µs of CPU a request; the busiest thread of {} was at work {:.0} % of the \
         time; {} connections, {} requests sent again because the server had closed the connection{late}.</p>",
        own.cpu_per_request,
        own.threads,
        own.busiest * 100.0,
        own.connections,
        own.sent_again
    );
}

/// A number of things, short.
fn count(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

const STYLE: &str = ":root{color-scheme:light dark;--ink:#1d2328;--paper:#fff;--soft:#5c6670;--edge:#d5dae0;--warn:#8a5a00}\
    @media(prefers-color-scheme:dark){:root{--ink:#e4e9ed;--paper:#15191d;--soft:#a0abb5;--edge:#3a424a;--warn:#f0b64f}}\
    body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\
    main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}\
    h1{font-size:1.4rem;overflow-wrap:anywhere;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}\
    .warning{border-left:4px solid var(--warn);padding-left:.75rem}.note{color:var(--soft)}\
    dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:.75rem;margin:0}\
    dl div{border:1px solid var(--edge);border-radius:.4rem;padding:.5rem .75rem}\
    dt{color:var(--soft);font-size:.85rem}dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums}\
    figure{margin:2rem 0 0}figcaption{font-weight:600;margin-bottom:.25rem}svg{width:100%;height:auto;display:block}\
    summary{cursor:pointer;color:var(--soft)}.wide{overflow-x:auto}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
    th,td{text-align:right;padding:.2rem .75rem;border-bottom:1px solid var(--edge)}th:first-child{text-align:left}";
