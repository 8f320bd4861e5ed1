//! The workload with which the scheduler is measured: a run's events, recorded once and replayed.
//!
//! Arrivals and the ends of batches depend on what the scheduler does, and computing them costs as
//! much as the scheduler itself. A first, unmeasured run therefore drives it through virtual time
//! with devices that take exactly as long as their profile says, and records every call with its
//! time. A policy is deterministic: a new one that gets the same calls does the same. The measured
//! run consists only of these calls.

use std::{cmp::Reverse, collections::BinaryHeap, hint::black_box};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_baselines::{Options, Policy};
use sextant_profile::Run as Measured;
use sextant_schedule::{BatchId, LatencyTable, Nanos, QueueSpec, Request};
use sextant_types::index::TenantIx;

#[path = "subject.rs"]
mod subject;

use subject::{Order, Subject};

pub use subject::Shape;

/// The seed of the arrivals.
pub const SEED: u64 = 20_230_814;
/// ResNet50 of Symphony, table 4: per row and per batch, ms.
const PROFILE_MS: (f64, f64) = (1.053, 5.072);
/// Its target.
const TARGET_MS: f64 = 25.0;
/// Share of device time that the load takes.
const LOAD: f64 = 0.7;

/// The size of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Queues, one for each variant.
    pub queues: u32,
    /// Devices, all of one kind.
    pub devices: u32,
    /// The subject, and the variants that the devices hold.
    pub shape: Shape,
    /// Whether each queue belongs to a tenant of its own. Otherwise all belong to one tenant.
    pub has_tenants: bool,
    /// Whether the changes are taken after every call, as a dispatcher does.
    pub is_told: bool,
    /// The number of queues that get requests, starting with the first. The others only exist.
    pub asked: u32,
}

/// The sizes that are measured.
pub const SIZES: [(u32, u32); 3] = [(20, 32), (1_000, 1_000), (10_000, 10_000)];

/// The calls of a run.
#[derive(Debug)]
pub struct Trace {
    size: Size,
    options: Options,
    /// The part until every queue and device is busy. It is not measured.
    warm: Vec<Event>,
    /// The measured part.
    measured: Vec<Event>,
    /// Requests in the measured part.
    pub requests: u64,
    /// Mean rows of the batches that started in the measured part.
    pub mean_rows: f64,
    /// Share of its requests that were dropped.
    pub dropped_share: f64,
    /// Offered, requests per second.
    pub rate: f64,
}

/// A call with its time.
#[derive(Debug, Clone, Copy)]
enum Event {
    Request {
        at: Nanos,
        queue: u32,
    },
    Result {
        at: Nanos,
        batch: BatchId,
        run: Measured,
    },
    Timer {
        at: Nanos,
    },
}

/// A subject in the state in which the measured part finds it.
pub struct PreparedSubject {
    subject: Subject,
    is_told: bool,
}

// === impl Size ===

impl Size {
    /// All queues get requests, and all belong to one tenant.
    pub fn new((queues, devices): (u32, u32), shape: Shape) -> Self {
        Self {
            queues,
            devices,
            shape,
            has_tenants: false,
            is_told: false,
            asked: queues,
        }
    }
}

// === impl Trace ===

impl Trace {
    /// Records a run with about `requests` measured requests.
    pub fn record(policy: Policy, size: Size, requests: u64) -> Self {
        let options = Options::of(policy);
        let rate = rate(size);
        let warm_requests = (rate * 0.25) as u64;
        let mut run = Run::new(&options, size, rate);
        run.advance(warm_requests);
        let warm = std::mem::take(&mut run.events);
        (run.batches, run.rows, run.dropped) = (0, 0, 0);
        run.advance(requests);
        Self {
            size,
            options,
            warm,
            measured: run.events,
            requests,
            mean_rows: run.rows as f64 / run.batches.max(1) as f64,
            dropped_share: run.dropped as f64 / requests as f64,
            rate,
        }
    }

    /// A subject after the warm part.
    pub fn prepare(&self) -> PreparedSubject {
        let mut prepared = PreparedSubject::new(&self.options, self.size);
        prepared.replay(&self.warm);
        prepared
    }

    /// Replays the measured part. It is never inlined, because its name marks where instructions
    /// are counted.
    #[inline(never)]
    pub fn measured_replay(&self, prepared: &mut PreparedSubject) {
        prepared.replay(&self.measured);
    }
}

// === impl PreparedSubject ===

impl PreparedSubject {
    fn new(options: &Options, size: Size) -> Self {
        Self {
            subject: Subject::new(options, size),
            is_told: size.is_told,
        }
    }

    fn replay(&mut self, events: &[Event]) {
        let mut pools = Vec::new();
        for (number, event) in events.iter().enumerate() {
            self.apply(*event, number as u64);
            self.subject.clear();
            // A caller asks after every call when it must be woken.
            black_box(self.subject.next_timer());
            if self.is_told {
                self.subject.take_news(&mut pools);
            }
        }
    }

    #[inline]
    fn apply(&mut self, event: Event, number: u64) {
        match event {
            Event::Request { at, queue } => {
                let request = Request {
                    payload: number,
                    rows: 1,
                    deadline: at + nanos(TARGET_MS),
                };
                self.subject.request(at, queue, request);
            }
            Event::Result { at, batch, run } => self.subject.result(at, batch, run),
            Event::Timer { at } => self.subject.timer(at),
        }
    }
}

/// When a batch ends, which sorts the ends; its number, its name, its rows and its run time.
type End = (Nanos, u64, BatchId, u32, Nanos);

/// The run that is being recorded.
struct Run {
    prepared: PreparedSubject,
    ends: BinaryHeap<Reverse<End>>,
    events: Vec<Event>,
    random: ChaCha8Rng,
    asked: u32,
    rate: f64,
    /// How long batches run.
    latency: LatencyTable,
    now: Nanos,
    next_arrival: f64,
    batches: u64,
    rows: u64,
    dropped: u64,
}

impl Run {
    fn new(options: &Options, size: Size, rate: f64) -> Self {
        Self {
            prepared: PreparedSubject::new(options, size),
            ends: BinaryHeap::new(),
            events: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(SEED),
            asked: size.asked,
            rate,
            latency: spec(size, 0).latency,
            now: 0,
            next_arrival: 0.0,
            batches: 0,
            rows: 0,
            dropped: 0,
        }
    }

    /// Goes on until `requests` more have arrived.
    fn advance(&mut self, requests: u64) {
        let mut left = requests;
        while left > 0 {
            let event = self.next();
            left -= u64::from(matches!(event, Event::Request { .. }));
            self.events.push(event);
            self.prepared.apply(event, self.events.len() as u64 - 1);
            self.carry_out();
        }
    }

    /// The next event: the end of a batch, a timer, or an arrival.
    fn next(&mut self) -> Event {
        let arrival = self.next_arrival as Nanos;
        let end = self.ends.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
        let timer = self.prepared.subject.next_timer().unwrap_or(Nanos::MAX);
        let timer = timer.max(self.now);
        self.now = arrival.min(end).min(timer);
        if end == self.now
            && let Some(Reverse((at, _, batch, rows, nanos))) = self.ends.pop()
        {
            let mhz = None;
            let run = Measured { rows, nanos, mhz };
            return Event::Result { at, batch, run };
        }
        if timer == self.now {
            return Event::Timer { at: timer };
        }
        let gap = -(1.0 - self.random.random::<f64>()).ln() / self.rate;
        self.next_arrival += gap * 1e9;
        Event::Request {
            at: arrival,
            queue: self.random.random_range(0..self.asked),
        }
    }

    fn carry_out(&mut self) {
        for order in self.prepared.subject.take() {
            let Order::Infer { rows, earliest, id } = order else {
                self.dropped += 1;
                continue;
            };
            self.batches += 1;
            self.rows += rows as u64;
            let (rows, nanos) = (rows as u32, self.latency.of(rows as u32));
            let end = self.now.max(earliest) + nanos;
            let end = (end, self.batches, id, rows, nanos);
            self.ends.push(Reverse(end));
        }
    }
}

fn spec(size: Size, queue: u32) -> QueueSpec {
    let tenant = if size.has_tenants { queue } else { 0 };
    QueueSpec {
        max_rows: 32,
        planned_rows: u32::MAX,
        batched: true,
        slots: 1,
        latency: LatencyTable::linear(PROFILE_MS.0, PROFILE_MS.1, 32).expect("a valid profile"),
        max_waiting_rows: u32::MAX,
        tenant: TenantIx::new(tenant),
        priority: 0,
        weight: 1.0,
        price: 1.0,
    }
}

/// The rate at which [`LOAD`] of the devices' time is used if a batch grows until its first
/// request's deadline forces it to start: 1 / rate per queue and row, and its run time, fill the
/// target.
fn rate(size: Size) -> f64 {
    let (alpha, beta) = PROFILE_MS;
    let busy_share = |rate: f64| {
        let per_queue_ms = rate / 1e3 / f64::from(size.asked);
        let rows = ((TARGET_MS - beta) / (alpha + 1.0 / per_queue_ms)).max(1.0);
        rate / 1e3 * (alpha * rows + beta) / rows / f64::from(size.devices)
    };
    let (mut low, mut high) = (1.0, f64::from(size.devices) * 1e3);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if busy_share(middle) < LOAD {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn nanos(ms: f64) -> Nanos {
    (ms * 1e6) as Nanos
}
