//! A queue with its seats.

use smallvec::SmallVec;

use super::{Delay, DropReason, Entries, Nanos, PATIENCE, QueueSpec, Request, RequestQueue, Rule};

#[derive(Debug)]
pub(super) struct Queue<T, M> {
    pub(super) requests: RequestQueue<T>,
    /// The fastest first: only what cannot be met there is lost.
    pub(super) seats: SmallVec<[Seat<M>; 1]>,
    pub(super) work: Nanos,
    pub(super) rate_changed: bool,
}

#[derive(Debug)]
pub(super) struct Seat<M> {
    pub(super) pool: u32,
    pub(super) spec: QueueSpec,
    pub(super) memory: M,
    /// Until when the candidate's place among the ready ones is true.
    pub(super) latest: Nanos,
    pub(super) entries: Entries,
}

// === impl Queue ===

impl<T, M> Queue<T, M> {
    pub(super) fn new() -> Self {
        Self {
            requests: RequestQueue::default(),
            seats: SmallVec::new(),
            work: 0,
            rate_changed: true,
        }
    }

    pub(super) fn refusal(
        &self,
        now: Nanos,
        delay: Delay,
        request: &Request<T>,
    ) -> Option<DropReason> {
        let Some(fastest) = self.seats.first() else {
            return Some(DropReason::Gone);
        };
        fastest
            .spec
            .refusal(now, delay, self.requests.rows(), request)
    }

    /// Requests with deadlines can fill every batch of a busy queue. One without that has waited
    /// too long takes the place of the last of the batch, which is `count` requests of `rows` rows
    /// after the first `passed`, or runs alone where it does not fit into `most` rows. Tells the
    /// requests and rows of the batch then.
    pub(super) fn admit_patient<R: Rule<Memory = M>>(
        &mut self,
        now: Nanos,
        passed: usize,
        (count, rows): (usize, u32),
        most: u32,
    ) -> (usize, u32) {
        let overdue = now.saturating_sub(PATIENCE);
        let patient = self.requests.patient_before(overdue);
        let Some(patient) = patient.filter(|at| *at >= passed + count) else {
            return (count, rows);
        };
        let more = self.requests.rows_of(patient);
        let (mut keep, mut kept) = (count, rows);
        while keep > 0 && kept + more > most {
            keep -= 1;
            kept -= self.requests.rows_of(passed + keep);
        }
        self.requests.bring_forward(patient, passed + keep);
        for seat in &mut self.seats {
            R::inserted(&mut seat.memory, passed + keep);
        }
        (keep + 1, kept + more)
    }

    /// Device time that the waiting rows will take, times the slots they occupy.
    pub(super) fn estimate_work(&self) -> Nanos {
        self.seats.first().map_or(0, |seat| {
            let spec = &seat.spec;
            spec.work(self.requests.rows()) * Nanos::from(spec.slots)
        })
    }
}

// === impl Seat ===

impl<M: Default> Seat<M> {
    pub(super) fn new(pool: u32, spec: QueueSpec) -> Self {
        Self {
            pool,
            spec,
            memory: M::default(),
            latest: 0,
            entries: Entries::default(),
        }
    }
}
