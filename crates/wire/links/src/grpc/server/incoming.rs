//! The incoming connections to the port: their number is limited, and so is the time without a call of the fleet.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Sleep, sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::grpc::tls::ServerTls;

/// Number of connections that wait to be served.
const WAITING: usize = 128;

/// Pause before the system is asked again for a connection for which it had no resources.
const PAUSE: Duration = Duration::from_millis(100);

/// The limits of connections to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerLimits {
    /// Largest number of connections; further ones wait to be accepted.
    pub most: usize,
    /// Longest time of a handshake, and from its end to the first call of a process of the fleet.
    pub patience: Duration,
}

/// The present connections.
pub(super) struct Callers {
    places: Arc<Semaphore>,
    patience: Duration,
    /// By the peer's address: whether it has called.
    open: Mutex<HashMap<SocketAddr, Arc<AtomicBool>>>,
}

/// A place among the connections, held until it is dropped.
struct Place {
    callers: Arc<Callers>,
    address: SocketAddr,
    has_called: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

/// A connection that is closed unless there is a call on it in time.
pub(super) struct GuardedConnection<S> {
    stream: S,
    place: Place,
    deadline: Pin<Box<Sleep>>,
}

type Connections<S> = ReceiverStream<io::Result<GuardedConnection<S>>>;

/// The connections to a port. They end with the stream.
pub(super) fn plain(
    listener: TcpListener,
    callers: &Arc<Callers>,
) -> impl Stream<Item = io::Result<GuardedConnection<TcpStream>>> + use<> {
    connections(listener, callers, |stream| async { Some(stream) })
}

/// The connections whose peers have shown a certificate of the fleet.
pub(super) fn encrypted(
    listener: TcpListener,
    tls: ServerTls,
    callers: &Arc<Callers>,
) -> impl Stream<Item = io::Result<GuardedConnection<TlsStream<TcpStream>>>> + use<> {
    let patience = callers.patience;
    let handshake = move |stream| {
        let accepted = timeout(patience, TlsAcceptor::from(tls.now()).accept(stream));
        async move {
            match accepted.await {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(error)) => tracing::debug!(%error, "a caller of the fleet is not let in"),
                Err(_) => tracing::debug!("a caller of the fleet was silent"),
            }
            None
        }
    };
    connections(listener, callers, handshake)
}

fn connections<S, Begun>(
    listener: TcpListener,
    callers: &Arc<Callers>,
    begin: impl Fn(TcpStream) -> Begun + Send + Sync + 'static,
) -> Connections<S>
where
    S: Send + 'static,
    Begun: Future<Output = Option<S>> + Send + 'static,
{
    let (connected, connections) = mpsc::channel(WAITING);
    tokio::spawn(accept(listener, Arc::clone(callers), connected, begin));
    ReceiverStream::new(connections)
}

/// Accepts connections as long as the receiver exists. A slow connection delays no other.
async fn accept<S, Begun>(
    listener: TcpListener,
    callers: Arc<Callers>,
    connected: mpsc::Sender<io::Result<GuardedConnection<S>>>,
    begin: impl Fn(TcpStream) -> Begun,
) where
    S: Send + 'static,
    Begun: Future<Output = Option<S>> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            accepted = callers.accept(&listener) => accepted,
            () = connected.closed() => return,
        };
        match accepted {
            Ok((stream, place)) => {
                stream.set_nodelay(true).ok();
                let (begun, connected) = (begin(stream), connected.clone());
                tokio::spawn(async move {
                    if let Some(stream) = begun.await {
                        connected.send(Ok(place.guard(stream))).await.ok();
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of the fleet is not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

// === impl CallerLimits ===

impl Default for CallerLimits {
    fn default() -> Self {
        Self {
            most: 1024,
            patience: Duration::from_secs(10),
        }
    }
}

// === impl Callers ===

impl Callers {
    pub(super) fn new(limits: CallerLimits) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(limits.most)),
            patience: limits.patience,
            open: Mutex::default(),
        })
    }

    /// Notes that the peer with this address belongs to the fleet.
    pub(super) fn called(&self, address: SocketAddr) {
        if let Some(has_called) = self.open.lock().get(&address) {
            has_called.store(true, Ordering::Relaxed);
        }
    }

    /// The next connection, once there is a place for it.
    async fn accept(self: &Arc<Self>, listener: &TcpListener) -> io::Result<(TcpStream, Place)> {
        let permit = Arc::clone(&self.places).acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        let (stream, address) = listener.accept().await?;
        let has_called = Arc::<AtomicBool>::default();
        self.open.lock().insert(address, Arc::clone(&has_called));
        let place = Place {
            callers: Arc::clone(self),
            address,
            has_called,
            _permit: permit,
        };
        Ok((stream, place))
    }
}

// === impl Place ===

impl Place {
    fn guard<S>(self, stream: S) -> GuardedConnection<S> {
        GuardedConnection {
            stream,
            deadline: Box::pin(sleep(self.callers.patience)),
            place: self,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.callers.open.lock();
        // The system may have given the address to another connection by now.
        if let Some(known) = open.get(&self.address)
            && Arc::ptr_eq(known, &self.has_called)
        {
            open.remove(&self.address);
        }
    }
}

// === impl GuardedConnection ===

impl<S: Connected> Connected for GuardedConnection<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_of_the_fleet = self.place.has_called.load(Ordering::Relaxed);
        if !is_of_the_fleet && self.deadline.as_mut().poll(cx).is_ready() {
            tracing::debug!(address = %self.place.address, "nobody of the fleet has called here in time");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedConnection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
