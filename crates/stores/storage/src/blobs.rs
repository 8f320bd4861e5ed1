//! Removes the blobs to which nothing refers. The crate's documentation explains why that is safe.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sextant_objects::BlobInfo;
use sextant_types::{Digest, time::unix_ms};

use crate::{Amount, Error, Inner, files::before};

/// Time after the condemnation within which blobs may be removed.
pub const REMOVE_WITHIN: Duration = Duration::from_secs(300);

/// Time after the condemnation from which other processes assume that a blob will not be removed any more.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// Number of blobs that are condemned together.
const BATCH: usize = 500;

/// Number of blobs that are listed together.
const PAGE: usize = 1000;

impl Inner {
    /// Every blob, in the order of their digests.
    pub(crate) async fn each_blob(&self, mut take: impl FnMut(BlobInfo)) -> Result<(), Error> {
        let mut after = None;
        loop {
            self.go_on()?;
            let page = self.objects.list_blobs(after.as_ref(), PAGE).await?;
            page.blobs.into_iter().for_each(&mut take);
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes the blobs to which nothing refers and that were stored before the time of grace.
    pub(crate) async fn remove_blobs(
        self: &Arc<Self>,
        grace: Duration,
        freed: &mut Amount,
    ) -> Result<(), Error> {
        self.acquit_abandoned().await?;
        let stored_by_ms = before(grace);
        let used = self.registry.blob_uses().await?.into_iter();
        let used: HashSet<Digest> = used.map(|used| used.digest).collect();
        let mut old = Vec::new();
        // The final check for references is made by the condemnation.
        self.each_blob(|blob| {
            if blob.stored_ms <= stored_by_ms && !used.contains(&blob.digest) {
                old.push(blob);
            }
        })
        .await?;
        for batch in old.chunks(BATCH) {
            self.go_on()?;
            let removed = self.remove_batch(batch.to_vec()).await?;
            freed.objects += removed.objects;
            freed.bytes += removed.bytes;
        }
        Ok(())
    }

    /// Removes these blobs if nothing refers to them, whatever their age.
    pub(crate) async fn remove_these(self: &Arc<Self>, digests: &[Digest]) -> Result<(), Error> {
        let stored_ms = unix_ms();
        let blobs = digests.iter().map(|digest| BlobInfo {
            digest: *digest,
            size_bytes: 0,
            stored_ms,
        });
        self.remove_batch(blobs.collect()).await.map(drop)
    }

    /// Runs in a task of its own: condemned blobs are acquitted even if the caller stops waiting.
    async fn remove_batch(self: &Arc<Self>, batch: Vec<BlobInfo>) -> Result<Amount, Error> {
        let removing = Arc::clone(&self.removing).lock_owned().await;
        let inner = Arc::clone(self);
        let removed = tokio::spawn(async move {
            let _removing = removing;
            inner.condemn_and_remove(&batch).await
        });
        removed.await.unwrap_or(Err(Error::Stopped))
    }

    async fn condemn_and_remove(&self, batch: &[BlobInfo]) -> Result<Amount, Error> {
        let since_ms = unix_ms();
        let digests: Vec<Digest> = batch.iter().map(|blob| blob.digest).collect();
        let mut condemned = self.registry.condemn(&digests, since_ms).await?;
        let mut removed = Amount::default();
        let mut failed = None;
        let blobs = batch.iter();
        let blobs: Vec<_> = blobs
            .filter(|blob| condemned.contains(&blob.digest))
            .collect();
        for BlobInfo {
            digest,
            size_bytes,
            stored_ms,
        } in blobs
        {
            if is_past(since_ms, REMOVE_WITHIN) || self.go_on().is_err() {
                break;
            }
            match self.objects.delete_blob_stored_by(digest, *stored_ms).await {
                Ok(true) => removed.add(*size_bytes),
                Ok(false) => {}
                Err(error) => {
                    // The removal may still be carried out: the blob stays condemned until that is impossible.
                    condemned.retain(|condemned| condemned != digest);
                    failed = Some(error);
                }
            }
        }
        self.registry.acquit(&condemned).await?;
        failed.map_or(Ok(removed), |error| Err(error.into()))
    }

    /// Acquits blobs that a process condemned before it died.
    async fn acquit_abandoned(&self) -> Result<(), Error> {
        let condemned = self.registry.condemned().await?.into_iter();
        let abandoned: Vec<Digest> = condemned
            .filter(|blob| is_past(blob.since_ms, ABANDONED_AFTER))
            .map(|blob| blob.digest)
            .collect();
        if !abandoned.is_empty() {
            self.registry.acquit(&abandoned).await?;
        }
        Ok(())
    }

    /// Fails once the service is to stop.
    pub(crate) fn go_on(&self) -> Result<(), Error> {
        match self.stopping.load(Ordering::Acquire) {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }
}

fn is_past(since_ms: u64, limit: Duration) -> bool {
    u128::from(unix_ms().saturating_sub(since_ms)) > limit.as_millis()
}
