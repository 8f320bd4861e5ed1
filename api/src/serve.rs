//! Serving a listener until it is told to stop.

use std::{convert::Infallible, io, time::Duration};

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{ApiState, router};

const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener failed.
    #[error("serving `{address}` failed")]
    Serve {
        /// The listener's address, as far as known.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Requests were still in flight when the time to drain was over.
    #[error("requests were still in flight `{0:?}` after the shutdown began")]
    Drain(Duration),
}

/// Serves until `shutdown`, then reports unready, takes no new connections, and waits for the
/// requests in flight, at most [`crate::Limits::drain_timeout`].
pub async fn serve(
    listener: TcpListener,
    state: ApiState,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let address = listener
        .local_addr()
        .map_or_else(|_| "unknown".to_owned(), |address| address.to_string());
    let drain = state.limits().drain_timeout;
    let refreshing = keep_current(state.clone());
    let stopping = shutdown.clone();
    let on_stop = {
        let state = state.clone();
        async move {
            stopping.cancelled().await;
            state.drain();
        }
    };
    // Answers are small and complete: waiting to fill a segment only delays them.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let serving = axum::serve(listener, router(state)).with_graceful_shutdown(on_stop);
    let overtime = async {
        shutdown.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        result = serving.into_future() => result.map_err(|source| Error::Serve {
            address,
            source,
        }),
        () = overtime => Err(Error::Drain(drain)),
        never = refreshing => match never {},
    }
}

/// Reads the default targets now and then, for what others wrote into the registry.
async fn keep_current(state: ApiState) -> Infallible {
    loop {
        if let Err(error) = state.refresh().await {
            tracing::warn!(%error, "cannot read default targets");
        }
        tokio::time::sleep(REFRESH_EVERY).await;
    }
}
