//! Charts as standalone SVG: no scripts, fonts or external resources; for light and dark screens; lines differ by
//! dashes and names as well as by colour.

use std::fmt::Write;

/// What a chart shows.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Id of the picture, unique on a page.
    pub id: &'a str,
    /// The title.
    pub title: &'a str,
    /// A description for people who cannot see the chart.
    pub description: &'a str,
    /// Writes a value of the vertical axis.
    pub value: fn(f64) -> String,
}

/// A line of a chart over time.
#[derive(Debug, Clone)]
pub struct Line {
    /// The name at the end of the line.
    pub name: &'static str,
    /// Which colour and dashes: `good`, `bad`, `warn` or `faint`.
    pub class: &'static str,
    /// Seconds, value; in order.
    pub points: Vec<(f64, f64)>,
}

/// Values over time.
pub fn lines(frame: &Frame<'_>, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let last = all().map(|point| point.0).fold(0.0, f64::max);
    let most = all().map(|point| point.1).fold(0.0, f64::max);
    // The time axis ends with the run, not at a round number.
    let (round, x_step) = scale(last, 8);
    let end = if last > 0.0 { last } else { round };
    let (top, y_step) = scale(most, 4);
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - RIGHT) * seconds / end;
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / top;
    let mut out = begin(frame);
    for tick in ticks(top, y_step) {
        grid(&mut out, y(tick), &(frame.value)(tick));
    }
    for tick in ticks(end, x_step).take_while(|tick| *tick <= end) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            x(tick),
            BOTTOM + 18.0,
            plain(tick)
        );
    }
    let mut ends = Vec::new();
    for line in lines {
        let Some((seconds, value)) = line.points.last().copied() else {
            continue;
        };
        ends.push((y(value), x(seconds), line));
        if let [(seconds, value)] = line.points[..] {
            let _ = writeln!(
                out,
                "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                line.class,
                x(seconds),
                y(value)
            );
            continue;
        }
        let path: Vec<String> = line
            .points
            .iter()
            .map(|(seconds, value)| format!("{:.1},{:.1}", x(*seconds), y(*value)))
            .collect();
        let _ = writeln!(
            out,
            "<polyline class=\"line {}\" points=\"{}\"/>",
            line.class,
            path.join(" ")
        );
    }
    names(&mut out, ends);
    out.push_str("</svg>\n");
    out
}

/// A bar chart of counts.
pub fn bars(frame: &Frame<'_>, bars: &[(String, u64)]) -> String {
    let most = bars.iter().map(|bar| bar.1).max().unwrap_or(0) as f64;
    let (top, y_step) = scale(most, 4);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / top;
    let slot = (WIDTH - LEFT - 10.0) / bars.len().max(1) as f64;
    // Labels that would overlap are left out.
    let every = (NAME / slot).ceil().max(1.0) as usize;
    let mut out = begin(frame);
    for tick in ticks(top, y_step) {
        grid(&mut out, y(tick), &(frame.value)(tick));
    }
    for (index, (name, count)) in bars.iter().enumerate() {
        let x = LEFT + slot * index as f64;
        let height = BOTTOM - y(*count as f64);
        let _ = writeln!(
            out,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{}: {count}</title></rect>",
            x + slot * 0.08,
            BOTTOM - height,
            slot * 0.84,
            escape(name)
        );
        if index % every == 0 {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x + slot / 2.0,
                BOTTOM + 18.0,
                escape(name)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Escapes text for HTML and SVG, also for attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in HTML and XML.
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn begin(frame: &Frame<'_>) -> String {
    let (id, title) = (frame.id, escape(frame.title));
    let description = escape(frame.description);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-labelledby=\"{id}-title {id}-text\">\n<title id=\"{id}-title\">{title}</title>\n\
         <desc id=\"{id}-text\">{description}</desc>\n<style>{STYLE}</style>\n"
    )
}

fn grid(out: &mut String, y: f64, name: &str) {
    let _ = writeln!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - 10.0,
        LEFT - 8.0,
        y + 4.0,
        escape(name)
    );
}

/// Draws the lines' names at their ends, moved apart if they would overlap.
fn names(out: &mut String, mut ends: Vec<(f64, f64, &Line)>) {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    // From the bottom up, so that the lowest stays above the axis.
    let mut free = BOTTOM + 4.0;
    let mut placed = Vec::new();
    for (y, x, line) in ends.into_iter().rev() {
        let at = (y + 4.0).min(free);
        free = at - ROW;
        placed.push((at, x, line));
    }
    // Then from the top down, if there was not enough room.
    let mut free = TOP;
    for (at, x, line) in placed.into_iter().rev() {
        let at = at.max(free);
        free = at + ROW;
        let _ = writeln!(
            out,
            "<text class=\"name {}\" x=\"{:.1}\" y=\"{at:.1}\">{}</text>",
            line.class,
            x + 6.0,
            escape(line.name)
        );
    }
}

/// The end of an axis up to `most`, and the distance of its ticks: 1, 2 or 5 times a power of ten.
fn scale(most: f64, ticks: u32) -> (f64, f64) {
    if !(most.is_finite() && most > 0.0) {
        return (1.0, 1.0);
    }
    let rough = most / f64::from(ticks);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    ((most / step).ceil() * step, step)
}

fn ticks(end: f64, step: f64) -> impl Iterator<Item = f64> {
    let count = (end / step).round().clamp(1.0, 100.0) as u32;
    (0..=count).map(move |number| f64::from(number) * step)
}

/// Without useless digits.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// Rooms and colours; dark where the reader's screen is. Contrast is at least 4.5 on either ground.
const STYLE: &str = ".chart{--good:#0b62a8;--bad:#b3261e;--warn:#8a5a00;--faint:#5c6670;--ink:#333a40;--grid:#d5dae0;\
    --paper:#fff;background:var(--paper);font:12px system-ui,sans-serif}\
    @media(prefers-color-scheme:dark){.chart{--good:#6cb6ff;--bad:#ff8f87;--warn:#f0b64f;--faint:#a0abb5;--ink:#d3d9de;\
    --grid:#3a424a;--paper:#15191d}}\
    .chart text{fill:var(--ink)}.chart .grid{stroke:var(--grid)}\
    .chart .line{fill:none;stroke-width:2;stroke-linejoin:round}\
    .chart .good{stroke:var(--good)}.chart .bad{stroke:var(--bad);stroke-dasharray:7 3}\
    .chart .warn{stroke:var(--warn);stroke-dasharray:2 3}.chart .faint{stroke:var(--faint);stroke-width:1}\
    .chart .dot{stroke-dasharray:none}.chart .bar{fill:var(--good)}\
    .chart .name{stroke:none;font-weight:600}.chart .name.good{fill:var(--good)}.chart .name.bad{fill:var(--bad)}\
    .chart .name.warn{fill:var(--warn)}.chart .name.faint{fill:var(--faint)}";

/// Width of the picture, in its own units.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 270.0;

/// Where the lines are.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 236.0;

/// Between two names.
const ROW: f64 = 14.0;

/// Room that a name below a bar needs.
const NAME: f64 = 52.0;

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame<'_> = Frame {
        id: "a",
        title: "A <title>",
        description: "b & c",
        value: |value| value.to_string(),
    };

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, ticks, end, step) in [
            (10.0, 8, 10.0, 2.0),
            (59.5, 8, 60.0, 10.0),
            (0.37, 4, 0.4, 0.1),
            (2068.0, 4, 3000.0, 1000.0),
            (0.0, 4, 1.0, 1.0),
            (f64::NAN, 4, 1.0, 1.0),
        ] {
            let found = scale(most, ticks);
            assert!(
                (found.0 - end).abs() < 1e-9 && (found.1 - step).abs() < 1e-9,
                "{most}: {found:?}"
            );
        }
    }

    #[test]
    fn nothing_one_point_and_many_make_a_picture() {
        let of = |points: Vec<(f64, f64)>| {
            lines(
                &FRAME,
                &[Line {
                    name: "good",
                    class: "good",
                    points,
                }],
            )
        };
        for picture in [
            of(vec![]),
            of(vec![(0.5, 3.0)]),
            of(vec![(0.5, 0.0), (1.5, 9.0)]),
        ] {
            assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
            assert!(
                !picture.contains("NaN") && !picture.contains("inf"),
                "{picture}"
            );
            assert!(picture.contains("A &lt;title&gt;") && picture.contains("b &amp; c"));
        }
        assert!(of(vec![(0.5, 3.0)]).contains("<circle"));
        assert!(bars(&FRAME, &[]).ends_with("</svg>\n"));
    }

    #[test]
    fn names_do_not_stand_in_one_another() {
        let line = |class| Line {
            name: "n",
            class,
            points: vec![(0.0, 1.0), (1.0, 0.0)],
        };
        let high = |class| Line {
            points: vec![(0.0, 0.0), (1.0, 1.0)],
            ..line(class)
        };
        for lines_of in [
            [line("good"), line("bad"), line("warn")],
            [high("good"), high("bad"), high("warn")],
        ] {
            let picture = lines(&FRAME, &lines_of);
            let mut at: Vec<f64> = picture
                .lines()
                .filter(|line| line.contains("class=\"name"))
                .map(|line| {
                    line.split(" y=\"")
                        .nth(1)
                        .unwrap()
                        .split('"')
                        .next()
                        .unwrap()
                        .parse()
                        .unwrap()
                })
                .collect();
            at.sort_by(f64::total_cmp);
            assert_eq!(at.len(), 3);
            assert!(
                at.windows(2).all(|pair| pair[1] - pair[0] >= ROW - 0.1),
                "{at:?}"
            );
            assert!(at[0] >= TOP && at[2] <= BOTTOM + 5.0, "{at:?}");
        }
    }

    #[test]
    fn what_outsiders_say_is_no_markup() {
        assert_eq!(
            escape("<a b='c'>\"&\u{1}"),
            "&lt;a b=&#39;c&#39;&gt;&quot;&amp;\u{fffd}"
        );
    }
}
