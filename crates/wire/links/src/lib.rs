//! How roles in different processes reach each other.
//!
//! Entry points: [`front::FrontEnd`], a dispatcher elsewhere; [`link::RemoteWorker`], a worker elsewhere;
//! [`mailbox::Mailbox`], which takes the tensors that front ends send straight to a worker;
//! [`grpc::GrpcServer`], [`grpc::GrpcConnector`] and [`grpc::Roster`], which carry all of it over gRPC.
//!
//! What travels is plain messages of the domain ([`link::ToWorker`], [`front::ToDispatcher`],
//! [`mailbox::ToMailbox`] and their answers) over a [`link::Link`]. Inside a process they are handed over as
//! they are; between processes [`grpc`] writes each once as protobuf, which `proto/` describes.
//!
//! **Invariant:** a role cannot tell whether the other is in its process.

mod back_off;
pub mod clock_offset;
pub mod front;
pub mod grpc;
mod hearing;
pub mod link;
pub mod mailbox;
