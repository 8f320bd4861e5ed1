//! Goodput: the highest rate at which nearly every request of each model is answered in time.

use crate::experiment::Criterion;
use sextant_simulator::Report;

/// The parameters of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// A rate near the answer, requests per second, such as the fluid bound.
    pub around_rps: f64,
    /// Expected distance of the answer from `around_rps`, as a share of it. It is the first step.
    pub first_step: f64,
    /// Relative distance between neighbouring rates on the grid.
    pub resolution: f64,
    /// Largest share of late, failed and dropped requests that is still good.
    pub most_missed_share: f64,
    /// Whose share decides.
    pub criterion: Criterion,
}

/// A rate that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Requests per second.
    pub rps: f64,
    /// The share of missed requests that decided.
    pub missed_share: f64,
    /// Whether the rate was good.
    pub good: bool,
    /// Whether the run was stopped early.
    pub stopped: bool,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Goodput {
    /// The highest good rate whose neighbour is not good, requests per second; 0 if none was good.
    pub rps: f64,
    /// The run at that rate.
    pub report: Report,
    /// Every rate that was tried, in order.
    pub probes: Vec<Probe>,
}

/// The lowest rate that is tried, as a share of `around_rps`.
const LOWEST: f64 = 1e-3;

/// The highest rate that is tried, likewise. The search must end even if nothing is ever late.
const HIGHEST: f64 = 8.0;

// === impl Search ===

impl Search {
    /// A search around the fluid bound, with a resolution of 0.3 % and at most 1 % of misses of each model.
    pub fn below(bound_rps: f64) -> Self {
        Self {
            around_rps: 0.8 * bound_rps,
            first_step: 0.06,
            resolution: 0.003,
            most_missed_share: 0.01,
            criterion: Criterion::EachModel,
        }
    }

    /// Tries rates with `run` until a good and a bad rate are neighbours.
    ///
    /// Rates lie on a fixed geometric grid. From the first rate, the search moves in growing steps until the verdict
    /// changes, and then halves the interval. If noise makes the verdict change more than once, the first edge that the
    /// search meets counts.
    ///
    /// # Errors
    /// The errors of `run`.
    pub fn run<E>(&self, mut run: impl FnMut(f64) -> Result<Report, E>) -> Result<Goodput, E> {
        let mut found = Goodput::default();
        let grid = |share: f64| (share.ln() / (1.0 + self.resolution).ln()) as i64;
        let (lowest, highest) = (grid(LOWEST), grid(HIGHEST));
        if !(self.around_rps.is_finite() && self.around_rps > 0.0) {
            return Ok(found);
        }
        let mut step = grid(1.0 + self.first_step).max(1);
        let mut good: Option<i64> = None;
        let mut bad: Option<i64> = None;
        let mut at = 0;
        loop {
            if self.is_good(at, &mut run, &mut found)? {
                good = Some(at);
            } else {
                bad = Some(at);
            }
            at = match (good, bad) {
                (Some(good), Some(bad)) if bad - good <= 1 => return Ok(found),
                (Some(good), Some(bad)) => good + (bad - good) / 2,
                (Some(good), None) if good >= highest => return Ok(found),
                (Some(good), None) => (good + step).min(highest),
                (None, Some(bad)) if bad <= lowest => return Ok(found),
                (None, Some(bad)) => (bad - step).max(lowest),
                (None, None) => return Ok(found),
            };
            if good.is_none() || bad.is_none() {
                step *= 2;
            }
        }
    }

    fn is_good<E>(
        &self,
        at: i64,
        run: &mut impl FnMut(f64) -> Result<Report, E>,
        found: &mut Goodput,
    ) -> Result<bool, E> {
        let rps = self.around_rps * (1.0 + self.resolution).powi(at as i32);
        let report = run(rps)?;
        let missed_share = match self.criterion {
            Criterion::EachModel => report.worst_missed_share(),
            Criterion::Total => total_missed_share(&report),
        };
        let good = !report.stopped && missed_share <= self.most_missed_share;
        found.probes.push(Probe {
            rps,
            missed_share,
            good,
            stopped: report.stopped,
        });
        if good {
            found.rps = rps;
            found.report = report;
        }
        Ok(good)
    }
}

fn total_missed_share(report: &Report) -> f64 {
    let sent: u64 = report.models.iter().map(|tally| tally.sent).sum();
    let missed: u64 = report
        .models
        .iter()
        .map(sextant_simulator::Tally::missed)
        .sum();
    missed as f64 / sent.max(1) as f64
}

/// For each model: the number of misses after which a run need not continue, because more than `share` of its requests
/// will have been missed. It is that share of the expected number, plus five standard deviations.
pub fn hopeless(expected: &[f64], squared_variation: f64, share: f64) -> Vec<u64> {
    expected
        .iter()
        .map(|expected| {
            let most = expected + 5.0 * (expected * squared_variation).sqrt() + 5.0;
            (share * most).ceil() as u64
        })
        .collect()
}
