//! How long files are kept, and the removal of unused ones.

use std::{sync::Arc, time::Duration};

use sextant_objects::ObjectStore;
use sextant_registry::Registry;
use sextant_storage::{Config as Settings, Error, Storage};
use tokio::sync::watch;

use super::Process;
use sextant_config::Config;

/// The artefact store and what refers to it, which have been looked at: whether they belong together.
pub(super) async fn build(
    config: &Config,
    registry: Registry,
    objects: Arc<dyn ObjectStore>,
) -> Storage {
    let kept = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    let own = &config.storage;
    let settings = Settings {
        every: kept(own.sweep_every_s),
        grace: Duration::from_secs(own.grace_s),
        keep_ended_jobs: kept(own.keep_ended_jobs_s),
        keep_failed_models: kept(own.keep_failed_models_s),
        keep_audit: kept(own.keep_audit_s),
        feedback_every: Duration::from_secs(own.prune_feedback_every_s),
        limit_bytes: match config.objects.url {
            Some(_) => None,
            None => config.limits.storage_bytes,
        },
    };
    let storage = Storage::new(registry, objects, settings);
    match storage.meet().await {
        // The check has logged the result.
        Ok(()) | Err(Error::Mismatch(_)) => {}
        Err(error) => {
            tracing::warn!(%error, "whether registry and artefact store belong together is not known yet");
        }
    }
    storage
}

/// Sweeps now and then; in a fleet the leading dispatcher does.
pub(super) fn sweep(
    storage: Option<Storage>,
    leading: watch::Receiver<bool>,
    process: &mut Process,
) {
    if let Some(storage) = storage {
        process.spawn(|stop| async move { storage.run_while(leading, stop.cancelled()).await });
    }
}
