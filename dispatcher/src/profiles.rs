//! Measures variants on types of devices on which they were not registered.
//!
//! The missing measurements follow from the published variants and from the types of the workers, so there is no list
//! of work that could be lost. The leader looks for them, measures one variant on one type after the other, and stores
//! each result in the registry before it publishes it. Until then the profile from the registration is used there.
//!
//! A variant is measured where it is already loaded, on a worker that has little to do. Nothing is loaded or unloaded
//! for it, so no memory is taken from others. Its batches are offline work. They are sent one at a time, and only while
//! the worker is idle enough, so a query waits at most for the end of one such batch. A worker that has more to do is
//! asked again later. A worker that fails or dies gives the variant a growing pause, after which the next worker of the
//! type is tried. Dominated variants keep their estimates, because nobody loads them. Variants with inputs whose size
//! beside the batch is unknown keep theirs too, because no typical query can be made up for them.

mod measure;

use std::{collections::BTreeMap, future::Future, pin::pin, sync::Arc, time::Duration};

use sextant_fleet::turned;
use sextant_metadata::MetadataStore;
use sextant_registry::{Failure, Registry};
use sextant_rpc::WorkerClient;
use sextant_types::{
    Code, DeviceTypeName, Profile, Variant, VariantId, index::DeviceIx, time::unix_ms,
};
use tokio::sync::watch;

use crate::{Dispatcher, snapshot::Snapshot};

/// How variants are measured on further types of devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfileConfig {
    /// A worker whose slots are busier than this, as a share, is not used.
    pub quiet_utilization: f64,
    /// Time spent on each batch size.
    pub budget: Duration,
    /// Pause after the first failure. It doubles with each further failure.
    pub back_off: Duration,
    /// The longest pause after failures.
    pub longest_back_off: Duration,
}

/// Measures while the dispatcher leads.
pub struct ProfileService {
    config: ProfileConfig,
    dispatcher: Arc<Dispatcher>,
    registry: Registry,
    metadata: Arc<dyn MetadataStore>,
    failed: BTreeMap<MissingProfile, FailureRecord>,
}

/// A variant that was not measured on a type of device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MissingProfile {
    variant: VariantId,
    device_type: DeviceTypeName,
}

#[derive(Debug, Clone, Copy)]
struct FailureRecord {
    failures: u32,
    at_ms: u64,
}

/// Why a measurement gave no profile.
#[derive(Debug)]
enum Trouble {
    /// The worker has other work.
    Busy,
    /// Something went wrong.
    Failed(Failure),
}

/// Time between two looks while nothing changes.
const LOOK: Duration = Duration::from_secs(1);

// === impl ProfileConfig ===

impl Default for ProfileConfig {
    fn default() -> Self {
        Self {
            quiet_utilization: 0.3,
            budget: Duration::from_millis(60),
            back_off: Duration::from_secs(5),
            longest_back_off: Duration::from_secs(600),
        }
    }
}

impl ProfileConfig {
    /// The pause after this many failures in a row.
    fn pause(&self, failures: u32) -> Duration {
        let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
        self.back_off
            .saturating_mul(doubled)
            .min(self.longest_back_off)
    }
}

// === impl ProfileService ===

impl ProfileService {
    /// Makes a service for the variants that `dispatcher` knows.
    pub fn new(
        config: ProfileConfig,
        dispatcher: Arc<Dispatcher>,
        registry: Registry,
        metadata: Arc<dyn MetadataStore>,
    ) -> Self {
        Self {
            config,
            dispatcher,
            registry,
            metadata,
            failed: BTreeMap::new(),
        }
    }

    /// Measures until `shutdown`, and only while `leading` is true. A measurement that is under way then is dropped,
    /// and the next leader starts it again.
    pub async fn run_while(
        mut self,
        mut leading: watch::Receiver<bool>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                () = turned(&mut leading, true) => {}
            }
            tokio::select! {
                () = &mut shutdown => return,
                () = turned(&mut leading, false) => {}
                () = self.work() => {}
            }
        }
    }

    async fn work(&mut self) {
        self.recall().await;
        let mut revisions = self.dispatcher.revision.subscribe();
        loop {
            revisions.mark_unchanged();
            let snapshot = self.dispatcher.snapshot.load_full();
            self.store_apart().await;
            for (missing, workers) in missing(&snapshot) {
                self.attempt(&snapshot, &missing, &workers).await;
            }
            drop(tokio::time::timeout(LOOK, revisions.changed()).await);
        }
    }

    /// Reads the failures from before this process led.
    async fn recall(&mut self) {
        match self.registry.failed_profiles().await {
            Ok(failed) => {
                let failed = failed.into_iter().map(|of| {
                    let missing = MissingProfile {
                        variant: of.variant,
                        device_type: of.device_type,
                    };
                    let (failures, at_ms) = (of.failures, of.updated_ms);
                    (missing, FailureRecord { failures, at_ms })
                });
                self.failed = failed.collect();
            }
            // The pauses start from the shortest again.
            Err(error) => tracing::warn!(%error, "failures to measure cannot be read"),
        }
    }

    async fn attempt(
        &mut self,
        snapshot: &Snapshot,
        missing: &MissingProfile,
        workers: &[DeviceIx],
    ) {
        let failed = self.failed.get(missing).copied();
        let failures = failed.map_or(0, |failed| failed.failures);
        let pause = self.config.pause(failures).as_millis() as u64;
        if failed.is_some_and(|failed| unix_ms() < failed.at_ms.saturating_add(pause)) {
            return;
        }
        let Some(known) = snapshot.variant(&missing.variant) else {
            return;
        };
        let at = workers
            .get(failures as usize % workers.len().max(1))
            .copied();
        let Some(worker) = at.and_then(|at| self.client(at)) else {
            return;
        };
        let measured = measure::measure(&known.variant, &worker, &self.config).await;
        let stored = match measured {
            Ok(profile) => self.store(missing, &profile).await,
            Err(Trouble::Busy) => return,
            Err(Trouble::Failed(failure)) => self.note(missing, failures, &failure).await,
        };
        if let Err(error) = stored {
            let MissingProfile {
                variant,
                device_type,
            } = missing;
            tracing::warn!(%variant, %device_type, %error, "a profile cannot be stored");
        }
    }

    /// Stores which variants were taken out of batches, so that a later leader knows it.
    async fn store_apart(&self) {
        let agreements = &self.dispatcher.agreements;
        for (id, reason) in agreements.apart() {
            let stored = match self.store_reason(&id, &reason).await {
                // The variant was deleted. It must not reappear from an earlier publication.
                Err(error) if is_gone(&error) => {
                    Ok(self.metadata.retire_variant(&id).await.map(drop))
                }
                stored => stored,
            };
            match stored {
                Ok(Ok(())) => {}
                // The next publication of all variants includes it.
                Ok(Err(error)) => {
                    tracing::warn!(variant = %id, %error, "that queries run one at a time cannot be published");
                }
                Err(error) => {
                    tracing::warn!(variant = %id, %error, "that queries run one at a time cannot be stored");
                    continue;
                }
            }
            agreements.forget_apart(&id);
        }
    }

    async fn store_reason(
        &self,
        id: &VariantId,
        reason: &str,
    ) -> Result<Result<(), sextant_metadata::Error>, sextant_registry::Error> {
        self.registry.keep_apart(id, reason).await?;
        self.show(id).await
    }

    fn client(&self, at: DeviceIx) -> Option<WorkerClient> {
        let members = self.dispatcher.driver.workers().load();
        members.get(at)?.client.clone()
    }

    async fn store(
        &mut self,
        missing: &MissingProfile,
        profile: &Profile,
    ) -> Result<(), sextant_registry::Error> {
        let MissingProfile {
            variant,
            device_type,
        } = missing;
        let stored = self
            .registry
            .put_profile(variant, device_type, profile, unix_ms());
        stored.await?;
        self.failed.remove(missing);
        let (rps, samples) = (profile.saturation_rps, profile.batches.len());
        tracing::info!(%variant, %device_type, rps, samples, "measured on a further type of device");
        if let Err(error) = self.show(variant).await? {
            // The next publication of all variants includes it.
            tracing::warn!(%variant, %device_type, %error, "a profile cannot be published");
        }
        Ok(())
    }

    /// Publishes a variant as the registry has it, and publishes it again if the registry's entry changes at this
    /// moment. A variant that is deleted at this moment must not reappear.
    async fn show(
        &self,
        id: &VariantId,
    ) -> Result<Result<(), sextant_metadata::Error>, sextant_registry::Error> {
        let mut stored = self.stored(id).await?;
        loop {
            let shown = Arc::new(stored.clone());
            if let Err(error) = self.metadata.publish_variant(shown).await {
                return Ok(Err(error));
            }
            match self.stored(id).await {
                Ok(now) if now == stored => return Ok(Ok(())),
                Ok(now) => stored = now,
                Err(error) if is_gone(&error) => {
                    return Ok(self.metadata.retire_variant(id).await.map(drop));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The variant as the registry has it, with the part of the fleet that its application may use.
    async fn stored(&self, id: &VariantId) -> Result<Variant, sextant_registry::Error> {
        let variant = self.registry.variant(id).await?;
        let application = self.registry.application(&variant.application).await?;
        Ok(Variant {
            resources: application.resources,
            ..variant
        })
    }

    async fn note(
        &mut self,
        missing: &MissingProfile,
        failures: u32,
        failure: &Failure,
    ) -> Result<(), sextant_registry::Error> {
        let MissingProfile {
            variant,
            device_type,
        } = missing;
        let (code, reason) = (failure.code, &failure.message);
        tracing::warn!(%variant, %device_type, %code, %reason, "a variant cannot be measured");
        let (failures, at_ms) = (failures + 1, unix_ms());
        self.failed
            .insert(missing.clone(), FailureRecord { failures, at_ms });
        let noted = self
            .registry
            .fail_profile(variant, device_type, failure, at_ms);
        noted.await
    }
}

/// Whether a variant was deleted, possibly with its application.
fn is_gone(error: &sextant_registry::Error) -> bool {
    matches!(
        error.code(),
        Code::VariantNotFound | Code::ApplicationNotFound
    )
}

/// The measurements that are missing where the variants are loaded, with the workers that have them.
fn missing(snapshot: &Snapshot) -> Vec<(MissingProfile, Vec<DeviceIx>)> {
    let mut found = Vec::new();
    for known in snapshot.all() {
        let variant = &known.variant;
        // This includes a dominated variant that a query has had loaded there, because it answers other queries from
        // then on.
        let loaded = known.hosts.iter().filter(|host| !host.workers.is_empty());
        let unmeasured = loaded.filter_map(|host| {
            let name = host.device_type.as_ref()?;
            let missing = || MissingProfile {
                variant: variant.id.clone(),
                device_type: name.clone(),
            };
            let is_missing = variant.measured(name).is_none();
            is_missing.then(|| (missing(), host.workers.clone()))
        });
        let unmeasured: Vec<_> = unmeasured.collect();
        // Computed only for variants with missing measurements, which are few.
        let is_measurable = || measure::inputs(variant, 1, &variant.profile.sizes.dims).is_some();
        if !unmeasured.is_empty() && is_measurable() {
            found.extend(unmeasured);
        }
    }
    found
}
