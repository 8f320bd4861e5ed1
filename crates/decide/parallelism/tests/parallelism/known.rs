//! Cases of the queueing model with known answers, computed apart from this code and confirmed by a
//! discrete-event simulation within 2 %.

use sextant_parallelism::{Queue, Rates};

/// Rates and a load with what equations 1 to 12 say of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// mu_1, mu_2, .., per second.
    pub per_s: &'static [f64],
    /// lambda, per second.
    pub load_per_s: f64,
    /// p_0 (equation 3).
    pub idle: f64,
    /// Wait with exponential work, s (equation 6).
    pub exponential_wait_s: f64,
    /// Wait with constant work, s (equation 10).
    pub wait_s: f64,
    /// Service time, s (equation 11).
    pub service_s: f64,
    /// Latency, s (equation 12).
    pub mean_s: f64,
}

/// One at a time, falling rates, constant rates, low and high load.
pub const CASES: [Case; 7] = [
    case(&[10.0], 8.0, [0.20000, 0.40000, 0.20000, 0.10000, 0.30000]),
    case(
        &[10.0, 7.0],
        7.0,
        [0.41667, 0.04167, 0.02197, 0.12500, 0.14697],
    ),
    case(
        &[10.0, 7.0],
        11.2,
        [0.15152, 0.24242, 0.12286, 0.13636, 0.25923],
    ),
    case(
        &[3.0; 4],
        9.6,
        [0.02730, 0.24851, 0.12848, 0.33333, 0.46181],
    ),
    case(&FALLING, 3.4, [0.28717, 0.02891, 0.01642, 0.41031, 0.42672]),
    case(
        &FALLING,
        5.44,
        [0.08678, 0.35780, 0.18498, 0.50808, 0.69306],
    ),
    case(
        &[5.0, 2.8, 1.7],
        4.08,
        [0.20883, 0.48687, 0.24942, 0.46778, 0.71720],
    ),
];

const FALLING: [f64; 4] = [3.0, 2.9, 2.2, 1.7];

const fn case(per_s: &'static [f64], load_per_s: f64, answers: [f64; 5]) -> Case {
    Case {
        per_s,
        load_per_s,
        idle: answers[0],
        exponential_wait_s: answers[1],
        wait_s: answers[2],
        service_s: answers[3],
        mean_s: answers[4],
    }
}

impl Case {
    /// By how much the model is off at most.
    pub fn error(&self) -> f64 {
        let rates = Rates::new(self.per_s.to_vec()).ok();
        let Some(queue) = rates.and_then(|rates| Queue::solve(&rates, self.load_per_s)) else {
            return f64::INFINITY;
        };
        let pairs = [
            (queue.probability(0), self.idle),
            (queue.exponential_wait_s(), self.exponential_wait_s),
            (queue.wait_s(), self.wait_s),
            (queue.service_s(), self.service_s),
            (queue.mean_s(), self.mean_s),
        ];
        let off = pairs.iter().map(|(found, known)| (found - known).abs());
        off.fold(0.0, f64::max)
    }
}
