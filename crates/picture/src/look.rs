//! What the policy sees of the store, and what its answer means for the store.

use std::collections::BTreeMap;

use sextant_metadata::{Count, DesiredVariant, View, Worker};
use sextant_scaling::warm::{self, Candidate, Place, SharedBytes};
use sextant_types::{Digest, EngineName, ModelId, Precision, Variant, index::VariantIx};

use crate::Interner;

/// Numbers in the order in which the keys are first met.
struct Numbers<K>(BTreeMap<K, u32>);

/// Numbers for what variants have in common.
#[derive(Default)]
struct Names<'a> {
    models: Numbers<&'a ModelId>,
    engines: Numbers<&'a EngineName>,
    /// Variants that share all of these hold their weights once.
    weights: Numbers<(&'a EngineName, Digest, Precision)>,
}

/// The variants that should be loaded before anyone asks, in the order of their ids.
pub fn kept_warm(view: &View, memory_share: f64, interner: &mut Interner) -> Vec<DesiredVariant> {
    let mut names = Names::default();
    // A version that answers only queries that name it is loaded by its first query.
    let published = view.variants.values();
    let published = published.filter(|it| it.release.stage.answers());
    let candidates =
        published.map(|variant| names.candidate(interner.ordinal(&variant.id), variant));
    let candidates: Vec<Candidate> = candidates.collect();
    let workers = view.workers.values();
    // A worker that somebody has taken out counts. Its variants move, and are desired until then.
    let staying = workers.filter(|worker| !worker.record.draining);
    let places: Vec<Place> = staying.map(|worker| names.place(worker)).collect();
    let wishes = warm::kept_warm(&candidates, &places, memory_share);
    let named = wishes.iter().filter_map(|wish| interner.name(wish.ordinal));
    let wishes = named.map(|variant| DesiredVariant {
        variant: variant.clone(),
        workers: Count::Everywhere,
        pinned: false,
        needed: 0,
    });
    wishes.collect()
}

// === impl Numbers ===

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Numbers<K> {
    fn of(&mut self, key: K) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
}

// === impl Names ===

impl<'a> Names<'a> {
    fn candidate(&mut self, ordinal: VariantIx, variant: &'a Variant) -> Candidate {
        let (spec, profile) = (&variant.spec, &variant.profile);
        let weights = (&spec.engine, variant.artefact, spec.precision);
        Candidate {
            ordinal,
            model: self.models.of(&variant.model),
            engine: self.engines.of(&spec.engine),
            dominated: variant.dominated_by.is_some(),
            own_bytes: profile
                .peak_memory_bytes
                .saturating_sub(profile.weights_bytes),
            shared: Some(SharedBytes {
                group: self.weights.of(weights),
                bytes: profile.weights_bytes,
            }),
            cost_per_1k_usd: variant.cost_per_1k_usd,
            quality_bound: variant.accuracy.quality_bound(),
            latency_ms: variant.latency_ms(),
            load_ms: profile.load_ms,
        }
    }

    fn place(&mut self, worker: &'a Worker) -> Place {
        let engines = worker.record.engines.iter();
        Place {
            engines: engines.map(|engine| self.engines.of(engine)).collect(),
            memory_bytes: worker.record.memory_bytes,
        }
    }
}
