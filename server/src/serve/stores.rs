//! The stores that the roles share: registry, artefacts, metadata. They are in this process or on servers.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use sextant_metadata::{InProcessRates, InProcessStore, MetadataStore, RateStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_registry::Registry;
use sextant_storage::Storage;
use sextant_types::time::unix_ms;
use tokio::time::{Instant, sleep};

#[cfg(not(feature = "fleet"))]
use super::UNBUILT;
use super::{
    folder::{FolderLock, HeldFolders},
    storage,
};
use sextant_config::{Config, Role};

#[cfg(feature = "fleet")]
pub(super) mod remote;

/// The registry's file in the data folder.
pub(super) const REGISTRY_FILE: &str = "registry.sqlite";

/// Between two attempts to reach a store that is away.
const PAUSE: Duration = Duration::from_millis(500);

/// The stores that the roles of this process need.
pub(super) struct Stores {
    /// `None` where no role of this process needs it.
    registry: Option<Registry>,
    pub(super) objects: Arc<dyn ObjectStore>,
    /// The two together; `None` where there is no registry.
    pub(super) storage: Option<Storage>,
    pub(super) metadata: Arc<dyn MetadataStore>,
    pub(super) rates: Arc<dyn RateStore>,
    /// Names this life of this process as the owner of leases.
    pub(super) owner: String,
    /// Folders without which the process is not ready.
    pub(super) kept: HeldFolders,
    _folder: FolderLock,
}

impl Stores {
    /// Opens them as soon as they can be reached, at the latest when `fleet.start_patience_ms` are over.
    pub(super) async fn wait_for(config: &Config) -> anyhow::Result<Self> {
        let end = Instant::now() + Duration::from_millis(config.fleet.start_patience_ms);
        let mut is_first = true;
        loop {
            let error = match Self::open(config).await {
                Ok(stores) => return Ok(stores),
                Err(error) => error,
            };
            if !is_away(&error) || Instant::now() + PAUSE >= end {
                return Err(error);
            }
            if std::mem::take(&mut is_first) {
                let reason = format!("{error:#}");
                tracing::warn!(
                    reason,
                    "a store is away: it is asked again until it answers"
                );
            }
            sleep(PAUSE).await;
        }
    }

    async fn open(config: &Config) -> anyhow::Result<Self> {
        let folder = FolderLock::take(&config.data_dir)?;
        let (metadata, rates) = open_metadata(config).await?;
        let now_ms = unix_ms();
        let registry = match needs_registry(config) {
            true => Some(open_registry(config, now_ms).await?),
            false => None,
        };
        let name = config.worker_name();
        let objects = open_objects(config).await?;
        let storage = match registry.clone() {
            Some(registry) => Some(storage::build(config, registry, Arc::clone(&objects)).await),
            None => None,
        };
        Ok(Self {
            registry,
            storage,
            objects,
            kept: keep(config)?,
            metadata,
            rates,
            owner: format!("{name}-{}-{now_ms}", std::process::id()),
            _folder: folder,
        })
    }

    /// The registry, for a role that needs it.
    pub(super) fn registry(&self) -> anyhow::Result<Registry> {
        self.registry.clone().context("no role needs the registry")
    }

    /// What returns once registry and artefact store belong together: what stores files waits for it.
    pub(super) fn together(&self) -> impl Future<Output = ()> + Send + use<> {
        let storage = self.storage.clone();
        async move {
            if let Some(storage) = storage {
                storage.until_together().await;
            }
        }
    }

    pub(super) async fn close(self) {
        if let Some(registry) = self.registry {
            registry.close().await;
        }
    }
}

/// Whether the same may succeed a moment later.
fn is_away(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let of_registry = cause.downcast_ref::<sextant_registry::Error>();
        let of_metadata = cause.downcast_ref::<sextant_metadata::Error>();
        of_registry.is_some_and(sextant_registry::Error::is_retryable)
            || matches!(
                of_metadata,
                Some(sextant_metadata::Error::Unavailable { .. })
            )
            || is_objects_away(cause)
    })
}

#[cfg(feature = "fleet")]
fn is_objects_away(cause: &(dyn std::error::Error + 'static)) -> bool {
    let of_objects = cause.downcast_ref::<sextant_objects_s3::Error>();
    matches!(of_objects, Some(sextant_objects_s3::Error::Away { .. }))
}

/// Folders are there or not.
#[cfg(not(feature = "fleet"))]
fn is_objects_away(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// Workers and autoscalers know nothing of models.
fn needs_registry(config: &Config) -> bool {
    let roles = [Role::Api, Role::Dispatcher, Role::VariantGen];
    roles.into_iter().any(|role| config.roles.contains(role))
}

async fn open_metadata(
    config: &Config,
) -> anyhow::Result<(Arc<dyn MetadataStore>, Arc<dyn RateStore>)> {
    match &config.metadata.url {
        None => Ok((
            Arc::new(InProcessStore::new()),
            Arc::new(InProcessRates::new()),
        )),
        #[cfg(feature = "fleet")]
        Some(url) => remote::metadata(config, url).await,
        #[cfg(not(feature = "fleet"))]
        Some(_) => anyhow::bail!("`metadata.url`: {UNBUILT}"),
    }
}

async fn open_registry(config: &Config, now_ms: u64) -> anyhow::Result<Registry> {
    match &config.registry.url {
        None => {
            let registry = Registry::open(config.data_dir.join(REGISTRY_FILE))
                .await
                .context("the registry cannot be opened")?;
            // This process holds the folder's lock, so every earlier holder of a lease is dead.
            let resumed = registry
                .void_leases(now_ms)
                .await
                .context("jobs cannot be taken over")?;
            if config.objects.url.is_none() {
                end_sweep(&registry)
                    .await
                    .context("an interrupted sweep cannot be ended")?;
            }
            if resumed > 0 {
                tracing::info!(jobs = resumed, "going on with jobs of an earlier life");
            }
            Ok(registry)
        }
        #[cfg(feature = "fleet")]
        Some(url) => remote::registry(config, url).await,
        #[cfg(not(feature = "fleet"))]
        Some(_) => anyhow::bail!("`registry.url`: {UNBUILT}"),
    }
}

/// Whoever was removing files from the folder is dead as well, and removes nothing any more.
async fn end_sweep(registry: &Registry) -> Result<(), sextant_registry::Error> {
    let condemned = registry.condemned().await?.into_iter();
    let condemned: Vec<_> = condemned.map(|blob| blob.digest).collect();
    registry.acquit(&condemned).await
}

/// The folder of the artefacts; `None` where they are in a bucket.
pub(super) fn objects_folder(config: &Config) -> Option<PathBuf> {
    match &config.objects.url {
        None => Some(config.data_dir.join("objects")),
        Some(url) => url.strip_prefix("file://").map(Into::into),
    }
}

/// The data folder, and that of the artefacts where this process has it.
fn keep(config: &Config) -> anyhow::Result<HeldFolders> {
    let mut kept = HeldFolders::default();
    for folder in [Some(config.data_dir.clone()), objects_folder(config)]
        .into_iter()
        .flatten()
    {
        kept.add(&folder)
            .with_context(|| format!("`{}` cannot be looked at", folder.display()))?;
    }
    Ok(kept)
}

async fn open_objects(config: &Config) -> anyhow::Result<Arc<dyn ObjectStore>> {
    let objects = open_store(config).await?;
    if let Some(scratch) = objects.scratch() {
        sextant_engine::sweep(&scratch)
            .with_context(|| format!("`{}` cannot be looked at", scratch.display()))?;
    }
    Ok(objects)
}

/// The artefact store beside a process that may have opened it.
pub(super) async fn open_beside(config: &Config) -> anyhow::Result<Arc<dyn ObjectStore>> {
    match &config.objects.url {
        None => {
            let store = LocalStore::open_beside(config.data_dir.join("objects"));
            Ok(Arc::new(
                store.context("the artefact store cannot be opened")?,
            ))
        }
        #[cfg(feature = "fleet")]
        Some(url) if !url.starts_with("file://") => remote::bucket_alone(config, url).await,
        Some(_) => open_store(config).await,
    }
}

/// The registry as it is, with the schema of this version; nothing is taken over.
pub(super) async fn open_empty(config: &Config) -> anyhow::Result<Registry> {
    match &config.registry.url {
        None => Registry::open(config.data_dir.join(REGISTRY_FILE))
            .await
            .context("the registry cannot be opened"),
        #[cfg(feature = "fleet")]
        Some(url) => Registry::connect(url)
            .await
            .context("the registry cannot be opened"),
        #[cfg(not(feature = "fleet"))]
        Some(_) => anyhow::bail!("`registry.url`: {UNBUILT}"),
    }
}

async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn ObjectStore>> {
    match &config.objects.url {
        None => {
            let folder = config.data_dir.join("objects");
            let store = LocalStore::open(folder, config.limits.storage_bytes)
                .context("the artefact store cannot be opened")?;
            Ok(Arc::new(store))
        }
        Some(url) if url.starts_with("file://") => {
            let folder = url.trim_start_matches("file://");
            let store = LocalStore::open_beside(folder);
            let store = store.with_context(|| format!("`objects.url` is `{url}`"))?;
            Ok(Arc::new(store))
        }
        #[cfg(feature = "fleet")]
        Some(url) => remote::objects(config, url).await,
        #[cfg(not(feature = "fleet"))]
        Some(_) => anyhow::bail!("`objects.url`: {UNBUILT}"),
    }
}
