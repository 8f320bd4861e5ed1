//! Applications with replicas of their own on processors that all of them share, and an autoscaler that
//! decides how many each has.
//!
//! The rules are those of Faro's simulator (EuroSys 2025), whose traces and results are public, so that
//! autoscalers can be compared with published figures: each job has a router through which every request
//! passes twice, a queue of limited length, and replicas with one processor each that run one request at
//! a time; a replica starts within 3 s where the job still has a worker, else in 35 s; a processor is
//! free again half a minute after its replica has ended. The autoscalers are those of
//! [`sextant_scaling::autoscale`].
//!
//! [`pooled()`] serves the same requests as Sextant does: any processor runs any application's.

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
