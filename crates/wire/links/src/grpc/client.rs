//! The calling end.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use sextant_types::WorkerId;
use tokio::time::timeout;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    front::{Connector, DispatcherLink, MailboxLink, Unreachable},
    grpc::{
        Error, Fence, Hello, Limits, MutualTls,
        error::chain,
        outbox::Frames,
        proto::{dispatcher_client::DispatcherClient, worker_client::WorkerClient},
        stream::{StreamLink, sending},
        tls::ClientTls as Tls,
        transport::{
            CONNECTION_WINDOW_BYTES, FRAME_BYTES, KEEP_ALIVE, KEEP_ALIVE_TIMEOUT,
            STREAM_WINDOW_BYTES,
        },
        wire::Wire,
    },
    link::{FromWorker, Link, ToWorker},
};

/// How other processes are reached.
#[derive(Debug, Clone)]
pub struct ConnectorConfig {
    /// What this process states about itself.
    pub hello: Hello,
    /// Encryption; `None` for none.
    pub tls: Option<MutualTls>,
    /// The size limits.
    pub limits: Limits,
    /// Time after which an attempt has failed.
    pub patience: Duration,
}

/// Opens links to other processes, each over a connection of its own, so that large tensors on one
/// link do not delay another.
pub struct GrpcConnector {
    hello: Hello,
    tls: Option<Tls>,
    limits: Limits,
    patience: Duration,
}

/// The caller's end of a link to a worker.
pub type WorkerLink = Arc<dyn Link<ToWorker, FromWorker>>;

impl ConnectorConfig {
    /// Without encryption, with the default limits and 1 s of patience.
    pub fn new(hello: Hello) -> Self {
        Self {
            hello,
            tls: None,
            limits: Limits::default(),
            patience: Duration::from_secs(1),
        }
    }
}

impl GrpcConnector {
    /// Reads the certificates.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn new(config: ConnectorConfig) -> Result<Self, Error> {
        Ok(Self {
            tls: config.tls.map(MutualTls::calling).transpose()?,
            hello: config.hello,
            limits: config.limits,
            patience: config.patience,
        })
    }

    /// Opens a link to `worker` at `endpoint`, `host:port`.
    ///
    /// # Errors
    /// If no process answers there in time, or if it refuses.
    pub async fn connect_worker(
        &self,
        worker: &WorkerId,
        endpoint: &str,
    ) -> Result<WorkerLink, Error> {
        let limits = self.limits;
        let link = self.open(endpoint, Some(worker), |channel, request| {
            Box::pin(async move {
                let client = WorkerClient::new(channel);
                let mut client = client.max_decoding_message_size(limits.frame_bytes());
                client.work(request).await
            })
        });
        Ok(Arc::new(link.await?))
    }

    /// Connects and calls. The link is open when the other end has accepted this one.
    async fn open<Out: Wire, In: Wire>(
        &self,
        endpoint: &str,
        worker: Option<&WorkerId>,
        call: impl FnOnce(Channel, Request<Frames<Out>>) -> Calling<In>,
    ) -> Result<StreamLink<Out, In>, Error> {
        let (sending, frames) = sending(self.limits, self.fence());
        let mut request = Request::new(frames);
        self.hello.write(request.metadata_mut(), worker)?;
        let unreachable = |reason| Error::Unreachable {
            endpoint: endpoint.to_owned(),
            reason,
        };
        let target = self.target(endpoint)?;
        let answer = timeout(self.patience, async {
            let channel = target.connect().await;
            let channel = channel.map_err(|error| unreachable(chain(&error)))?;
            call(channel, request)
                .await
                .map_err(|status| match status.code() {
                    tonic::Code::FailedPrecondition
                    | tonic::Code::NotFound
                    | tonic::Code::InvalidArgument
                    | tonic::Code::Unimplemented => Error::Refused {
                        endpoint: endpoint.to_owned(),
                        reason: status.message().to_owned(),
                    },
                    _ => unreachable(chain(&status)),
                })
        });
        let answer = answer.await;
        let answer =
            answer.map_err(|_| unreachable(format!("no answer in {:?}", self.patience)))?;
        let peer = match worker {
            Some(worker) => format!("{worker} at {endpoint}"),
            None => endpoint.to_owned(),
        };
        Ok(sending.receiving(peer, answer?.into_inner(), None))
    }

    fn target(&self, endpoint: &str) -> Result<Endpoint, Error> {
        let scheme = match self.tls {
            Some(_) => "https",
            None => "http",
        };
        let target = Endpoint::from_shared(format!("{scheme}://{endpoint}"));
        let target = target.map_err(|_| Error::Endpoint(endpoint.to_owned()))?;
        if target.uri().port().is_none() {
            return Err(Error::Endpoint(endpoint.to_owned()));
        }
        let target = target
            .connect_timeout(self.patience)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        match &self.tls {
            Some(tls) => target
                .tls_config(tls.now())
                .map_err(|error| Error::Tls(chain(&error))),
            None => Ok(target),
        }
    }

    fn fence(&self) -> Fence {
        self.hello.fence.clone()
    }
}

/// A call whose answer is a stream of frames.
type Calling<In> = BoxFuture<'static, Result<Response<Streaming<<In as Wire>::Frame>>, Status>>;

#[async_trait]
impl Connector for GrpcConnector {
    async fn connect_dispatcher(&self, endpoint: &str) -> Result<DispatcherLink, Unreachable> {
        let limits = self.limits;
        let link = self.open(endpoint, None, |channel, request| {
            Box::pin(async move {
                let client = DispatcherClient::new(channel);
                let mut client = client.max_decoding_message_size(limits.frame_bytes());
                client.place(request).await
            })
        });
        Ok(Arc::new(link.await?))
    }

    async fn connect_mailbox(
        &self,
        worker: &WorkerId,
        endpoint: &str,
    ) -> Result<MailboxLink, Unreachable> {
        let limits = self.limits;
        let link = self.open(endpoint, Some(worker), |channel, request| {
            Box::pin(async move {
                let client = WorkerClient::new(channel);
                let mut client = client.max_decoding_message_size(limits.frame_bytes());
                client.deliver(request).await
            })
        });
        Ok(Arc::new(link.await?))
    }
}

impl From<Error> for Unreachable {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
