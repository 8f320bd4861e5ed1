//! A run: queries, batches, loads, and looks of the autoscaler, in order of time.

mod batches;
mod look;
mod queries;
mod variants;

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sextant_controller::{Action, Actions};
use sextant_scaling::demand::DemandSample;
use sextant_schedule::{BatchId, NEVER, Nanos, Request, Schedulers};
use sextant_types::index::{DeviceIx, IndexVec, VariantIx};

use super::{
    Policy, Report, Setting,
    control::{Control, Token},
    devices::{Device, State},
    report::QueryCounts,
    scaling::Autoscaler,
    traffic::TrafficMeter,
};
use crate::Source;

/// A query without an answer this long after the last query never gets one.
const REST: Nanos = 600_000_000_000;

/// A run in progress.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) setting: &'a Setting,
    pub(super) control: Control,
    autoscaler: Autoscaler,
    pub(super) now: Nanos,
    /// The time span in which queries and costs count, ns.
    pub(super) span: (Nanos, Nanos),
    pub(super) report: Report,
    pub(super) devices: IndexVec<DeviceIx, Option<Device>>,
    pub(super) vacant: BinaryHeap<Reverse<DeviceIx>>,
    pub(super) lives: u64,
    /// By type: since when there have been more devices than are desired.
    pub(super) surplus_since: Vec<Option<Nanos>>,
    /// The time until which devices are paid for.
    pub(super) billed: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    batches: Vec<Option<Batch>>,
    vacant_batches: Vec<u32>,
    random: ChaCha8Rng,
    /// By class: the queries that have ended since the last look.
    ended: Vec<DemandSample>,
    inside: TrafficMeter,
    looks: u64,
    /// Queries of the measured time without an answer.
    open: u64,
}

/// An event of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A batch ends on a device, or may start there.
    Step { device: DeviceIx, life: u64 },
    /// A load has ended.
    Loaded {
        device: DeviceIx,
        life: u64,
        variant: VariantIx,
    },
    /// A load could not start in time.
    LoadFailed {
        device: DeviceIx,
        life: u64,
        variant: VariantIx,
    },
    /// A variant was unloaded.
    Unloaded {
        device: DeviceIx,
        life: u64,
        variant: VariantIx,
    },
    /// A device takes work.
    Up { device: DeviceIx, life: u64 },
    /// The autoscaler looks.
    Look,
}

#[derive(Debug)]
struct Batch {
    id: BatchId,
    requests: Vec<Request<Token>>,
}

impl<'a> World<'a> {
    pub(super) fn new(setting: &'a Setting, policy: Policy, schedulers: &impl Schedulers) -> Self {
        let from = nanos(setting.warm_up_s * 1e3);
        Self {
            control: Control::new(setting, schedulers),
            autoscaler: Autoscaler::new(setting, policy),
            now: 0,
            span: (from, from + nanos(setting.measured_s * 1e3)),
            report: Report {
                classes: vec![QueryCounts::default(); setting.classes.len()],
                device_hours: vec![0.0; setting.types.len()],
                answers: setting.variants.iter().map(|_| 0).collect(),
                seconds: setting.measured_s,
                ..Report::default()
            },
            devices: IndexVec::default(),
            vacant: BinaryHeap::new(),
            lives: 0,
            surplus_since: vec![None; setting.types.len()],
            billed: 0,
            events: BinaryHeap::new(),
            order: 0,
            batches: Vec::new(),
            vacant_batches: Vec::new(),
            random: ChaCha8Rng::seed_from_u64(setting.seed),
            ended: vec![DemandSample::default(); setting.classes.len()],
            inside: TrafficMeter::new(setting.classes.len()),
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
            // No query comes after the end. Queries that came before are answered.
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

    pub(super) fn life(&self, device: DeviceIx) -> u64 {
        let of = self.devices.known(device);
        of.map_or(0, |device| device.life)
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

    fn on_event(&mut self) {
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::Step { device, life } => self.step((device, life)),
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
                let of = self.devices[device].as_ref();
                let waits = of.is_some_and(|of| of.life == life && of.state == State::Starting);
                if waits {
                    self.on_up(device);
                }
            }
            Event::Look => self.on_look(),
        }
    }

    /// Carries out the controller's decisions, until there are no more.
    pub(super) fn carry_out(&mut self) {
        while !self.control.actions.is_empty() {
            let mut actions: Actions<Token> = std::mem::take(&mut self.control.actions);
            for action in actions.drain(..) {
                match action {
                    Action::Infer {
                        device,
                        variant,
                        requests,
                        earliest,
                        latest,
                        id,
                        ..
                    } => {
                        self.start(
                            (device, variant),
                            Batch { id, requests },
                            (earliest, latest),
                        );
                    }
                    Action::Drop {
                        request, reason, ..
                    } => self.on_drop(&request, reason),
                    Action::Move(moved) => self.move_variant(moved),
                }
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
