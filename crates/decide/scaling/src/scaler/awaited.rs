//! What is about to be there. Until it is, late and refused queries say little: what they lack was ordered already.
//!
//! Not all that is ordered comes. A load that fails is tried again for as long as the variant is asked for, and a provider
//! may have no machines. So nothing is awaited for ever: a load is not where the last ones of its variant on devices of the
//! type have come to nothing, nor is a device where the number of its type has not changed for as long as a machine may be
//! without its worker. More devices would not answer what cannot be loaded either: such queries say nothing.

use std::collections::{BTreeMap, BTreeSet};

use sextant_types::{WorkerId, index::VariantIx};

use super::PlannerInput;
use crate::{demand::Forecast, presence::longest_absence};

/// Loads that have come to nothing, one after the other, from which on the next one is not awaited.
const TRIES: u32 = 3;

/// After so long without a load those that have come to nothing are forgotten, ms. A dispatcher tries again within minutes.
const FORGOTTEN_MS: u64 = 600_000;

/// What was ordered, and for how long it has not come.
#[derive(Debug, Clone, Default)]
pub(super) struct Awaited {
    /// By type and variant.
    loads: BTreeMap<(u32, VariantIx), Tries>,
    /// By type that has too few devices: how many are up, and since when, ms.
    short: BTreeMap<u32, (u32, u64)>,
}

/// Loads of a variant on devices of one type.
#[derive(Debug, Clone, Default)]
struct Tries {
    /// Workers that load it.
    loading: BTreeSet<WorkerId>,
    /// Those whose loads came to nothing last.
    failed: Vec<WorkerId>,
    /// Loads that have come to nothing since one has succeeded.
    failures: u32,
    /// When it was loading last, ms.
    last_ms: u64,
}

/// Workers of one type that load a variant, and those on which it serves.
#[derive(Debug, Default)]
struct Seen {
    loading: BTreeSet<WorkerId>,
    serving: BTreeSet<WorkerId>,
}

// === impl Awaited ===

impl Awaited {
    /// Takes over which variants load and serve now.
    pub(super) fn look(&mut self, input: &PlannerInput, now_ms: u64) {
        let mut all: BTreeMap<(u32, VariantIx), Seen> = BTreeMap::new();
        for of in &input.instances {
            let Some(kind) = input.kinds.get(of.device.get() as usize) else {
                continue;
            };
            let seen = all.entry((kind.key, of.variant)).or_default();
            let workers = match of.serves {
                true => &mut seen.serving,
                false => &mut seen.loading,
            };
            workers.insert(of.worker.clone());
        }
        for (key, tries) in &mut self.loads {
            tries.observe(all.remove(key).unwrap_or_default(), now_ms);
        }
        for (key, seen) in all {
            let mut tries = Tries::default();
            tries.observe(seen, now_ms);
            self.loads.insert(key, tries);
        }
        self.loads.retain(|_, tries| !tries.is_over());
    }

    /// Whether a load on devices of a type is awaited.
    pub(super) fn has_load(&self, kind: u32) -> bool {
        let mut on = self.loads.iter().filter(|((of, _), _)| *of == kind);
        on.any(|(_, tries)| !tries.loading.is_empty() && !tries.are_vain())
    }

    /// Whether more devices of a type are awaited, of which so many are up and too few if `is_short`. One starts in `start_s`.
    pub(super) fn has_device(
        &mut self,
        (kind, up, is_short): (u32, u32, bool),
        start_s: f64,
        now_ms: u64,
    ) -> bool {
        if !is_short {
            self.short.remove(&kind);
            return false;
        }
        let known = self.short.entry(kind).or_insert((up, now_ms));
        if known.0 != up {
            *known = (up, now_ms);
        }
        // The cast saturates.
        now_ms.saturating_sub(known.1) <= longest_absence((start_s * 1e3) as u64)
    }

    /// Outlooks as they judge the number of devices: queries that nothing answers because it cannot be loaded say nothing.
    pub(super) fn judged(
        &self,
        input: &PlannerInput,
        mut outlooks: Vec<Forecast>,
    ) -> Vec<Forecast> {
        for (need, forecast) in outlooks.iter_mut().enumerate() {
            if self.cannot_load(input, need) {
                (forecast.bad_share, forecast.recent) = (0.0, 0.0);
            }
        }
        outlooks
    }

    /// Whether nothing that could answer a need serves anywhere, and loads of it have come to nothing.
    fn cannot_load(&self, input: &PlannerInput, need: usize) -> bool {
        let mut has_failed = false;
        for (_, choice) in input.problem.choices_of(need) {
            if choice.running > 0 {
                return false;
            }
            let kind = input.kinds.get(choice.kind());
            let tries = kind.and_then(|kind| self.loads.get(&(kind.key, choice.variant)));
            has_failed |= tries.is_some_and(Tries::are_vain);
        }
        has_failed
    }
}

// === impl Tries ===

impl Tries {
    fn observe(&mut self, seen: Seen, now_ms: u64) {
        let ended = self.loading.difference(&seen.loading).cloned();
        let ended: Vec<WorkerId> = ended.collect();
        // A load may be over before anybody looks.
        let mut tried = ended.iter().chain(&self.failed);
        if tried.any(|worker| seen.serving.contains(worker)) {
            self.forget();
        } else if !ended.is_empty() {
            self.failures = self.failures.saturating_add(1);
            self.failed = ended;
        }
        if !seen.loading.is_empty() {
            self.last_ms = now_ms;
        } else if now_ms.saturating_sub(self.last_ms) >= FORGOTTEN_MS {
            self.forget();
        }
        self.loading = seen.loading;
    }

    fn forget(&mut self) {
        self.failures = 0;
        self.failed.clear();
    }

    fn are_vain(&self) -> bool {
        self.failures >= TRIES
    }

    /// Whether there is nothing to remember.
    fn is_over(&self) -> bool {
        self.loading.is_empty() && self.failures == 0
    }
}
