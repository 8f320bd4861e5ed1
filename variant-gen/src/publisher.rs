//! Keeps the metadata store in step with the registry.
//!
//! The registry says which models are ready; dispatchers see the metadata store. Whether a variant is dominated depends
//! on all variants of its application, so every model that comes or goes changes the marks of the others. Prices are
//! those of the devices, as workers announce them; a changed price is applied at the next publication. The resources of
//! an application are shown with each of its variants, so that dispatchers and workers know them, also after the store
//! was lost. All of it is idempotent: [`Publisher::publish_all`] brings the metadata store from any state to the
//! registry's. A change of one application reads and writes that application alone, however many there are.

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

/// Publishes and retires variants. Cheap to clone. Clones take turns; other publishers of the same stores need not.
#[derive(Clone)]
pub struct Publisher {
    registry: Registry,
    metadata: Arc<dyn MetadataStore>,
    /// Devices whose prices are known in addition to those that workers announce.
    devices: Vec<Arc<DeviceType>>,
    turn: Arc<Mutex<Turn>>,
}

/// The prices of devices: as workers announce them, else as this process was given them.
pub(crate) struct Pricing<'a> {
    announced: DeviceTypes,
    devices: &'a [Arc<DeviceType>],
}

/// The view of the last publication of everything, until it is followed.
pub(crate) type Turn = Option<StoreView>;

/// The content of the metadata store, as far as it was followed: the application of each variant.
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

    /// The same, with the prices of devices that no worker may have announced.
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

    /// The present prices of devices.
    pub(crate) async fn pricing(&self) -> Result<Pricing<'_>, Error> {
        let workers = self.metadata.workers(unix_ms()).await?;
        Ok(Pricing {
            announced: DeviceTypes::of(&workers),
            devices: &self.devices,
        })
    }

    /// Brings the metadata store to the state of the registry, after a start or a failure: publishes variants of ready
    /// models, retires all others, and renews the marks of dominated variants. Returns the number of published
    /// variants.
    pub async fn publish_all(&self) -> Result<usize, Error> {
        let mut turn = self.take_turn().await;
        *turn = None;
        // Changes are followed from here. The registry may be read before another process deletes a model from it, and
        // shown after that model's variants were retired.
        let mut shown = StoreView::of(self.metadata.snapshot().await?);
        let wanted = self.follow_registry().await?;
        let after = StoreView::of(self.metadata.snapshot().await?);
        shown.applications.extend(after.applications);
        *turn = Some(shown);
        Ok(wanted.len())
    }

    /// Shows an application's variants with renewed marks, and withdraws nothing. It ends a publication: another
    /// process may have published at the same time, and neither has judged the variants of the other; the later of the
    /// two sees both.
    pub(crate) async fn renew(&self, application: &ApplicationId) -> Result<(), Error> {
        let _turn = self.take_turn().await;
        self.show_ready_of(application).await
    }

    /// Deletes a model: its variants leave the registry, then the metadata store; variants that they dominated may come
    /// to the frontier. The instances are drained by the workers. If the registry does not have the model, its deletion
    /// may have been interrupted: the rest of it is withdrawn before the error is returned.
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

    /// Follows the store after [`publish_all`](Self::publish_all), which it calls if nothing was published yet. It
    /// publishes everything again whenever the metadata store has lost its content, and renews the marks of an
    /// application whenever another process retires a variant of it: the variants that a deleted model dominated would
    /// otherwise stay marked. Runs until dropped, or until a store fails; then the caller must call it again.
    pub async fn keep_published(&self) -> Result<(), Error> {
        let kept = self.follow_published().await;
        // The view from before the store's failure may lack changes: the next call publishes everything.
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

    /// Publishes everything, and returns the view to follow from.
    async fn publish_and_follow(&self) -> Result<StoreView, Error> {
        loop {
            self.publish_all().await?;
            // Another task may have published everything since.
            if let Some(shown) = self.take_turn().await.take() {
                return Ok(shown);
            }
        }
    }

    /// While the guard lives, no other clone changes what is published.
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

    /// Shows variants to dispatchers, with the resources of their applications. If the resources change meanwhile, it
    /// shows them again: the later of two processes that show them has seen the change.
    pub(crate) async fn show(&self, variants: &[Variant]) -> Result<(), Error> {
        let of: BTreeSet<&ApplicationId> = variants.iter().map(|it| &it.application).collect();
        let mut resources = self.resources(&of).await?;
        // A version that has become current is shown first: from then on it answers.
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

    /// The resources of these applications, for those that have set some.
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

    /// The body of [`Self::publish_all`], for the holder of the turn; returns the published variants.
    pub(crate) async fn follow_registry(&self) -> Result<BTreeSet<VariantId>, Error> {
        let wanted = self.show_ready().await?;
        for variant in self.metadata.variants().await? {
            if !wanted.contains(&variant.id) {
                self.metadata.retire_variant(&variant.id).await?;
            }
        }
        Ok(wanted)
    }

    /// Withdraws a model that the registry does not have. It leaves variants of other models alone: a registration in
    /// another process shows its variants before the registry has them.
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

    /// Shows the variants of ready models with renewed marks; returns them.
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

    /// Computes the marks of one application's variants anew, and stores the changes.
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

    /// Withdraws variants that another process has deleted while they were shown, of one application or of all; returns
    /// those that are ready now. `None` if another process has changed a version meanwhile: it may have shown the
    /// change before, so everything must be shown again.
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

    /// The applications of which another process retired a variant.
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
    /// Sets a variant's price by the device that it was registered on, if known; a variant of an earlier version gets
    /// the price of the device that this process measures its engine on. Returns whether the price changed.
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

    /// Sets the prices of variants; returns those whose price changed.
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
