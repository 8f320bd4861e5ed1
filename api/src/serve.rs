//! Serving a listener until it is told to stop.

use std::{convert::Infallible, future::pending, time::Duration};

use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{ApiState, Limits, Tls, feedback, spending};

mod accept;
mod activity;
mod connection;
mod exchange;
mod socket;

use accept::{Connections, accept};

/// How often the default targets are read again.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// How often the keys are read again: a revoked key is refused within two seconds.
const REFRESH_KEYS_EVERY: Duration = Duration::from_secs(1);

/// Longest time for returning the tokens of the keys when the service ends.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Requests were still in flight when the time to drain was over.
    #[error("requests were still in flight `{0:?}` after the shutdown began and were cut off")]
    Drain(Duration),
}

/// A socket and its encryption.
pub struct Listener {
    /// Accepts the connections.
    pub socket: TcpListener,
    /// The encryption; `None`: connections are not encrypted.
    pub tls: Option<Tls>,
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        let tls = None;
        Self { socket, tls }
    }
}

/// How long clients may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For the head of a request, and for the first byte of a connection.
    head: Duration,
    /// For the next request.
    idle: Duration,
    /// Least bytes a second that a client must take of an answer.
    min_bytes_per_s: u64,
    /// The time over which that rate is averaged.
    grace: Duration,
}

// === impl Patience ===

impl Patience {
    fn of(limits: &Limits) -> Self {
        Self {
            head: limits.head_timeout,
            idle: limits.idle_timeout,
            min_bytes_per_s: limits.min_transfer_bytes_per_s,
            grace: limits.transfer_grace,
        }
    }

    /// How often a connection is checked: a few times in the shortest of these times.
    fn look_every(&self) -> Duration {
        let shortest = self.head.min(self.idle).min(self.grace);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }
}

/// Serves HTTP/1.1 and HTTP/2 until `shutdown`. Then it reports that it is not ready and goes on for
/// [`crate::Limits::shutdown_delay`], in which each connection ends with its next answer. Then it accepts no new
/// connections, and waits for the requests in flight, at most [`crate::Limits::drain_timeout`].
pub async fn serve(
    listener: impl Into<Listener>,
    state: ApiState,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    serve_all(vec![listener.into()], state, shutdown).await
}

/// The same for several listeners. The certificate of the first is followed: give the others clones of it.
pub async fn serve_all(
    listeners: Vec<Listener>,
    state: ApiState,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let tls = listeners.iter().find_map(|listener| listener.tls.as_ref());
    let mut connections = Connections::new(state.limits().max_connections);
    let closing = CancellationToken::new();
    let told = async {
        shutdown.cancelled().await;
        state.drain();
        sleep(state.limits().shutdown_delay).await;
    };
    tokio::select! {
        () = told => {}
        never = accept(&listeners, &state, &closing, &mut connections) => match never {},
        never = keep_current(&state) => match never {},
        never = keep_keys(&state) => match never {},
        never = keep_tokens(&state) => match never {},
        never = spending::follow(&state) => match never {},
        never = feedback::watch::keep(&state) => match never {},
        never = sextant_api_core::pipelines::measure::keep(&state) => match never {},
        never = keep_certificate(tls) => match never {},
    }
    closing.cancel();
    drop(listeners);
    let longest = state.limits().drain_timeout;
    let over = async {
        connections.all_ended().await;
        // Changes whose clients have gone are completed as well.
        state.changes().ended().await;
    };
    // Dropping the set cuts off the connections that are left in it.
    let drained = timeout(longest, over).await;
    // A store that does not answer must not delay the shutdown.
    drop(timeout(GIVE_BACK_TIMEOUT, state.keyring().give_back(true)).await);
    drained.map_err(|_| Error::Drain(longest))
}

/// Reads the default targets from time to time, since other processes may have changed them in the registry.
async fn keep_current(state: &ApiState) -> Infallible {
    loop {
        if let Err(error) = state.refresh().await {
            tracing::warn!(%error, "cannot read default targets");
        }
        state.sum_up_failures();
        sleep(REFRESH_EVERY).await;
    }
}

/// Follows changes of the keys.
async fn keep_keys(state: &ApiState) -> Infallible {
    loop {
        if let Err(error) = state.refresh_keys().await {
            tracing::warn!(%error, "cannot read the API keys: those that are known go on");
        }
        sleep(REFRESH_KEYS_EVERY).await;
    }
}

/// Returns the tokens that idle keys hold. It is separate from following the keys: while the store of the limits does
/// not answer, revocations must come through.
async fn keep_tokens(state: &ApiState) -> Infallible {
    loop {
        state.keyring().give_back(false).await;
        sleep(REFRESH_KEYS_EVERY).await;
    }
}

async fn keep_certificate(tls: Option<&Tls>) -> Infallible {
    match tls {
        Some(tls) => tls.follow().await,
        None => pending().await,
    }
}
