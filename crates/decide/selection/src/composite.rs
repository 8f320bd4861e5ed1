//! Whether a composite variant answers a query: a pipeline whose steps ask variants, such as a cascade.
//!
//! A composite variant was measured as a whole, and competes by these figures with the result of
//! [`select`](crate::select). It counts as active: the caller offers it only while everything that its steps ask is
//! available. It was measured on single records, and each row of a query takes its own way through it. That takes no
//! longer than one row after the other, so this sum is the assumed time.

use sextant_types::{Prefer, Quality};

use crate::{Decision, Demand, Index, Load, Readiness, expected_ms};

/// The most rows of a query that a composite variant answers.
pub const MOST_ROWS: u32 = 64;

/// The measurements of a composite variant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Composite {
    /// Lower bound of the measured quality.
    pub quality_bound: f64,
    /// 99th percentile of its time for one row, ms.
    pub latency_ms: f64,
    /// The price that its steps list for a thousand queries, US dollars.
    pub cost_per_1k_usd: f64,
}

/// The composite that answers in place of the decision; `None` if the decision stands.
///
/// Among composites that meet the targets the preferred one is taken, and of equal ones the first. It competes with an
/// active variant by what the query prefers. It takes precedence over every other decision: a full device, a load, a
/// refusal.
pub fn composite(
    composites: impl IntoIterator<Item = Composite>,
    (index, decision): (&Index, &Decision),
    demand: &Demand,
    load: &impl Load,
) -> Option<usize> {
    let numbered = composites.into_iter().enumerate();
    let numbered = numbered.map(|(at, it)| (at, it.of_rows(demand.rows)));
    let fit = numbered.filter(|(_, it)| it.miss(demand).is_none());
    let (at, best) = fit.min_by(|(_, one), (_, other)| one.by_preference(other, demand.prefer))?;
    let Decision::Use { ordinal } = decision else {
        return Some(at);
    };
    let entries = index.entries().iter();
    let active = entries.filter(|it| it.ordinal == *ordinal && it.readiness == Readiness::Active);
    let mut chosen = active.map(|entry| Composite {
        quality_bound: match entry.quality() {
            Quality::Accuracy(bound) => bound,
            Quality::Agreement(_) => f64::NEG_INFINITY,
        },
        latency_ms: expected_ms(entry, demand, load),
        cost_per_1k_usd: entry.cost_per_1k_usd,
    });
    let is_better = |it: Composite| best.by_preference(&it, demand.prefer).is_lt();
    chosen.all(is_better).then_some(at)
}

// === impl Composite ===

impl Composite {
    /// Why it does not answer, in the words of [`verdict`](crate::verdict). If it could answer, why another one does.
    pub fn verdict(&self, demand: &Demand) -> &'static str {
        let of_rows = self.of_rows(demand.rows);
        of_rows.miss(demand).unwrap_or(match demand.prefer {
            Prefer::Cost => "dearer",
            Prefer::Accuracy => "less_accurate",
            Prefer::Latency => "slower",
        })
    }

    /// The expected time of a query, ms: its rows one after the other.
    pub fn expected_ms(&self, demand: &Demand) -> f64 {
        self.of_rows(demand.rows).latency_ms
    }

    /// The same for a query of this many rows.
    fn of_rows(self, rows: u32) -> Self {
        Self {
            latency_ms: self.latency_ms * f64::from(rows.max(1)),
            ..self
        }
    }

    fn miss(&self, demand: &Demand) -> Option<&'static str> {
        let quality = Quality::Accuracy(self.quality_bound);
        if demand.rows > MOST_ROWS {
            return Some("rows");
        }
        if !demand.least_quality.is_met_by(quality) {
            return Some("accuracy");
        }
        if self.cost_per_1k_usd > demand.max_cost_per_1k_usd {
            return Some("cost");
        }
        (self.latency_ms > demand.latency_ms).then_some("latency")
    }

    fn by_preference(&self, other: &Self, prefer: Prefer) -> std::cmp::Ordering {
        let by_cost = self.cost_per_1k_usd.total_cmp(&other.cost_per_1k_usd);
        match prefer {
            Prefer::Cost => by_cost,
            Prefer::Accuracy => other
                .quality_bound
                .total_cmp(&self.quality_bound)
                .then(by_cost),
            Prefer::Latency => self.latency_ms.total_cmp(&other.latency_ms).then(by_cost),
        }
    }
}
