//! Axes: where the ticks are and what they say.

/// A range of values with ticks at round numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Least value shown.
    pub low: f64,
    /// Greatest value shown.
    pub high: f64,
    /// Where the ticks are.
    pub ticks: Vec<f64>,
    logarithmic: bool,
    decimals: usize,
}

impl Axis {
    /// From `low` to `high`, widened to whole steps of 1, 2 or 5 times a power of ten.
    pub fn linear(low: f64, high: f64, wanted: u32) -> Self {
        let (low, high) = ordered(low, high);
        let step = step((high - low) / f64::from(wanted.max(1)));
        let first = (low / step).floor();
        let last = (high / step - 1e-9).ceil().max(first + 1.0);
        let count = (last - first) as u32;
        let ticks: Vec<f64> = (0..=count)
            .map(|at| (first + f64::from(at)) * step)
            .collect();
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        Self {
            low: first * step,
            high: last * step,
            ticks,
            logarithmic: false,
            decimals,
        }
    }

    /// From `low` to `high`, both positive, on a logarithmic scale; ticks at the given positions
    /// when they are few, else at 1, 2 and 5 times the powers of ten.
    pub fn logarithmic(low: f64, high: f64, positions: &[f64]) -> Self {
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low / 2.0, low * 2.0)
        };
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks = if positions.len() <= 12 {
            positions.to_vec()
        } else {
            decades
                .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
                .filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001)
                .collect()
        };
        let least = ticks.iter().copied().fold(high, f64::min);
        Self {
            low,
            high,
            ticks,
            logarithmic: true,
            decimals: (1.0 - least.log10().floor()).clamp(0.0, 9.0) as usize,
        }
    }

    /// Where `value` lies, 0 at the low end and 1 at the high end.
    pub fn share(&self, value: f64) -> f64 {
        if self.logarithmic {
            return (value / self.low).ln() / (self.high / self.low).ln();
        }
        (value - self.low) / (self.high - self.low)
    }

    /// What a tick says.
    pub fn label(&self, tick: f64) -> String {
        let text = grouped(tick, self.decimals);
        if self.logarithmic && text.contains('.') {
            return text.trim_end_matches('0').trim_end_matches('.').to_owned();
        }
        text
    }
}

/// A number with `decimals` digits behind the point and thousands apart.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    let zero = out.chars().all(|digit| matches!(digit, '0' | '.' | ','));
    if value < 0.0 && !zero {
        out.insert(0, '-');
    }
    out
}

fn ordered(low: f64, high: f64) -> (f64, f64) {
    if !low.is_finite() || !high.is_finite() {
        return (0.0, 1.0);
    }
    if high > low {
        return (low, high);
    }
    let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
    (low - room, low + room)
}

/// The least of 1, 2, 5 times a power of ten that is no less than `rough`.
fn step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    let round = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|round| digit <= round * 1.000_001);
    round.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let axis = Axis::linear(0.0, 74_805.0, 6);
        assert_eq!(axis.ticks, [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0]);
        assert_eq!(axis.label(20_000.0), "20,000");
        let axis = Axis::linear(0.0, 0.97, 5);
        assert_eq!(axis.label(axis.ticks[1]), "0.2");
        assert_eq!(axis.high, 1.0);
    }

    #[test]
    fn odd_ranges_give_an_axis_too() {
        for (low, high) in [
            (5.0, 5.0),
            (0.0, 0.0),
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
        ] {
            let axis = Axis::linear(low, high, 5);
            assert!(axis.high > axis.low && axis.ticks.len() >= 2, "{axis:?}");
        }
        let axis = Axis::logarithmic(3.0, 3.0, &[3.0]);
        assert!((axis.share(3.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(-1_234.5, 1), "-1,234.5");
        assert_eq!(grouped(-0.001, 1), "0.0");
        assert_eq!(grouped(999.0, 0), "999");
    }
}
