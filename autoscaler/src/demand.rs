//! What is asked for, as it came in over time.

use std::{collections::BTreeMap, sync::Arc};

use sextant_metadata::{ApplicationDemand, Demand};
use sextant_picture::{Need, Outlook};
use sextant_scaling::demand::{Ended, Load};
use sextant_types::{Code, ErrorKind, TargetClass};

/// After how long without a query a need is forgotten altogether, ms.
const FORGOTTEN_MS: u64 = 24 * 3_600_000;

/// For how long a latency target is remembered, ms; up to twice as long.
const TARGETS_MS: u64 = 300_000;

/// The strictest and the loosest latency target, ms.
type Span = (f64, f64);

/// All needs that were ever seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    needs: BTreeMap<Need, Known>,
    /// The record that was taken over last, and when.
    last: Option<(Arc<Demand>, u64)>,
}

/// What is known of a need.
#[derive(Debug, Default)]
struct Known {
    load: Load,
    /// Of this time, since when, ms, and of the one before.
    targets: (Option<Span>, u64, Option<Span>),
}

// === impl Seen ===

impl Seen {
    /// Takes over a record, each once. One that stays stands for the time in which nothing new came: a
    /// store does not tell of what says the same.
    pub(crate) fn observe(&mut self, now_ms: u64, demand: Option<&Arc<Demand>>) {
        let Some(demand) = demand else { return };
        let window_ms = match &self.last {
            Some((known, at)) if Arc::ptr_eq(known, demand) || **known == **demand => {
                let since = now_ms.saturating_sub(*at);
                if since < 2 * demand.window_ms.clamp(1, 60_000) {
                    return;
                }
                since
            }
            _ => demand.window_ms.max(1),
        };
        let scale = window_ms as f64 / demand.window_ms.max(1) as f64;
        self.last = Some((Arc::clone(demand), now_ms));
        let mut counted: BTreeMap<Need, (f64, f64, Option<Span>)> = BTreeMap::new();
        for row in &demand.applications {
            let need = Need {
                application: row.application.clone(),
                class: row.class,
            };
            let (offered, bad, targets) = counted.entry(need).or_default();
            *targets = joined(*targets, row.latency_ms);
            // Devices answer rows: a query of eight rows is as much work as eight of one, and one whose answer was kept
            // is none.
            let asked = row.offered.saturating_sub(row.kept);
            let rows = row.input_rows.max(asked) as f64;
            let each = rows / asked.max(1) as f64;
            *offered += rows * scale;
            *bad += bad_of(row) as f64 * each * scale;
        }
        for need in counted.keys() {
            if !self.needs.contains_key(need) {
                self.needs.insert(need.clone(), Known::default());
            }
        }
        for (need, known) in &mut self.needs {
            let (offered, bad, targets) = counted.get(need).copied().unwrap_or_default();
            let ended = Ended { offered, bad };
            known.load.observe(now_ms, window_ms, ended);
            known.see(now_ms, targets);
        }
        self.needs
            .retain(|_, known| now_ms.saturating_sub(known.load.last_ms()) < FORGOTTEN_MS);
    }

    /// What is expected in the next `ahead_s` of everything that was asked for. What nobody has asked
    /// for in `idle_ms` needs nothing.
    pub(crate) fn outlook(&self, now_ms: u64, ahead_s: f64, idle_ms: u64) -> Vec<Outlook> {
        let each = self.needs.iter().map(|(need, known)| Outlook {
            need: need.clone(),
            of: known.load.outlook(now_ms, ahead_s, idle_ms),
            latency_ms: known.targets().or_else(|| of_class(need.class)),
        });
        each.collect()
    }
}

/// Queries that more devices could have answered in time.
fn bad_of(row: &ApplicationDemand) -> u64 {
    let refused = row.refused.iter().filter(|(code, _)| {
        **code != Code::BudgetExhausted
            && matches!(
                code.kind(),
                ErrorKind::Overloaded | ErrorKind::DeadlineExceeded | ErrorKind::Unavailable
            )
    });
    row.late + refused.map(|(_, count)| count).sum::<u64>()
}

// === impl Known ===

impl Known {
    fn see(&mut self, now_ms: u64, targets: Option<Span>) {
        let (now, since_ms, before) = &mut self.targets;
        if now_ms.saturating_sub(*since_ms) >= TARGETS_MS && targets.is_some() {
            (*before, *since_ms) = (now.take(), now_ms);
        }
        *now = joined(*now, targets);
    }

    fn targets(&self) -> Option<Span> {
        joined(self.targets.0, self.targets.2)
    }
}

fn joined(one: Option<Span>, other: Option<Span>) -> Option<Span> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// From the strictest target of a class to what none of it reaches, ms.
fn of_class(class: TargetClass) -> Option<Span> {
    let strict = class.latency_ms()?;
    Some((strict, 2.0 * strict))
}
