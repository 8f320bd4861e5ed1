//! One connection, from its first byte to its last.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Patience,
    activity::{Activity, Pace},
    exchange::Exchange,
    socket::Socket,
};
use crate::{Tls, layer::MAX_HEADER_BYTES};

/// Longest time for the handshake of an encrypted connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the server sends a ping to an HTTP/2 client, and how long the client may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Most requests in flight on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// Bytes of the headers of an HTTP/2 request, or of the metadata of a call, that the server reads. Headers above
/// [`MAX_HEADER_BYTES`] are refused with a code; headers above this are refused by the protocol.
const MAX_HEADER_BYTES_READ: u32 = 4 * MAX_HEADER_BYTES as u32;

/// Bytes that a client may send on one HTTP/2 stream before the server has read them.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// The same for a connection.
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;

/// The first bytes of HTTP/2 on a connection that is not encrypted; no other method begins with them.
const PREFACE: &[u8; 3] = b"PRI";

/// Longest wait for the head of a request that had begun when the service stopped.
const GOODBYE: Duration = Duration::from_secs(1);

/// What a connection needs.
pub(super) struct Serving {
    pub router: Router,
    pub activity: Arc<Activity>,
    pub patience: Patience,
    pub shutdown: CancellationToken,
}

/// A connection whose protocol is known.
type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why the server ends a connection.
enum End {
    /// The service stops; requests in flight are answered.
    Shutdown,
    /// The client has sent no request for too long, or others wait for room.
    Idle,
    /// The client takes the answer too slowly.
    TooSlow,
}

// === impl Serving ===

impl Serving {
    pub async fn connection(self, stream: TcpStream, tls: Option<Tls>) {
        // Answers are small and complete: to wait until a segment is full only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let (shutdown, activity) = (self.shutdown.clone(), Arc::clone(&self.activity));
        let begun = async {
            match tls {
                Some(tls) => self.encrypted(stream, &tls).await,
                None => self.plain(stream).await,
            }
        };
        let serving = tokio::select! {
            serving = begun => serving,
            // The client has sent no request yet.
            () = shutdown.cancelled() => return,
            () = activity.told_to_end() => return,
        };
        if let Some(serving) = serving {
            serving.await;
        }
    }

    async fn encrypted(self, stream: TcpStream, tls: &Tls) -> Option<Connection> {
        match timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Some(self.serve(stream, is_http2, true))
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
        // Clients send the preface in one piece: bytes that come in smaller pieces are another protocol.
        let peeked = timeout(self.patience.head, stream.peek(&mut first)).await;
        let is_http2 = matches!(peeked, Ok(Ok(count)) if first[..count] == *PREFACE);
        peeked.is_ok().then(|| self.serve(stream, is_http2, false))
    }

    fn serve<S>(self, stream: S, is_http2: bool, is_encrypted: bool) -> Connection
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = Socket::new(stream, Arc::clone(&self.activity), !is_http2);
        let stream = TokioIo::new(stream);
        let exchange = Exchange {
            router: self.router,
            activity: Arc::clone(&self.activity),
            is_encrypted,
        };
        let watched = MonitoredConnection {
            activity: self.activity,
            patience: self.patience,
        };
        let service = service_fn(move |request| exchange.answer(request));
        if is_http2 {
            let serving = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_EVERY)
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(MAX_HEADER_BYTES_READ)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .serve_connection(stream, service);
            return Box::pin(watched.until_end(serving, self.shutdown));
        }
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            // `watch` limits the wait for heads, by the rule for idle connections.
            .header_read_timeout(None)
            .serve_connection(stream, service);
        Box::pin(watched.until_end(serving, self.shutdown))
    }
}

/// A connection whose client must keep the limits.
struct MonitoredConnection {
    activity: Arc<Activity>,
    patience: Patience,
}

// === impl MonitoredConnection ===

impl MonitoredConnection {
    async fn until_end<C>(self, serving: C, shutdown: CancellationToken)
    where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let mut serving = pin!(serving);
        let end = tokio::select! {
            ended = serving.as_mut() => return told(ended),
            () = shutdown.cancelled() => End::Shutdown,
            () = self.activity.told_to_end() => End::Idle,
            end = self.watch() => end,
        };
        let goodbye = match end {
            End::TooSlow => return,
            // Others wait for room: they wait no longer than the connection takes to close.
            End::Idle => Duration::ZERO,
            End::Shutdown => GOODBYE,
        };
        serving.as_mut().graceful_shutdown();
        if let Ok(ended) = timeout(goodbye, serving.as_mut()).await {
            return told(ended);
        }
        if !self.activity.is_busy() {
            return;
        }
        tokio::select! {
            ended = serving => told(ended),
            _ = self.watch() => {}
        }
    }

    /// Waits until the client has broken a limit.
    async fn watch(&self) -> End {
        let mut pace = Pace::new();
        loop {
            sleep(self.patience.look_every()).await;
            if self.activity.is_overdue(&self.patience) {
                return End::Idle;
            }
            if pace.is_too_slow(&self.activity, &self.patience) {
                tracing::debug!("a client takes too little of what it asked for");
                return End::TooSlow;
            }
        }
    }
}

fn told(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}
