//! The floor of the gRPC benchmark: a tonic server that reads an inference request and answers with its tensors.
//!
//! Usage: `floor_grpc ADDRESS:PORT`. What HTTP/2 and protobuf cost on this machine, without any inference.

#[path = "grpc/messages.rs"]
mod messages;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use messages::{InferRequest, InferResponse};
use tonic::codegen::{Service, http};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

type Pending =
    Pin<Box<dyn Future<Output = Result<http::Response<tonic::body::Body>, Infallible>> + Send>>;

/// Answers every call.
#[derive(Clone)]
struct Echo;

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "inference.GRPCInferenceService";
}

impl tonic::server::UnaryService<InferRequest> for Echo {
    type Response = InferResponse;
    type Future = Ready<Result<Response<InferResponse>, Status>>;

    fn call(&mut self, request: Request<InferRequest>) -> Self::Future {
        let request = request.into_inner();
        ready(Ok(Response::new(InferResponse {
            model_name: request.model_name,
            outputs: request.inputs,
            raw_output_contents: request.raw_input_contents,
        })))
    }
}

impl Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pending;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Pending {
        Box::pin(async move {
            let mut server = tonic::server::Grpc::new(ProstCodec::default());
            Ok(server.unary(Self, request).await)
        })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1);
    let address: SocketAddr = address.as_deref().unwrap_or("127.0.0.1:9000").parse()?;
    let server = tonic::transport::Server::builder();
    Ok(server
        .tcp_nodelay(true)
        .add_service(Echo)
        .serve(address)
        .await?)
}
