//! What is published follows from what the registry holds.
//!
//! The registry says which models are ready; the metadata store is what dispatchers see. Whether
//! a variant is dominated depends on all variants of its application, so every model that comes
//! or goes re-marks the others. All of it is idempotent: [`Publisher::publish_all`] brings the
//! metadata store to the registry's state from wherever it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use sextant_metadata::{Event, MetadataStore};
use sextant_registry::Registry;
use sextant_types::{ApplicationId, ModelId, Variant, VariantId};
use tokio::sync::{Mutex, MutexGuard};

use crate::{Error, frontier};

/// Publishes and retires variants. Cheap to clone; clones take turns.
#[derive(Clone)]
pub struct Publisher {
    registry: Registry,
    metadata: Arc<dyn MetadataStore>,
    turn: Arc<Mutex<()>>,
}

impl Publisher {
    /// A publisher from `registry` to `metadata`.
    pub fn new(registry: Registry, metadata: Arc<dyn MetadataStore>) -> Self {
        Self {
            registry,
            metadata,
            turn: Arc::default(),
        }
    }

    /// Brings the metadata store to the state of the registry, after a start or a failure:
    /// variants of ready models are published, all others retired, marks of dominated variants
    /// renewed. Returns how many variants are published.
    pub async fn publish_all(&self) -> Result<usize, Error> {
        let _turn = self.take_turn().await;
        self.follow_registry().await
    }

    /// Deletes a model: its variants leave the registry, then the metadata store; variants that
    /// they dominated may come to the front. Instances are drained by whoever runs them.
    pub async fn retire_model(&self, model: &ModelId) -> Result<Vec<VariantId>, Error> {
        let _turn = self.take_turn().await;
        let retired = self.registry.delete_model(model).await?;
        self.follow_registry().await?;
        Ok(retired)
    }

    /// Publishes everything, and again whenever the metadata store has lost its content; renews marks
    /// whenever a variant was retired by someone else: what a deleted model dominated would otherwise
    /// stay in its shadow. Until dropped, or until a store fails: then it is to be called again.
    pub async fn keep(&self) -> Result<(), Error> {
        let mut cursor = self.metadata.snapshot().await?.cursor;
        self.publish_all().await?;
        loop {
            self.metadata.changed(cursor).await?;
            let retired = match self.metadata.changes(cursor).await {
                Ok(changes) => {
                    cursor = changes.cursor;
                    let retired = |event: &Event| matches!(event, Event::VariantRetired(_));
                    changes.events.iter().any(retired)
                }
                Err(sextant_metadata::Error::Trimmed { .. }) => {
                    cursor = self.metadata.snapshot().await?.cursor;
                    true
                }
                Err(other) => return Err(other.into()),
            };
            if retired {
                self.publish_all().await?;
            }
        }
    }

    /// While the guard lives, nobody else changes what is published.
    pub(crate) async fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The variants of an application's ready models, without those of `model`.
    pub(crate) async fn others(
        &self,
        application: &ApplicationId,
        model: &ModelId,
    ) -> Result<Vec<Variant>, Error> {
        let mut variants = self.registry.ready_variants().await?;
        variants.retain(|variant| variant.application == *application && variant.model != *model);
        Ok(variants)
    }

    /// Makes variants visible to dispatchers.
    pub(crate) async fn show(&self, variants: &[Variant]) -> Result<(), Error> {
        for variant in variants {
            self.metadata
                .publish_variant(Arc::new(variant.clone()))
                .await?;
        }
        Ok(())
    }

    /// The body of [`Self::publish_all`], for who has the turn.
    pub(crate) async fn follow_registry(&self) -> Result<usize, Error> {
        let mut applications: BTreeMap<ApplicationId, Vec<Variant>> = BTreeMap::new();
        for variant in self.registry.ready_variants().await? {
            let application = variant.application.clone();
            applications.entry(application).or_default().push(variant);
        }
        let mut wanted = BTreeSet::new();
        for variants in applications.values_mut() {
            let changed = frontier::mark(variants);
            self.registry.put_variants(&changed).await?;
            self.show(variants).await?;
            wanted.extend(variants.iter().map(|variant| variant.id.clone()));
        }
        for variant in self.metadata.variants().await? {
            if !wanted.contains(&variant.id) {
                self.metadata.retire_variant(&variant.id).await?;
            }
        }
        Ok(wanted.len())
    }
}
