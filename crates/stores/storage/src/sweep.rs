//! One sweep.

use std::time::Duration;

use sextant_types::Digest;

use crate::{Amount, Error, Storage, files::before};

/// What a sweep has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// Rows of ended jobs.
    pub jobs: u64,
    /// Models whose registration had failed; their files are counted as blobs.
    pub models: u64,
    /// Old entries of the audit record.
    pub audit: u64,
    /// Parts of ended jobs.
    pub parts: Amount,
    /// Notes on webhooks of removed jobs.
    pub notes: Amount,
    /// Blobs to which nothing referred.
    pub blobs: Amount,
}

impl Storage {
    /// Removes what nothing needs. `grace` replaces the configured one. With a grace of zero, uploads that are on their
    /// way may have to be sent again. Waits for a running sweep.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if the registry does not belong to the store; then nothing is removed.
    pub async fn sweep(&self, grace: Option<Duration>) -> Result<SweepReport, Error> {
        let inner = &self.inner;
        let _one_at_a_time = inner.sweeping.lock().await;
        self.meet().await?;
        let mut freed = SweepReport::default();
        if let Some(keep) = inner.config.keep_failed_models {
            let forgotten = inner.registry.forget_failed_models(before(keep)).await?;
            freed.models = forgotten.len() as u64;
        }
        if let Some(keep) = inner.config.keep_audit {
            freed.audit = inner.forget_audit(keep).await?;
        }
        inner.forget_jobs(&mut freed).await?;
        inner.remove_leftovers(&mut freed).await?;
        let grace = grace.unwrap_or(inner.config.grace);
        inner.remove_blobs(grace, &mut freed.blobs).await?;
        if freed != SweepReport::default() {
            tracing::info!(
                jobs = freed.jobs,
                models = freed.models,
                audit = freed.audit,
                parts = freed.parts.objects,
                blobs = freed.blobs.objects,
                bytes = freed.bytes(),
                "storage was given back"
            );
        }
        Ok(freed)
    }
}

impl Storage {
    /// Removes blobs that were stored for a refused request, if nothing else refers to them. A client that stores the
    /// same content at this moment may have to send it again. If the store's clock is ahead, the blobs may stay until
    /// the next sweep.
    pub async fn give_back(&self, blobs: &[Digest]) {
        if blobs.is_empty() {
            return;
        }
        let removed = async {
            self.check().await?;
            self.inner.remove_these(blobs).await
        };
        if let Err(error) = removed.await {
            tracing::warn!(%error, "what a refused upload left stays until the next sweep");
        }
    }
}

// === impl SweepReport ===

impl SweepReport {
    /// Total size of what was removed, bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.bytes + self.notes.bytes + self.blobs.bytes
    }
}
