//! Memory accounting: weights once per artefact, working memory once per session.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use sextant_types::{Digest, EngineName, Optimization, Variant, VariantId};

/// What is held and by whom. Variants that differ only in their maximum batch share a session;
/// variants of one artefact on one engine share its weights.
pub(crate) struct Ledger {
    budget: u64,
    held: Mutex<HashMap<VariantId, Holding>>,
}

#[derive(Clone)]
struct Holding {
    weights: (EngineName, Digest),
    weights_bytes: u64,
    session: (EngineName, Digest, Optimization, u16),
    session_bytes: u64,
}

/// Bytes that are missing for a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short {
    pub(crate) needed: u64,
    pub(crate) free: u64,
}

impl Ledger {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            held: Mutex::default(),
        }
    }

    /// Reserves what `variant` adds to what is held; reserving twice is reserving once.
    pub(crate) fn reserve(&self, variant: &Variant) -> Result<(), Short> {
        let mut held = self.lock();
        let before = total(&held);
        let previous = held.insert(variant.id.clone(), Holding::of(variant));
        let after = total(&held);
        if after <= self.budget || previous.is_some() {
            return Ok(());
        }
        held.remove(&variant.id);
        Err(Short {
            needed: after - before,
            free: self.budget.saturating_sub(before),
        })
    }

    pub(crate) fn release(&self, variant: &VariantId) {
        self.lock().remove(variant);
    }

    pub(crate) fn used(&self) -> u64 {
        total(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VariantId, Holding>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn total(held: &HashMap<VariantId, Holding>) -> u64 {
    let mut weights = HashMap::new();
    let mut sessions = HashMap::new();
    for holding in held.values() {
        weights.insert(&holding.weights, holding.weights_bytes);
        let session: &mut u64 = sessions.entry(&holding.session).or_default();
        *session = holding.session_bytes.max(*session);
    }
    weights.values().sum::<u64>() + sessions.values().sum::<u64>()
}

impl Holding {
    fn of(variant: &Variant) -> Self {
        let (engine, artefact) = (variant.spec.engine.clone(), variant.artefact);
        let weights_bytes = variant.profile.weights_bytes;
        Self {
            weights: (engine.clone(), artefact),
            weights_bytes,
            session: (
                engine,
                artefact,
                variant.spec.optimization,
                variant.spec.threads,
            ),
            session_bytes: variant
                .profile
                .peak_memory_bytes
                .saturating_sub(weights_bytes),
        }
    }
}
