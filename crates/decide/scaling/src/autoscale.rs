//! How many replicas each application has of a number of processors that all of them share.
//!
//! Entry points: [`Autoscaler::decide`] over an [`Observation`] of each application, by a [`Policy`] by
//! name. A policy says how many replicas it wants; whoever carries that out knows what is there and how
//! long it takes.
//!
//! The rules of others follow the autoscaling experiment of Faro (EuroSys 2025), whose results are
//! public: [`FairShare`], [`Aiad`], [`Oneshot`] and [`Mark`]; or the documentation of autoscalers in
//! use: [`Hpa`], [`Kpa`] and [`KedaQueue`].

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

/// What an autoscaler knows before anything happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Processors that the replicas of all applications share; each takes one.
    pub processors: u32,
    /// Most milliseconds that an answer may take.
    pub target_ms: f64,
    /// How long a replica runs one request, as profiled.
    pub service: Service,
}

/// What was seen of one application.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Replicas that were asked for last.
    pub desired: u32,
    /// Replicas that serve.
    pub running: u32,
    /// Whether what was asked for last is still being carried out: what is asked for now is refused.
    pub busy: bool,
    /// Mean time from arrival to end of the requests that ended in the last 30 s, those that were
    /// refused included, ms; 0 where none did.
    pub mean_latency_ms: f64,
    /// Requests that have come in each tick from the beginning on, oldest first.
    pub arrivals: &'a [u32],
    /// Requests inside, from arrival to end, as a mean over each tick from the beginning on, oldest first.
    pub concurrency: &'a [f64],
    /// Requests in queues now: accepted, and run by no replica yet.
    pub waiting: u32,
}

/// A change that is desired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The application.
    pub job: usize,
    /// How many replicas it shall have.
    pub target: u32,
    /// Ticks at which it is tried while it cannot be carried out.
    pub trials: u8,
}

/// A policy at work.
pub trait Autoscaler: std::fmt::Debug + Send {
    /// Replicas of each of so many applications before anything has happened, at least one.
    fn initial(&self, _jobs: usize) -> u32 {
        1
    }

    /// What is desired at `now_s`, a multiple of [`TICK_S`].
    fn decide(&mut self, now_s: u32, jobs: &[Observation<'_>]) -> Vec<Change>;
}

named! {
    /// Autoscalers by name.
    Policy,
    /// There is no autoscaler of that name.
    UnknownPolicy of "autoscaler",
    /// Ours.
    #[default]
    Sextant = "sextant",
    /// As many for each, once and for all.
    FairShare = "fair-share",
    /// In proportion to the latency, as Faro's authors have the Horizontal Pod Autoscaler of Kubernetes.
    Oneshot = "oneshot",
    /// One more or one less.
    Aiad = "aiad",
    /// By the largest of the last rates, job by job (MArk, Cocktail, Barista).
    Mark = "mark",
    /// In proportion to the load (Kubernetes' Horizontal Pod Autoscaler, as documented).
    Hpa = "hpa",
    /// By the requests inside (Knative's Pod Autoscaler, as documented).
    Kpa = "kpa",
    /// By the length of the queue (KEDA, as documented).
    KedaQueue = "keda-queue",
}

// === impl Policy ===

impl Policy {
    /// One at work.
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
