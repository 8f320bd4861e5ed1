//! A load that spreads over more and more models (Clockwork, section 6.4: "Major").

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use sextant_schedule::Nanos;

use super::{gaps::exponential, renewal::child};
use crate::{Arrival, Error, Source};

/// A Poisson process of constant rate whose requests go to each of the first `k` models with the
/// same probability. `k` grows by one in equal steps until all take part.
#[derive(Debug)]
pub struct Spreading {
    models: Vec<u32>,
    begin_ns: f64,
    step_ns: f64,
    gap_ns: f64,
    at_ns: f64,
    clock: ChaCha8Rng,
    draw: ChaCha8Rng,
}

/// How a load spreads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Requests per second of all models together.
    pub rps: f64,
    /// When the first request comes, for the first model only, s.
    pub begin_s: f64,
    /// Time after which another model takes part, s.
    pub step_s: f64,
}

// === impl Spreading ===

impl Spreading {
    /// Spreads over `models`, in this order.
    ///
    /// # Errors
    /// If there is no model, a number is negative or not finite, or the step is not above zero.
    pub fn new(models: Vec<u32>, spread: Spread, seed: u64) -> Result<Self, Error> {
        for value in [spread.rps, spread.begin_s, spread.step_s] {
            if !value.is_finite() || value < 0.0 {
                let problem = format!("`{value}` of a spreading load must be finite, not negative");
                return Err(Error::Setting(problem));
            }
        }
        if models.is_empty() || spread.step_s <= 0.0 {
            let problem = "a spreading load needs models and a step of more than zero";
            return Err(Error::Setting(problem.to_owned()));
        }
        let mut source = Self {
            models,
            begin_ns: spread.begin_s * 1e9,
            step_ns: spread.step_s * 1e9,
            gap_ns: 1e9 / spread.rps,
            at_ns: spread.begin_s * 1e9,
            clock: child(seed, 0),
            draw: child(seed, 1),
        };
        source.advance();
        Ok(source)
    }

    fn advance(&mut self) {
        self.at_ns += exponential(&mut self.clock) * self.gap_ns;
    }

    /// The number of models that take part.
    fn taking_part(&self) -> usize {
        let steps = (self.at_ns - self.begin_ns) / self.step_ns;
        (steps as usize + 1).min(self.models.len())
    }
}

impl Source for Spreading {
    fn peek(&mut self) -> Option<Nanos> {
        self.gap_ns.is_finite().then_some(self.at_ns as Nanos)
    }

    fn next(&mut self) -> Arrival {
        let at = self.at_ns as Nanos;
        let drawn = self.draw.random_range(0..self.taking_part());
        self.advance();
        Arrival {
            at,
            model: self.models[drawn],
            client: 0,
        }
    }
}
