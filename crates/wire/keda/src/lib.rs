//! Tells KEDA how many workers are desired; KEDA scales the workload.
//!
//! KEDA scales a Kubernetes workload by what *scalers* tell it. This scaler is one that KEDA calls over gRPC and that
//! announces changes by itself: type `external-push`. A ScaledObject names a pool in the metadata of its trigger,
//! `pool: cpu-8`. The pool has one metric, [`METRIC`], in which each replica counts 1: the HorizontalPodAutoscaler that
//! KEDA creates sets the number of replicas to the metric's value. KEDA itself scales a workload from no replica to
//! one, and back, according to the stream of changes.
//!
//! Entry points: [`KedaServer`], a port that KEDA calls; [`Scaler`], the service behind it, for a server that has other
//! services; [`KedaProvider`], the provider of such a pool as the autoscaler sees it. The desired numbers come in
//! through a `tokio::sync::watch`; nothing else is known here.

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
