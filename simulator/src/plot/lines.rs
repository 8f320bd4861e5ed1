//! Curves.

use super::{
    Axis, Chart, Frame, Line,
    draw::{self, Key, Mark, escaped},
    write_line,
};

/// Draws the chart with its upper edge at `top` and tells its height.
pub fn render(chart: &Chart, series: &[Line], log_x: bool, top: f64, out: &mut String) -> f64 {
    let frame = Frame::below(top + draw::head(chart, &keys(series), top, out));
    let series: Vec<Line> = series.iter().map(finite).collect();
    let (x_axis, y_axis) = axes(&series, log_x);
    draw::vertical(&y_axis, &chart.y_label, frame, out);
    for tick in &x_axis.ticks {
        let x = frame.x(&x_axis, *tick);
        write_line(
            out,
            format_args!(
                "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                frame.bottom,
                frame.bottom + 5.0,
                frame.bottom + 20.0,
                x_axis.label(*tick)
            ),
        );
    }
    // The first is drawn last: where curves fall together it is the one that is seen.
    for (at, line) in series.iter().enumerate().rev() {
        curve(at, line, (&x_axis, &y_axis), frame, out);
    }
    let label = frame.bottom + 42.0;
    draw::horizontal_label(&chart.x_label, frame, label, out);
    label + 18.0 - top
}

fn keys(series: &[Line]) -> Vec<Key<'_>> {
    let key = |(at, line): (usize, &'_ Line)| match line.reference {
        true => Mark::Reference,
        false => Mark::Line(at),
    };
    series
        .iter()
        .enumerate()
        .map(|entry| Key {
            name: &entry.1.name,
            mark: key(entry),
        })
        .collect()
}

fn finite(line: &Line) -> Line {
    let points = line.points.iter().copied();
    Line {
        points: points
            .filter(|(x, y)| x.is_finite() && y.is_finite())
            .collect(),
        ..line.clone()
    }
}

fn axes(series: &[Line], log_x: bool) -> (Axis, Axis) {
    let points = || series.iter().flat_map(|line| &line.points);
    let mut positions: Vec<f64> = points().map(|(x, _)| *x).collect();
    positions.sort_by(f64::total_cmp);
    positions.dedup();
    let low = positions.first().copied().unwrap_or(0.0);
    let high = positions.last().copied().unwrap_or(1.0);
    let top = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let bottom = points().map(|(_, y)| *y).fold(0.0, f64::min);
    let x_axis = if log_x && low > 0.0 {
        Axis::logarithmic(low, high, &positions)
    } else {
        Axis::linear(low, high, 8)
    };
    (x_axis, Axis::linear(bottom, top, 6))
}

fn curve(at: usize, line: &Line, (x_axis, y_axis): (&Axis, &Axis), frame: Frame, out: &mut String) {
    let (colour, dash) = draw::look(at);
    let class = if line.reference {
        "bound\" stroke-dasharray=\"4 4".to_owned()
    } else {
        format!("line s{colour}")
    };
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|(x, y)| (frame.x(x_axis, *x), frame.y(y_axis, *y)))
        .collect();
    let path: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    write_line(
        out,
        format_args!(
            "<polyline class=\"{class}\"{dash} points=\"{}\"><title>{}</title></polyline>",
            path.join(" "),
            escaped(&line.name)
        ),
    );
    if line.reference {
        return;
    }
    for ((x, y), (position, value)) in places.iter().zip(&line.points) {
        write_line(
            out,
            format_args!(
                "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">\
                 <title>{} at {position}: {value}</title></circle>",
                escaped(&line.name)
            ),
        );
    }
}
