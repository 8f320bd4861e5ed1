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

/// How often the keys are looked at: a revoked one is refused within two seconds.
const REFRESH_KEYS_EVERY: Duration = Duration::from_secs(1);

/// Longest time for putting back what keys have in hand when the service ends.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Requests were still in flight when the time to drain was over.
    #[error("requests were still in flight `{0:?}` after the shutdown began and were cut off")]
    Drain(Duration),
}

/// Where requests come from.
pub struct Listener {
    /// What accepts connections.
    pub socket: TcpListener,
    /// How they are encrypted; `None`: not at all.
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
    /// The time over which that is averaged.
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

    /// How often a connection is looked at: a few times in the shortest of these times.
    fn look_every(&self) -> Duration {
        let shortest = self.head.min(self.idle).min(self.grace);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }
}

/// Serves HTTP/1.1 and HTTP/2 until `shutdown`. Then it reports that it is not ready and goes on for
/// [`crate::Limits::shutdown_delay`], in which connections end with their next answer; then it takes no new connections,
/// and waits for the requests in flight, at most [`crate::Limits::drain_timeout`].
pub async fn serve(
    listener: impl Into<Listener>,
    state: ApiState,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    serve_all(vec![listener.into()], state, shutdown).await
}

/// The same on several listeners. The certificate of the first is followed: give the others clones of it.
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
        // What clients asked for that have gone is done to its end as well.
        state.changes().ended().await;
    };
    // What is left in the set is cut off when the set is dropped.
    let drained = timeout(longest, over).await;
    // A store that does not answer holds up no shutdown.
    drop(timeout(GIVE_BACK_TIMEOUT, state.keyring().give_back(true)).await);
    drained.map_err(|_| Error::Drain(longest))
}

/// Reads the default targets now and then, for what others wrote into the registry.
async fn keep_current(state: &ApiState) -> Infallible {
    loop {
        if let Err(error) = state.refresh().await {
            tracing::warn!(%error, "cannot read default targets");
        }
        state.sum_up_failures();
        sleep(REFRESH_EVERY).await;
    }
}

/// Follows what becomes of the keys.
async fn keep_keys(state: &ApiState) -> Infallible {
    loop {
        if let Err(error) = state.refresh_keys().await {
            tracing::warn!(%error, "cannot read the API keys: those that are known go on");
        }
        sleep(REFRESH_KEYS_EVERY).await;
    }
}

/// Puts back what idle keys hold. Apart from following the keys: while the store of the limits
/// does not answer, revocations must come through.
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
