//! Poisson processes of constant rates as one process: a single exponential clock, with the model
//! drawn by its share.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use sextant_schedule::Nanos;

use super::{gaps::exponential, renewal::child};
use crate::{Arrival, Error, Source};

/// A superposition of Poisson processes; each request costs the same for any number of models.
#[derive(Debug)]
pub struct Superposition {
    columns: Vec<Column>,
    /// Mean time between two requests, ns; infinite when none come.
    gap_ns: f64,
    at_ns: f64,
    clock: ChaCha8Rng,
    draw: ChaCha8Rng,
}

/// A column of the alias table (Walker, 1977): below `share` it means `model`, above it `other`.
#[derive(Debug, Clone, Copy)]
struct Column {
    share: f64,
    model: u32,
    other: u32,
}

// === impl Superposition ===

impl Superposition {
    /// Made from (model, requests per second).
    ///
    /// # Errors
    /// If a rate is negative or not finite.
    pub fn new(rates: &[(u32, f64)], seed: u64) -> Result<Self, Error> {
        for (_, rps) in rates {
            if !rps.is_finite() || *rps < 0.0 {
                let problem = format!("a rate must be finite and not negative, not `{rps}`");
                return Err(Error::Setting(problem));
            }
        }
        let total: f64 = rates.iter().map(|(_, rps)| rps).sum();
        let mut source = Self {
            columns: columns(rates, total),
            gap_ns: 1e9 / total,
            at_ns: 0.0,
            clock: child(seed, 0),
            draw: child(seed, 1),
        };
        source.advance();
        Ok(source)
    }

    #[inline]
    fn advance(&mut self) {
        self.at_ns += exponential(&mut self.clock) * self.gap_ns;
    }
}

impl Source for Superposition {
    #[inline]
    fn peek(&mut self) -> Option<Nanos> {
        self.gap_ns.is_finite().then_some(self.at_ns as Nanos)
    }

    #[inline]
    fn next(&mut self) -> Arrival {
        let at = self.at_ns as Nanos;
        self.advance();
        let point = self.draw.random::<f64>() * self.columns.len() as f64;
        let column = self.columns[(point as usize).min(self.columns.len() - 1)];
        let model = if point.fract() < column.share {
            column.model
        } else {
            column.other
        };
        Arrival {
            at,
            model,
            client: 0,
        }
    }
}

/// Columns of equal width. Each is filled by one model that has too little and one that has more.
fn columns(rates: &[(u32, f64)], total: f64) -> Vec<Column> {
    let count = rates.len() as f64;
    let mut columns: Vec<Column> = rates
        .iter()
        .map(|(model, rps)| Column {
            share: if total > 0.0 {
                rps / total * count
            } else {
                1.0
            },
            model: *model,
            other: *model,
        })
        .collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|at| columns[*at].share < 1.0);
    while let (Some(under), Some(over)) = (small.pop(), large.last().copied()) {
        columns[under].other = columns[over].model;
        columns[over].share -= 1.0 - columns[under].share;
        if columns[over].share < 1.0 {
            large.pop();
            small.push(over);
        }
    }
    columns
}
