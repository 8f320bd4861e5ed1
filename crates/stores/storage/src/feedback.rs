//! Removes feedback that is too old or too much.

use std::time::Duration;

use sextant_fleet::turned;
use sextant_registry::{Application, FeedbackBounds};
use tokio::sync::watch;

use crate::{Error, Storage, files::before};

/// Number of rows that are removed in one transaction. Other writers run between two transactions.
const BATCH: u32 = 5_000;

const DAY_S: u64 = 86_400;

impl Storage {
    /// Removes feedback periodically, while `leading` holds.
    pub(crate) async fn prune_again_and_again(&self, mut leading: watch::Receiver<bool>) {
        loop {
            turned(&mut leading, true).await;
            tokio::select! {
                pruned = self.prune_feedback() => if let Err(error) = pruned {
                    tracing::warn!(%error, "old feedback was not removed");
                },
                () = turned(&mut leading, false) => continue,
            }
            tokio::time::sleep(self.inner.config.feedback_every).await;
        }
    }

    /// Removes the feedback beyond the bounds of each application, a batch in each transaction, and returns the number
    /// of rows. Stored feedback of an application that no longer accepts any is bounded by the defaults.
    pub async fn prune_feedback(&self) -> Result<u64, Error> {
        let applications = self.inner.registry.applications().await?;
        let mut all = 0;
        for application in &applications {
            all += self.prune_feedback_of(application).await?;
        }
        if all > 0 {
            tracing::info!(
                rows = all,
                "feedback was removed that was too old or too much"
            );
        }
        Ok(all)
    }

    async fn prune_feedback_of(&self, application: &Application) -> Result<u64, Error> {
        let settings = application.feedback.clone().unwrap_or_default();
        let keep = Duration::from_secs(u64::from(settings.keep_days) * DAY_S);
        let bounds = FeedbackBounds {
            since_ms: before(keep),
            max_bytes: settings.max_bytes,
        };
        let (registry, mut all) = (&self.inner.registry, 0);
        loop {
            self.inner.go_on()?;
            let removed = registry.prune_feedback(&application.id, &bounds, BATCH);
            let removed = removed.await?;
            all += removed;
            if removed < u64::from(BATCH) {
                return Ok(all);
            }
        }
    }
}
