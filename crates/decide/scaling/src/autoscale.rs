//! The number of replicas of each application on a number of processors that all applications share.
//!
//! Entry points: [`Autoscaler::decide`] over an [`Observation`] of each application, by a [`Policy`] by name. A policy
//! says how many replicas it wants. The caller carries that out and knows what is there and how long it takes.
//!
//! The published rules follow the autoscaling experiment of Faro (EuroSys 2025), whose results are public:
//! [`FairShare`], [`Aiad`], [`Oneshot`] and [`Mark`]; or the documentation of autoscalers in use: [`Hpa`], [`Kpa`] and
//! [`KedaQueue`].

pub(crate) mod forecast;
mod hpa;
mod hysteresis;
mod keda;
mod kpa;
mod mark;
mod sextant;
mod tail;

pub use hpa::Hpa;
pub use hysteresis::{Aiad, Counter, Oneshot, Reactive};
pub use keda::KedaQueue;
pub use kpa::Kpa;
pub use mark::Mark;
pub use sextant::Sextant;
pub use tail::Service;

use sextant_types::named;

/// Seconds between two decisions.
pub const TICK_S: u32 = 10;

/// The facts that an autoscaler knows in advance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Processors that the replicas of all applications share. Each replica takes one.
    pub processors: u32,
    /// The most milliseconds that an answer may take.
    pub target_ms: f64,
    /// How long a replica runs one request, as profiled.
    pub service: Service,
}

/// The observation of one application.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The number of replicas that was desired last.
    pub desired: u32,
    /// The number of replicas that serve.
    pub running: u32,
    /// Whether the last change is still being carried out. Another change is refused until it is done.
    pub busy: bool,
    /// Mean time from arrival to end of the requests that ended in the last 30 s, including refused ones, ms; 0 if none
    /// ended.
    pub mean_latency_ms: f64,
    /// The number of requests that arrived in each tick from the beginning on, oldest first.
    pub arrivals: &'a [u32],
    /// The mean number of requests between arrival and end, over each tick from the beginning on, oldest first.
    pub concurrency: &'a [f64],
    /// The number of requests in queues now: accepted, and not yet run by a replica.
    pub waiting: u32,
}

/// A desired change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The application.
    pub job: usize,
    /// The number of replicas that it shall have.
    pub target: u32,
    /// For how many ticks the change is tried while it cannot be carried out.
    pub trials: u8,
}

/// A policy in operation.
pub trait Autoscaler: std::fmt::Debug + Send {
    /// The initial number of replicas of each of this many applications, at least one.
    fn initial(&self, _jobs: usize) -> u32 {
        1
    }

    /// The desired changes at `now_s`, a multiple of [`TICK_S`].
    fn decide(&mut self, now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change>;
}

named! {
    /// Autoscalers by name.
    Policy,
    /// There is no autoscaler with that name.
    UnknownPolicy of "autoscaler",
    /// Our policy.
    #[default]
    Sextant = "sextant",
    /// The same number for each application, fixed.
    FairShare = "fair-share",
    /// In proportion to the latency, as Faro's authors implement the Horizontal Pod Autoscaler of Kubernetes.
    Oneshot = "oneshot",
    /// One more or one fewer.
    Aiad = "aiad",
    /// By the largest of the recent rates, job by job (MArk, Cocktail, Barista).
    Mark = "mark",
    /// In proportion to the load (Kubernetes' Horizontal Pod Autoscaler, as documented).
    Hpa = "hpa",
    /// By the number of concurrent requests (Knative's Pod Autoscaler, as documented).
    Kpa = "kpa",
    /// By the length of the queue (KEDA, as documented).
    KedaQueue = "keda-queue",
}

// === impl Policy ===

impl Policy {
    /// Makes an autoscaler of this policy.
    pub fn build(self, setting: &Setting) -> Box<dyn Autoscaler> {
        match self {
            Self::Sextant => Box::new(Sextant::new(setting)),
            Self::FairShare => Box::new(FairShare {
                processors: setting.processors,
            }),
            Self::Oneshot => Box::new(Oneshot::new(setting.target_ms)),
            Self::Aiad => Box::new(Aiad::new(setting.target_ms)),
            Self::Mark => Box::new(Mark::new(setting.target_ms)),
            Self::Hpa => Box::new(Hpa::new(setting)),
            Self::Kpa => Box::new(Kpa::default()),
            Self::KedaQueue => Box::new(KedaQueue::default()),
        }
    }
}

/// The same number of replicas for each application, which never changes.
#[derive(Debug, Clone, Copy)]
pub struct FairShare {
    processors: u32,
}

impl Autoscaler for FairShare {
    fn initial(&self, jobs: usize) -> u32 {
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        (self.processors / jobs.max(1)).max(1)
    }

    fn decide(&mut self, _now_s: u32, _jobs: &[Observation<'_>]) -> Vec<Change> {
        Vec::new()
    }
}
