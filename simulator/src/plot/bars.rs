//! Grouped bars.

use super::{
    Axis, Bars, Chart, Frame, axis,
    draw::{self, Key, Mark, escaped},
    write_line,
};

/// What a bar chart shows.
pub struct Groups<'a> {
    /// What the groups are called.
    pub names: &'a [String],
    /// The bars.
    pub series: &'a [Bars],
    /// A line across each group.
    pub bounds: &'a [Option<f64>],
    /// What it is called.
    pub bound_name: &'a str,
}

const LONGEST_NAME: usize = 26;

/// Draws the chart with its upper edge at `top` and tells its height.
pub fn render(chart: &Chart, groups: &Groups<'_>, top: f64, out: &mut String) -> f64 {
    let frame = Frame::below(top + draw::head(chart, &keys(groups), top, out));
    let axis = Axis::linear(0.0, groups.greatest(), 6);
    draw::vertical(&axis, &chart.y_label, frame, out);
    let room = (frame.right - frame.left) / groups.names.len().max(1) as f64;
    let longest = groups.names.iter().map(|name| draw::width(&short(name)));
    let longest = longest.fold(0.0, f64::max);
    let slanted = longest > room - 6.0;
    for (at, name) in groups.names.iter().enumerate() {
        let left = frame.left + room * at as f64;
        let group = Group { at, left, room };
        group.bars(groups, name, &axis, frame, out);
        group.label(name, slanted, frame, out);
    }
    let below = if slanted { longest * 0.87 + 24.0 } else { 26.0 };
    let label = frame.bottom + below + 12.0;
    draw::horizontal_label(&chart.x_label, frame, label, out);
    label + 18.0 - top
}

fn keys<'a>(groups: &Groups<'a>) -> Vec<Key<'a>> {
    let bars = groups.series.iter().enumerate().map(|(at, bars)| Key {
        name: &bars.name,
        mark: Mark::Bar(at),
    });
    let bound = Key {
        name: groups.bound_name,
        mark: Mark::Bound,
    };
    let has_bound = groups.bounds.iter().any(Option::is_some);
    bars.chain(has_bound.then_some(bound)).collect()
}

struct Group {
    at: usize,
    left: f64,
    room: f64,
}

impl Group {
    fn bars(&self, groups: &Groups<'_>, name: &str, axis: &Axis, frame: Frame, out: &mut String) {
        let count = groups.series.len().max(1) as f64;
        let inner = (self.room * 0.82).min(count * 48.0);
        let (from, each) = (self.left + (self.room - inner) / 2.0, inner / count);
        for (series, bars) in groups.series.iter().enumerate() {
            let Some(value) = bars.values.get(self.at).copied().flatten() else {
                continue;
            };
            let value = if value.is_finite() {
                value.max(0.0)
            } else {
                continue;
            };
            let y = frame.y(axis, value);
            write_line(
                out,
                format_args!(
                    "<rect class=\"f{}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                     height=\"{:.1}\"><title>{}, {}: {}</title></rect>",
                    draw::look(series).0,
                    from + each * series as f64,
                    (each - 1.5).max(0.8),
                    (frame.bottom - y).max(0.0),
                    escaped(&bars.name),
                    escaped(name),
                    axis::grouped(value, if value < 100.0 { 3 } else { 0 }),
                ),
            );
        }
        if let Some(bound) = groups.bounds.get(self.at).copied().flatten() {
            let y = frame.y(axis, bound);
            write_line(
                out,
                format_args!(
                    "<line class=\"bound\" x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\">\
                     <title>{}, {}: {}</title></line>",
                    from - 4.0,
                    from + inner + 2.0,
                    escaped(groups.bound_name),
                    escaped(name),
                    axis::grouped(bound, if bound < 100.0 { 3 } else { 0 }),
                ),
            );
        }
    }

    fn label(&self, name: &str, slanted: bool, frame: Frame, out: &mut String) {
        let (x, y) = (self.left + self.room / 2.0, frame.bottom + 18.0);
        let name = escaped(&short(name));
        let (anchor, turn) = if slanted {
            ("end", format!(" transform=\"rotate(-60 {x:.1} {y:.1})\""))
        } else {
            ("middle", String::new())
        };
        write_line(
            out,
            format_args!(
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{turn}>{name}</text>"
            ),
        );
    }
}

/// A name that fits below a group; the whole one is in the bars' descriptions.
fn short(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    let kept: String = name.chars().take(LONGEST_NAME - 1).collect();
    format!("{kept}\u{2026}")
}

impl Groups<'_> {
    fn greatest(&self) -> f64 {
        let values = self.series.iter().flat_map(|bars| &bars.values);
        values
            .chain(self.bounds)
            .filter_map(|value| value.filter(|value| value.is_finite()))
            .fold(0.0, f64::max)
    }
}
