//! When a worker calls its instances overloaded or interfered.

use sextant_health::Thresholds;

use super::{error::Error, section::section};

section! {
    /// When an instance counts as overloaded or interfered; queries then prefer other instances. A worker looks at
    /// its instances once a second. The level at which a state is left must be less than the one at which it is
    /// entered.
    Health in "worker.health" {
        /// A worker is full when online batches keep this share of its slots busy; the instances
        /// that take part in it are overloaded.
        overload_enter: f64 = Thresholds::default().overload_enter, within 0.01..=1.0;
        /// The instances stay overloaded until the share falls below this one.
        overload_leave: f64 = Thresholds::default().overload_leave, within 0.0..=1.0;
        /// An instance takes part in a full worker if its load is at least this share of the mean load of the
        /// worker's busy instances, or if batches of it could not start in time.
        overload_share: f64 = Thresholds::default().overload_share, within 0.0..=1.0;
        /// An instance is interfered when its runs take so many times what its profile says.
        interfere_enter: f64 = Thresholds::default().interfere_enter, within 1.0..=1e6;
        /// The instance stays interfered until its runs take less than so many times what its profile says.
        interfere_leave: f64 = Thresholds::default().interfere_leave, within 1.0..=1e6;
        /// Fewest batches between two looks from which the worker judges run times, unless the batches have run for
        /// 200 ms together.
        min_batches: u64 = Thresholds::default().min_batches, within 1.0..=1e9;
        /// Looks in a row that must agree before a state is entered.
        enter_looks: u32 = Thresholds::default().enter_windows, within 1.0..=3600.0;
        /// Looks in a row that must agree before a state is left.
        leave_looks: u32 = Thresholds::default().leave_windows, within 1.0..=3600.0;
    }
}

impl Health {
    /// Refuses levels that a state would be entered and left at together.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (name, leave, enter) in [
            ("overload", self.overload_leave, self.overload_enter),
            ("interfere", self.interfere_leave, self.interfere_enter),
        ] {
            if leave >= enter {
                return Err(Error::NotLess {
                    lower: format!("worker.health.{name}_leave"),
                    lower_value: leave.to_string(),
                    upper: format!("worker.health.{name}_enter"),
                    upper_value: enter.to_string(),
                });
            }
        }
        Ok(())
    }

    /// As the policy takes it.
    pub fn thresholds(&self) -> Thresholds {
        Thresholds {
            overload_enter: self.overload_enter,
            overload_leave: self.overload_leave,
            overload_share: self.overload_share,
            interfere_enter: self.interfere_enter,
            interfere_leave: self.interfere_leave,
            min_batches: self.min_batches,
            enter_windows: self.enter_looks,
            leave_windows: self.leave_looks,
        }
    }
}
