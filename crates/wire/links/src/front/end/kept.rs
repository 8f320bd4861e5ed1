//! Answers that a front end caches, of queries whose inputs stay with it.
//!
//! The dispatcher chooses which variant answers. So a query states for which variants an answer to its inputs is
//! cached, and the dispatcher chooses as for any other query. If the choice is one of these variants, the dispatcher
//! says so instead of placing the query: no inputs travel and no device runs. Directly after a switch the choice is
//! another variant, whose answer is not cached.

use std::sync::Arc;

use sextant_answers::{Cache, CachedAnswer, InputsDigest};
use sextant_rpc::KeptAnswer;
use sextant_types::{Tensor, Variant, VariantId};

/// The cached answers to the inputs of one query.
pub(super) struct Lookup {
    cache: Arc<Cache>,
    digest: InputsDigest,
    kept: Vec<(Arc<Variant>, CachedAnswer)>,
    /// Variants that run all the same, with the cached answers to compare.
    on_trial: Vec<(Arc<Variant>, CachedAnswer)>,
}

// === impl Lookup ===

impl Lookup {
    /// The cached answers of the variants that may be chosen.
    pub(super) fn new<'a>(
        cache: Arc<Cache>,
        variants: impl Iterator<Item = &'a Arc<Variant>>,
        digest: InputsDigest,
    ) -> Self {
        let found = variants.filter_map(|variant| {
            let kept = cache.get(&digest.of_variant(&variant.id, &variant.artefact))?;
            cache.keeps(variant).then(|| (Arc::clone(variant), kept))
        });
        let (on_trial, kept) = found.partition(|(variant, _)| cache.is_trial(variant));
        Self {
            cache,
            digest,
            kept,
            on_trial,
        }
    }

    /// Whether no variant has a cached answer to these inputs.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.on_trial.is_empty()
    }

    /// The cached answers as the dispatcher is told.
    pub(super) fn offers(&self) -> Vec<KeptAnswer> {
        let of = |variant: &Variant| KeptAnswer {
            variant: variant.id.clone(),
            file: variant.artefact,
        };
        self.kept.iter().map(|(variant, _)| of(variant)).collect()
    }

    /// The cached answer of a variant.
    pub(super) fn answer(&self, variant: &VariantId) -> Option<&CachedAnswer> {
        self.cache.count(true);
        self.put_off(|_| true);
        let mut kept = self.kept.iter();
        kept.find(|(it, _)| it.id == *variant).map(|(_, kept)| kept)
    }

    /// Caches an answer that a worker gave with the variant, or compares it with the cached one.
    pub(super) fn learn(&self, variant: &Variant, outputs: &[Tensor]) {
        self.cache.count(false);
        let is_it = |it: &Variant| it.id == variant.id && it.artefact == variant.artefact;
        self.put_off(|it| !is_it(it));
        if !self.cache.keeps(variant) {
            return;
        }
        let mut on_trial = self.on_trial.iter();
        match on_trial.find(|(it, _)| is_it(it)) {
            Some((_, kept)) => self.cache.judge(variant, kept, outputs),
            None => {
                let key = self.digest.of_variant(&variant.id, &variant.artefact);
                self.cache.put(key, CachedAnswer::new(outputs));
            }
        }
    }

    /// Variants on trial that were not chosen are compared at another time.
    fn put_off(&self, is_left: impl Fn(&Variant) -> bool) {
        let on_trial = self.on_trial.iter().filter(|(it, _)| is_left(it));
        on_trial.for_each(|(it, _)| self.cache.put_off(it));
    }
}
