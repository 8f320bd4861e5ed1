//! How many workers are desired, told to KEDA, which brings it about.
//!
//! KEDA scales a workload of Kubernetes by what *scalers* tell it. This is one of those that it calls over
//! gRPC and that tell it of a change by themselves: type `external-push`. A ScaledObject names a pool in the
//! metadata of its trigger, `pool: cpu-8`. The pool has one metric, [`METRIC`], of which each replica stands
//! for 1: the HorizontalPodAutoscaler that KEDA makes sets the number of replicas to the metric's value. KEDA
//! itself brings a workload from no replica to one, and back, by what the stream of changes says.
//!
//! Entry points: [`KedaServer`], a port on which KEDA calls; [`Scaler`], the service behind it, for a server
//! that has others; [`KedaProvider`], who starts and ends the workers of such a pool as the autoscaler sees
//! it. What is desired comes in through a `tokio::sync::watch`; nothing else is known here.

mod error;
#[expect(unused_qualifications, reason = "generated")]
pub mod proto;
mod provider;
mod scaler;
mod server;

pub use error::Error;
pub use provider::KedaProvider;
pub use scaler::{METRIC, POOL, Pools, Scaler};
pub use server::{KedaConfig, KedaServer, Tls};
