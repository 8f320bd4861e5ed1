//! Checks whether queries that shared a batch were answered as they are answered alone.
//!
//! The same variant runs the query once more, alone. If dimensions or types differ, the variant is taken out of batches
//! at once. If other values differ, it is taken out once [`ENOUGH`] of the last [`LAST`] queries differ. If something
//! differs, a second lone run shows which outputs the variant draws at random; those are not counted. A variant in
//! another precision is also compared with the answer in single precision, if a variant in that precision is loaded:
//! the answer in company may be no farther from it than the lone answer. Padded inputs may change answers by as much as
//! they may at registration.
//!
//! From then on queries of the variant run one at a time. Other processes learn this from the metadata store, and a
//! later leader learns it from the registry.

use std::sync::{Arc, atomic::Ordering};

use sextant_metadata::MetadataStore;
use sextant_types::{
    Tensor, VariantId,
    company::{Difference, Distances, Tolerance, is_near_tie, relative_distance},
    convert,
};

use super::{Agreements, ComparisonCounts, Sample, run};
use crate::Dispatcher;

/// This many of the last queries with other values take a variant out of batches.
const ENOUGH: u32 = 2;

/// How many of the last queries are counted.
const LAST: u32 = 20;

/// The farthest that a padded query's answer may lie from the answer without padding, as a share of its length.
const PADDED: f64 = 0.01;

/// The reason that users read.
const REASON: &str = "a query that shared a batch was answered otherwise than alone";

// === impl Agreements ===

impl Agreements {
    /// Notes how a query that shared a batch compares with itself alone. Returns whether the variant leaves batches.
    fn note_company(&self, variant: &VariantId, difference: Difference) -> bool {
        let mut compared = self.compared.lock();
        let of = compared.entry(variant.clone()).or_default();
        let differs = difference != Difference::None;
        of.alone += 1;
        of.differing += u64::from(differs);
        of.latest = (of.latest << 1 | u32::from(differs)) & ((1 << LAST) - 1);
        let leaves = difference == Difference::Shape || of.latest.count_ones() >= ENOUGH;
        of.has_left |= leaves;
        let is_little =
            |of: &ComparisonCounts| !of.has_left && (1..u64::from(LAST)).contains(&of.alone);
        let is_early = compared.values().any(is_little);
        self.is_early.store(is_early, Ordering::Relaxed);
        leaves
    }

    /// Variants that were taken out of batches and that the registry has not stored yet, with the reasons.
    pub(crate) fn apart(&self) -> Vec<(VariantId, String)> {
        self.apart.lock().clone().into_iter().collect()
    }

    /// Called when the registry has stored it, or never will.
    pub(crate) fn forget_apart(&self, variant: &VariantId) {
        self.apart.lock().remove(variant);
    }
}

// === impl Dispatcher ===

impl Dispatcher {
    /// Runs a query that shared a batch alone and compares the answers. `uploaded` is the answer in single precision,
    /// if the variant has another precision and the answer is known.
    pub(super) async fn check_company(
        &self,
        sample: &Sample,
        uploaded: Option<&[Tensor]>,
        metadata: &dyn MetadataStore,
    ) {
        let id = &sample.known.variant.id;
        let snapshot = self.snapshot.load_full();
        let shares = snapshot
            .variant(id)
            .filter(|it| it.variant.shares_batches());
        if shares.is_none() {
            return;
        }
        match self.company_of(sample, uploaded).await {
            None => self.agreements.count(id, None),
            Some(difference) => {
                if self.agreements.note_company(id, difference) {
                    self.keep_apart(id, metadata).await;
                }
            }
        }
    }

    /// Returns `None` if no worker has time.
    async fn company_of(&self, sample: &Sample, uploaded: Option<&[Tensor]>) -> Option<Difference> {
        let worker = self.quiet_worker(&sample.known)?;
        let alone = run(&sample.known, &worker, sample).await?;
        let mut differing = differing(sample, &alone);
        if differing.is_empty() {
            return Some(Difference::None);
        }
        let again = run(&sample.known, &worker, sample).await?;
        let exact = Tolerance::of(false);
        let is_drawn = |at: &usize| match (again.get(*at), alone.get(*at)) {
            (Some(again), Some(alone)) => exact.compare(again, alone) != Difference::None,
            _ => true,
        };
        differing.retain(|(at, _)| !is_drawn(at));
        let is_misshapen = |(_, difference): &(usize, Difference)| *difference == Difference::Shape;
        if differing.iter().any(is_misshapen) {
            return Some(Difference::Shape);
        }
        let mut others = differing.iter().map(|(at, _)| *at);
        let differs = others.any(|at| !sample.is_excused(at, &alone, uploaded));
        Some(if differs {
            Difference::Values
        } else {
            Difference::None
        })
    }

    async fn keep_apart(&self, id: &VariantId, metadata: &dyn MetadataStore) {
        // The variant as it is published now, not as it was when the query was answered.
        let Some(known) = self.snapshot.load().variant(id).cloned() else {
            return;
        };
        let mut variant = (*known.variant).clone();
        variant.keep_apart(REASON.to_owned());
        let (application, model) = (&variant.application, &variant.model);
        tracing::warn!(%application, %model, variant = %id, "{REASON}: its queries run one at a time from now on");
        let reason = REASON.to_owned();
        self.agreements.apart.lock().insert(id.clone(), reason);
        if let Err(error) = metadata.publish_variant(Arc::new(variant)).await {
            // The next publication from the registry says it again.
            tracing::warn!(variant = %id, %error, "that queries run one at a time cannot be published");
        }
    }
}

/// The outputs that differ from those of the lone run.
fn differing(sample: &Sample, alone: &[Tensor]) -> Vec<(usize, Difference)> {
    let exact = Tolerance::of(false);
    if sample.outputs.len() != alone.len() {
        return vec![(0, Difference::Shape)];
    }
    let pairs = sample.outputs.iter().zip(alone).enumerate();
    // If the rows of a lone answer differ from those of its query, its outputs are not one row per row of a batch.
    let has_rows = |own: &Tensor| own.shape().first() == Some(&(sample.rows as usize));
    let differences = pairs.map(|(at, (together, own))| match has_rows(own) {
        true => (at, exact.compare(together, own)),
        false => (at, Difference::Shape),
    });
    differences
        .filter(|(_, it)| *it != Difference::None)
        .collect()
}

// === impl Sample ===

impl Sample {
    /// Whether other values of an output are no sign that company changed them.
    fn is_excused(&self, at: usize, alone: &[Tensor], uploaded: Option<&[Tensor]>) -> bool {
        let (Some(together), Some(own)) = (self.outputs.get(at), alone.get(at)) else {
            return false;
        };
        let is_float = convert::is_float(own.data_type());
        if !is_float && is_near_tie(alone) {
            return true;
        }
        if self.known.variant.padding.is_some() && is_float {
            return relative_distance(together, own) <= PADDED;
        }
        if !self.is_in_other_precision() {
            return false;
        }
        let Some(uploaded) = uploaded.and_then(|outputs| outputs.get(at)) else {
            // There is nothing to tell which answer is right.
            return true;
        };
        let mut distances = Distances::default();
        distances.add(together, own, uploaded);
        distances.are_no_worse()
    }
}
