//! Devices and loads that are about to be ready. Until they are, late and refused queries say little, because what they
//! lack was already ordered.
//!
//! Not everything that is ordered comes. A failed load is tried again for as long as there are queries for the variant,
//! and a provider may have no machines. Nothing is therefore awaited for ever. A load is not awaited if the last ones
//! of its variant on devices of the type have failed. A device is not awaited if the number of devices of its type has
//! not changed for as long as a machine may be without its worker. More devices would not answer queries whose variant
//! cannot be loaded either, so such queries do not count.

use std::collections::{BTreeMap, BTreeSet};

use sextant_types::{WorkerId, index::VariantIx};

use super::PlannerInput;
use crate::{demand::Forecast, presence::longest_absence};

/// After this many failed loads in a row the next one is not awaited.
const TRIES: u32 = 3;

/// After this time without a load the failed ones are forgotten, ms. A dispatcher tries again within minutes.
const FORGOTTEN_MS: u64 = 600_000;

/// What was ordered, and for how long it has not come.
#[derive(Debug, Clone, Default)]
pub(super) struct Awaited {
    /// By type and variant.
    loads: BTreeMap<(u32, VariantIx), Tries>,
    /// By type that has too few devices: how many are up, and since when, ms.
    short: BTreeMap<u32, (u32, u64)>,
}

/// The loads of a variant on devices of one type.
#[derive(Debug, Clone, Default)]
struct Tries {
    /// Workers that are loading it.
    loading: BTreeSet<WorkerId>,
    /// Workers whose last loads failed.
    failed: Vec<WorkerId>,
    /// Failed loads since the last success.
    failures: u32,
    /// When it was last being loaded, ms.
    last_ms: u64,
}

/// Workers of one type that load a variant, and workers on which it serves.
#[derive(Debug, Default)]
struct Seen {
    loading: BTreeSet<WorkerId>,
    serving: BTreeSet<WorkerId>,
}

// === impl Awaited ===

impl Awaited {
    /// Records which variants are loading and serving now.
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

    /// Whether more devices of a type are awaited, of which `up` are up; `is_short` says whether that is too few. A
    /// device starts in `start_s`.
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

    /// The outlooks for judging the number of devices. Queries that nothing answers because nothing can be loaded for
    /// them do not count.
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

    /// Whether no variant that could answer a need serves anywhere, and loads of such variants have failed.
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
        // A load may be over before the next look.
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
