//! What surrounds the engines on a machine, learnt from how busy its cores are and what was answered meanwhile.
//!
//! An engine's profile says nothing of reading a query, queueing it, copying its tensors and composing its answer. For
//! a small model that is nearly all that a machine does. Before anything was seen it is what
//! [`sextant_types::surroundings`] states for a query, a row and a byte, which is rather too much. Each window then
//! says how long the cores were busy for what was answered in it, without the time of the engines by their profiles
//! and without what the process does when nobody asks. The learnt factor is the sum of those times over the sum of
//! the stated ones, with [`PRIOR_S`] of stated time as if it had been seen to be right, and old windows fading by
//! what came since. A process may do other work, such as a registration: no window counts for more than [`MOST`] times
//! what is known, and no more than [`MOST_IDLE`] cores count as what it does when nobody asks.
//!
//! At a small load a window says little of a large one: caches are colder, locks are free. So the factor promises no
//! more than [`MARGIN`] times the most that was seen in one window, or what was stated, whichever is more.

use sextant_types::Surroundings;

/// Stated time that counts as seen before anything was, s of a core.
const PRIOR_S: f64 = 0.5;

/// What was seen counts half as much after so much stated time of later windows, s of a core.
const HALF_S: f64 = 60.0;

/// How many times the most that was seen is promised.
pub const MARGIN: f64 = 4.0;

/// Weight of a window without queries in what the process does when nobody asks.
const IDLE_WEIGHT: f64 = 0.2;

/// How many times what is known one window counts for at most.
const MOST: f64 = 4.0;

/// Cores that a process keeps busy when nobody asks, at most.
const MOST_IDLE: f64 = 0.1;

/// The least factor: even an empty query takes some time.
const LEAST: f64 = 0.01;

/// What was seen of a process in one window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessSample {
    /// Length of the window, s.
    pub wall_s: f64,
    /// Time that the process kept cores busy, s of a core.
    pub cpu_s: f64,
    /// Time of these cores that its engines took by their profiles, s of a core.
    pub engine_s: f64,
    /// Time that is stated for what was answered ([`sextant_types::Amounts::core_s`]), s of a core.
    pub stated_s: f64,
}

/// What was seen of a process so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessHistory {
    stated_s: f64,
    spent_s: f64,
    /// The most stated time in a second of one window, cores.
    peak: f64,
    /// Cores that are busy when nobody asks.
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

    /// How many times as long as stated it takes on a process that may use so many cores.
    pub fn factor(&self, cores: f64) -> f64 {
        let promised = (cores / (MARGIN * self.peak)).min(1.0);
        self.learnt().max(promised).max(LEAST)
    }

    fn learnt(&self) -> f64 {
        (PRIOR_S + self.spent_s) / (PRIOR_S + self.stated_s)
    }

    /// The same of one of `workers` that share the process.
    pub fn of_worker(&self, cores: f64, (workers, shared): (u32, bool)) -> Surroundings {
        Surroundings {
            cores: (cores / f64::from(workers.max(1))).max(1e-3),
            factor: self.factor(cores),
            shared,
        }
    }
}
