//! How many answers are late, by rate and replicas.
//!
//! The work that waits before replicas that are nearly busy moves like a Brownian motion that is reflected at zero. Its
//! drift is the arriving work minus the served work, and its variance is that of both. Starting empty, at time t
//! (Harrison, Brownian Motion and Stochastic Flow Systems, section 1.8):
//!
//! P(waiting > b) = N((-b + d t) / (s sqrt t)) + exp(2 d b / s^2) N((-b - d t) / (s sqrt t))
//!
//! This holds below and beyond the capacity, while steady-state formulas hold only below.

/// How long a replica runs one request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Mean, s.
    pub mean_s: f64,
    /// Standard deviation, s.
    pub deviation_s: f64,
}

/// Times after which the wait is evaluated, s. The mean is used.
const TIMES_S: [f64; 4] = [8.0, 20.0, 40.0, 80.0];

// === impl Service ===

impl Service {
    /// The share of the requests that are answered later than `target_s` if `rps` a second come to `replicas`, over
    /// about a minute and a half.
    pub fn late_share(&self, rps: f64, replicas: u32, target_s: f64) -> f64 {
        if replicas == 0 {
            return 1.0;
        }
        let capacity = f64::from(replicas) / self.mean_s;
        // The work that may wait before a request that is still in time. A request is dealt to a replica in turn and
        // not to the one that is free first, so it also waits for a running request.
        let slack_s = target_s - 2.0 * (self.mean_s + self.deviation_s);
        let most = slack_s * capacity;
        if most <= 0.0 {
            return 1.0;
        }
        let drift = rps - capacity;
        let scv = (self.deviation_s / self.mean_s).powi(2);
        let variance = rps + capacity * scv;
        if variance <= 0.0 {
            return 0.0;
        }
        let stays = (2.0 * drift * most / variance).min(700.0).exp();
        let late = TIMES_S.iter().map(|time| {
            let spread = (variance * time).sqrt();
            let up = normal((drift * time - most) / spread);
            let down = normal((-drift * time - most) / spread);
            // If both are extreme, their product is not a number.
            let reflected = if down > 0.0 { stays * down } else { 0.0 };
            (up + reflected).min(1.0)
        });
        late.sum::<f64>() / TIMES_S.len() as f64
    }
}

/// The standard normal distribution (Abramowitz and Stegun, 26.2.17; within 7.5e-8).
fn normal(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = COEFFICIENTS.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    match x < 0.0 {
        true => density * series,
        false => 1.0 - density * series,
    }
}
