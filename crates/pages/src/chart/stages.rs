//! The stages of time: a bar for each of several queries, and the target.

use super::{Drawing, Text};
use crate::figures;

const WIDTH: f64 = 360.0;
const BAR: f64 = 18.0;
const ROW: f64 = 27.0;
/// Space left of the bars, for their names.
const LEFT: f64 = 38.0;
/// Space right of the bars, for their lengths.
const RIGHT: f64 = 64.0;

/// One stage of a query.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// The class that gives its colour.
    pub class: &'static str,
    /// How long it took.
    pub ms: f64,
}

/// Bars of stages.
#[derive(Debug)]
pub struct Stages<'a> {
    /// What the picture shows.
    pub title: &'a str,
    /// Names and stages of the bars, from above.
    pub bars: Vec<(&'static str, Vec<Stage>)>,
    /// The latency target of the queries.
    pub target_ms: Option<f64>,
}

// === impl Stages ===

impl Stages<'_> {
    /// The picture.
    pub fn draw(&self) -> String {
        let totals = self.bars.iter().map(|(_, stages)| total(stages));
        let longest = totals.chain(self.target_ms).fold(0.0, f64::max);
        let unit = match longest > 0.0 {
            true => (WIDTH - LEFT - RIGHT) / longest,
            false => 0.0,
        };
        let below = if self.target_ms.is_some() { 18.0 } else { 2.0 };
        let bottom = self.bars.len() as f64 * ROW;
        let mut drawing = Drawing::new((WIDTH, bottom + below), "stages", self.title);
        for (at, (name, stages)) in self.bars.iter().enumerate() {
            bar(&mut drawing, at as f64 * ROW + 3.0, (name, stages), unit);
        }
        if let Some(target) = self.target_ms {
            self::target(&mut drawing, (bottom, LEFT + target * unit), target);
        }
        drawing.finish()
    }
}

fn total(stages: &[Stage]) -> f64 {
    stages.iter().map(|stage| stage.ms).sum()
}

fn bar(drawing: &mut Drawing, y: f64, (name, stages): (&str, &[Stage]), unit: f64) {
    let base = y + 13.5;
    drawing.add(format_args!(
        "<text class=\"name\" x=\"0\" y=\"{base}\">{}</text>",
        Text(name)
    ));
    let mut x = LEFT;
    for stage in stages.iter().filter(|stage| stage.ms > 0.0) {
        let width = stage.ms * unit;
        drawing.add(format_args!(
            "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\"/>",
            stage.class
        ));
        x += width;
    }
    let (x, said) = (x + 5.0, figures::ms(total(stages)));
    drawing.add(format_args!(
        "<text x=\"{x:.1}\" y=\"{base}\">{said}</text>"
    ));
}

fn target(drawing: &mut Drawing, (bottom, x): (f64, f64), target: f64) {
    let (anchor, at) = match x > WIDTH / 2.0 {
        true => ("end", x - 4.0),
        false => ("start", x + 4.0),
    };
    let (base, end, said) = (bottom + 13.0, bottom + 16.0, figures::ms(target));
    drawing.add(format_args!(
        "<path class=\"target\" d=\"M{x:.1} 0V{end}\"/>\
         <text class=\"target\" x=\"{at:.1}\" y=\"{base}\" text-anchor=\"{anchor}\">target {said}</text>"
    ));
}
