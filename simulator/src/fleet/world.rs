//! A run: queries, batches, loads, and looks of the autoscaler, in order of time.

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_policies::{
    controller::{Action, Actions, Loaded},
    placement,
    scaling::demand::Ended,
    schedule::{BatchId, DropReason, NEVER, Nanos, Request},
    select::Decision,
};

use super::{
    Policy, Report, Setting,
    control::{Control, Token},
    devices::{Device, Held, State},
    report::Counted,
    scaling::Autoscaler,
    variants::Presences,
};
use crate::{Arrival, Source};

/// Time between two looks of the autoscaler, ns.
const LOOK: Nanos = 1_000_000_000;

/// What has no answer so long after the last query never gets one.
const REST: Nanos = 600_000_000_000;

/// How often a query is placed at most.
const PLACEMENTS: u8 = 5;

/// A run under way.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) setting: &'a Setting,
    pub(super) control: Control,
    autoscaler: Autoscaler,
    pub(super) now: Nanos,
    /// From when until when queries and costs count, ns.
    pub(super) span: (Nanos, Nanos),
    pub(super) report: Report,
    pub(super) devices: Vec<Option<Device>>,
    pub(super) vacant: BinaryHeap<Reverse<u32>>,
    pub(super) lives: u64,
    /// By type: since when there are more than are wanted.
    pub(super) surplus_since: Vec<Option<Nanos>>,
    /// Until when devices are paid for.
    pub(super) billed: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    batches: Vec<Option<Batch>>,
    vacant_batches: Vec<u32>,
    random: ChaCha8Rng,
    /// By class: what has ended since the last look.
    ended: Vec<Ended>,
    looks: u64,
    /// Queries of the measured time without an answer.
    open: u64,
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A batch has ended.
    Ran { batch: u32 },
    /// A load has ended.
    Loaded {
        device: u32,
        life: u64,
        variant: u32,
    },
    /// A load could not start in time.
    LoadFailed {
        device: u32,
        life: u64,
        variant: u32,
    },
    /// A variant was unloaded.
    Unloaded {
        device: u32,
        life: u64,
        variant: u32,
    },
    /// A device takes work.
    Up { device: u32, life: u64 },
    /// The autoscaler looks.
    Look,
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    device: u32,
    life: u64,
    requests: Vec<Request<Token>>,
}

impl<'a> World<'a> {
    pub(super) fn new(setting: &'a Setting, policy: Policy) -> Self {
        let from = nanos(setting.warm_up_s * 1e3);
        Self {
            control: Control::new(setting),
            autoscaler: Autoscaler::new(setting, policy),
            now: 0,
            span: (from, from + nanos(setting.measured_s * 1e3)),
            report: Report {
                classes: vec![Counted::default(); setting.classes.len()],
                device_hours: vec![0.0; setting.types.len()],
                answers: vec![0; setting.variants.len()],
                seconds: setting.measured_s,
                ..Report::default()
            },
            devices: Vec::new(),
            vacant: BinaryHeap::new(),
            lives: 0,
            surplus_since: vec![None; setting.types.len()],
            billed: 0,
            events: BinaryHeap::new(),
            order: 0,
            batches: Vec::new(),
            vacant_batches: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(setting.seed),
            ended: vec![Ended::default(); setting.classes.len()],
            looks: 0,
            open: 0,
            setting,
        }
    }

    pub(super) fn run(mut self, queries: &mut dyn Source) -> Report {
        self.begin();
        self.on_look();
        loop {
            self.carry_out();
            let event = self.events.peek().map_or(NEVER, |Reverse((at, ..))| *at);
            let timer = self.control.controller.next_timer();
            let timer = timer.unwrap_or(NEVER).max(self.now);
            let arrival = queries.peek().unwrap_or(NEVER);
            // Nobody asks after the end; those who have asked are answered.
            let arrival = if arrival < self.span.1 {
                arrival
            } else {
                NEVER
            };
            let next = event.min(timer).min(arrival);
            let is_over = next > self.span.1 && self.open == 0 || next > self.span.1 + REST;
            if next == NEVER || is_over {
                break;
            }
            self.now = next;
            if event == next {
                self.on_event();
            } else if timer == next {
                let Control {
                    controller,
                    actions,
                    ..
                } = &mut self.control;
                controller.on_timer(next, actions);
            } else {
                self.on_arrival(queries.next());
            }
        }
        self.finish()
    }

    pub(super) fn schedule(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    pub(super) fn life(&self, device: u32) -> u64 {
        let of = self.devices.get(device as usize).and_then(Option::as_ref);
        of.map_or(0, |device| device.life)
    }

    /// What is loaded is another thing, for one variant or for all.
    pub(super) fn reindex(&mut self, variant: Option<u32>) {
        let there = Presences {
            devices: &self.devices,
        };
        let one = variant.map(|at| self.setting.variants[at as usize].application);
        for application in 0..self.setting.applications.len() as u32 {
            if one.is_none_or(|one| one == application) {
                self.control.index(self.setting, application, &there);
            }
        }
    }

    fn finish(mut self) -> Report {
        self.now = self.now.max(self.span.1);
        self.bill();
        for class in &mut self.report.classes {
            class.refused += class.sent - class.ended();
        }
        let hours = self.report.device_hours.iter().zip(&self.setting.types);
        self.report.cost_usd = hours.map(|(hours, of)| hours * of.price_per_hour_usd).sum();
        self.report
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        self.report.simulated += 1;
        if self.counts(arrival.at) {
            self.report.classes[arrival.model as usize].sent += 1;
            self.open += 1;
        }
        self.place(Token {
            arrived: arrival.at,
            class: arrival.model,
            variant: 0,
            load: false,
            placed: 0,
        });
    }

    /// Chooses a variant for a query and hands it to the controller, or refuses it.
    fn place(&mut self, token: Token) {
        let (now, class) = (self.now, token.class);
        let decision = self.control.choose(now, self.setting, class, token.arrived);
        let (variant, load) = match decision {
            Decision::Use { ordinal } => (ordinal, false),
            Decision::LoadThenUse { ordinal } => (ordinal, true),
            Decision::Warming { ordinal, .. } => {
                let Control {
                    controller,
                    actions,
                    ..
                } = &mut self.control;
                controller.on_missed(now, ordinal, actions);
                return self.refuse(token, true);
            }
            Decision::Infeasible { .. } => return self.refuse(token, false),
            Decision::Busy { .. } | Decision::Unavailable { .. } => {
                return self.refuse(token, true);
            }
        };
        let of = &self.setting.classes[class as usize];
        let deadline = of.latency_ms.map_or(NEVER, |ms| token.arrived + nanos(ms));
        let request = Request {
            payload: Token {
                variant,
                load,
                placed: token.placed + 1,
                ..token
            },
            rows: 1,
            deadline,
        };
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        controller.on_request(now, variant, request, actions);
    }

    fn refuse(&mut self, token: Token, for_want: bool) {
        let ended = &mut self.ended[token.class as usize];
        ended.offered += 1.0;
        ended.bad += f64::from(u8::from(for_want));
        if self.counts(token.arrived) {
            self.report.classes[token.class as usize].refused += 1;
            self.open -= 1;
        }
    }

    fn answer(&mut self, request: &Request<Token>) {
        let token = request.payload;
        let is_late = self.now > request.deadline;
        let ended = &mut self.ended[token.class as usize];
        ended.offered += 1.0;
        ended.bad += f64::from(u8::from(is_late));
        if !self.counts(token.arrived) {
            return;
        }
        self.open -= 1;
        let variant = &self.setting.variants[token.variant as usize];
        let best = self.setting.best_accuracy(variant.application);
        self.report.answers[token.variant as usize] += 1;
        let counted = &mut self.report.classes[token.class as usize];
        counted.accuracy_sum_percent += 100.0 * variant.accuracy / best.max(f64::MIN_POSITIVE);
        match is_late {
            true => counted.late += 1,
            false => counted.in_time += 1,
        }
    }

    fn on_drop(&mut self, request: &Request<Token>, reason: DropReason) {
        let token = request.payload;
        // Who has the variant went away; another may take it, as the dispatcher tries.
        let anew = reason == DropReason::Gone
            && !token.load
            && token.placed < PLACEMENTS
            && self.now < request.deadline;
        match anew {
            true => self.place(token),
            false => self.refuse(token, true),
        }
    }

    fn on_event(&mut self) {
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::Ran { batch } => self.on_ran(batch),
            Event::Loaded {
                device,
                life,
                variant,
            } => self.on_loaded((device, life), variant, true),
            Event::LoadFailed {
                device,
                life,
                variant,
            } => self.on_loaded((device, life), variant, false),
            Event::Unloaded {
                device,
                life,
                variant,
            } => self.on_unloaded((device, life), variant),
            Event::Up { device, life } => {
                let of = self.devices[device as usize].as_ref();
                let waits = of.is_some_and(|of| of.life == life && of.state == State::Starting);
                if waits {
                    self.on_up(device);
                }
            }
            Event::Look => self.on_look(),
        }
    }

    fn on_ran(&mut self, at: u32) {
        let Some(batch) = self.batches[at as usize].take() else {
            return;
        };
        self.vacant_batches.push(at);
        for request in &batch.requests {
            self.answer(request);
        }
        let (now, device) = (self.now, batch.device);
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        // Of a device that drains the controller knows nothing any more.
        controller.on_result(now, batch.id, None, actions);
        if let Some(of) = self.devices[device as usize].as_mut()
            && of.life == batch.life
        {
            of.batches -= 1;
            self.leave(device);
        }
    }

    /// The device of that life, if it still takes work.
    fn device(&mut self, (device, life): (u32, u64)) -> Option<&mut Device> {
        let of = self.devices[device as usize].as_mut()?;
        (of.life == life && of.state == State::Up).then_some(of)
    }

    fn on_loaded(&mut self, at: (u32, u64), variant: u32, ok: bool) {
        let now = self.now;
        let Some(device) = self.device(at) else {
            return;
        };
        match ok {
            true => device.held.insert(variant, Held::Loaded),
            false => device.held.remove(&variant),
        };
        self.report.loads += u64::from(ok);
        self.reindex(Some(variant));
        let load = nanos(self.setting.variants[variant as usize].load_ms);
        let loaded = match ok {
            true => Loaded::After(load),
            false => Loaded::Failed,
        };
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        controller.on_load_result(now, at.0, variant, loaded, actions);
    }

    fn on_unloaded(&mut self, at: (u32, u64), variant: u32) {
        if self.device(at).is_none() {
            return;
        }
        let now = self.now;
        let Control {
            controller,
            actions,
            ..
        } = &mut self.control;
        controller.on_unloaded(now, at.0, variant, actions);
    }

    fn on_look(&mut self) {
        let (now, window) = (self.now, if self.looks == 0 { 0 } else { LOOK });
        for device in self.devices.iter_mut().flatten() {
            device.measure(now - window, now);
        }
        let ended: Vec<Ended> = self.ended.iter_mut().map(std::mem::take).collect();
        let now_ms = now / 1_000_000;
        if window > 0 {
            self.autoscaler.observe(now_ms, window / 1_000_000, &ended);
        }
        let there = Presences {
            devices: &self.devices,
        };
        let look = self.autoscaler.look(self.setting, now_ms, &there);
        let idle_unload = self
            .setting
            .scaling
            .idle_unload_ms
            .saturating_mul(1_000_000);
        self.control.want(now, look.variants, idle_unload);
        self.carry_out();
        self.balance(&look.devices);
        self.looks += 1;
        self.schedule(now + LOOK, Event::Look);
    }

    /// Does what the controller has decided, until it asks for nothing more.
    pub(super) fn carry_out(&mut self) {
        while !self.control.actions.is_empty() {
            let mut actions: Actions<Token> = std::mem::take(&mut self.control.actions);
            for action in actions.drain(..) {
                match action {
                    Action::Infer {
                        device,
                        model,
                        requests,
                        earliest,
                        id,
                        ..
                    } => self.start((device, model), requests, earliest, id),
                    Action::Drop {
                        request, reason, ..
                    } => self.on_drop(&request, reason),
                    Action::Move(moved) => self.move_variant(moved),
                }
            }
        }
    }

    fn start(
        &mut self,
        (device, model): (u32, u32),
        requests: Vec<Request<Token>>,
        earliest: Nanos,
        id: BatchId,
    ) {
        let variant = &self.setting.variants[model as usize];
        let Some(of) = self.devices[device as usize].as_mut() else {
            return;
        };
        let Some(Some(latency)) = variant.on.get(of.kind) else {
            return;
        };
        let rows = requests.iter().map(|request| request.rows).sum();
        let start = of.start_at(earliest.max(self.now), variant.slots);
        let jitter = &self.setting.jitter;
        let end = start + jitter.apply(latency.of(rows), &mut self.random);
        of.occupy(start, end, variant.slots);
        let batch = Batch {
            id,
            device,
            life: of.life,
            requests,
        };
        let at = self.vacant_batches.pop().unwrap_or_else(|| {
            self.batches.push(None);
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = Some(batch);
        self.schedule(end, Event::Ran { batch: at });
    }

    fn move_variant(&mut self, moved: placement::Action) {
        match moved {
            placement::Action::Load {
                device,
                model,
                earliest,
                latest,
                ..
            } => {
                let (now, life) = (self.now, self.life(device));
                let load = nanos(self.setting.variants[model as usize].load_ms);
                let Some(of) = self.device((device, life)) else {
                    return;
                };
                let start = of.load(earliest.max(now), load);
                let (at, variant) = (start + load, model);
                if start > latest {
                    let failed = Event::LoadFailed {
                        device,
                        life,
                        variant,
                    };
                    return self.schedule(now, failed);
                }
                of.held.insert(variant, Held::Loading);
                self.reindex(Some(variant));
                let loaded = Event::Loaded {
                    device,
                    life,
                    variant,
                };
                self.schedule(at, loaded);
            }
            placement::Action::Unload { device, model } => {
                let life = self.life(device);
                if let Some(of) = self.device((device, life)) {
                    of.held.remove(&model);
                    self.reindex(Some(model));
                }
                let unloaded = Event::Unloaded {
                    device,
                    life,
                    variant: model,
                };
                self.schedule(self.now, unloaded);
            }
        }
    }

    fn counts(&self, arrived: Nanos) -> bool {
        arrived >= self.span.0 && arrived < self.span.1
    }
}

/// Milliseconds as nanoseconds.
pub(super) fn nanos(ms: f64) -> Nanos {
    crate::profiles::nanos(ms)
}
