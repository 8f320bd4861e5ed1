//! One action at a time.

use std::collections::VecDeque;

use sextant_schedule::Nanos;

use super::{Failure, RunSpan, Window};

/// One action at a time, in the order of `earliest`, then of arrival.
#[derive(Debug)]
pub(super) struct Executor<A> {
    waiting: VecDeque<(Window, A)>,
    pub(super) running: Option<RunningAction<A>>,
}

#[derive(Debug)]
pub(super) struct RunningAction<A> {
    ran: RunSpan,
    pub(super) action: A,
    /// Whether its weights were unloaded.
    pub(super) spoilt: bool,
}

// === impl Executor ===

impl<A: Copy> Executor<A> {
    pub(super) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            running: None,
        }
    }

    pub(super) fn push(&mut self, window: Window, action: A) {
        let behind = |(other, _): &(Window, A)| other.earliest <= window.earliest;
        let at = self.waiting.partition_point(behind);
        self.waiting.insert(at, (window, action));
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        match &self.running {
            Some(running) => Some(running.ran.end),
            None => Some(self.waiting.front()?.0.earliest),
        }
    }

    /// The next action, if the executor is idle and it may start.
    pub(super) fn take(&mut self, now: Nanos) -> Option<(Window, A)> {
        let (window, _) = self.waiting.front()?;
        let may_start = self.running.is_none() && window.earliest <= now;
        may_start.then(|| self.waiting.pop_front()).flatten()
    }

    pub(super) fn run(&mut self, now: Nanos, nanos: Nanos, action: A) {
        let ran = RunSpan {
            start: now,
            end: now + nanos,
        };
        self.running = Some(RunningAction {
            ran,
            action,
            spoilt: false,
        });
    }

    pub(super) fn ended(&mut self, now: Nanos) -> Option<RunningAction<A>> {
        self.running.take_if(|running| running.ran.end <= now)
    }
}

// === impl RunningAction ===

impl<A> RunningAction<A> {
    pub(super) fn result(&self) -> Result<RunSpan, Failure> {
        if self.spoilt {
            return Err(Failure::WeightsChanged);
        }
        Ok(self.ran)
    }
}
