//! One call is one link: the caller is checked, and then a task of its own serves the local half.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use sextant_rpc::WorkerClient;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::Roles;
use crate::{
    front::{self, FromDispatcher, ToDispatcher},
    grpc::{
        Fence,
        hello::{Opening, Orders},
        outbox::Answers,
        proto::{
            Asks, Deliveries, WorkRequests, dispatcher_server::Dispatcher, worker_server::Worker,
        },
        stream::{Gate, StreamLink, sending},
        tls::check_role,
        wire::Wire,
    },
    link::{Broken, FromWorker, ToWorker, serve_worker},
    mailbox::{FromMailbox, Mailbox, ToMailbox, serve_mailbox},
};

/// Resolves when this process ends its calls.
type End = BoxFuture<'static, ()>;

/// Accepts calls for the roles of a process.
#[derive(Clone)]
pub(super) struct Calls(pub(super) Roles);

#[async_trait]
impl Worker for Calls {
    type WorkStream = Answers<FromWorker>;
    type DeliverStream = Answers<FromMailbox>;

    async fn work(
        &self,
        request: Request<Streaming<WorkRequests>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let opening = self.0.opening(&request)?;
        let mailbox = self.0.mailbox(&opening)?;
        let caller = opening.caller;
        let admitted = self.0.tokens().admit(caller, opening.token).await;
        admitted.map_err(Status::failed_precondition)?;
        let gate: Box<dyn Gate<ToWorker>> = Box::new(Orders {
            roles: self.0.clone(),
            caller,
        });
        let clock = self.0.0.clock;
        self.0
            .serve(caller.to_string(), request, Some(gate), move |link, end| {
                serve_worker(mailbox as WorkerClient, link, clock, end)
            })
    }

    async fn deliver(
        &self,
        request: Request<Streaming<Deliveries>>,
    ) -> Result<Response<Self::DeliverStream>, Status> {
        let opening = self.0.opening(&request)?;
        let mailbox = self.0.mailbox(&opening)?;
        let caller = opening.caller.to_string();
        self.0
            .serve::<FromMailbox, ToMailbox, _>(caller, request, None, move |link, end| {
                serve_mailbox(mailbox, link, end)
            })
    }
}

#[async_trait]
impl Dispatcher for Calls {
    type PlaceStream = Answers<FromDispatcher>;

    async fn place(
        &self,
        request: Request<Streaming<Asks>>,
    ) -> Result<Response<Self::PlaceStream>, Status> {
        let opening = self.0.opening(&request)?;
        let half = self.0.dispatcher();
        let half = half.ok_or_else(|| Status::not_found("no dispatcher runs in this process"))?;
        let caller = opening.caller.to_string();
        self.0
            .serve::<FromDispatcher, ToDispatcher, _>(caller, request, None, move |link, end| {
                front::serve(half, link, end)
            })
    }
}

impl Roles {
    /// Serves one half of a link until the other end goes or this process ends its calls.
    fn serve<Out, In, Half>(
        &self,
        peer: String,
        request: Request<Streaming<In::Frame>>,
        gate: Option<Box<dyn Gate<In>>>,
        half: impl FnOnce(Arc<StreamLink<Out, In>>, End) -> Half,
    ) -> Result<Response<Answers<Out>>, Status>
    where
        Out: Wire,
        In: Wire,
        Half: Future<Output = Result<(), Broken>> + Send + 'static,
    {
        let (sending, frames) = sending(self.0.limits, Fence::none());
        let peer = match request.remote_addr() {
            Some(address) => format!("{peer} at {address}"),
            None => peer,
        };
        let link = sending.receiving(peer, request.into_inner(), gate);
        let ending = self.0.ending.clone();
        let end: End = Box::pin(async move { ending.cancelled_owned().await });
        let half = half(Arc::new(link), end);
        // A broken link is no event here: the caller opens another.
        self.0.calls.spawn(async move { half.await.ok() });
        Ok(Response::new(Answers(frames)))
    }

    /// The opening of a call, if the caller's certificate permits its role.
    fn opening<T>(&self, request: &Request<T>) -> Result<Opening, Status> {
        let opening = Opening::read(request.metadata(), (&self.0.fleet, self.0.protocol))?;
        if let Some(address) = request.remote_addr() {
            self.0.callers.called(address);
        }
        let certificates = request.peer_certs();
        if let (Some(must), Some(certificates)) = (self.0.role_names, certificates)
            && let Some(first) = certificates.first()
        {
            let checked = check_role(first, opening.caller, must);
            checked.map_err(Status::permission_denied)?;
        }
        Ok(opening)
    }

    fn mailbox(&self, opening: &Opening) -> Result<Arc<Mailbox>, Status> {
        let Some(name) = &opening.worker else {
            return Err(Status::invalid_argument("the call names no worker"));
        };
        let mailbox = self.workers().get(name).cloned();
        mailbox.ok_or_else(|| Status::not_found(format!("no worker `{name}` runs in this process")))
    }
}
