//! Policies by name, and their parameters.

use sextant_schedule::{Candidates, Delay, Nanos, Scheduler, Schedulers, Sextant};
use sextant_types::named;

use crate::{
    Eager, Symphony, SymphonyPaper, Timeout, clipper::Clipper, clockwork::Clockwork, nexus::Nexus,
};

named! {
    /// A scheduling policy by name.
    Policy,
    /// A name that is no scheduling policy.
    UnknownPolicy of "scheduling policy",
    /// Ours; see its module.
    #[default]
    Sextant = "sextant",
    /// Deferred batches with the window drop (Symphony, section 4.3), Fig 16's defects corrected.
    Symphony = "symphony",
    /// Fig 16 as printed.
    SymphonyPaper = "symphony-paper",
    /// Work-conserving: by latest start, drops only what cannot be met.
    Eager = "eager",
    /// Work-conserving in Fig 16's order, by the planned start.
    EagerWeak = "eager-weak",
    /// Triton's dynamic batcher: preferred sizes and a queue delay.
    Timeout = "timeout",
    /// Batch queues and strategies with a look-ahead (Clockwork, section 5).
    Clockwork = "clockwork",
    /// Devices by epoch, each with its own queue (Nexus, as in Symphony, section 2).
    Nexus = "nexus",
    /// A queue and a limit for each replica, by additive increase and multiplicative decrease
    /// (Clipper, in the thesis of Crankshaw, chapter 3).
    ClipperAimd = "clipper-aimd",
    /// The same with the limit from a line through the run times' 99th percentile.
    ClipperQuantile = "clipper-quantile",
}

/// A policy and its parameters; each policy reads what concerns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which policy.
    pub policy: Policy,
    /// High bounds of the network's delays, for which the schedule makes room.
    pub delay: Delay,
    /// `sextant`: as [`sextant_schedule::Options::hold`].
    pub hold: f64,
    /// `symphony`: run early once a batch has beta * lambda rows (section 3).
    pub beta_lambda: bool,
    /// `timeout`: sizes at which a batch is closed at once; empty for the maximum alone.
    pub preferred_rows: Vec<u32>,
    /// `timeout` and `clipper-*`: how long the first request waits for others, ns.
    pub max_queue_delay: Nanos,
    /// `clockwork`: work that may be outstanding on a device, ns.
    pub look_ahead: Nanos,
    /// `clockwork`: sizes that batches may have; empty for every size up to 64.
    pub batch_sizes: Vec<u32>,
    /// `nexus`: frontends that each batch on their own.
    pub frontends: u32,
    /// `nexus`: time between two allocations, ns.
    pub epoch: Nanos,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            delay: Delay::default(),
            hold: 0.0,
            beta_lambda: false,
            preferred_rows: Vec::new(),
            max_queue_delay: 2_000_000,
            look_ahead: 5_000_000,
            batch_sizes: vec![1, 2, 4, 8, 16],
            frontends: 1,
            epoch: 10_000_000_000,
        }
    }
}

impl Options {
    /// A policy with its defaults.
    pub fn of(policy: Policy) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    fn ours(&self) -> sextant_schedule::Options {
        sextant_schedule::Options {
            delay: self.delay,
            hold: self.hold,
        }
    }
}

impl Schedulers for Options {
    fn delay(&self) -> Delay {
        self.delay
    }

    fn set_delay(&mut self, delay: Delay) {
        self.delay = delay;
    }

    fn defers(&self) -> bool {
        matches!(
            self.policy,
            Policy::Symphony | Policy::SymphonyPaper | Policy::Sextant
        )
    }

    fn build<T: std::fmt::Debug + Send + 'static>(&self) -> Box<dyn Scheduler<T>> {
        let delay = self.delay;
        match self.policy {
            Policy::Sextant => Box::new(Candidates::new(Sextant::new(&self.ours()), delay)),
            Policy::Symphony => Box::new(Candidates::new(Symphony::new(self), delay)),
            Policy::SymphonyPaper => Box::new(Candidates::new(SymphonyPaper, delay)),
            Policy::Eager => Box::new(Candidates::new(Eager::strong(), delay)),
            Policy::EagerWeak => Box::new(Candidates::new(Eager::weak(), delay)),
            Policy::Timeout => Box::new(Candidates::new(Timeout::new(self), delay)),
            Policy::Clockwork => Box::new(Clockwork::new(self)),
            Policy::Nexus => Box::new(Nexus::scheduler(self)),
            Policy::ClipperAimd | Policy::ClipperQuantile => Box::new(Clipper::scheduler(self)),
        }
    }
}
