//! What is asked for, as it came in over time.

use std::{collections::BTreeMap, sync::Arc};

use sextant_metadata::{ApplicationDemand, Demand};
use sextant_policies::scaling::demand::{self, Ended, Load};
use sextant_types::{ApplicationId, Code, ErrorKind, TargetClass};

/// Queries of an application with like targets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) application: ApplicationId,
    pub(crate) class: TargetClass,
}

/// After how long without a query a need is forgotten altogether, ms.
const FORGOTTEN_MS: u64 = 24 * 3_600_000;

/// All needs that were ever seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    needs: BTreeMap<Need, Load>,
    /// The record that was taken over last, and when.
    last: Option<(Arc<Demand>, u64)>,
}

/// What is expected of a need, in rows.
#[derive(Debug, Clone)]
pub(crate) struct Outlook {
    pub(crate) need: Need,
    pub(crate) of: demand::Outlook,
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
        let mut counted: BTreeMap<Need, (f64, f64)> = BTreeMap::new();
        for row in &demand.applications {
            let need = Need {
                application: row.application.clone(),
                class: row.class,
            };
            let (offered, bad) = counted.entry(need).or_default();
            // Devices answer rows: a query of eight rows is as much work as eight of one.
            let rows = row.input_rows.max(row.offered) as f64;
            let each = rows / row.offered.max(1) as f64;
            *offered += rows * scale;
            *bad += bad_of(row) as f64 * each * scale;
        }
        for need in counted.keys() {
            if !self.needs.contains_key(need) {
                self.needs.insert(need.clone(), Load::default());
            }
        }
        for (need, load) in &mut self.needs {
            let (offered, bad) = counted.get(need).copied().unwrap_or_default();
            load.observe(now_ms, window_ms, Ended { offered, bad });
        }
        self.needs
            .retain(|_, load| now_ms.saturating_sub(load.last_ms()) < FORGOTTEN_MS);
    }

    /// A need that nobody has, of an application for which devices are kept.
    pub(crate) fn nobody(application: &ApplicationId) -> Outlook {
        Outlook {
            need: Need {
                application: application.clone(),
                class: TargetClass::default(),
            },
            of: demand::Outlook::default(),
        }
    }

    /// What is expected in the next `ahead_s` of everything that was asked for. What nobody has asked
    /// for in `idle_ms` needs nothing.
    pub(crate) fn outlook(&self, now_ms: u64, ahead_s: f64, idle_ms: u64) -> Vec<Outlook> {
        let each = self.needs.iter().map(|(need, load)| Outlook {
            need: need.clone(),
            of: load.outlook(now_ms, ahead_s, idle_ms),
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
