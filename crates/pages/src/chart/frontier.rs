//! Variants by latency and accuracy: a point's size shows the cost, its shape the state.

use super::{Drawing, Text};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 42.0;
/// Radii of the cheapest and the most expensive point.
const RADII: (f64, f64) = (5.0, 15.0);
/// The axis of latency is logarithmic if the slowest takes this many times as long as the fastest.
const WIDE: f64 = 6.0;
/// Smaller ticks are written as powers of ten.
const SMALL: f64 = 0.99e-4;

/// The shape of a point, by the state of the variant's best instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Active: a disc.
    Disc,
    /// Overloaded or interfered: a diamond.
    Diamond,
    /// Loading: a triangle.
    Triangle,
    /// Failed: a cross.
    Cross,
    /// Not loaded: a ring.
    Ring,
}

/// A variant in the picture.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Its number in the table beside the chart.
    pub number: usize,
    /// Median of one row.
    pub latency_ms: f64,
    /// Value of the metric.
    pub quality: f64,
    /// Price of a thousand rows.
    pub cost_usd: f64,
    /// By its state.
    pub shape: Shape,
}

/// Variants of one application.
#[derive(Debug)]
pub struct Frontier<'a> {
    /// What the picture shows.
    pub title: &'a str,
    /// The metric, as the axis names it.
    pub metric: &'a str,
    /// In any order.
    pub points: &'a [Point],
}

/// Maps figures to coordinates.
#[derive(Debug, Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
    /// The coordinates of the least and the greatest value.
    places: (f64, f64),
    is_logarithmic: bool,
}

// === impl Frontier ===

impl Frontier<'_> {
    /// The picture.
    pub fn draw(&self) -> String {
        let mut drawing = Drawing::new((WIDTH, HEIGHT), "frontier", self.title);
        let latencies = self.points.iter().map(|point| point.latency_ms);
        let across = Axis::of(latencies, (LEFT + 14.0, WIDTH - RIGHT - 16.0), true);
        let qualities = self.points.iter().map(|point| point.quality);
        let up = Axis::of(qualities, (HEIGHT - BOTTOM - 16.0, TOP + 16.0), false);
        self.grid(&mut drawing, across, up);
        let dearest = self.points.iter().map(|point| point.cost_usd);
        let dearest = dearest.fold(0.0, f64::max);
        let mut points = self.points.to_vec();
        // Small points are drawn over large ones.
        points.sort_by(|a, b| b.cost_usd.total_cmp(&a.cost_usd));
        for point in points {
            let place = (across.place(point.latency_ms), up.place(point.quality));
            mark(&mut drawing, place, &point, radius(point.cost_usd, dearest));
        }
        drawing.finish()
    }

    fn grid(&self, drawing: &mut Drawing, across: Axis, up: Axis) {
        let (floor, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in across.ticks() {
            let (x, base, said) = (across.place(tick), floor + 16.0, across.said(tick));
            drawing.add(format_args!(
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{floor}\"/>\
                 <text x=\"{x:.1}\" y=\"{base}\" text-anchor=\"middle\">{said}</text>"
            ));
        }
        for tick in up.ticks() {
            let (y, x, said) = (up.place(tick), LEFT - 6.0, up.said(tick));
            let base = y + 4.0;
            drawing.add(format_args!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{end}\"/>\
                 <text x=\"{x}\" y=\"{base:.1}\" text-anchor=\"end\">{said}</text>"
            ));
        }
        let (base, metric) = (HEIGHT - 6.0, Text(self.metric));
        drawing.add(format_args!(
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{floor}H{end}\"/>\
             <text class=\"name\" x=\"{end}\" y=\"{base}\" text-anchor=\"end\">p50 of one row, ms</text>\
             <text class=\"name\" x=\"0\" y=\"12\">{metric}</text>"
        ));
    }
}

fn radius(cost_usd: f64, dearest: f64) -> f64 {
    let (least, most) = RADII;
    let share = if dearest > 0.0 {
        cost_usd / dearest
    } else {
        0.0
    };
    // The area shows the cost.
    least + (most - least) * share.max(0.0).sqrt()
}

fn mark(drawing: &mut Drawing, (x, y): (f64, f64), point: &Point, r: f64) {
    match point.shape {
        Shape::Disc => drawing.add(format_args!(
            "<circle class=\"active\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"/>"
        )),
        Shape::Ring => drawing.add(format_args!(
            "<circle class=\"inactive\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r:.1}\"/>"
        )),
        Shape::Diamond => drawing.add(format_args!(
            "<path class=\"degraded\" d=\"M{x:.1} {:.1}l{r:.1} {r:.1}l-{r:.1} {r:.1}l-{r:.1} -{r:.1}z\"/>",
            y - r
        )),
        Shape::Triangle => drawing.add(format_args!(
            "<path class=\"loading\" d=\"M{x:.1} {:.1}l{r:.1} {:.1}h-{:.1}z\"/>",
            y - r,
            1.8 * r,
            2.0 * r
        )),
        Shape::Cross => drawing.add(format_args!(
            "<path class=\"failed\" d=\"M{:.1} {:.1}l{w:.1} {w:.1}m-{w:.1} 0l{w:.1} -{w:.1}\"/>",
            x - r,
            y - r,
            w = 2.0 * r
        )),
    }
    let (at, base, number) = (x + r + 3.0, y + 4.0, point.number);
    drawing.add(format_args!(
        "<text class=\"number\" x=\"{at:.1}\" y=\"{base:.1}\">{number}</text>"
    ));
}

/// Without insignificant digits.
fn plain(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// The power of ten of a number's first digit.
fn power(value: f64) -> i32 {
    value.abs().log10().floor() as i32
}

// === impl Axis ===

impl Axis {
    fn of(values: impl Iterator<Item = f64>, places: (f64, f64), may_be_wide: bool) -> Self {
        let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
            (low.min(it), high.max(it))
        });
        let is_logarithmic = may_be_wide && least > 0.0 && most / least >= WIDE;
        let (least, most) = match most > least {
            true => (least, most),
            // One point, or equal ones: they are in the middle.
            false => (
                least - 0.01 * least.abs().max(0.1),
                most + 0.01 * most.abs().max(0.1),
            ),
        };
        Self {
            least,
            most,
            places,
            is_logarithmic,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| match self.is_logarithmic {
            true => value.ln(),
            false => value,
        };
        let (least, most) = (scale(self.least), scale(self.most));
        let share = (scale(value) - least) / (most - least);
        self.places.0 + (self.places.1 - self.places.0) * share
    }

    /// Round values on the axis, three to seven.
    fn ticks(&self) -> Vec<f64> {
        let all = match self.is_logarithmic {
            true => self.logarithmic(),
            false => self.linear(),
        };
        all.filter(|tick| (self.least..=self.most).contains(tick))
            .collect()
    }

    /// A tick with as many digits as distinguish it from its neighbours.
    fn said(&self, tick: f64) -> String {
        let apart = match self.is_logarithmic {
            true => tick,
            false => self.step(),
        };
        // A step may have two significant digits, as 2.5 does.
        let decimals = 1i32.saturating_sub(power(apart));
        if tick.abs() < apart / 2.0 {
            return "0".to_owned();
        }
        if tick.abs() >= SMALL {
            let decimals = usize::try_from(decimals).unwrap_or(0);
            return plain(&format!("{tick:.decimals$}")).to_owned();
        }
        let digits = usize::try_from(power(tick).saturating_add(decimals)).unwrap_or(0);
        let text = format!("{tick:.digits$e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
        format!("{}e{exponent}", plain(digits))
    }

    /// Distance of two ticks on a linear axis.
    fn step(&self) -> f64 {
        let rough = (self.most - self.least) / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough);
        step.unwrap_or(rough)
    }

    fn linear(&self) -> Box<dyn Iterator<Item = f64>> {
        let step = self.step();
        let first = (self.least / step).ceil();
        Box::new((0..12).map(move |at| (first + f64::from(at)) * step))
    }

    fn logarithmic(&self) -> Box<dyn Iterator<Item = f64>> {
        let first = self.least.log10().floor() as i32;
        let last = self.most.log10().ceil() as i32;
        let few: &[f64] = match last - first {
            0..=3 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        Box::new(
            (first..=last)
                .flat_map(move |power| few.iter().map(move |step| step * 10f64.powi(power))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts at an axis of values.
    fn said(values: [f64; 2], may_be_wide: bool) -> Vec<String> {
        let axis = Axis::of(values.into_iter(), (0.0, 100.0), may_be_wide);
        let ticks = axis.ticks().into_iter();
        ticks.map(|tick| axis.said(tick)).collect()
    }

    #[test]
    fn ticks_have_the_digits_that_tell_them_apart() {
        assert_eq!(
            said([0.9, 0.98], false),
            ["0.9", "0.92", "0.94", "0.96", "0.98"]
        );
        assert_eq!(said([-0.2, 0.3], false), ["-0.2", "0", "0.2"]);
        assert_eq!(
            said([100.0, 300.0], true),
            ["100", "150", "200", "250", "300"]
        );
        assert_eq!(said([0.5, 12.0], true), ["0.5", "1", "2", "5", "10"]);
        assert_eq!(said([3e-6, 3e-5], true), ["5e-6", "1e-5", "2e-5"]);
        assert_eq!(
            said([2e-5, 1.1e-4], false),
            ["2.5e-5", "5e-5", "7.5e-5", "0.0001"]
        );
        for values in [
            [1e-9, 2e-9],
            [0.980_001, 0.980_002],
            [1e-7, 3.0],
            [5e-5, 6e-5],
        ] {
            for may_be_wide in [false, true] {
                let mut ticks = said(values, may_be_wide);
                let count = ticks.len();
                ticks.dedup();
                assert!(count > 1 && ticks.len() == count, "{ticks:?}");
            }
        }
    }
}
