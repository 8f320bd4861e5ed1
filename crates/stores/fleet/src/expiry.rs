//! Taking workers whose lease has ended out of everyone's sight.

use std::{future::Future, sync::Arc, time::Duration};

use sextant_metadata::MetadataStore;
use tokio::time::Instant;

use crate::Token;
use sextant_types::time::unix_ms;

/// Looks at the leases every `period` while there is a `token`, until `shutdown`. For `patience` see
/// [`Leases::new`].
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

/// The leases of workers, whose ends somebody has to look for.
///
/// Nobody could renew one while the store was away, nor while the machine stood still on which this process and
/// the workers run: afterwards all workers have their time to do so, or every worker of the fleet would be
/// forgotten at once.
pub struct Leases {
    metadata: Arc<dyn MetadataStore>,
    patience: Duration,
    /// Until then nobody is taken for dead.
    from: Instant,
    /// Between looks that are farther apart this process stood still, and maybe its whole machine.
    apart: Duration,
    looked: Option<Instant>,
}

impl Leases {
    /// Leases of a store about which nothing is known yet: it may just have been away. Somebody looks at them
    /// once in a `period`, and all workers renew theirs at least once within `patience`.
    pub fn new(metadata: Arc<dyn MetadataStore>, period: Duration, patience: Duration) -> Self {
        Self {
            metadata,
            patience,
            from: Instant::now() + patience,
            apart: period * 3,
            looked: None,
        }
    }

    /// Takes workers whose lease has ended out of everyone's sight, unless the store was away, or this
    /// process stood still, within the time of patience.
    pub async fn look(&mut self) {
        let now = Instant::now();
        let before = self.looked.replace(now).unwrap_or(now);
        if now.duration_since(before) > self.apart {
            self.wait();
        }
        if Instant::now() < self.from {
            // Only to see whether the store is there: nothing ends before the first moment.
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

    /// The store may be away from now on without being noticed.
    pub fn wait(&mut self) {
        self.looked = Some(Instant::now());
        self.from = Instant::now() + self.patience;
    }
}
