//! What is published follows from what the registry holds.
//!
//! The registry says which models are ready; the metadata store is what dispatchers see. Whether
//! a variant is dominated depends on all variants of its application, so every model that comes
//! or goes re-marks the others. Prices are those of the devices, as workers announce them; a price that
//! has changed is applied at the next publication. What an application may use of the fleet is shown with
//! each of its variants: so whoever serves them knows it, and knows it again after a loss of the store.
//! All of it is idempotent: [`Publisher::publish_all`] brings the
//! metadata store to the registry's state from wherever it is. What concerns one application reads and
//! writes that one alone, however many there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use sextant_metadata::{Changes, Cursor, DeviceTypes, Event, MetadataStore, Snapshot};
use sextant_registry::Registry;
use sextant_rpc::{Publish, PublishError};
use sextant_types::{
    ApplicationId, Code, DeviceType, ModelId, Resources, Stage, Variant, VariantId, time::unix_ms,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::{Error, frontier};

mod kinds;

/// Publishes and retires variants. Cheap to clone; clones take turns, others of the same stores do
/// not have to.
#[derive(Clone)]
pub struct Publisher {
    registry: Registry,
    metadata: Arc<dyn MetadataStore>,
    /// Devices whose prices are known beside those that workers announce.
    devices: Vec<Arc<DeviceType>>,
    turn: Arc<Mutex<Turn>>,
}

/// What devices cost: as the workers announce it, else as this process is told.
pub(crate) struct Pricing<'a> {
    announced: DeviceTypes,
    devices: &'a [Arc<DeviceType>],
}

/// What whoever has the turn knows of those before: what was shown when everything was published last, until
/// that is followed.
pub(crate) type Turn = Option<StoreView>;

/// What the metadata store shows, as far as it was followed: whose each variant is.
pub(crate) struct StoreView {
    cursor: Cursor,
    applications: BTreeMap<VariantId, ApplicationId>,
}

impl Publisher {
    /// A publisher from `registry` to `metadata`.
    pub fn new(registry: Registry, metadata: Arc<dyn MetadataStore>) -> Self {
        Self {
            registry,
            metadata,
            devices: Vec::new(),
            turn: Arc::default(),
        }
    }

    /// The same, knowing the prices of devices that no worker may have announced.
    #[must_use]
    pub fn knowing(self, devices: Vec<Arc<DeviceType>>) -> Self {
        Self { devices, ..self }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn metadata(&self) -> &dyn MetadataStore {
        &*self.metadata
    }

    /// What devices cost now.
    pub(crate) async fn pricing(&self) -> Result<Pricing<'_>, Error> {
        let workers = self.metadata.workers(unix_ms()).await?;
        Ok(Pricing {
            announced: DeviceTypes::of(&workers),
            devices: &self.devices,
        })
    }

    /// Brings the metadata store to the state of the registry, after a start or a failure:
    /// variants of ready models are published, all others retired, marks of dominated variants
    /// renewed. Returns how many variants are published.
    pub async fn publish_all(&self) -> Result<usize, Error> {
        let mut turn = self.take_turn().await;
        *turn = None;
        // What changes meanwhile is followed from here: the registry may have been read before somebody deleted a model
        // from it, and be shown after its variants were retired.
        let mut shown = StoreView::of(self.metadata.snapshot().await?);
        let wanted = self.follow_registry().await?;
        let after = StoreView::of(self.metadata.snapshot().await?);
        shown.applications.extend(after.applications);
        *turn = Some(shown);
        Ok(wanted.len())
    }

    /// Shows what the registry holds of an application with renewed marks, and withdraws nothing. For the
    /// end of a publication: another process may have published at the same time, and neither judged the
    /// variants of the other; the later of the two sees both.
    pub(crate) async fn renew(&self, application: &ApplicationId) -> Result<(), Error> {
        let _turn = self.take_turn().await;
        self.show_ready_of(application).await
    }

    /// Deletes a model: its variants leave the registry, then the metadata store; variants that
    /// they dominated may come to the front. Instances are drained by whoever runs them. A model that
    /// the registry does not have may be one whose deletion was interrupted: what it has left is
    /// withdrawn before that is said.
    pub async fn retire_model(&self, model: &ModelId) -> Result<Vec<VariantId>, Error> {
        let _turn = self.take_turn().await;
        let known = self.registry.model(model).await.ok();
        let deleted = self.registry.delete_model(model, unix_ms()).await;
        let is_gone = |error: &sextant_registry::Error| error.code() == Code::ModelNotFound;
        match (&deleted, known) {
            (Ok(variants), Some(known)) => {
                for variant in variants {
                    self.metadata.retire_variant(variant).await?;
                }
                self.show_ready_of(&known.application).await?;
            }
            (Err(error), _) if !is_gone(error) => {}
            _ => self.withdraw(model).await?,
        }
        Ok(deleted?)
    }

    /// Goes on behind [`publish_all`](Self::publish_all), which it calls where nobody has: publishes
    /// everything again whenever the metadata store has lost its content, and renews the marks of an
    /// application whenever a variant of it was retired by someone else: what a deleted model dominated
    /// would otherwise stay in its shadow. Until dropped, or until a store fails: then it is to be called
    /// again.
    pub async fn keep_published(&self) -> Result<(), Error> {
        let kept = self.follow_published().await;
        // What somebody showed before the store failed may lack what could not be shown since: the next call publishes all.
        drop(self.take_turn().await.take());
        kept
    }

    async fn follow_published(&self) -> Result<(), Error> {
        let published = self.take_turn().await.take();
        let mut shown = match published {
            Some(shown) => shown,
            None => self.publish_and_follow().await?,
        };
        loop {
            self.metadata.changed(shown.cursor).await?;
            match self.metadata.changes(shown.cursor).await {
                Ok(changes) => {
                    for application in shown.follow(changes) {
                        self.renew(&application).await?;
                    }
                }
                Err(sextant_metadata::Error::Trimmed { .. }) => {
                    shown = self.publish_and_follow().await?;
                }
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// Publishes everything; where to follow from.
    async fn publish_and_follow(&self) -> Result<StoreView, Error> {
        loop {
            self.publish_all().await?;
            // Somebody else may have begun to publish everything since.
            if let Some(shown) = self.take_turn().await.take() {
                return Ok(shown);
            }
        }
    }

    /// While the guard lives, nobody else changes what is published.
    pub(crate) async fn take_turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().await
    }

    /// The variants of an application's ready models, without `own`.
    pub(crate) async fn others(
        &self,
        application: &ApplicationId,
        own: &BTreeSet<VariantId>,
    ) -> Result<Vec<Variant>, Error> {
        let mut variants = self.registry.ready_variants_of(application).await?;
        variants.retain(|it| !own.contains(&it.id));
        Ok(variants)
    }

    /// Makes variants visible to dispatchers, with the resources of their applications. Where those
    /// change meanwhile, it is done again: of two who show them the later has seen the change.
    pub(crate) async fn show(&self, variants: &[Variant]) -> Result<(), Error> {
        let of: BTreeSet<&ApplicationId> = variants.iter().map(|it| &it.application).collect();
        let mut resources = self.resources(&of).await?;
        // A version that has become current is shown first: from then on it is the one that answers.
        let mut variants: Vec<&Variant> = variants.iter().collect();
        variants.sort_by_key(|it| it.release.stage != Stage::Current);
        loop {
            for variant in &variants {
                let of = resources.get(&variant.application).copied();
                let shown = Variant {
                    resources: of.unwrap_or_default(),
                    ..(*variant).clone()
                };
                self.metadata.publish_variant(Arc::new(shown)).await?;
            }
            let now = self.resources(&of).await?;
            if now == resources {
                return Ok(());
            }
            resources = now;
        }
    }

    /// What these applications may use of the fleet, those alone that have set something.
    async fn resources(
        &self,
        of: &BTreeSet<&ApplicationId>,
    ) -> Result<BTreeMap<ApplicationId, Resources>, Error> {
        let found = match (of.len(), of.first()) {
            (0, _) => Vec::new(),
            (1, Some(id)) => match self.registry.application(id).await {
                Ok(application) => vec![application],
                Err(error) if error.code() == Code::ApplicationNotFound => Vec::new(),
                Err(error) => return Err(error.into()),
            },
            _ => self.registry.applications().await?,
        };
        let set = found.into_iter().filter(|it| !it.resources.is_default());
        Ok(set.map(|it| (it.id, it.resources)).collect())
    }

    /// Shows the variants of an application again with its resources and their models' stages.
    pub async fn show_application(&self, application: &ApplicationId) -> Result<(), Error> {
        let _turn = self.take_turn().await;
        self.show_ready_of(application).await
    }

    /// The body of [`Self::publish_all`], for who has the turn; what is published.
    pub(crate) async fn follow_registry(&self) -> Result<BTreeSet<VariantId>, Error> {
        let wanted = self.show_ready().await?;
        for variant in self.metadata.variants().await? {
            if !wanted.contains(&variant.id) {
                self.metadata.retire_variant(&variant.id).await?;
            }
        }
        Ok(wanted)
    }

    /// Withdraws a model that the registry does not have. Variants of others are left alone: those
    /// of a registration in another process are shown before the registry has them.
    async fn withdraw(&self, model: &ModelId) -> Result<(), Error> {
        let mut applications = BTreeSet::new();
        for variant in self.metadata.variants().await? {
            if variant.model == *model {
                self.metadata.retire_variant(&variant.id).await?;
                applications.insert(variant.application.clone());
            }
        }
        for application in applications {
            self.show_ready_of(&application).await?;
        }
        Ok(())
    }

    /// Shows the variants of ready models with renewed marks; which they are.
    async fn show_ready(&self) -> Result<BTreeSet<VariantId>, Error> {
        loop {
            let mut applications: BTreeMap<ApplicationId, Vec<Variant>> = BTreeMap::new();
            for variant in self.registry.ready_variants().await? {
                let application = variant.application.clone();
                applications.entry(application).or_default().push(variant);
            }
            let pricing = self.pricing().await?;
            for variants in applications.values_mut() {
                self.renew_marks(variants, &pricing).await?;
            }
            let shown: Vec<Variant> = applications.into_values().flatten().collect();
            self.show(&shown).await?;
            if let Some(ready) = self.settle(None, &shown).await? {
                return Ok(ready);
            }
        }
    }

    /// Shows the variants of an application's ready models with renewed marks.
    async fn show_ready_of(&self, application: &ApplicationId) -> Result<(), Error> {
        loop {
            let mut variants = self.registry.ready_variants_of(application).await?;
            let pricing = self.pricing().await?;
            self.renew_marks(&mut variants, &pricing).await?;
            self.show(&variants).await?;
            let settled = self.settle(Some(application), &variants).await?;
            if settled.is_some() {
                return Ok(());
            }
        }
    }

    /// Renews what is said of the variants of one application beside the others, and stores what that
    /// changes.
    async fn renew_marks(
        &self,
        variants: &mut [Variant],
        pricing: &Pricing<'_>,
    ) -> Result<(), Error> {
        let mut changed: BTreeSet<VariantId> = pricing.price_all(variants);
        changed.extend(kinds::mark(&self.registry, variants).await?);
        changed.extend(frontier::mark(variants).into_iter().map(|marked| marked.id));
        let changed = variants.iter().filter(|it| changed.contains(&it.id));
        let changed: Vec<Variant> = changed.cloned().collect();
        if !changed.is_empty() {
            self.registry.renew_variants(&changed).await?;
        }
        Ok(())
    }

    /// Withdraws what another process has deleted while it was shown, of one application or of all; what
    /// of these is ready now. `None` where another process has changed a version meanwhile: it may have
    /// shown that before, so all is to be shown again.
    async fn settle(
        &self,
        application: Option<&ApplicationId>,
        shown: &[Variant],
    ) -> Result<Option<BTreeSet<VariantId>>, Error> {
        let ready = self.registry.ready_releases(application).await?;
        let mut is_as_shown = true;
        for variant in shown {
            match ready.get(&variant.id) {
                Some(release) => is_as_shown &= *release == variant.release,
                None => {
                    self.metadata.retire_variant(&variant.id).await?;
                }
            }
        }
        Ok(is_as_shown.then(|| ready.into_keys().collect()))
    }
}

// === impl StoreView ===

impl StoreView {
    fn of(snapshot: Snapshot) -> Self {
        let variants = snapshot.variants.into_iter();
        Self {
            cursor: snapshot.cursor,
            applications: variants
                .map(|variant| (variant.id.clone(), variant.application.clone()))
                .collect(),
        }
    }

    /// The applications of which a variant was retired.
    fn follow(&mut self, changes: Changes) -> BTreeSet<ApplicationId> {
        self.cursor = changes.cursor;
        let mut retired = BTreeSet::new();
        for event in changes.events {
            match event {
                Event::VariantPublished(variant) => {
                    let (id, application) = (variant.id.clone(), variant.application.clone());
                    self.applications.insert(id, application);
                }
                Event::VariantRetired(id) => retired.extend(self.applications.remove(&id)),
                _ => {}
            }
        }
        retired
    }
}

// === impl Pricing ===

impl Pricing<'_> {
    /// Prices a variant by the device that it was registered on, where that is known; one of an
    /// earlier version by the device that this process measures its engine on. Returns whether that
    /// changed anything.
    pub(crate) fn price(&self, variant: &mut Variant) -> bool {
        let Some(device) = self.device_of(variant) else {
            return false;
        };
        let before = (variant.measured_on.clone(), variant.cost_per_hour_usd);
        let per_1k = variant.cost_per_1k_usd;
        variant.price(device);
        let after = (variant.measured_on.clone(), variant.cost_per_hour_usd);
        before != after || per_1k != variant.cost_per_1k_usd
    }

    /// Prices variants; those whose price is another one.
    fn price_all(&self, variants: &mut [Variant]) -> BTreeSet<VariantId> {
        let priced = variants.iter_mut().filter_map(|variant| {
            let changed = self.price(variant);
            changed.then(|| variant.id.clone())
        });
        priced.collect()
    }

    fn device_of(&self, variant: &Variant) -> Option<&DeviceType> {
        let mine = |is: &dyn Fn(&DeviceType) -> bool| {
            let found = self.devices.iter().find(|device| is(device));
            found.map(|device| device.as_ref())
        };
        let Some(name) = &variant.measured_on else {
            let engine = &variant.spec.engine;
            return mine(&|device| device.engines.contains(engine));
        };
        let announced = self.announced.get(name).map(|device| device.as_ref());
        announced.or_else(|| mine(&|device| device.name == *name))
    }
}

// === impl Publish ===

#[async_trait]
impl Publish for Publisher {
    async fn retire_model(&self, model: &ModelId) -> Result<(), PublishError> {
        match Self::retire_model(self, model).await {
            Ok(_) => Ok(()),
            Err(error) => Err(PublishError::new(error.code(), &error)),
        }
    }

    async fn show_application(&self, application: &ApplicationId) -> Result<(), PublishError> {
        let shown = Self::show_application(self, application).await;
        shown.map_err(|error| PublishError::new(error.code(), &error))
    }
}
