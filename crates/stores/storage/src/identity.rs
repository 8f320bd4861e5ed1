//! Checks whether the registry and the artefact store belong together.
//!
//! Both keep one name. A registry that is new, restored or another one does not name the objects in a store with
//! content, so a sweep would remove all of them. So every caller that stores or removes files checks the names first.
//!
//! The registry is named first, then the store. Processes that start at the same time all give the store the name that
//! the registry has kept. A process that dies in between leaves a registry with a name and a store without one. The
//! next process joins them if the two agree.

use std::{fmt, time::Duration};

use sextant_objects::{ListRequest, ObjectStore};
use sextant_types::StoreId;

use crate::{Error, Inner, Storage, backup::new_id};

/// Time between two checks while they do not belong together: an administrator may repair that.
const PAUSE: Duration = Duration::from_secs(5);

/// Largest number of blobs named by the registry that are looked for.
const LOOKED_FOR: usize = 100;

/// A registry and an artefact store that do not belong together, with the names that they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityMismatch {
    /// The name of the registry.
    pub registry: Option<StoreId>,
    /// The name of the store.
    pub store: Option<StoreId>,
}

impl Storage {
    /// Checks whether the two belong together, names them if they are new, and remembers the result.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if they do not, or the reason why that could not be determined.
    pub async fn meet(&self) -> Result<(), Error> {
        let found = self.inner.introduce().await?;
        let before = self.inner.standing.send_replace(Some(found));
        let Err(mismatch) = found else {
            if matches!(before, Some(Err(_))) {
                tracing::info!("the registry and the artefact store belong together");
            }
            return Ok(());
        };
        if before != Some(found) {
            tracing::warn!("{mismatch}");
        }
        Err(Error::Mismatch(mismatch))
    }

    /// Fails if the two do not belong together. Does not check again once they were found to.
    ///
    /// # Errors
    /// Those of [`meet`](Self::meet).
    pub async fn check(&self) -> Result<(), Error> {
        let known = *self.inner.standing.borrow();
        match known {
            Some(Ok(())) => Ok(()),
            _ => self.meet().await,
        }
    }

    /// The mismatch of the two, if it is known that they do not belong together.
    pub fn mismatch(&self) -> Option<IdentityMismatch> {
        let known = *self.inner.standing.borrow();
        known.and_then(Result::err)
    }

    /// Returns once the two belong together; checks from time to time until then.
    pub async fn until_together(&self) {
        let mut standing = self.inner.standing.subscribe();
        while let Err(error) = self.check().await {
            if !matches!(error, Error::Mismatch(_)) {
                tracing::warn!(%error, "whether registry and artefact store belong together is not known yet");
            }
            // Another caller may have found it in the meantime.
            let mended = standing.wait_for(|it| *it == Some(Ok(())));
            drop(tokio::time::timeout(PAUSE, mended).await);
        }
    }

    /// Makes the store belong to this registry, whatever it belonged to. From now on sweeps remove what the registry
    /// does not name.
    ///
    /// # Errors
    /// If one of the two could not be named: then nothing was adopted.
    pub async fn adopt(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let id = new_id();
        // Between these two calls they do not belong together yet.
        inner.objects.set_identity(id).await?;
        inner.registry.rename(id).await?;
        self.meet().await
    }
}

impl Inner {
    /// The outer error is one of the stores.
    async fn introduce(&self) -> Result<Result<(), IdentityMismatch>, Error> {
        let registry = self.registry.identity().await?;
        let store = self.objects.identity().await?;
        let may_join = match (registry, store) {
            (Some(registry), Some(store)) => registry == store,
            // A new registry, and a store of another registry.
            (None, Some(_)) => false,
            (_, None) => self.agree().await?,
        };
        if !may_join {
            return Ok(Err(IdentityMismatch { registry, store }));
        }
        if store.is_none() {
            let id = self.registry.identify(new_id()).await?;
            self.objects.set_identity(id).await?;
        }
        Ok(Ok(()))
    }

    /// Whether a store without a name belongs to the registry: it is empty, or has a file that the registry names.
    async fn agree(&self) -> Result<bool, Error> {
        if is_empty(self.objects.as_ref()).await? {
            return Ok(true);
        }
        let uses = self.registry.blob_uses().await?;
        for used in uses.iter().take(LOOKED_FOR) {
            if self.objects.has_blob(&used.digest).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether nothing is stored.
pub(crate) async fn is_empty(objects: &dyn ObjectStore) -> Result<bool, sextant_objects::Error> {
    let first = ListRequest {
        limit: 1,
        ..ListRequest::prefix("")
    };
    let blobs = objects.list_blobs(None, 1).await?;
    Ok(blobs.blobs.is_empty() && objects.list(&first).await?.objects.is_empty())
}

// === impl IdentityMismatch ===

impl fmt::Display for IdentityMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |id: Option<StoreId>| id.map_or("unnamed".to_owned(), |id| format!("`{id}`"));
        write!(
            f,
            "the registry ({}) is not the one that the artefact store ({}) belongs to, so no file is stored or removed: \
             correct `registry.url`, `objects.url` or `data_dir`, put the registry back or restore a backup (`sextant \
             restore`), or make the store this registry's with `sextant storage adopt`",
            named(self.registry),
            named(self.store)
        )
    }
}
