//! Encrypted connections, as they come.

use std::{io, time::Duration};

use futures::Stream;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;

use crate::grpc::tls::Called;

/// Connections that are encrypted and wait to be served.
const WAITING: usize = 128;

/// Longest time of a handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// Before the system is asked again for a connection that it had no room for.
const PAUSE: Duration = Duration::from_millis(100);

type Encrypted = TlsStream<TcpStream>;

/// The connections to a port whose other end has shown a certificate of the fleet. They end with the stream.
pub(super) fn encrypted(
    listener: TcpListener,
    tls: Called,
) -> impl Stream<Item = io::Result<Encrypted>> {
    let (connected, connections) = mpsc::channel(WAITING);
    tokio::spawn(accept(listener, tls, connected));
    ReceiverStream::new(connections)
}

/// Accepts connections as long as somebody takes them; slow ones hold up nobody.
async fn accept(
    listener: TcpListener,
    tls: Called,
    connected: mpsc::Sender<io::Result<Encrypted>>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = connected.closed() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let acceptor = TlsAcceptor::from(tls.now());
                tokio::spawn(hand_over(stream, acceptor, connected.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of the fleet is not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn hand_over(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    connected: mpsc::Sender<io::Result<Encrypted>>,
) {
    stream.set_nodelay(true).ok();
    match timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => drop(connected.send(Ok(stream)).await),
        Ok(Err(error)) => tracing::debug!(%error, "a caller of the fleet is not let in"),
        Err(_) => tracing::debug!("a caller of the fleet was silent"),
    }
}
