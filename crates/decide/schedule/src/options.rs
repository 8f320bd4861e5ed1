//! The parameters of our policy, and the trait that makes schedulers.

use super::{Candidates, NEVER, Nanos, Scheduler, Sextant};

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

/// The parameters of our policy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Upper bounds of the network's delays, for which the schedule allows.
    pub delay: Delay,
    /// The share, 0 to 1, of the devices beyond those that a burst may need which is kept idle. 0 uses them to start
    /// batches sooner. 1 waits for fuller batches instead, so that idle time shows true spare capacity. If devices are
    /// scarce, the value makes no difference.
    pub hold: f64,
}

/// Makes schedulers of one policy. The service uses [`Options`]; experiments bring other policies.
pub trait Schedulers: std::fmt::Debug + Clone {
    /// Upper bounds of the network's delays.
    fn delay(&self) -> Delay;

    /// Changes the delays.
    fn set_delay(&mut self, delay: Delay);

    /// Whether the policy lets batches wait for idle devices.
    fn defers(&self) -> bool;

    /// Makes a scheduler that holds nothing yet.
    fn build<T: std::fmt::Debug + Send + 'static>(&self) -> Box<dyn Scheduler<T>>;
}

// === impl Options ===

impl Schedulers for Options {
    fn delay(&self) -> Delay {
        self.delay
    }

    fn set_delay(&mut self, delay: Delay) {
        self.delay = delay;
    }

    fn defers(&self) -> bool {
        true
    }

    fn build<T: std::fmt::Debug + Send + 'static>(&self) -> Box<dyn Scheduler<T>> {
        Box::new(Candidates::new(Sextant::new(self), self.delay))
    }
}

// === impl Delay ===

impl Delay {
    /// The deadline by which the device has to be done: the answer still has to travel.
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

    /// The time from the decision until a batch of `rows` rows could start on an idle device, ns.
    #[inline]
    pub fn before_start(&self, rows: u32) -> Nanos {
        self.control + self.data_per_row * Nanos::from(rows)
    }
}
