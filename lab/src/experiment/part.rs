//! A group of models within a cell: the load of each model over time.

use std::ops::Range;

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::{Arrivals, Group, Popularity, Segment};
use crate::azure::{self, Synthetic};
use sextant_simulator::{
    Error,
    profiles::Profile,
    workload::{Gaps, Piece, Rate, Stream, equal, zipf},
};

/// A group with the positions of its models.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) group: Group,
    pub(super) models: Range<u32>,
    /// Profiles before copying.
    pub(super) profiles: Vec<Profile>,
    /// For each model: its share of the group's rate.
    pub(super) shares: Vec<f64>,
    /// For each model: its rate over time if the rate changes; the mean is that of `shares`.
    pattern: Vec<Rate>,
}

// === impl Part ===

impl Part {
    pub(super) fn new(
        group: &Group,
        models: Range<u32>,
        profiles: Vec<Profile>,
    ) -> Result<Self, Error> {
        let count = models.len();
        let mut part = Self {
            group: group.clone(),
            models,
            profiles,
            shares: match group.popularity {
                Popularity::Equal => equal(count),
                Popularity::Zipf => zipf(count, group.zipf_exponent),
            },
            pattern: Vec::new(),
        };
        if group.arrivals == Arrivals::Azure {
            part.follow_azure()?;
        } else if !group.pattern.is_empty() {
            part.follow_pattern();
        }
        Ok(part)
    }

    fn follow_pattern(&mut self) {
        let piece = |segment: &Segment| Piece {
            seconds: segment.seconds,
            from_rps: segment.from,
            to_rps: segment.to,
        };
        let whole = Rate::Pieces {
            pieces: self.group.pattern.iter().map(piece).collect(),
            repeats: true,
        };
        let mean = whole.mean_rps();
        let scaled = |share: &f64| whole.scaled(share / mean);
        self.pattern = self.shares.iter().map(scaled).collect();
    }

    /// Takes the rates of a day's functions, or generated ones, with eleven functions a model as in Clockwork's runs;
    /// they are the same in every run.
    fn follow_azure(&mut self) -> Result<(), Error> {
        let counts = match self.group.counts.as_str() {
            "" => {
                let synthetic = Synthetic {
                    minutes: self.group.minutes,
                    aligned: self.group.aligned_timers,
                    ..Synthetic::default()
                };
                synthetic.counts(11 * self.len(), 1)
            }
            path => azure::load(path)?,
        };
        let mut rates = azure::rates(&counts, self.len(), self.group.mapping);
        if self.group.shuffled {
            rates.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        }
        let total: f64 = rates.iter().map(Rate::mean_rps).sum();
        if total <= 0.0 {
            let problem = format!("`{}` has no invocations", self.group.counts);
            return Err(Error::Setting(problem));
        }
        let minute_s = self.group.minute_s;
        self.pattern = rates
            .iter()
            .map(|rate| rate.scaled(1.0 / total).stretched(minute_s / 60.0))
            .collect();
        self.shares = self.pattern.iter().map(Rate::mean_rps).collect();
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.group.name
    }

    pub(super) fn len(&self) -> usize {
        self.models.len()
    }

    pub(super) fn varies(&self) -> bool {
        self.group.arrivals != Arrivals::Closed && self.group.rate_rps <= 0.0
    }

    pub(super) fn gaps(&self) -> Gaps {
        match self.group.arrivals {
            Arrivals::Gamma => Gaps::Gamma {
                shape: self.group.shape,
            },
            Arrivals::Constant => Gaps::Constant,
            Arrivals::Poisson | Arrivals::Closed | Arrivals::Azure | Arrivals::Spreading => {
                Gaps::Exponential
            }
        }
    }

    /// The group's rate if the varied groups have `rps` in all and this group has the share `of_all` of it.
    pub(super) fn rps(&self, rps: f64, of_all: f64) -> f64 {
        if self.varies() {
            rps * of_all
        } else {
            self.group.rate_rps
        }
    }

    /// The group's streams if the varied groups have `rps` in all and this group has the share `of_all` of it.
    pub(super) fn streams(&self, rps: f64, of_all: f64) -> Vec<Stream> {
        let group_rps = self.rps(rps, of_all);
        let rate = |at: usize| match self.pattern.get(at) {
            Some(pattern) => pattern.scaled(group_rps),
            None => Rate::Constant(group_rps * self.shares[at]),
        };
        let stream = |(at, model)| Stream {
            model,
            gaps: self.gaps(),
            rate: rate(at),
        };
        self.models.clone().enumerate().map(stream).collect()
    }
}
