//! Serving a listener until it is told to stop.

use std::{
    convert::Infallible,
    future::pending,
    io,
    pin::{Pin, pin},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{ApiState, Tls, router};

/// How often the default targets are read again.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// Longest wait for a request's head on an open connection, idle ones included: above the time
/// for which common clients keep idle connections.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How often the keys are looked at: a revoked one is refused within two seconds.
const REFRESH_KEYS_EVERY: Duration = Duration::from_secs(1);

/// Longest time for putting back what keys have in hand when the service ends.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for the handshake of an encrypted connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often an HTTP/2 client is asked whether it is still there, and how long it may take.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Most requests in flight on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// What a client may send on one HTTP/2 stream before anyone has read it, bytes.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The same for a connection.
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;

/// How HTTP/2 begins on a connection that is not encrypted; no other method begins like it.
const PREFACE: &[u8; 3] = b"PRI";

/// Pause after a failure to accept: mostly there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

/// Serves HTTP/1.1 and HTTP/2 until `shutdown`, then reports unready, takes no new connections, and waits for the
/// requests in flight, at most [`crate::Limits::drain_timeout`].
pub async fn serve(
    listener: impl Into<Listener>,
    state: ApiState,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let listener = listener.into();
    let mut connections = JoinSet::new();
    tokio::select! {
        () = shutdown.cancelled() => {}
        never = accept(&listener, &state, &shutdown, &mut connections) => match never {},
        never = keep_current(&state) => match never {},
        never = keep_keys(&state) => match never {},
        never = keep_tokens(&state) => match never {},
        never = keep_certificate(listener.tls.as_ref()) => match never {},
    }
    state.drain();
    drop(listener);
    let longest = state.limits().drain_timeout;
    let over = async {
        while connections.join_next().await.is_some() {}
        // What clients asked for that have gone is done to its end as well.
        state.changes().ended().await;
    };
    // What is left in the set is cut off when the set is dropped.
    let drained = timeout(longest, over).await;
    // A store that does not answer holds up no shutdown.
    drop(timeout(GIVE_BACK_TIMEOUT, state.keyring().give_back(true)).await);
    drained.map_err(|_| Error::Drain(longest))
}

async fn accept(
    listener: &Listener,
    state: &ApiState,
    shutdown: &CancellationToken,
    connections: &mut JoinSet<()>,
) -> Infallible {
    let router = router(state.clone());
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            // Forgets a connection that has ended.
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let serving = Serving {
                    router: router.clone(),
                    head: HEAD_TIMEOUT,
                    shutdown: shutdown.clone(),
                };
                connections.spawn(serving.connection(stream, listener.tls.clone()));
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What a connection needs.
struct Serving {
    router: Router,
    head: Duration,
    shutdown: CancellationToken,
}

// === impl Serving ===

impl Serving {
    async fn connection(self, stream: TcpStream, tls: Option<Tls>) {
        // Answers are small and complete: waiting to fill a segment only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let shutdown = self.shutdown.clone();
        let begun = async {
            match tls {
                Some(tls) => self.encrypted(stream, &tls).await,
                None => self.plain(stream).await,
            }
        };
        let serving = tokio::select! {
            serving = begun => serving,
            // Nothing was asked yet.
            () = shutdown.cancelled() => return,
        };
        if let Some(serving) = serving {
            serving.await;
        }
    }

    async fn encrypted(self, stream: TcpStream, tls: &Tls) -> Option<Connection> {
        match timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Some(self.serve(stream, is_http2))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a handshake failed");
                None
            }
            Err(_) => None,
        }
    }

    async fn plain(self, stream: TcpStream) -> Option<Connection> {
        let mut first = [0; PREFACE.len()];
        // Clients send the preface in one piece: what comes in smaller ones is something else.
        let peeked = timeout(self.head, stream.peek(&mut first)).await;
        let is_http2 = matches!(peeked, Ok(Ok(count)) if first[..count] == *PREFACE);
        peeked.is_ok().then(|| self.serve(stream, is_http2))
    }

    fn serve<S>(self, stream: S, is_http2: bool) -> Connection
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(self.router));
        if is_http2 {
            let serving = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_EVERY)
                .max_concurrent_streams(MAX_STREAMS)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .serve_connection(stream, service);
            return Box::pin(until_shutdown(serving, self.shutdown));
        }
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head)
            .serve_connection(stream, service);
        Box::pin(until_shutdown(serving, self.shutdown))
    }
}

/// A connection whose protocol is known.
type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn until_shutdown<C>(serving: C, shutdown: CancellationToken)
where
    C: GracefulConnection<Error = hyper::Error>,
{
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
        let serving = Serving {
            router: Router::new(),
            head,
            shutdown: CancellationToken::new(),
        };
        serving.connection(stream, None).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("closed");
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{answer:?}");
    }
}
