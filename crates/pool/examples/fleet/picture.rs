//! Draws the runs of two fleets as a picture (SVG 1.1).

use std::fmt::Write as _;

use crate::world::{Plan, Second};

/// Draws the requests and answers per node above and the waits below, for the first fleet and for the second.
pub(crate) fn draw(plan: &Plan, course: &[Second], other_plan: &Plan, other: &[Second]) -> String {
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
         <title>A fleet with node failures and a peak of visitors</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let seconds = plan.seconds as f64;
    let rate = |plan: &Plan, course: &[Second], pick: fn(&Second) -> u64| -> Vec<Option<f64>> {
        let nodes = plan.nodes as f64;
        course
            .iter()
            .map(|second| Some(pick(second) as f64 / nodes))
            .collect()
    };
    let most = 4_000.0;
    let above = Panel {
        top: 60.0,
        bottom: 330.0,
        seconds,
        scale: Box::new(move |value: f64| (value / most).clamp(0.0, 1.0)),
    };
    heading(&mut svg, 40.0, "Requests and answers, a second and node");
    above.ground(
        &mut svg,
        plan,
        &[
            (0.0, "0"),
            (500.0, "500"),
            (1_000.0, "1,000"),
            (2_000.0, "2,000"),
            (4_000.0, "4,000"),
        ],
    );
    above.curve(&mut svg, &rate(plan, course, |s| s.asked), "#bbb", "");
    above.curve(&mut svg, &rate(plan, course, |s| s.capacity), "#666", "4 4");
    above.curve(&mut svg, &rate(other_plan, other, |s| s.good), THEIRS, "");
    above.curve(&mut svg, &rate(plan, course, |s| s.good), OURS, "");
    legend(
        &mut svg,
        above.bottom + 34.0,
        &[
            ("#bbb", "", "asked for (weir)"),
            ("#666", "4 4", "what the nodes can do"),
            (OURS, "", "answered in time: weir"),
            (THEIRS, "", "answered in time: unlimited queue"),
        ],
    );
    let below = Panel {
        top: 430.0,
        bottom: 680.0,
        seconds,
        // From 10 ms to 10 s.
        scale: Box::new(|ms: f64| ((ms / 10.0).max(1.0).log10() / 3.0).clamp(0.0, 1.0)),
    };
    let wait = |course: &[Second], share: f64| -> Vec<Option<f64>> {
        course
            .iter()
            .map(|second| second.waits.quantile(share).map(|wait| wait.0 as f64 / 1e3))
            .collect()
    };
    heading(
        &mut svg,
        410.0,
        "Response times of clients that still waited",
    );
    below.ground(
        &mut svg,
        plan,
        &[
            (10.0, "10 ms"),
            (100.0, "100 ms"),
            (1_000.0, "1 s"),
            (10_000.0, "10 s"),
        ],
    );
    below.curve(&mut svg, &wait(other, 0.99), THEIRS, "2 3");
    below.curve(&mut svg, &wait(other, 0.5), THEIRS, "");
    below.curve(&mut svg, &wait(course, 0.99), OURS, "2 3");
    below.curve(&mut svg, &wait(course, 0.5), OURS, "");
    legend(
        &mut svg,
        below.bottom + 34.0,
        &[
            (OURS, "", "weir: median"),
            (OURS, "2 3", "weir: 99 %"),
            (THEIRS, "", "unlimited queue: median"),
            (THEIRS, "2 3", "its 99 %"),
        ],
    );
    svg.push_str("</svg>\n");
    svg
}

struct Panel {
    top: f64,
    bottom: f64,
    seconds: f64,
    /// Turns a value into its height, 0 to 1.
    scale: Box<dyn Fn(f64) -> f64>,
}

impl Panel {
    fn x(&self, second: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * second / self.seconds
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * (self.scale)(value)
    }

    /// Draws the marks of the events, the lines of the scale, and the seconds.
    fn ground(&self, svg: &mut String, plan: &Plan, marks: &[(f64, &str)]) {
        let (_, from, until) = plan.crowd;
        self.shade(svg, from as f64, until as f64, "#fff0d8");
        for loss in &plan.losses {
            let (x, width) = (
                self.x(loss.from as f64),
                self.x(loss.until as f64) - self.x(loss.from as f64),
            );
            let y = self.bottom - 6.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"6\" fill=\"#d9b8b8\"/>"
            );
        }
        for (value, name) in marks {
            let y = self.y(*value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        for second in (0..=plan.seconds).step_by(20) {
            let x = self.x(second as f64);
            let y = self.bottom + 16.0;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{second} s</text>"
            );
        }
    }

    fn shade(&self, svg: &mut String, from: f64, until: f64, colour: &str) {
        let (x, width, height) = (
            self.x(from),
            self.x(until) - self.x(from),
            self.bottom - self.top,
        );
        let top = self.top;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// Draws a line through the value of each second. The line has a gap where there is no value.
    fn curve(&self, svg: &mut String, values: &[Option<f64>], colour: &str, dashes: &str) {
        let mut path = String::new();
        let mut command = 'M';
        for (second, value) in values.iter().enumerate() {
            match value {
                Some(value) => {
                    let _ = write!(
                        path,
                        "{command}{:.1} {:.1}",
                        self.x(second as f64 + 0.5),
                        self.y(*value)
                    );
                    command = 'L';
                }
                None => command = 'M',
            }
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>"
        );
    }
}

fn heading(svg: &mut String, y: f64, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"15\" font-weight=\"600\">{text}</text>"
    );
}

fn legend(svg: &mut String, y: f64, entries: &[(&str, &str, &str)]) {
    let mut x = LEFT;
    for (colour, dashes, text) in entries {
        let line = y - 4.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {line}h24\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>\
             <text x=\"{:.1}\" y=\"{y}\">{text}</text>",
            x + 30.0
        );
        x += 56.0 + text.len() as f64 * 6.6;
    }
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 740.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 940.0;
const OURS: &str = "#1668b8";
const THEIRS: &str = "#c0392b";
