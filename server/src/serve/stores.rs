//! What the roles of one process share: registry, artefacts, metadata.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use sextant_metadata::{InProcessStore, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_registry::Registry;

use super::folder::FolderLock;
use crate::config::Config;

/// The embedded stores, over one folder.
pub(super) struct Stores {
    pub(super) registry: Registry,
    pub(super) objects: Arc<dyn ObjectStore>,
    pub(super) metadata: Arc<dyn MetadataStore>,
    /// Names this life of this process as the owner of leases.
    pub(super) owner: String,
    _folder: FolderLock,
}

impl Stores {
    pub(super) async fn open(config: &Config) -> anyhow::Result<Self> {
        let folder = FolderLock::take(&config.data_dir)?;
        let objects =
            LocalStore::open(config.data_dir.join("objects"), config.limits.storage_bytes)
                .context("the artefact store cannot be opened")?;
        let registry = Registry::open(config.data_dir.join("registry.sqlite"))
            .await
            .context("the registry cannot be opened")?;
        let now_ms = unix_ms();
        // The folder's lock says that every earlier holder of a lease is dead.
        let resumed = registry
            .void_leases(now_ms)
            .await
            .context("jobs cannot be taken over")?;
        if resumed > 0 {
            tracing::info!(jobs = resumed, "going on with jobs of an earlier life");
        }
        Ok(Self {
            registry,
            objects: Arc::new(objects),
            metadata: Arc::new(InProcessStore::new()),
            owner: format!("{}-{}-{now_ms}", config.worker.name, std::process::id()),
            _folder: folder,
        })
    }
}

/// Milliseconds since the Unix epoch.
fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
