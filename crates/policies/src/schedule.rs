//! Which batch runs on a device, and when.
//!
//! One scheduler serves one device with a number of slots (cores); each loaded variant has a
//! queue in order of deadlines. The policy is work-conserving: a batch stays open while the device
//! is busy and closes as soon as a slot is free, when its maximum is reached, or when waiting
//! longer would miss its earliest deadline. A fixed batching delay would charge every query at low
//! load for a gain at high load; here batches grow by themselves exactly when the device falls
//! behind. Of several queues the one whose next batch must start earliest goes first, and nothing
//! overtakes it even if it has to wait for slots, so that a variant with many threads cannot
//! starve. What cannot be met any more is dropped at once, with the reason.
//!
//! Requests travel through the scheduler as an opaque payload, so each leaves exactly once: in a
//! batch, or dropped.

use std::collections::{BTreeMap, BTreeSet};

/// Nanoseconds on the caller's clock.
pub type Nanos = u64;

/// A deadline that never comes.
pub const NEVER: Nanos = Nanos::MAX;

/// What a queue needs to know of its variant.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueSpec {
    /// Most rows in a batch, at least 1.
    pub max_rows: u32,
    /// Whether rows of several requests may share a batch.
    pub batched: bool,
    /// Slots that a running batch occupies, at least 1.
    pub slots: u16,
    /// Expected run time, ns, of a batch of `index + 1` rows; never empty, not decreasing.
    pub latency: Vec<Nanos>,
    /// Most rows waiting.
    pub max_waiting_rows: u32,
}

/// A request on its way through the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<T> {
    /// The caller's own data.
    pub payload: T,
    /// Rows, at least 1.
    pub rows: u32,
    /// When the answer must be ready; [`NEVER`] without a target.
    pub deadline: Nanos,
}

/// Why a request was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// Even started at once it would be late.
    Infeasible,
    /// Its deadline became impossible while it waited.
    Expired,
    /// The queue is full.
    QueueFull,
    /// The variant is not loaded on this device any more.
    Gone,
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<T> {
    /// Run a batch.
    Infer {
        /// Which variant.
        ordinal: u32,
        /// Its requests, earliest deadline first.
        requests: Vec<Request<T>>,
        /// Not to be started after this; [`NEVER`] without a target.
        latest: Nanos,
        /// To be handed to [`Scheduler::on_result`] when the batch has left the device.
        id: BatchId,
    },
    /// Answer with a refusal.
    Drop {
        /// The request.
        request: Request<T>,
        /// Why.
        reason: DropReason,
    },
}

/// Names a batch on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchId {
    until: Nanos,
    number: u64,
    expected: Nanos,
}

impl BatchId {
    /// Expected run time, ns.
    pub fn expected(&self) -> Nanos {
        self.expected
    }
}

#[derive(Debug)]
struct Queue<T> {
    spec: QueueSpec,
    /// In order of (deadline, arrival).
    waiting: BTreeMap<(Nanos, u64), Request<T>>,
    waiting_rows: u32,
}

/// The scheduler of one device.
#[derive(Debug)]
pub struct Scheduler<T> {
    slots: u16,
    free: u16,
    arrivals: u64,
    queues: BTreeMap<u32, Queue<T>>,
    /// (latest start of the next batch, arrival, ordinal) of every queue that is not empty.
    urgent: BTreeSet<(Nanos, u64, u32)>,
    /// Estimated end of running batches.
    running: BTreeMap<(Nanos, u64), u16>,
    queued_nanos: Nanos,
}

impl<T> Scheduler<T> {
    /// A device with `slots` slots, all free.
    pub fn new(slots: u16) -> Self {
        let slots = slots.max(1);
        Self {
            slots,
            free: slots,
            arrivals: 0,
            queues: BTreeMap::new(),
            urgent: BTreeSet::new(),
            running: BTreeMap::new(),
            queued_nanos: 0,
        }
    }

    /// A variant is loaded and may be used. Replaces the spec of a known one.
    pub fn on_loaded(&mut self, ordinal: u32, spec: QueueSpec) {
        match self.queues.get_mut(&ordinal) {
            Some(queue) => queue.spec = spec,
            None => {
                let queue = Queue {
                    spec,
                    waiting: BTreeMap::new(),
                    waiting_rows: 0,
                };
                self.queues.insert(ordinal, queue);
            }
        }
    }

    /// A variant is being drained: what waits for it is handed back.
    pub fn on_unloaded(&mut self, ordinal: u32) -> Vec<Action<T>> {
        let Some(queue) = self.queues.remove(&ordinal) else {
            return Vec::new();
        };
        if let Some(key) = queue.urgency(ordinal) {
            self.urgent.remove(&key);
        }
        self.queued_nanos = self.queued_nanos.saturating_sub(queue.work());
        queue
            .waiting
            .into_values()
            .map(|request| drop_with(request, DropReason::Gone))
            .collect()
    }

    /// A request arrives.
    pub fn on_request(&mut self, now: Nanos, ordinal: u32, request: Request<T>) -> Vec<Action<T>> {
        let Some(queue) = self.queues.get(&ordinal) else {
            return vec![drop_with(request, DropReason::Gone)];
        };
        if queue.waiting_rows.saturating_add(request.rows) > queue.spec.max_waiting_rows {
            return vec![drop_with(request, DropReason::QueueFull)];
        }
        if now.saturating_add(queue.spec.latency_of(request.rows)) > request.deadline {
            return vec![drop_with(request, DropReason::Infeasible)];
        }
        let key = (request.deadline, self.arrivals);
        self.arrivals += 1;
        self.change(ordinal, |queue| queue.push(key, request));
        self.dispatch(now)
    }

    /// A batch has left the device, whatever became of it.
    pub fn on_result(&mut self, now: Nanos, batch: BatchId) -> Vec<Action<T>> {
        if let Some(slots) = self.running.remove(&(batch.until, batch.number)) {
            self.free += slots;
        }
        self.dispatch(now)
    }

    /// Time has passed: drops what became impossible.
    pub fn on_timer(&mut self, now: Nanos) -> Vec<Action<T>> {
        let mut actions = Vec::new();
        while let Some(&(latest, _, ordinal)) = self.urgent.first() {
            if latest >= now {
                break;
            }
            let dropped = self.change(ordinal, |queue| queue.pop_first());
            let Some(request) = dropped else { break };
            actions.push(drop_with(request, DropReason::Expired));
        }
        actions.extend(self.dispatch(now));
        actions
    }

    /// When [`Self::on_timer`] is next worth calling.
    pub fn next_timer(&self) -> Option<Nanos> {
        self.urgent
            .first()
            .map(|(latest, ..)| *latest)
            .filter(|latest| *latest < NEVER)
    }

    /// Estimated time until a batch that arrives now could start, ns.
    pub fn wait(&self, now: Nanos) -> Nanos {
        if self.free > 0 && self.urgent.is_empty() {
            return 0;
        }
        let first_end = self
            .running
            .first_key_value()
            .map_or(now, |((until, _), _)| *until);
        first_end.saturating_sub(now) + self.queued_nanos / Nanos::from(self.slots)
    }

    /// Estimated end of the earliest running batch when no slot is free.
    pub fn busy_until(&self) -> Option<Nanos> {
        if self.free > 0 {
            return None;
        }
        self.running.first_key_value().map(|((until, _), _)| *until)
    }

    /// Estimated work that waits, ns of device time divided by the slots.
    pub fn queued(&self) -> Nanos {
        self.queued_nanos / Nanos::from(self.slots)
    }

    /// Requests waiting over all queues.
    pub fn waiting(&self) -> usize {
        self.queues.values().map(|queue| queue.waiting.len()).sum()
    }

    fn dispatch(&mut self, now: Nanos) -> Vec<Action<T>> {
        let mut actions = Vec::new();
        while let Some(&(_, _, ordinal)) = self.urgent.first() {
            let Some(queue) = self.queues.get(&ordinal) else {
                break;
            };
            let slots = queue.spec.slots.clamp(1, self.slots);
            if slots > self.free {
                break;
            }
            self.start(now, ordinal, slots, &mut actions);
        }
        actions
    }

    fn start(&mut self, now: Nanos, ordinal: u32, slots: u16, actions: &mut Vec<Action<T>>) {
        let (dropped, batch) = self.change(ordinal, |queue| queue.close(now));
        actions.extend(
            dropped
                .into_iter()
                .map(|request| drop_with(request, DropReason::Expired)),
        );
        let Some(batch) = batch else { return };
        self.free -= slots;
        let number = self.arrivals;
        self.arrivals += 1;
        self.running
            .insert((now.saturating_add(batch.latency), number), slots);
        actions.push(Action::Infer {
            ordinal,
            requests: batch.requests,
            latest: batch.latest,
            id: BatchId {
                until: now.saturating_add(batch.latency),
                number,
                expected: batch.latency,
            },
        });
    }

    /// Changes a queue and keeps the order of urgency and the amount of work true.
    fn change<R: Default>(&mut self, ordinal: u32, edit: impl FnOnce(&mut Queue<T>) -> R) -> R {
        let Some(queue) = self.queues.get_mut(&ordinal) else {
            return R::default();
        };
        let (before, work) = (queue.urgency(ordinal), queue.work());
        let result = edit(queue);
        let (after, left) = (queue.urgency(ordinal), queue.work());
        if before != after {
            before.map(|key| self.urgent.remove(&key));
            after.map(|key| self.urgent.insert(key));
        }
        self.queued_nanos = self.queued_nanos.saturating_sub(work).saturating_add(left);
        result
    }
}

/// A batch that was closed.
struct Batch<T> {
    requests: Vec<Request<T>>,
    latest: Nanos,
    latency: Nanos,
}

// === impl QueueSpec ===

impl QueueSpec {
    /// Expected run time of a batch of `rows` rows, ns; the last step's slope beyond the table.
    pub fn latency_of(&self, rows: u32) -> Nanos {
        let table = &self.latency;
        let Some(last) = table.last() else { return 0 };
        let at = rows.max(1) as usize - 1;
        match table.get(at) {
            Some(latency) => *latency,
            None => {
                let slope = last / table.len() as u64;
                last.saturating_add(slope * (at + 1 - table.len()) as u64)
            }
        }
    }
}

// === impl Queue ===

impl<T> Queue<T> {
    fn push(&mut self, key: (Nanos, u64), request: Request<T>) {
        self.waiting_rows += request.rows;
        self.waiting.insert(key, request);
    }

    fn pop_first(&mut self) -> Option<Request<T>> {
        let (_, request) = self.waiting.pop_first()?;
        self.waiting_rows -= request.rows;
        Some(request)
    }

    /// Latest start of the next batch: the first deadline less the run time of that request.
    fn urgency(&self, ordinal: u32) -> Option<(Nanos, u64, u32)> {
        let ((deadline, arrival), request) = self.waiting.first_key_value()?;
        let latest = match *deadline {
            NEVER => NEVER,
            deadline => deadline.saturating_sub(self.spec.latency_of(request.rows)),
        };
        Some((latest, *arrival, ordinal))
    }

    /// Device time that the waiting rows will take, times the slots they occupy.
    fn work(&self) -> Nanos {
        if self.waiting_rows == 0 {
            return 0;
        }
        let max = if self.spec.batched {
            self.spec.max_rows
        } else {
            1
        };
        let (full, rest) = (self.waiting_rows / max, self.waiting_rows % max);
        let rest = if rest == 0 {
            0
        } else {
            self.spec.latency_of(rest)
        };
        (Nanos::from(full) * self.spec.latency_of(max)).saturating_add(rest)
            * Nanos::from(self.spec.slots)
    }

    /// Takes the largest batch that keeps its earliest deadline, and what is late already.
    fn close(&mut self, now: Nanos) -> (Vec<Request<T>>, Option<Batch<T>>) {
        let mut late = Vec::new();
        while let Some(((deadline, _), request)) = self.waiting.first_key_value() {
            if now.saturating_add(self.spec.latency_of(request.rows)) <= *deadline {
                break;
            }
            late.extend(self.pop_first());
        }
        let Some(first) = self.pop_first() else {
            return (late, None);
        };
        let (deadline, mut rows) = (first.deadline, first.rows);
        let mut requests = vec![first];
        while self.spec.batched
            && let Some((_, next)) = self.waiting.first_key_value()
        {
            let together = rows + next.rows;
            let in_time = now.saturating_add(self.spec.latency_of(together)) <= deadline;
            if together > self.spec.max_rows || !in_time {
                break;
            }
            rows = together;
            requests.extend(self.pop_first());
        }
        let latency = self.spec.latency_of(rows);
        let latest = if deadline == NEVER {
            NEVER
        } else {
            deadline.saturating_sub(latency)
        };
        (
            late,
            Some(Batch {
                requests,
                latest,
                latency,
            }),
        )
    }
}

fn drop_with<T>(request: Request<T>, reason: DropReason) -> Action<T> {
    Action::Drop { request, reason }
}
