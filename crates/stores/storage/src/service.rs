//! Sweeps periodically.

use std::{future::Future, sync::atomic::Ordering, time::Duration};

use sextant_fleet::turned;
use tokio::sync::watch;

use crate::Storage;

/// Pause after a failed sweep, if sweeps are rarer than this.
const RETRY: Duration = Duration::from_secs(60);

impl Storage {
    /// Sweeps, and removes old feedback, until `shutdown`, while `leading` holds: of several processes only one does.
    /// The first sweep is immediate, for what an earlier life has left. If the sender of `leading` is gone, its last
    /// value remains.
    pub async fn run_while(
        self,
        mut leading: watch::Receiver<bool>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let pruning = self.prune_again_and_again(leading.clone());
        tokio::select! {
            () = shutdown => {}
            () = pruning => {}
            () = self.sweep_again_and_again(&mut leading) => {}
        }
        self.stop_removing().await;
    }

    async fn sweep_again_and_again(&self, leading: &mut watch::Receiver<bool>) {
        let Some(every) = self.inner.config.every else {
            return std::future::pending().await;
        };
        loop {
            turned(leading, true).await;
            let pause = tokio::select! {
                swept = self.sweep(None) => match swept {
                    Ok(_) => every,
                    Err(error) => {
                        tracing::warn!(%error, "the storage was not swept");
                        every.min(RETRY)
                    }
                },
                () = turned(leading, false) => continue,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits for the running removal, and permits no more.
    async fn stop_removing(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        drop(self.inner.removing.lock().await);
    }
}
