//! Taking workers whose lease has ended out of everyone's sight.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sextant_metadata::MetadataStore;

use crate::Token;

/// Looks at the leases every `period` while there is a `token`, until `shutdown`.
pub async fn expire_leases(
    metadata: Arc<dyn MetadataStore>,
    token: Token,
    period: Duration,
    shutdown: impl Future<Output = ()> + Send,
) {
    let looking = async {
        loop {
            tokio::time::sleep(period).await;
            if token.borrow().is_none() {
                continue;
            }
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let now_ms = since.map_or(0, |since| since.as_millis() as u64);
            match metadata.expire(now_ms).await {
                Ok(gone) => gone
                    .iter()
                    .for_each(|worker| tracing::warn!(%worker, "lease expired")),
                Err(error) => tracing::debug!(%error, "leases could not be looked at"),
            }
        }
    };
    tokio::select! {
        () = shutdown => {}
        () = looking => {}
    }
}
