//! Links between roles in different processes.
//!
//! Entry points: [`front::FrontEnd`], a dispatcher in another process; [`link::RemoteWorker`], a worker in another
//! process; [`mailbox::Mailbox`], which receives the tensors that front ends send directly to a worker;
//! [`grpc::GrpcServer`], [`grpc::GrpcConnector`] and [`grpc::Roster`], which carry all of it over gRPC.
//!
//! A [`link::Link`] carries plain messages of the domain ([`link::ToWorker`], [`front::ToDispatcher`],
//! [`mailbox::ToMailbox`] and their answers). Inside a process they are passed on unchanged. Between processes,
//! [`grpc`] writes each once as protobuf, which `proto/` describes.
//!
//! **Invariant:** a role cannot tell whether the other one runs in its process.

mod back_off;
pub mod clock_offset;
pub mod front;
pub mod grpc;
mod hearing;
pub mod link;
pub mod mailbox;
