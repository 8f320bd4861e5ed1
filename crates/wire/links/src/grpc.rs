//! Links over gRPC.
//!
//! Entry points: [`GrpcServer`], through which a process is reached; [`GrpcConnector`], with which it reaches others;
//! [`Roster`], which keeps a link to every worker of a fleet. This module carries messages and does not know their
//! effect. A link is one streaming call over a connection of its own. Each message of the call is a frame with several
//! messages of the link, so that under load they share the cost.
//!
//! **Invariant:** a link delivers each message once and in order, or breaks. A frame from a leader that has been
//! succeeded reaches no worker.

mod client;
mod error;
mod hello;
mod outbox;
#[expect(unused_qualifications, reason = "generated")]
mod proto;
mod roster;
mod server;
mod stream;
mod tls;
mod transport;
mod wire;

pub use client::{ConnectorConfig, GrpcConnector, WorkerLink};
pub use error::Error;
pub use hello::{Caller, Fence, Hello, Protocol};
pub use roster::{Roster, RosterEvent, RosterOptions};
pub use server::{CallerLimits, GrpcConfig, GrpcServer, Roles};
pub use tls::MutualTls;
pub use transport::Limits;
#[doc(hidden)]
pub use wire::check_frame;
