//! Results as pictures: an SVG writer for grouped bars and for lines, without dependencies.
//!
//! Entry points: [`Chart`], [`svg`]. A picture holds its charts one below the other. It carries
//! its own colours for light and dark surroundings, is valid XML whatever the names in it, and the
//! same charts give the same bytes.

use std::fmt::Write as _;

mod axis;
mod bars;
mod draw;
mod lines;
mod results;

use axis::Axis;
use draw::{Frame, escaped};

pub use results::charts;

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Above the chart.
    pub title: String,
    /// Below the horizontal axis; may be empty.
    pub x_label: String,
    /// Beside the vertical axis, with its unit.
    pub y_label: String,
    /// What is drawn.
    pub body: Body,
}

/// What a chart shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Groups of bars, one bar for each series.
    Bars {
        /// By position: what the groups are called.
        groups: Vec<String>,
        /// By position in each: the groups' values; `None` where there is none.
        series: Vec<Bars>,
        /// A line across each group, such as what no policy can exceed; empty for none.
        bounds: Vec<Option<f64>>,
        /// What that line is called.
        bound_name: String,
    },
    /// Curves.
    Lines {
        /// The curves.
        series: Vec<Line>,
        /// Whether the horizontal axis is logarithmic; only with positive positions.
        log_x: bool,
    },
}

/// The bars of one colour.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Its name in the legend.
    pub name: String,
    /// By group.
    pub values: Vec<Option<f64>>,
}

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Points by increasing position; those that are not finite are left out.
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed, without markers: a bound or a reference.
    pub reference: bool,
}

/// Most groups of bars beside each other; more go into a further row.
const MOST_BARS: usize = 96;

/// Width of every picture, px.
const WIDTH: f64 = 900.0;

/// The picture of some charts, as a whole SVG document.
pub fn svg(charts: &[Chart]) -> String {
    let charts: Vec<Chart> = charts.iter().flat_map(rows).collect();
    let mut body = String::new();
    let mut top = 0.0;
    for chart in &charts {
        top += render(chart, top, &mut body);
    }
    let mut text = String::with_capacity(body.len() + 4096);
    let title = charts.first().map_or("", |chart| chart.title.as_str());
    let height = top.max(1.0);
    write_line(
        &mut text,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">"
        ),
    );
    write_line(&mut text, format_args!("<title>{}</title>", escaped(title)));
    text.push_str(&draw::style());
    write_line(
        &mut text,
        format_args!(
            "<rect class=\"page\" x=\"0\" y=\"0\" width=\"{WIDTH}\" height=\"{height:.0}\"/>"
        ),
    );
    text.push_str(&body);
    text.push_str("</svg>\n");
    text
}

/// A chart with too many bars as several rows of groups.
fn rows(chart: &Chart) -> Vec<Chart> {
    let Body::Bars {
        groups,
        series,
        bounds,
        bound_name,
    } = &chart.body
    else {
        return vec![chart.clone()];
    };
    let most = (MOST_BARS / series.len().max(1)).max(1);
    let parts = groups.len().div_ceil(most).max(1);
    let size = groups.len().div_ceil(parts).max(1);
    let part = |index: usize| {
        let (from, to) = (index * size, ((index + 1) * size).min(groups.len()));
        let title = match index {
            0 => chart.title.clone(),
            _ => format!("{} (continued)", chart.title),
        };
        Chart {
            title,
            body: Body::Bars {
                groups: groups[from..to].to_vec(),
                series: series
                    .iter()
                    .map(|bars| Bars {
                        name: bars.name.clone(),
                        values: (from..to)
                            .map(|at| bars.values.get(at).copied().flatten())
                            .collect(),
                    })
                    .collect(),
                bounds: bounds
                    .get(from..to.min(bounds.len()))
                    .unwrap_or(&[])
                    .to_vec(),
                bound_name: bound_name.clone(),
            },
            ..chart.clone()
        }
    };
    (0..parts).map(part).collect()
}

/// Draws a chart with its upper edge at `top` and tells its height.
fn render(chart: &Chart, top: f64, out: &mut String) -> f64 {
    match &chart.body {
        Body::Bars {
            groups,
            series,
            bounds,
            bound_name,
        } => bars::render(
            chart,
            &bars::Groups {
                names: groups,
                series,
                bounds,
                bound_name,
            },
            top,
            out,
        ),
        Body::Lines { series, log_x } => lines::render(chart, series, *log_x, top, out),
    }
}

fn write_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(out, "{line}");
}
