//! Devices whose memory cannot hold all models: the loaded models change while requests come.
//!
//! [`PagedWorld`] is a [`World`](sextant_simulator::World) with limited memory. It has the same models, arrivals,
//! network and scatter, on devices with a number of pages, one executor for batches and one for LOADs (Clockwork,
//! section 5.2). The controller is [`sextant_controller::Controller`], a scheduler joined with a placement; the
//! estimates of run times are [`sextant_profile::Estimates`]. Messages to a device arrive in the order in which they
//! were sent, and all devices are alike. A device does not do what it cannot do inside its window, and the requests
//! fail.

mod control;
mod mail;
mod record;
mod setting;
mod telemetry;
mod worker;

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sextant_profile::Run;
use sextant_schedule::{BatchId, Delay, IndexedHeap, NEVER, Nanos, Request};
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

use crate::Setting;
use control::Control;
use mail::{Mail, Message};
use record::{Answer, Recorder};
use sextant_simulator::{Arrival, Error, Source, Span};
use worker::{Noise, Order, Outcome, RunSpan, Worker};

pub use setting::{Paging, Residence};
pub use telemetry::{ActionKind, Class, Failure, Interval, Predictions, Reason, Report, Step};

/// A run in progress.
#[derive(Debug)]
pub struct PagedWorld<'a> {
    setting: &'a Setting,
    paging: &'a Paging,
    control: Control,
    workers: IndexVec<DeviceIx, Worker>,
    /// For each worker: the time of its next event.
    due: IndexedHeap<DeviceIx>,
    mail: BinaryHeap<Reverse<Mail>>,
    sent: u64,
    /// For each worker: when the last message to it arrives.
    arrival: IndexVec<DeviceIx, Nanos>,
    now: Nanos,
    recorder: Recorder,
    /// For each model: number of devices on which it is loaded.
    copies: IndexVec<VariantIx, u32>,
    batches: Vec<Option<Batch>>,
    vacant: Vec<u32>,
    random: ChaCha8Rng,
    outcomes: Vec<Outcome>,
}

/// A request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    arrived: Nanos,
    model: VariantIx,
    client: u32,
    cold: bool,
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    requests: Vec<Request<Token>>,
    expected: Nanos,
    rows: u32,
}

// === impl PagedWorld ===

impl<'a> PagedWorld<'a> {
    /// A world before the first event: no model is loaded.
    ///
    /// # Errors
    /// When `paging` does not describe each model, a model has more pages than a device, or the setting has
    /// [`Setting::failures`], which these devices do not support.
    pub fn new(setting: &'a Setting, paging: &'a Paging) -> Result<Self, Error> {
        paging.check(setting)?;
        let devices = setting.devices.len();
        let noise = |at: usize| {
            let mut random = ChaCha8Rng::seed_from_u64(setting.seed);
            random.set_stream(at as u64 + 1);
            Noise {
                infer: paging.infer_jitter,
                load: paging.load_jitter,
                random,
            }
        };
        let worker = |at| Worker::new(paging.pages, noise(at));
        Ok(Self {
            setting,
            paging,
            control: Control::new(setting, paging),
            workers: (0..devices).map(worker).collect(),
            due: IndexedHeap::default(),
            mail: BinaryHeap::new(),
            sent: 0,
            arrival: (0..devices).map(|_| 0).collect(),
            now: 0,
            recorder: Recorder::new(paging, devices as u32, Span::default()),
            copies: setting.models.iter().map(|_| 0).collect(),
            batches: Vec::new(),
            vacant: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(setting.seed),
            outcomes: Vec::new(),
        })
    }

    /// Lets `source` send until every request of the span has been answered. [`Span::most_missed`] is ignored.
    pub fn run(mut self, source: &mut dyn Source, span: Span) -> Report {
        let until = span.until;
        self.recorder = Recorder::new(self.paging, self.setting.devices.len() as u32, span);
        self.carry_out(source);
        loop {
            let mail = self.mail.peek().map_or(NEVER, |Reverse(mail)| mail.at);
            let due = self.due.first().map_or(NEVER, |(at, _)| at);
            let timer = self.control.next_timer().unwrap_or(NEVER).max(self.now);
            let arrival = source.peek().unwrap_or(NEVER);
            let next = mail.min(due).min(timer).min(arrival);
            if next == NEVER || (next > until && self.recorder.open == 0) {
                break;
            }
            self.now = next;
            if due == next {
                self.on_due();
            } else if mail == next {
                self.on_mail(source);
            } else if timer == next {
                self.control.on_timer(next);
            } else {
                self.on_arrival(source.next());
            }
            self.carry_out(source);
        }
        self.recorder.report
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        let Arrival { at, model, client } = arrival;
        let model = VariantIx::new(model);
        let cold = self.copies[model] == 0;
        self.recorder.arrived(at, model, cold);
        let target = self.setting.model(model).target;
        let request = Request {
            payload: Token {
                arrived: at,
                model,
                client,
                cold,
            },
            rows: 1,
            deadline: at.saturating_add(target),
        };
        self.control.on_request(self.now, model, request);
    }

    /// On a worker, something ends or may start.
    fn on_due(&mut self) {
        if let Some((_, worker)) = self.due.first() {
            self.workers[worker].advance(self.now, &mut self.outcomes);
            self.look_at(worker);
        }
    }

    fn on_mail(&mut self, source: &mut dyn Source) {
        let Some(Reverse(mail)) = self.mail.pop() else {
            return;
        };
        match mail.message {
            Message::Order(order) => {
                let worker = &mut self.workers[mail.worker];
                if let Order::Unload { model } = order
                    && worker.is_loaded(model)
                {
                    self.copies[model] -= 1;
                }
                worker.deliver(self.now, order, &mut self.outcomes);
                self.look_at(mail.worker);
            }
            Message::Outcome(outcome) => self.on_outcome(mail.worker, outcome, source),
        }
    }

    /// After any event on a worker: sends the outcomes and notes the time of the next event.
    fn look_at(&mut self, worker: DeviceIx) {
        match self.workers[worker].next() {
            Some(at) => self.due.set(worker, at),
            None => {
                self.due.remove(worker);
            }
        }
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for outcome in outcomes.drain(..) {
            if let Outcome::Load { model, ran: Ok(_) } = outcome {
                self.copies[model] += 1;
            }
            if self.paging.log {
                self.log(worker, outcome);
            }
            let at = self.now + self.network(|delay| delay.response);
            self.post(at, worker, Message::Outcome(outcome));
        }
        self.outcomes = outcomes;
    }

    fn log(&mut self, device: DeviceIx, outcome: Outcome) {
        let at = RunSpan {
            start: self.now,
            end: self.now,
        };
        let (what, model, ran) = match outcome {
            Outcome::Infer {
                batch,
                ran: Ok(ran),
            } => {
                let requests = self.batches[batch as usize].as_ref();
                let first = requests.and_then(|batch| batch.requests.first());
                let model = first.map_or(VariantIx::default(), |request| request.payload.model);
                (ActionKind::Infer, model, ran)
            }
            Outcome::Load {
                model,
                ran: Ok(ran),
            } => (ActionKind::Load, model, ran),
            Outcome::Unload { model } => (ActionKind::Unload, model, at),
            Outcome::Infer { .. } | Outcome::Load { .. } => return,
        };
        self.recorder.report.log.push(Step {
            what,
            device,
            model,
            start: ran.start,
            end: ran.end,
        });
    }

    fn post(&mut self, at: Nanos, worker: DeviceIx, message: Message) {
        self.sent += 1;
        let number = self.sent;
        self.mail.push(Reverse(Mail {
            at,
            number,
            worker,
            message,
        }));
    }

    /// Sends an order. It arrives no earlier than the order before.
    fn order(&mut self, worker: DeviceIx, delay: Nanos, order: Order) {
        let last = &mut self.arrival[worker];
        *last = (*last).max(self.now + delay);
        let at = *last;
        self.post(at, worker, Message::Order(order));
    }

    fn on_outcome(&mut self, worker: DeviceIx, outcome: Outcome, source: &mut dyn Source) {
        match outcome {
            Outcome::Infer { batch, ran } => self.on_batch(batch, ran, source),
            Outcome::Load { model, ran } => {
                let predicted = self.control.expected_load(worker, model);
                self.recorder.loaded(self.now, ran, predicted);
                let took = ran.map(|ran| ran.end - ran.start).ok();
                self.control.on_load_result(self.now, worker, model, took);
            }
            Outcome::Unload { model } => self.control.on_unloaded(self.now, worker, model),
        }
    }

    fn on_batch(&mut self, at: u32, ran: Result<RunSpan, Failure>, source: &mut dyn Source) {
        let Some(batch) = self.batches[at as usize].take() else {
            return;
        };
        self.vacant.push(at);
        if let Ok(ran) = ran {
            self.recorder.ran(ran, batch.rows, batch.expected);
        }
        for request in &batch.requests {
            self.answer(request, ran.map(|_| ()), source);
        }
        let took = ran.map(|ran| ran.end - ran.start).ok();
        let run = took.map(|nanos| Run {
            rows: batch.rows,
            nanos,
            mhz: None,
        });
        self.control.on_result(self.now, batch.id, run);
    }

    fn answer(
        &mut self,
        request: &Request<Token>,
        ran: Result<(), Failure>,
        source: &mut dyn Source,
    ) {
        let token = request.payload;
        if let Err(failure) = ran {
            source.on_drop(self.now, token.model.get(), token.client);
            let reason = Reason::Failed(failure);
            return self.recorder.missed(token.model, token.arrived, reason);
        }
        source.on_answer(self.now, token.model.get(), token.client);
        let target = self.setting.model(token.model).target;
        self.recorder.answered(Answer {
            model: token.model,
            arrived: token.arrived,
            answered: self.now,
            in_time: self.now - token.arrived <= target,
            cold: token.cold,
        });
    }

    fn network(&mut self, part: impl Fn(&Delay) -> Nanos) -> Nanos {
        let spread = part(&self.setting.network.spread);
        let more = if spread == 0 {
            0
        } else {
            self.random.random_range(0..=spread)
        };
        part(&self.setting.network.base) + more
    }
}
