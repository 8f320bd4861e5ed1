//! Simulates applications whose replicas run on shared processors, and an autoscaler that decides the number of
//! replicas of each application.
//!
//! The rules are those of Faro's simulator (EuroSys 2025), whose traces and results are public, so that autoscalers can
//! be compared with published figures. Each job has a router through which every request passes twice, a queue of
//! limited length, and replicas with one processor each that run one request at a time. A replica starts within 3 s if
//! the job still has a worker, otherwise within 35 s. A processor is free again half a minute after its replica has
//! ended. The autoscalers are those of [`sextant_scaling::autoscale`].
//!
//! [`pooled()`] serves the same requests as Sextant does: every processor runs the requests of every application.

mod cluster;
mod experiment;
mod job;
mod law;
mod metric;
mod pooled;
mod rates;
mod routers;
mod watch;
mod world;

pub use experiment::{Experiment, Plan, Policy, names, run};
pub use law::Law;
pub use metric::{JobReport, Report};
pub use pooled::pooled;
pub use rates::Rates;
pub use world::{Setting, World};

/// Nanoseconds of virtual time.
type Nanos = u64;

const SECOND: Nanos = 1_000_000_000;

fn seconds(time: Nanos) -> f64 {
    time as f64 / 1e9
}
