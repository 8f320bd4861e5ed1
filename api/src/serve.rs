//! Serving a listener until it is told to stop.

use std::{convert::Infallible, io, pin::pin, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{ApiState, router};

/// How often the default targets are read again.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// Longest wait for a request's head on an open connection, idle ones included: above the time
/// for which common clients keep idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Pause after a failure to accept: mostly there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why serving ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Requests were still in flight when the time to drain was over.
    #[error("requests were still in flight `{0:?}` after the shutdown began and were cut off")]
    Drain(Duration),
}

/// Serves until `shutdown`, then reports unready, takes no new connections, and waits for the
/// requests in flight, at most [`crate::Limits::drain_timeout`].
pub async fn serve(
    listener: TcpListener,
    state: ApiState,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let mut connections = JoinSet::new();
    tokio::select! {
        () = shutdown.cancelled() => {}
        never = accept(&listener, &state, &shutdown, &mut connections) => match never {},
        never = keep_current(&state) => match never {},
    }
    state.drain();
    drop(listener);
    let longest = state.limits().drain_timeout;
    let over = async { while connections.join_next().await.is_some() {} };
    // What is left in the set is cut off when the set is dropped.
    timeout(longest, over)
        .await
        .map_err(|_| Error::Drain(longest))
}

async fn accept(
    listener: &TcpListener,
    state: &ApiState,
    shutdown: &CancellationToken,
    connections: &mut JoinSet<()>,
) -> Infallible {
    let router = router(state.clone());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Forgets a connection that has ended.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, shutdown) = (router.clone(), shutdown.clone());
                connections.spawn(connection(stream, router, HEAD_TIMEOUT, shutdown));
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    head: Duration,
    shutdown: CancellationToken,
) {
    // Answers are small and complete: waiting to fill a segment only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Reads the default targets now and then, for what others wrote into the registry.
async fn keep_current(state: &ApiState) -> Infallible {
    loop {
        if let Err(error) = state.refresh().await {
            tracing::warn!(%error, "cannot read default targets");
        }
        sleep(REFRESH_EVERY).await;
    }
}

fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_head_that_never_ends_closes_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).await.expect("a connection");
        let (stream, _) = listener.accept().await.expect("accepted");
        client
            .write_all(b"GET / HTTP/1.1\r\nHost:")
            .await
            .expect("sent");
        let head = Duration::from_millis(50);
        connection(stream, Router::new(), head, CancellationToken::new()).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("closed");
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{answer:?}");
    }
}
