//! A queue with its seats.

use smallvec::SmallVec;

use super::{
    Delay, DropReason, Entries, Fleet, LatencyTable, NEVER, Nanos, NextBatch, PATIENCE, PoolIx,
    QueueSpec, Request, RequestQueue, Rule, Surroundings,
};

#[derive(Debug)]
pub(super) struct Queue<T, M> {
    pub(super) requests: RequestQueue<T>,
    /// The fastest first, because only requests that cannot be met there are lost.
    pub(super) seats: SmallVec<[Seat<M>; 1]>,
    pub(super) work: Nanos,
    pub(super) rate_changed: bool,
}

#[derive(Debug)]
pub(super) struct Seat<M> {
    pub(super) pool: PoolIx,
    pub(super) spec: QueueSpec,
    pub(super) memory: M,
    /// The time until which the candidate's rank among the ready ones is correct.
    pub(super) latest: Nanos,
    pub(super) entries: Entries,
    /// The cheapest pool, if a batch costs less there than here.
    pub(super) cheaper: Option<CheaperPool>,
}

/// A pool on which a batch costs less.
#[derive(Debug)]
pub(super) struct CheaperPool {
    pool: PoolIx,
    latency: LatencyTable,
}

/// A pool counts as cheaper if a batch costs at most this share of what it costs here.
const CHEAPER: f32 = 0.95;

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

    /// Admits a request without a deadline that has waited too long, because requests with deadlines can fill every
    /// batch of a busy queue. The batch is `count` requests of `rows` rows after the first `passed`. The request takes
    /// the place of the last ones, or runs alone if it does not fit into `most` rows. Returns the requests and rows of
    /// the batch.
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

    /// Sorts the seats, the fastest first, and determines on which pools a batch costs more than necessary.
    pub(super) fn arrange(&mut self) {
        self.seats
            .sort_by_key(|seat| (seat.spec.latency.of(1), seat.pool));
        let cost = |seat: &Seat<M>| seat.spec.price * seat.spec.latency.of(1) as f32;
        let cheapest = self.seats.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let Some((price, least, pool, latency)) = cheapest.map(|seat| {
            let latency = seat.spec.latency.clone();
            (seat.spec.price, cost(seat), seat.pool, latency)
        }) else {
            return;
        };
        for seat in &mut self.seats {
            // Of devices with the same price, the slower one is not cheaper, because it is there in any case.
            let dear = price < seat.spec.price && least <= CHEAPER * cost(seat);
            seat.cheaper = dear.then(|| CheaperPool {
                pool,
                latency: latency.clone(),
            });
        }
    }

    /// Device time that the waiting rows will take, times the slots that they occupy.
    pub(super) fn estimate_work(&self) -> Nanos {
        self.seats.first().map_or(0, |seat| {
            let spec = &seat.spec;
            spec.work(self.requests.rows()) * Nanos::from(spec.slots)
        })
    }
}

// === impl Seat ===

impl<M: Default> Seat<M> {
    pub(super) fn new(pool: PoolIx, spec: QueueSpec) -> Self {
        Self {
            pool,
            spec,
            memory: M::default(),
            latest: 0,
            entries: Entries::default(),
            cheaper: None,
        }
    }
}

impl<M> Seat<M> {
    /// The rule's candidate, of at most `most` rows and at most the planned rows, unless the first request alone has
    /// more than that.
    #[inline]
    pub(super) fn form<T, R: Rule<Memory = M>>(
        &mut self,
        rule: &mut R,
        around: Surroundings<'_>,
        (requests, rate_changed): (&RequestQueue<T>, bool),
        most: u32,
    ) -> NextBatch {
        let mut view = around.view(requests, &self.spec, rate_changed);
        view.max_rows = view.max_rows.min(most).min(self.spec.planned_rows);
        let formed = rule.form(&view, &mut self.memory);
        let first = requests.rows_of(formed.passed);
        if formed.rows == 0 || formed.rows >= first {
            return formed;
        }
        // The planned rows limit rows that share a batch. A request with more rows has a batch of its own.
        view.max_rows = self.spec.max_rows.min(self.spec.planned_rows.max(first));
        rule.form(&view, &mut self.memory)
    }

    /// Leaves to a cheaper pool what that pool can still run in time: a candidate may start here only once its first
    /// request can no longer start there.
    #[inline]
    pub(super) fn hold_back<T>(
        &self,
        requests: &RequestQueue<T>,
        fleet: &Fleet,
        delay: Delay,
        formed: NextBatch,
    ) -> NextBatch {
        let Some(cheaper) = &self.cheaper else {
            return formed;
        };
        let is_up = fleet.pool(cheaper.pool).is_some_and(|of| of.slots() > 0);
        let (first, rows) = (formed.passed, requests.rows_of(formed.passed));
        if !is_up || formed.rows == 0 || rows > cheaper.latency.measured_rows() {
            return formed;
        }
        let last = match requests.deadline(first) {
            NEVER => requests.arrived(first).saturating_add(PATIENCE),
            deadline => deadline.saturating_sub(cheaper.latency.of(rows)),
        };
        let last = last.min(formed.latest);
        let from = last.saturating_sub(delay.before_start(formed.rows));
        NextBatch {
            ready_at: formed.ready_at.max(from),
            worth: f32::INFINITY,
            ..formed
        }
    }
}
