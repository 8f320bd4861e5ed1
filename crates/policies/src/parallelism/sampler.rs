//! Which measured service times count, and when there are enough of them (SERF, section V-A).
//!
//! The paper profiles each tuple with ten requests. How many are needed depends on how much they
//! scatter: the sampler goes on until the mean is known well enough, or a bound is reached.

/// Service times that scatter more than this (squared coefficient of variation) are not those of one
/// kind of request: predictions from their mean alone are not to be trusted.
pub const HOMOGENEOUS_SCV: f64 = 0.5;

/// When a tuple is known well enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StopRule {
    /// Fewest samples.
    pub minimum: usize,
    /// Most samples.
    pub maximum: usize,
    /// Half of the 95 % interval of the mean, as a share of the mean.
    pub half_width: f64,
}

/// Collects the service times of one tuple.
#[derive(Debug, Clone)]
pub struct Sampler {
    rule: StopRule,
    samples: usize,
    mean_s: f64,
    /// Sum of squared deviations from the mean, s².
    squares: f64,
}

/// What was measured of a tuple.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Service times that counted.
    pub samples: usize,
    /// Their mean, s.
    pub mean_s: f64,
    /// Their squared coefficient of variation.
    pub scv: f64,
    /// Half of the 95 % interval of the mean, as a share of the mean.
    pub half_width: f64,
}

/// Watches that exactly so many requests run: a request counts when that was so all the while.
#[derive(Debug, Clone)]
pub struct Concurrency {
    target: usize,
    /// Share of a request's time with fewer running that is let pass: the closed loop of each thread
    /// has a few microseconds between two requests.
    tolerance: f64,
    running: usize,
    now_s: f64,
    /// Time with fewer than `target` running so far.
    short_s: f64,
    /// For each thread with a request: when it began, and `short_s` then.
    begun: Vec<Option<(f64, f64)>>,
}

// === impl StopRule ===

impl Default for StopRule {
    fn default() -> Self {
        Self {
            minimum: 10,
            maximum: 200,
            half_width: 0.01,
        }
    }
}

// === impl Sampler ===

impl Sampler {
    /// A sampler without samples.
    pub fn new(rule: StopRule) -> Self {
        Self {
            rule,
            samples: 0,
            mean_s: 0.0,
            squares: 0.0,
        }
    }

    /// A service time, s.
    pub fn observe(&mut self, service_s: f64) {
        self.samples += 1;
        let before = service_s - self.mean_s;
        self.mean_s += before / self.samples as f64;
        self.squares += before * (service_s - self.mean_s);
    }

    /// Whether no more samples are needed.
    pub fn is_done(&self) -> bool {
        let precise = self.summary().half_width <= self.rule.half_width;
        self.samples >= self.rule.maximum || (self.samples >= self.rule.minimum.max(2) && precise)
    }

    /// What the samples say; all zero, with an endless interval, of fewer than two.
    pub fn summary(&self) -> Summary {
        if self.samples < 2 || self.mean_s <= 0.0 {
            return Summary {
                samples: self.samples,
                mean_s: self.mean_s,
                scv: 0.0,
                half_width: f64::INFINITY,
            };
        }
        let freedom = self.samples - 1;
        let variance = self.squares / freedom as f64;
        let deviation = (variance / self.samples as f64).sqrt();
        Summary {
            samples: self.samples,
            mean_s: self.mean_s,
            scv: variance / (self.mean_s * self.mean_s),
            half_width: student_95(freedom) * deviation / self.mean_s,
        }
    }
}

impl Summary {
    /// Whether the requests are of one kind.
    pub fn is_homogeneous(&self) -> bool {
        self.scv <= HOMOGENEOUS_SCV
    }
}

// === impl Concurrency ===

impl Concurrency {
    /// Watches `target` threads, numbered from 0.
    pub fn new(target: usize, tolerance: f64) -> Self {
        Self {
            target,
            tolerance,
            running: 0,
            now_s: 0.0,
            short_s: 0.0,
            begun: vec![None; target],
        }
    }

    /// `thread` begins a request at `now_s`.
    pub fn begin(&mut self, thread: usize, now_s: f64) {
        self.advance(now_s);
        if let Some(slot) = self.begun.get_mut(thread)
            && slot.replace((now_s, self.short_s)).is_none()
        {
            self.running += 1;
            // The interval without this request ended now, whatever it lacks from here on.
        }
    }

    /// The request of `thread` ended at `now_s`: its service time, s, if exactly as many ran with it
    /// as there should.
    pub fn end(&mut self, thread: usize, now_s: f64) -> Option<f64> {
        self.advance(now_s);
        let (begun_s, short_then_s) = self.begun.get_mut(thread)?.take()?;
        self.running -= 1;
        let service_s = now_s - begun_s;
        let short_s = self.short_s - short_then_s;
        (short_s <= self.tolerance * service_s).then_some(service_s)
    }

    /// Reports of threads may arrive a little out of order; time does not run back for that.
    fn advance(&mut self, now_s: f64) {
        let passed = (now_s - self.now_s).max(0.0);
        if self.running < self.target {
            self.short_s += passed;
        }
        self.now_s = self.now_s.max(now_s);
    }
}

/// The 97.5 % quantile of Student's t distribution (Cornish and Fisher's expansion; exact values
/// where it is off by more than a percent).
fn student_95(freedom: usize) -> f64 {
    const EXACT: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    const NORMAL: f64 = 1.959_964;
    if let Some(exact) = EXACT.get(freedom.saturating_sub(1)) {
        return *exact;
    }
    let n = freedom as f64;
    let (z3, z5) = (NORMAL.powi(3), NORMAL.powi(5));
    NORMAL + (z3 + NORMAL) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * NORMAL) / (96.0 * n * n)
}
