//! The cost of what surrounds the engines on a machine, learnt from how busy its cores are and what was answered in
//! that time.
//!
//! An engine's profile does not include reading a query, queueing it, copying its tensors and composing its answer. For
//! a small model that is nearly all the work of a machine. Before any observation the cost is what
//! [`sextant_types::surroundings`] states for a query, a row and a byte, which is rather too high. Each window then
//! says how long the cores were busy for what was answered in it, without the time of the engines by their profiles and
//! without what the process does when it is idle. The learnt factor is the sum of those times over the sum of the
//! stated ones. [`PRIOR_S`] of stated time counts as if it had been observed to be right, and old windows fade as new
//! ones come. A process may do other work, such as a registration. Therefore no window counts for more than [`MOST`]
//! times what is known, and no more than [`MOST_IDLE`] cores count as idle work.
//!
//! A window at a small load says little about a large load: caches are colder, and locks are free. The factor therefore
//! promises no more than the larger of what was stated and [`MARGIN`] times the highest load that was observed in one
//! window.

use sextant_types::Surroundings;

/// The stated time that counts as observed in advance, s of a core.
const PRIOR_S: f64 = 0.5;

/// Observations count half as much after this much stated time of later windows, s of a core.
const HALF_S: f64 = 60.0;

/// The multiple of the highest observed load that is promised.
pub const MARGIN: f64 = 4.0;

/// The weight of a window without queries in the estimate of the idle work.
const IDLE_WEIGHT: f64 = 0.2;

/// The most that one window counts for, as a multiple of what is known.
const MOST: f64 = 4.0;

/// The most cores that a process is assumed to keep busy when it is idle.
const MOST_IDLE: f64 = 0.1;

/// The least factor, because even an empty query takes some time.
const LEAST: f64 = 0.01;

/// The observation of a process in one window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessSample {
    /// Length of the window, s.
    pub wall_s: f64,
    /// Time that the process kept cores busy, s of a core.
    pub cpu_s: f64,
    /// The part of it that its engines took by their profiles, s of a core.
    pub engine_s: f64,
    /// The stated time for what was answered ([`sextant_types::Amounts::core_s`]), s of a core.
    pub stated_s: f64,
}

/// The observations of a process so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessHistory {
    stated_s: f64,
    spent_s: f64,
    /// The most stated time per second in one window, cores.
    peak: f64,
    /// Cores that are busy when the process is idle.
    idle: f64,
}

// === impl ProcessHistory ===

impl ProcessHistory {
    /// Takes in one window.
    pub fn observe(&mut self, seen: ProcessSample) {
        if seen.wall_s <= 0.0 {
            return;
        }
        if seen.stated_s <= 0.0 {
            let busy = (seen.cpu_s / seen.wall_s).clamp(0.0, MOST_IDLE);
            self.idle += IDLE_WEIGHT * (busy - self.idle);
            return;
        }
        let fades = 0.5f64.powf(seen.stated_s / HALF_S);
        let idle_s = self.idle * seen.wall_s;
        let most_s = MOST * self.learnt().max(1.0) * seen.stated_s;
        let spent_s = (seen.cpu_s - seen.engine_s - idle_s).clamp(0.0, most_s);
        self.stated_s = self.stated_s * fades + seen.stated_s;
        self.spent_s = self.spent_s * fades + spent_s;
        self.peak = self.peak.max(seen.stated_s / seen.wall_s);
    }

    /// The ratio of the real to the stated time, on a process that may use this many cores.
    pub fn factor(&self, cores: f64) -> f64 {
        let promised = (cores / (MARGIN * self.peak)).min(1.0);
        self.learnt().max(promised).max(LEAST)
    }

    fn learnt(&self) -> f64 {
        (PRIOR_S + self.spent_s) / (PRIOR_S + self.stated_s)
    }

    /// The surroundings of one of `workers` that share the process.
    pub fn of_worker(&self, cores: f64, (workers, shared): (u32, bool)) -> Surroundings {
        Surroundings {
            cores: (cores / f64::from(workers.max(1))).max(1e-3),
            factor: self.factor(cores),
            shared,
        }
    }
}
