//! Removes workers whose lease has lapsed from the store.

use std::{future::Future, sync::Arc, time::Duration};

use sextant_metadata::MetadataStore;
use tokio::time::Instant;

use crate::Token;
use sextant_types::time::unix_ms;

/// Looks at the leases every `period` while there is a `token`, until `shutdown`. For `patience` see [`Leases::new`].
pub async fn expire_leases(
    metadata: Arc<dyn MetadataStore>,
    token: Token,
    period: Duration,
    patience: Duration,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut leases = Leases::new(metadata, period, patience);
    let looking = async {
        loop {
            tokio::time::sleep(period).await;
            let leads = token.borrow().is_some();
            match leads {
                true => leases.look().await,
                false => leases.wait(),
            }
        }
    };
    tokio::select! {
        () = shutdown => {}
        () = looking => {}
    }
}

/// The leases of workers. Somebody must look for their ends.
///
/// No worker could renew its lease while the store was away, nor while a machine stood still on which this process and
/// the workers run. After such a time all workers get time to renew, or every worker of the fleet would be removed at
/// once.
pub struct Leases {
    metadata: Arc<dyn MetadataStore>,
    patience: Duration,
    /// Before this moment no worker is expired.
    from: Instant,
    /// If two looks are further apart than this, this process stood still, and possibly its whole machine.
    apart: Duration,
    looked: Option<Instant>,
}

impl Leases {
    /// The leases in a store of unknown history: it may just have been away. The caller looks at them once in a
    /// `period`, and each worker renews its lease at least once within `patience`.
    pub fn new(metadata: Arc<dyn MetadataStore>, period: Duration, patience: Duration) -> Self {
        Self {
            metadata,
            patience,
            from: Instant::now() + patience,
            apart: period * 3,
            looked: None,
        }
    }

    /// Removes workers whose lease has lapsed, unless the store was away, or this process stood still, within the last
    /// `patience`.
    pub async fn look(&mut self) {
        let now = Instant::now();
        let before = self.looked.replace(now).unwrap_or(now);
        if now.duration_since(before) > self.apart {
            self.wait();
        }
        if Instant::now() < self.from {
            // This only checks whether the store answers: no lease has lapsed at time 0.
            if self.metadata.workers(u64::MAX).await.is_err() {
                self.wait();
            }
            return;
        }
        match self.metadata.expire(unix_ms()).await {
            Ok(gone) => gone
                .iter()
                .for_each(|worker| tracing::warn!(%worker, "lease expired")),
            Err(error) => {
                tracing::debug!(%error, "leases could not be looked at");
                self.wait();
            }
        }
    }

    /// From now on the store may be away without this process noticing.
    pub fn wait(&mut self) {
        self.looked = Some(Instant::now());
        self.from = Instant::now() + self.patience;
    }
}
