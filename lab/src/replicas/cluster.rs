//! Processors, and how changes of the number of replicas take place.

use std::collections::VecDeque;

use super::{Nanos, SECOND};

/// A worker that has been idle for this time ends.
const IDLE: Nanos = 30 * SECOND;

/// The processors and pending changes of one job.
#[derive(Debug, Default)]
pub(super) struct Executor {
    /// Start times of the idle time of its workers without a replica.
    idle: Vec<Nanos>,
    /// Its workers, idle ones included.
    workers: u32,
    /// Desired numbers of replicas that are still to be reached.
    actions: VecDeque<u32>,
    /// Whether a change is in progress.
    acts: bool,
    /// Replicas that have no worker yet.
    pub(super) missing: u32,
    /// Replicas that are starting.
    pub(super) starting: u32,
}

/// How a replica starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// On a worker that the job already has.
    Hot,
    /// On a new worker.
    Cold,
}

impl Executor {
    /// A job with a worker for each of its replicas.
    pub(super) fn new(replicas: u32) -> Self {
        Self {
            workers: replicas,
            ..Self::default()
        }
    }

    /// Whether a change is in progress or pending.
    pub(super) fn is_busy(&self) -> bool {
        self.acts || !self.actions.is_empty()
    }

    /// Takes an order for `target` replicas.
    pub(super) fn order(&mut self, target: u32) {
        self.actions.push_back(target);
    }

    /// The next order, if no change is in progress.
    pub(super) fn begin(&mut self) -> Option<u32> {
        if self.acts {
            return None;
        }
        let target = self.actions.pop_front()?;
        self.acts = true;
        Some(target)
    }

    /// Ends the change in progress.
    pub(super) fn end(&mut self) {
        self.acts = false;
    }

    /// Takes workers for replicas that have none, as far as there are any.
    pub(super) fn take(&mut self, free: &mut u32) -> Vec<Start> {
        let mut starts = Vec::new();
        while self.missing > 0 {
            let start = match self.idle.is_empty() {
                false => {
                    self.idle.remove(0);
                    Start::Hot
                }
                true if *free > 0 => {
                    *free -= 1;
                    self.workers += 1;
                    Start::Cold
                }
                true => break,
            };
            self.missing -= 1;
            self.starting += 1;
            starts.push(start);
        }
        starts
    }

    /// A replica has ended, and its worker becomes idle.
    pub(super) fn rest(&mut self, now: Nanos) {
        self.idle.push(now);
    }

    /// Ends workers that have been idle too long, except the last one. Returns their number.
    pub(super) fn sweep(&mut self, now: Nanos) -> u32 {
        let mut ended = 0;
        let (workers, idle) = (&mut self.workers, &mut self.idle);
        idle.retain(|since| {
            let ends = *since + IDLE <= now && *workers > 1;
            *workers -= u32::from(ends);
            ended += u32::from(ends);
            !ends
        });
        ended
    }
}
