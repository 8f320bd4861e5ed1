//! Processors, and how changes of the number of replicas are carried out.

use std::collections::VecDeque;

use super::{Nanos, SECOND};

/// A worker that has been idle for so long is ended.
const IDLE: Nanos = 30 * SECOND;

/// What one job has of the processors.
#[derive(Debug, Default)]
pub(super) struct Executor {
    /// Since when its workers without a replica are idle.
    idle: Vec<Nanos>,
    /// Its workers, idle ones included.
    workers: u32,
    /// Numbers of replicas that it has yet to bring about.
    actions: VecDeque<u32>,
    /// Whether one is being carried out.
    acts: bool,
    /// Replicas that have no worker yet.
    pub(super) missing: u32,
    /// Replicas that are starting.
    pub(super) starting: u32,
}

/// How a replica starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// On a worker that the job has.
    Hot,
    /// On a new one.
    Cold,
}

impl Executor {
    /// With a worker for each of its replicas.
    pub(super) fn new(replicas: u32) -> Self {
        Self {
            workers: replicas,
            ..Self::default()
        }
    }

    /// Whether it carries something out, or has yet to.
    pub(super) fn is_busy(&self) -> bool {
        self.acts || !self.actions.is_empty()
    }

    /// Takes an order: that many replicas.
    pub(super) fn order(&mut self, target: u32) {
        self.actions.push_back(target);
    }

    /// The next order, if none is being carried out.
    pub(super) fn begin(&mut self) -> Option<u32> {
        if self.acts {
            return None;
        }
        let target = self.actions.pop_front()?;
        self.acts = true;
        Some(target)
    }

    /// What it was doing is done.
    pub(super) fn end(&mut self) {
        self.acts = false;
    }

    /// Takes workers for the replicas that have none, as far as there are any.
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

    /// A replica has ended: its worker is idle.
    pub(super) fn rest(&mut self, now: Nanos) {
        self.idle.push(now);
    }

    /// Ends the workers that have been idle for long, all but the last; tells how many.
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
