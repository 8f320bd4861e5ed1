//! When an offline job may run its next chunk (INFaaS section 5.3): on spare resources only.

/// The inputs of the throttle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Share of the workers' device time that was spent on *online* queries over the last second, 0 to 1.
    pub online_utilization: f64,
    /// Online latency relative to the profile, 1 if as profiled; 0 if there were no queries.
    pub slow_down: f64,
}

/// What the job must do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Run the next chunk.
    Run,
    /// Wait and look again.
    Pause,
}

/// Thresholds. Resuming needs a clear margin, so that a job does not flap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// Pause above this utilisation.
    pub pause_utilization: f64,
    /// A paused job resumes below `pause_utilization * resume_share`.
    pub resume_share: f64,
    /// Pause when online queries run slower than the profile by this factor.
    pub pause_slow_down: f64,
}

/// The largest share of a worker's slots that online batches may occupy when a batch of a job starts.
const MOST_OCCUPIED: f64 = 0.4;

/// Whether a batch of a job may start on a worker where online batches occupy `occupied` of `slots` slots at this
/// moment. An online batch may run slower beside a batch of a job, because caches, memory and the threads of a core are
/// shared.
pub fn has_room(occupied: u64, slots: u64) -> bool {
    occupied as f64 <= MOST_OCCUPIED * slots as f64
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            pause_utilization: 0.4,
            resume_share: 0.9,
            pause_slow_down: 1.5,
        }
    }
}

impl Throttle {
    /// Decides for a job that is `paused` or running.
    pub fn decide(&self, paused: bool, seen: Observation) -> Verdict {
        let share = if paused { self.resume_share } else { 1.0 };
        let busy = seen.online_utilization > self.pause_utilization * share;
        let slow = seen.slow_down > 1.0 + (self.pause_slow_down - 1.0) * share;
        if busy || slow {
            Verdict::Pause
        } else {
            Verdict::Run
        }
    }
}
