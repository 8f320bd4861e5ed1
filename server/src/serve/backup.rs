//! Finds the registry and the artefact store of a configuration, for backups.

use std::path::Path;

use anyhow::Context;
use sextant_registry::dump::{Dump, Place};
use sextant_storage::backup::{self, Manifest, Tell};

use super::{
    folder::FolderLock,
    stores::{self, REGISTRY_FILE},
};
use sextant_config::Config;

/// Writes both into a folder. A service may use them meanwhile.
pub(crate) async fn take(config: &Config, to: &Path, tell: Tell<'_>) -> anyhow::Result<Manifest> {
    let registry = place(config)?;
    let objects = stores::open_beside(config).await?;
    Ok(backup::take(&registry, objects.as_ref(), to, tell).await?)
}

/// Restores both; nothing else may use them.
pub(crate) async fn restore(
    config: &Config,
    from: &Path,
    tell: Tell<'_>,
) -> anyhow::Result<Manifest> {
    // Read first, before anything is made: most mistakes are in the name of the folder.
    Manifest::read(from)?;
    let _folder = FolderLock::take(&config.data_dir)?;
    let registry = stores::open_empty(config).await?;
    let objects = stores::open_beside(config).await?;
    let restored = backup::restore(from, &registry, &objects, tell).await;
    registry.close().await;
    Ok(restored?)
}

/// Whether the registry and the artefact store belong together; `None` where one of them is not there yet or cannot be
/// read, and nothing is made.
pub(super) async fn belong_together(config: &Config) -> Option<bool> {
    let mut registry = Dump::open(&place(config).ok()?).await.ok()?;
    if stores::objects_folder(config).is_some_and(|folder| !folder.is_dir()) {
        return None;
    }
    let objects = stores::open_beside(config).await.ok()?;
    let store = objects.identity().await.ok()?;
    Some(registry.identity().await.ok()? == store)
}

/// Where the registry is.
fn place(config: &Config) -> anyhow::Result<Place> {
    match &config.registry.url {
        None => {
            let file = config.data_dir.join(REGISTRY_FILE);
            let found = file.metadata();
            found.with_context(|| format!("there is no registry `{}`", file.display()))?;
            Ok(Place::File(file))
        }
        #[cfg(feature = "fleet")]
        Some(url) => Ok(Place::Server(sextant_registry::ConnectOptions::new(url))),
        #[cfg(not(feature = "fleet"))]
        Some(_) => anyhow::bail!("`registry.url`: {}", super::UNBUILT),
    }
}
