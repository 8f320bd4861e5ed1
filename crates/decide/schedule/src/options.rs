//! Policies by name, and their parameters.

use super::{NEVER, Nanos};
use sextant_types::named;

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

/// What a message costs between the scheduler, the device and the client (Symphony, section 4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// Scheduler to device, ns.
    pub control: Nanos,
    /// Gathering the inputs, ns per row.
    pub data_per_row: Nanos,
    /// Device to client, ns.
    pub response: Nanos,
}

/// A policy and its parameters; each policy reads what concerns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Which policy.
    pub policy: Policy,
    /// High bounds of the network's delays, for which the schedule makes room.
    pub delay: Delay,
    /// `sextant`: share, 0 to 1, of the devices beyond those that a burst may need which is kept
    /// idle. 0 spends them on starting batches sooner, 1 waits for fuller batches instead, so that
    /// idle time shows true spare capacity. Where devices are scarce it makes no difference.
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
}

// === impl Delay ===

impl Delay {
    /// A deadline as the device has to meet it: the answer still has to travel.
    #[inline]
    pub fn inward(&self, deadline: Nanos) -> Nanos {
        match deadline {
            NEVER => NEVER,
            _ => deadline.saturating_sub(self.response),
        }
    }

    /// The reverse of [`Self::inward`].
    #[inline]
    pub fn outward(&self, deadline: Nanos) -> Nanos {
        match deadline {
            NEVER => NEVER,
            _ => deadline.saturating_add(self.response),
        }
    }

    /// From the decision until a batch of `rows` rows could start on an idle device, ns.
    #[inline]
    pub fn before_start(&self, rows: u32) -> Nanos {
        self.control + self.data_per_row * Nanos::from(rows)
    }
}
