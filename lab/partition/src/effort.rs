//! A limit of work.

use std::fmt;

/// Steps between two calls of `should_stop`.
const STEPS_PER_QUESTION: u64 = 1 << 14;

/// The work that may be done, and a callback that may end it.
pub struct Effort<'a> {
    /// Steps that are left. A step is the evaluation of a partition or of a change: tens of nanoseconds for a change,
    /// some microseconds for a partition of hundreds of models.
    pub steps: u64,
    /// Called before the first step and every 16,384 steps. `true` ends the work, and the best partition so far is the
    /// answer.
    pub should_stop: &'a mut dyn FnMut() -> bool,
    until_question: u64,
    stopped: bool,
}

// === impl Effort ===

impl fmt::Debug for Effort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Effort");
        text.field("steps", &self.steps)
            .field("stopped", &self.stopped);
        text.finish_non_exhaustive()
    }
}

impl<'a> Effort<'a> {
    /// `steps` steps, or fewer if `should_stop` ends the work.
    pub fn new(steps: u64, should_stop: &'a mut dyn FnMut() -> bool) -> Self {
        Self {
            steps,
            should_stop,
            until_question: 0,
            stopped: false,
        }
    }

    /// Spends some steps; `false` once there are none left.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        self.stopped |= self.steps == 0;
        if self.until_question < steps && !self.stopped {
            self.stopped = (self.should_stop)();
            self.until_question = STEPS_PER_QUESTION;
        }
        self.steps = self.steps.saturating_sub(steps);
        self.until_question = self.until_question.saturating_sub(steps);
        !self.stopped
    }

    pub(super) fn is_over(&self) -> bool {
        self.stopped || self.steps == 0
    }
}
