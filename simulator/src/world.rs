//! One run: arrivals, the controller, devices that take exactly as long as their profile says.

mod batches;
mod control;
mod histogram;
mod report;
mod setting;

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_schedule::{BatchId, NEVER, Nanos, Options, Request, Schedulers};
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

use control::{Control, Order};
use report::Counts;

pub use histogram::Histogram;
pub use report::{Report, Tally, Usage};
pub use setting::{Arrival, Device, Failure, Jitter, Model, Network, Setting, Shape, Source, Span};

/// A run in progress.
#[derive(Debug)]
pub struct World<'a, S = Options> {
    setting: &'a Setting<S>,
    control: Control,
    now: Nanos,
    span: Span,
    report: Report,
    tallies: IndexVec<VariantIx, Counts>,
    devices: IndexVec<DeviceIx, DeviceState>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    batches: Vec<Option<Batch>>,
    vacant: Vec<u32>,
    random: ChaCha8Rng,
    busy: Nanos,
    /// Requests of the span without an answer.
    open: u64,
    orders: Vec<Order>,
    rows: Vec<u64>,
}

/// A request that is being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    arrived: Nanos,
    model: VariantIx,
    client: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End { batch: u32 },
    Down { failure: u32 },
    Up { failure: u32 },
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    requests: Vec<Request<Token>>,
    /// Whether it ran.
    ran: bool,
    start: Nanos,
}

#[derive(Debug, Clone, Copy, Default)]
struct DeviceState {
    free_at: Nanos,
}

// === impl World ===

impl<'a, S: Schedulers> World<'a, S> {
    /// A world in which nothing has happened.
    pub fn new(setting: &'a Setting<S>) -> Self {
        let mut world = Self {
            setting,
            control: Control::new(setting),
            now: 0,
            span: Span::default(),
            report: Report::default(),
            tallies: setting.models.iter().map(|_| Counts::default()).collect(),
            devices: (setting.devices.iter())
                .map(|_| DeviceState::default())
                .collect(),
            events: BinaryHeap::new(),
            order: 0,
            batches: Vec::new(),
            vacant: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(setting.seed),
            busy: 0,
            open: 0,
            orders: Vec::new(),
            rows: Vec::new(),
        };
        world.load();
        world
    }

    /// Lets `source` send requests until every request of the span has been answered.
    pub fn run(mut self, source: &mut dyn Source, span: Span) -> Report {
        self.span = span;
        self.report.models = vec![Tally::default(); self.setting.models.len()];
        let kinds = self.setting.devices.iter().map(|device| device.kind + 1);
        self.report.kinds = vec![Usage::default(); kinds.max().unwrap_or(0) as usize];
        while !self.report.stopped {
            let event = self.events.first_time();
            let timer = self.control.next_timer().unwrap_or(NEVER).max(self.now);
            let arrival = source.peek().unwrap_or(NEVER);
            let next = event.min(timer).min(arrival);
            if next == NEVER || (next > self.span.until && self.open == 0) {
                break;
            }
            self.now = next;
            if event == next {
                self.on_event(source);
            } else if timer == next {
                self.control.on_timer(next);
            } else {
                let due = source.due();
                self.on_arrival(source.next(), due);
            }
            self.carry_out(source);
        }
        self.finish()
    }

    fn load(&mut self) {
        for device in self.devices.numbers() {
            self.device_up(device);
        }
        for (at, failure) in self.setting.failures.iter().enumerate() {
            let failure_at = at as u32;
            self.events.push(Reverse((
                failure.from,
                0,
                Event::Down {
                    failure: failure_at,
                },
            )));
            self.events.push(Reverse((
                failure.until,
                0,
                Event::Up {
                    failure: failure_at,
                },
            )));
        }
    }

    fn device_up(&mut self, device: DeviceIx) {
        self.devices[device].free_at = self.now;
        self.control.device_up(self.now, device, self.setting);
    }

    fn on_arrival(&mut self, arrival: Arrival, due: Option<Nanos>) {
        let model = VariantIx::new(arrival.model);
        self.report.simulated += 1;
        if self.counts(arrival.at) {
            self.tallies[model].sent += 1;
            self.open += 1;
        }
        let request = Request {
            payload: Token {
                arrived: arrival.at,
                model,
                client: arrival.client,
            },
            rows: 1,
            deadline: due
                .unwrap_or_else(|| arrival.at.saturating_add(self.setting.model(model).target)),
        };
        self.control.on_request(self.now, model, request);
    }

    fn on_event(&mut self, source: &mut dyn Source) {
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::End { batch } => self.on_end(batch, source),
            Event::Down { failure } => self.on_down(failure),
            Event::Up { failure } => {
                self.device_up(self.setting.failures[failure as usize].device);
            }
        }
    }

    fn on_down(&mut self, failure: u32) {
        let device = self.setting.failures[failure as usize].device;
        let lost = self.control.device_down(self.now, device);
        for at in 0..self.batches.len() {
            let Some(batch) = self.batches[at].take_if(|batch| lost.contains(&batch.id)) else {
                continue;
            };
            // Its end stays in the calendar and must not match another batch, so the position is
            // not used again.
            for request in batch.requests {
                let model = request.payload.model;
                self.control.on_request(self.now, model, request);
            }
        }
    }

    fn carry_out(&mut self, source: &mut dyn Source) {
        let mut orders = std::mem::take(&mut self.orders);
        self.control.take_orders(&mut orders);
        for order in orders.drain(..) {
            match order {
                Order::Drop { request, reason } => self.on_drop(&request, reason, source),
                Order::Infer {
                    model,
                    device,
                    requests,
                    window,
                    id,
                } => self.start(model, device, requests, window, id),
            }
        }
        self.orders = orders;
    }

    fn counts(&self, arrived: Nanos) -> bool {
        arrived >= self.span.from && arrived < self.span.until
    }

    fn finish(mut self) -> Report {
        let length = self.span.until - self.span.from;
        let capacity = length as f64 * self.devices.len() as f64;
        self.report.busy_share = self.busy as f64 / capacity.max(1.0);
        self.report.seconds = length as f64 / 1e9;
        for (rows, count) in self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            self.report.batches.insert(rows as u32, *count);
        }
        for (tally, counts) in self.report.models.iter_mut().zip(self.tallies.iter()) {
            counts.write(tally);
        }
        self.report
    }
}

/// The time of the next event.
trait Calendar {
    fn first_time(&self) -> Nanos;
}

impl Calendar for BinaryHeap<Reverse<(Nanos, u64, Event)>> {
    fn first_time(&self) -> Nanos {
        self.peek().map_or(NEVER, |Reverse((at, _, _))| *at)
    }
}
