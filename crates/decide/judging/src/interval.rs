//! A confidence sequence for the mean of bounded values, to be shown to people.

/// The predictable plug-in empirical-Bernstein confidence sequence (Waudby-Smith and Ramdas 2024, theorem 2).
#[derive(Debug, Clone)]
pub struct Interval {
    low: f64,
    width: f64,
    /// The logarithm of two over the error rate.
    log: f64,
    count: u64,
    sum: f64,
    /// The sum of squared distances from the running mean, plus the prior's quarter.
    squares: f64,
    weights: f64,
    weighted: f64,
    /// The sum of the variances, each with its weight's penalty.
    penalty: f64,
    bounds: (f64, f64),
}

/// The greatest weight of one value.
const MOST_WEIGHT: f64 = 0.5;

impl Interval {
    /// For values between two bounds, at an error rate.
    pub fn new((low, high): (f64, f64), alpha: f64) -> Self {
        Self {
            low,
            width: high - low,
            log: (2.0 / alpha).ln(),
            count: 0,
            sum: 0.0,
            squares: 0.25,
            weights: 0.0,
            weighted: 0.0,
            penalty: 0.0,
            bounds: (0.0, 1.0),
        }
    }

    /// Takes in one more value, within the bounds.
    pub fn observe(&mut self, value: f64) {
        let value = (value - self.low) / self.width;
        let next = (self.count + 1) as f64;
        let before = (0.5 + self.sum) / next;
        let variance = self.squares / next;
        let weight = (2.0 * self.log / (variance * next * (1.0 + next).ln())).sqrt();
        let weight = weight.min(MOST_WEIGHT);
        let distance = value - before;
        self.count += 1;
        self.sum += value;
        let mean = (0.5 + self.sum) / (next + 1.0);
        self.squares += (value - mean).powi(2);
        self.weights += weight;
        self.weighted += weight * value;
        // The paper's v times its psi; the fours cancel.
        self.penalty += distance.powi(2) * (-(-weight).ln_1p() - weight);
        let (centre, half) = (
            self.weighted / self.weights,
            (self.log + self.penalty) / self.weights,
        );
        let (lower, upper) = self.bounds;
        self.bounds = (lower.max(centre - half), upper.min(centre + half));
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean of the values; 0 if there are none.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            count => self.low + self.width * self.sum / count as f64,
        }
    }

    /// The bounds of the mean. A value that was excluded once stays excluded.
    pub fn bounds(&self) -> (f64, f64) {
        let (lower, upper) = self.bounds;
        (self.low + self.width * lower, self.low + self.width * upper)
    }
}
