//! What a query asks for.

use std::time::{Duration, Instant};

use sextant_rpc::{Composite, ForStep};
use sextant_selection::Demand;
use sextant_types::{Route, Signature, Targets};

use sextant_picture::{IndexedVariant, InputSize};

/// A query without its inputs.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) route: Route,
    /// Its targets, with figures in place of shares.
    pub(crate) targets: Targets,
    /// Its targets as the client gave them.
    pub(crate) asked: Targets,
    pub(crate) rows: u32,
    pub(crate) extent: InputSize,
    pub(crate) best_effort: bool,
    pub(crate) explain: bool,
    /// Decides which version answers while a canary is tried.
    pub(crate) sticky: Option<u64>,
    /// The composite variants with which the front end could answer it itself.
    pub(crate) composites: Vec<Composite>,
    /// Whether an offline job asks it.
    pub(crate) offline: bool,
    /// The step of a pipeline that asks it.
    pub(crate) step: Option<Box<ForStep>>,
    pub(crate) arrived: Instant,
}

impl Ask {
    /// When the answer must be ready. A best-effort query is never dropped because it is late.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.best_effort {
            return None;
        }
        let ms = self.longest_ms()?;
        let longest = Duration::try_from_secs_f64(ms / 1e3).ok()?;
        self.arrived.checked_add(longest)
    }

    /// The longest that the query may take, ms: the patience of its step, else its latency target.
    pub(crate) fn longest_ms(&self) -> Option<f64> {
        let patience_ms = self.step.as_ref().and_then(|step| step.patience_ms);
        patience_ms.or(self.targets.latency_ms)
    }

    /// The query with its patience as its latency target; `None` if its patience is no longer than
    /// its target.
    pub(crate) fn patient(&self) -> Option<Self> {
        let latency_ms = self.longest_ms();
        (latency_ms > self.targets.latency_ms).then(|| Self {
            targets: Targets {
                latency_ms,
                ..self.targets
            },
            ..self.clone()
        })
    }

    pub(crate) fn demand(&self) -> Demand {
        let spent_ms = self.arrived.elapsed().as_secs_f64() * 1e3;
        Demand {
            latency_ms: self
                .targets
                .latency_ms
                .map_or(f64::INFINITY, |ms| ms - spent_ms),
            least_quality: self.targets.least_quality(),
            max_cost_per_1k_usd: self.targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY),
            rows: self.rows,
            prefer: self.targets.prefer.unwrap_or_default(),
        }
    }
}

impl Ask {
    /// Converts a query from a front end. `signature` is the signature of what the route addresses.
    pub(crate) fn of_front(ask: sextant_rpc::Ask, signature: &Signature) -> Self {
        Self {
            extent: InputSize::new(signature, &ask.dims),
            route: ask.route,
            targets: ask.targets,
            asked: ask.targets,
            rows: ask.rows.max(1),
            best_effort: ask.best_effort,
            explain: ask.explain,
            sticky: ask.sticky,
            composites: ask.composites,
            offline: ask.offline,
            step: ask.step,
            arrived: ask.arrived,
        }
    }
}

/// Whether an answer that took this long meets the query's targets.
pub(crate) fn met(ask: &Ask, known: &IndexedVariant, took: Duration) -> bool {
    ask.targets
        .latency_ms
        .is_none_or(|most| took.as_secs_f64() * 1e3 <= most)
        && suits(ask, known)
}

/// Whether a variant meets the targets that do not depend on when it answers.
pub(crate) fn suits(ask: &Ask, known: &IndexedVariant) -> bool {
    let targets = &ask.targets;
    targets.least_quality().is_met_by(known.quality)
        && targets
            .max_cost_per_1k_usd
            .is_none_or(|most| known.least_cost_per_1k_usd(ask.extent) <= most)
}
