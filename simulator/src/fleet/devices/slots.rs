//! The slots of an emulated device: batches that wait, and batches that run.
//!
//! A batch has work: the time that it takes if no other variant runs on the device. While batches of several variants
//! run there, each takes longer. This is the interference, which profiles do not contain.

use std::collections::VecDeque;

use sextant_schedule::Nanos;
use sextant_types::index::VariantIx;

/// A batch for a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::fleet) struct Job {
    /// The caller's number.
    pub(in crate::fleet) batch: u32,
    pub(in crate::fleet) variant: VariantIx,
    /// Slots that it occupies, at least 1.
    pub(in crate::fleet) slots: u16,
    pub(in crate::fleet) earliest: Nanos,
    /// A batch that could not start by this time does not run.
    pub(in crate::fleet) latest: Nanos,
    /// Its run time if no other variant runs, ns.
    pub(in crate::fleet) alone: Nanos,
}

/// A batch that has left its device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::fleet) struct FinishedBatch {
    pub(in crate::fleet) batch: u32,
    pub(in crate::fleet) variant: VariantIx,
    /// How long it ran, and how long it would have run alone, ns; `None` if it came too late to start.
    pub(in crate::fleet) ran: Option<(Nanos, Nanos)>,
}

/// The slots of a device; see the module.
#[derive(Debug)]
pub(in crate::fleet) struct Slots {
    free: u16,
    all: u16,
    /// By the number of variants that run: the factor by which a batch takes longer. The last counts for more variants.
    slowdown: Vec<f64>,
    /// In the order in which they came.
    waiting: VecDeque<Job>,
    running: Vec<RunningJob>,
    /// The time until which running batches are accounted for.
    until: Nanos,
    /// Since the last reading: slots times the time for which they were busy, ns, by variant.
    busy: Vec<(VariantIx, f64)>,
}

#[derive(Debug)]
struct RunningJob {
    job: Job,
    since: Nanos,
    /// Remaining work, ns.
    left: f64,
}

// === impl Slots ===

impl Slots {
    pub(in crate::fleet) fn new(slots: u16, slowdown: &[f64], now: Nanos) -> Self {
        Self {
            free: slots.max(1),
            all: slots.max(1),
            slowdown: slowdown.to_vec(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            until: now,
            busy: Vec::new(),
        }
    }

    /// The number of slots.
    pub(in crate::fleet) fn count(&self) -> u16 {
        self.all
    }

    /// Whether no batch waits or runs.
    pub(in crate::fleet) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Adds a batch.
    pub(in crate::fleet) fn push(&mut self, job: Job) {
        let slots = job.slots.clamp(1, self.all);
        self.waiting.push_back(Job { slots, ..job });
    }

    /// Advances to `now`. Each call returns one batch that has ended or came too late by then. `None` means that there
    /// are no more, and that what may start has started.
    pub(in crate::fleet) fn step(&mut self, now: Nanos) -> Option<FinishedBatch> {
        self.advance(now);
        while let Some(job) = self.waiting.front().copied()
            && job.earliest <= now
            && job.slots <= self.free
        {
            self.waiting.pop_front();
            if job.latest < now {
                return Some(FinishedBatch {
                    batch: job.batch,
                    variant: job.variant,
                    ran: None,
                });
            }
            self.free -= job.slots;
            self.running.push(RunningJob {
                left: job.alone as f64,
                since: now,
                job,
            });
        }
        let at = self.running.iter().position(|it| it.left <= 0.0)?;
        let done = self.running.remove(at);
        self.free += done.job.slots;
        Some(FinishedBatch {
            batch: done.job.batch,
            variant: done.job.variant,
            ran: Some((now - done.since, done.job.alone)),
        })
    }

    /// When [`Self::step`] next has something to do.
    pub(in crate::fleet) fn next(&self) -> Option<Nanos> {
        let factor = self.factor();
        let ends = self.running.iter();
        let ends = ends.map(|it| self.until + (it.left * factor).ceil() as Nanos);
        let starts = self.waiting.front().filter(|job| job.slots <= self.free);
        ends.chain(starts.map(|job| job.earliest.max(self.until)))
            .min()
    }

    /// By variant: slots times the time for which they were busy since the last reading, ns.
    pub(in crate::fleet) fn read_busy(&mut self, now: Nanos) -> Vec<(VariantIx, f64)> {
        self.advance(now);
        std::mem::take(&mut self.busy)
    }

    fn advance(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.until) as f64;
        self.until = self.until.max(now);
        if passed <= 0.0 {
            return;
        }
        let done = passed / self.factor();
        for it in &mut self.running {
            it.left -= done;
            let busy = passed * f64::from(it.job.slots);
            match self.busy.iter_mut().find(|(of, _)| *of == it.job.variant) {
                Some((_, sum)) => *sum += busy,
                None => self.busy.push((it.job.variant, busy)),
            }
        }
    }

    /// The factor by which batches take longer now.
    fn factor(&self) -> f64 {
        let mut variants: Vec<VariantIx> = Vec::new();
        if self.slowdown.is_empty() || self.running.len() < 2 {
            return self.slowdown.first().copied().unwrap_or(1.0);
        }
        for it in &self.running {
            if !variants.contains(&it.job.variant) {
                variants.push(it.job.variant);
            }
        }
        let at = variants.len().min(self.slowdown.len()) - 1;
        self.slowdown[at]
    }
}
