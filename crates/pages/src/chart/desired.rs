//! Desired counts beside actual ones.

use super::{Drawing, Text};

const WIDTH: f64 = 360.0;
const ROW: f64 = 34.0;
/// Greater counts are drawn as a bar, and not one by one.
const MOST: u32 = 24;

/// One row.
#[derive(Debug)]
pub struct Bar<'a> {
    /// What is counted.
    pub name: &'a str,
    /// The desired count; `None` if there is none.
    pub desired: Option<u32>,
    /// The number that are ready.
    pub ready: u32,
    /// The number that are starting or leaving.
    pub between: u32,
}

/// Rows, from above.
#[derive(Debug)]
pub struct DesiredChart<'a> {
    /// What the picture shows.
    pub title: &'a str,
    /// The rows.
    pub bars: Vec<Bar<'a>>,
}

// === impl DesiredChart ===

impl DesiredChart<'_> {
    /// The chart: the actual count above the line, and an outline around the desired count.
    pub fn draw(&self) -> String {
        let height = self.bars.len() as f64 * ROW + 2.0;
        let mut drawing = Drawing::new((WIDTH, height), "desired", self.title);
        let most = self.bars.iter().map(Bar::longest).max().unwrap_or(1);
        let unit = (WIDTH - 4.0) / f64::from(most.max(8));
        for (at, bar) in self.bars.iter().enumerate() {
            bar.draw(&mut drawing, at as f64 * ROW, unit);
        }
        drawing.finish()
    }
}

// === impl Bar ===

impl Bar<'_> {
    fn longest(&self) -> u32 {
        self.desired
            .unwrap_or_default()
            .max(self.ready + self.between)
    }

    fn draw(&self, drawing: &mut Drawing, top: f64, unit: f64) {
        let (base, y) = (top + 11.0, top + 16.0);
        drawing.add(format_args!(
            "<text class=\"name\" x=\"1\" y=\"{base}\">{}</text>",
            Text(self.name)
        ));
        let counts = [("ready", self.ready), ("between", self.between)];
        let mut x = 2.0;
        for (class, count) in counts {
            x = boxes(drawing, (x, y), (class, count), unit);
        }
        if let Some(desired) = self.desired {
            let width = f64::from(desired) * unit;
            drawing.add(format_args!(
                "<rect class=\"outline\" x=\"1\" y=\"{:.1}\" width=\"{width:.1}\" height=\"15\"/>",
                y - 1.0
            ));
        }
    }
}

fn boxes(drawing: &mut Drawing, (x, y): (f64, f64), (class, count): (&str, u32), unit: f64) -> f64 {
    let (number, width) = match count > MOST {
        true => (1, f64::from(count) * unit),
        false => (count, unit),
    };
    for at in 0..number {
        let left = x + f64::from(at) * width;
        drawing.add(format_args!(
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"13\"/>",
            (width - 2.0).max(1.0)
        ));
    }
    x + f64::from(count) * unit
}
