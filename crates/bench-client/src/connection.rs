//! One connection: HTTP/1.1, one request under way.
//!
//! A request is written in one piece that was made before, and an answer is read into one buffer that is kept. A general
//! client does more for each request than `wrk` costs as a whole, and what the generator costs is taken from the service
//! beside it.

use std::io;

use bytes::{Bytes, BytesMut};
use http::Uri;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    Endpoint, Message,
    reply::{Body, Head, Reply, decode_chunks},
};

/// Room for an answer, which grows where it is not enough.
const BUFFER_BYTES: usize = 16 << 10;

/// An open connection.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    buffer: BytesMut,
    /// What chunks are put together in.
    whole: Vec<u8>,
    is_used: bool,
    is_closing: bool,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server had closed the connection before it read the request, as servers do with idle ones.
    Idle,
    /// Anything else.
    Lost,
}

/// A request that only needs to be written.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest(Bytes);

// === impl Connection ===

impl Connection {
    /// Connects, and by TLS where the endpoint asks for it.
    pub(crate) async fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = TcpStream::connect(&endpoint.address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &endpoint.tls {
            None => Box::new(stream),
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
        };
        Ok(Self {
            stream,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            whole: Vec::new(),
            is_used: false,
            is_closing: false,
        })
    }

    /// Whether the server takes another request.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_closing
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn send(&mut self, prepared: &PreparedRequest) -> Result<Reply<'_>, Broken> {
        let was_used = std::mem::replace(&mut self.is_used, true);
        self.buffer.clear();
        let head = match self.begin(&prepared.0).await {
            Ok(head) => head,
            Err(_) if was_used && self.buffer.is_empty() => return Err(Broken::Idle),
            Err(_) => return Err(Broken::Lost),
        };
        self.is_closing = head.closes;
        let body = self.body(&head).await.map_err(|_| Broken::Lost)?;
        Ok(head.reply(match body {
            Body::Here(length) => &self.buffer[head.length..head.length + length],
            Body::Chunks => &self.whole,
        }))
    }

    /// Writes a request and reads the head of its answer.
    async fn begin(&mut self, request: &[u8]) -> io::Result<Head> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        loop {
            self.read().await?;
            while let Some(head) = Head::parse(&self.buffer)? {
                if !head.is_interim() {
                    return Ok(head);
                }
                let _ = self.buffer.split_to(head.length);
            }
        }
    }

    async fn body(&mut self, head: &Head) -> io::Result<Body> {
        if head.is_chunked {
            loop {
                let rest = &self.buffer[head.length..];
                if decode_chunks(rest, &mut self.whole)? {
                    return Ok(Body::Chunks);
                }
                self.read().await?;
            }
        }
        match head.body_bytes {
            Some(length) => {
                self.buffer.reserve(length);
                while self.buffer.len() < head.length + length {
                    self.read().await?;
                }
                Ok(Body::Here(length))
            }
            None => {
                while self.stream.read_buf(&mut self.buffer).await? > 0 {}
                self.is_closing = true;
                Ok(Body::Here(self.buffer.len() - head.length))
            }
        }
    }

    /// Reads what there is.
    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("is_used", &self.is_used)
            .finish_non_exhaustive()
    }
}

// === impl PreparedRequest ===

impl PreparedRequest {
    /// A message to `uri` with the headers that every request to the endpoint has.
    pub(crate) fn new(endpoint: &Endpoint, uri: &Uri, message: &Message) -> Self {
        let mut request = format!("POST {uri} HTTP/1.1\r\n").into_bytes();
        for (name, value) in endpoint.headers.iter().chain(&message.headers) {
            for part in [name.as_ref(), &b": "[..], value.as_bytes(), b"\r\n"] {
                request.extend_from_slice(part);
            }
        }
        let length = message.body.len();
        request.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
        request.extend_from_slice(&message.body);
        Self(request.into())
    }
}
