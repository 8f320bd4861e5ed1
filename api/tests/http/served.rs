//! The front end on a real socket, and clients that speak HTTP/1.1 byte by byte.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sextant_api::{Error, Limits, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::double::{Api, Recorder};

/// Longest wait for a state.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A query that is answered.
pub const QUERY: &str = r#"{"application":"digits","inputs":[]}"#;

/// The last bytes of an answer to [`QUERY`].
pub const ANSWER_END: &str = "}}";

/// What a server says that is ready for the body.
pub const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

pub struct TestServer {
    pub address: SocketAddr,
    pub shutdown: CancellationToken,
    pub serving: JoinHandle<Result<(), Error>>,
    pub api: Api,
}

// === impl TestServer ===

impl TestServer {
    pub async fn start(recorder: Arc<Recorder>, limits: Limits) -> Self {
        let api = Api::limited(recorder, limits).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, api.state.clone(), shutdown.clone()));
        Self {
            address,
            shutdown,
            serving,
            api,
        }
    }

    pub async fn answering(limits: Limits) -> Self {
        Self::start(Recorder::answering(), limits).await
    }

    pub async fn connect(&self) -> TcpStream {
        let connected = TcpStream::connect(self.address).await;
        connected.expect("a connection")
    }

    /// Waits for a shutdown that was asked for, or asks for it.
    pub async fn stop(self) {
        self.shutdown.cancel();
        let ended = soon("the end", self.serving).await;
        ended.expect("no panic").expect("a clean end");
    }

    pub async fn until_unready(&self) {
        while self.api.get("/health/ready").await.status == 200 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits for something that must happen.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(DEADLINE, happens).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// A query of `length` bytes of which `body` is sent at once.
pub fn request(length: usize, body: &str) -> String {
    format!("POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// The same, from a client that waits for [`CONTINUE`]: then its request is in flight.
pub fn expecting(request: &str) -> String {
    request.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n")
}

pub async fn send(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes()).await.expect("sent");
}

/// Sends a query and reads its answer.
pub async fn ask(client: &mut TcpStream) -> String {
    send(client, &request(QUERY.len(), QUERY)).await;
    read_to(client, ANSWER_END).await
}

/// Reads until the text ends with `end`.
pub async fn read_to(client: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let mut piece = [0; 4096];
        let count = soon("an answer", client.read(&mut piece)).await;
        let count = count.expect("an answer");
        let so_far = String::from_utf8_lossy(&bytes);
        assert!(count > 0, "closed after {so_far}");
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// What still comes until the server closes the connection.
pub async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let read = soon("the close", client.read_to_end(&mut rest)).await;
    read.expect("closed");
    rest
}
