//! Answers that a front end keeps of queries whose inputs stay with it.
//!
//! Which variant answers is for the dispatcher to say. So a query says for which variants there is an answer to its inputs,
//! the dispatcher chooses as for any other, and where the choice is among them it says so in place of a placement: no
//! inputs travel and no device runs. Right behind a switch the choice is another variant, whose answer is not among them.

use std::sync::Arc;

use sextant_answers::{Cache, CachedAnswer, InputsDigest};
use sextant_rpc::KeptAnswer;
use sextant_types::{Tensor, Variant, VariantId};

/// The answers to the inputs of one query.
pub(super) struct Lookup {
    cache: Arc<Cache>,
    digest: InputsDigest,
    kept: Vec<(Arc<Variant>, CachedAnswer)>,
    /// What is asked all the same, to be compared.
    on_trial: Vec<(Arc<Variant>, CachedAnswer)>,
}

// === impl Lookup ===

impl Lookup {
    /// What is kept of the variants that may be chosen.
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

    /// Whether no variant has an answer to these inputs.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.on_trial.is_empty()
    }

    /// What the dispatcher is told.
    pub(super) fn offers(&self) -> Vec<KeptAnswer> {
        let of = |variant: &Variant| KeptAnswer {
            variant: variant.id.clone(),
            file: variant.artefact,
        };
        self.kept.iter().map(|(variant, _)| of(variant)).collect()
    }

    /// The answer of a variant that was offered.
    pub(super) fn answer(&self, variant: &VariantId) -> Option<&CachedAnswer> {
        self.cache.count(true);
        self.put_off(|_| true);
        let mut kept = self.kept.iter();
        kept.find(|(it, _)| it.id == *variant).map(|(_, kept)| kept)
    }

    /// A worker has answered by a variant: its answer is kept, or compared with the one that was.
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

    /// Those of the variants on trial that were not chosen are to be compared another time.
    fn put_off(&self, is_left: impl Fn(&Variant) -> bool) {
        let on_trial = self.on_trial.iter().filter(|(it, _)| is_left(it));
        on_trial.for_each(|(it, _)| self.cache.put_off(it));
    }
}
