//! Seeded draws for arrivals and work: the same seed gives the same figures everywhere.

/// A small generator: splitmix64.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that is seeded with `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A random 64-bit number.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number above 0 and below 1.
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// One of `0..count`; 0 if `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.unit() * count as f64) as usize
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Normal with mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Gamma with mean 1 and squared coefficient of variation `scv` (Marsaglia and Tsang); constant
    /// if that is 0 or less.
    pub fn gamma(&mut self, scv: f64) -> f64 {
        if scv <= 0.0 {
            return 1.0;
        }
        let shape = 1.0 / scv;
        // A draw with a shape below 1 is one with the shape increased by 1, times a power of a
        // uniform draw.
        let (boosted, power) = match shape < 1.0 {
            true => (shape + 1.0, self.unit().powf(1.0 / shape)),
            false => (shape, 1.0),
        };
        let d = boosted - 1.0 / 3.0;
        loop {
            let x = self.normal();
            let v = (1.0 + x / (9.0 * d).sqrt()).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v * power * scv;
            }
        }
    }

    /// Gaps between arrivals with mean `mean_s` and coefficient of variation `cv`, s: Poisson
    /// arrivals have 1.
    pub fn gaps(&mut self, count: usize, mean_s: f64, cv: f64) -> Vec<f64> {
        (0..count).map(|_| self.gamma(cv * cv) * mean_s).collect()
    }
}
