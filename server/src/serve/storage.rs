//! What is kept for how long, and giving back the rest.

use std::{sync::Arc, time::Duration};

use sextant_storage::{Config as Settings, Storage};
use tokio::sync::watch;

use super::{Process, Stores};
use sextant_config::Config;

/// The artefact store and what refers to it; `None` where no role of this process needs the registry.
pub(super) fn build(config: &Config, stores: &Stores) -> Option<Storage> {
    let kept = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    let own = &config.storage;
    let settings = Settings {
        every: kept(own.sweep_every_s),
        grace: Duration::from_secs(own.grace_s),
        keep_ended_jobs: kept(own.keep_ended_jobs_s),
        keep_failed_models: kept(own.keep_failed_models_s),
        limit_bytes: match config.objects.url {
            Some(_) => None,
            None => config.limits.storage_bytes,
        },
    };
    let objects = Arc::clone(&stores.objects);
    let registry = stores.registry().ok()?;
    Some(Storage::new(registry, objects, settings))
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
