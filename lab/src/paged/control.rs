//! The controller of a run: the policies and their estimates.

use std::collections::BTreeMap;

use sextant_controller::{
    Action, Actions, Controller, DeviceSpec, LoadResult, OnKind, Options, VariantSpec,
};
use sextant_placement as placement;
use sextant_profile::Run;
use sextant_schedule::{BatchId, NEVER, Nanos, QueueSpec, Request};

use super::{
    Batch, PagedWorld, Paging, Reason, Token,
    worker::{Order, Window},
};
use crate::Setting;
use sextant_simulator::Source;
use sextant_types::index::{DeviceIx, IndexVec, KindIx, VariantIx};

#[derive(Debug)]
pub(super) struct Control {
    controller: Controller<Token>,
    /// For each device and model: the expected time of a LOAD in progress.
    expected: BTreeMap<(DeviceIx, VariantIx), Nanos>,
    /// For each model: its queue.
    queues: IndexVec<VariantIx, QueueSpec>,
    pub(super) actions: Actions<Token>,
}

impl Control {
    pub(super) fn new(setting: &Setting, paging: &Paging) -> Self {
        let mut scheduling = setting.options.clone();
        scheduling.delay.response += paging.precision;
        let options = Options {
            scheduling,
            placing: paging.placement.clone(),
            estimation: paging.estimation,
        };
        let mut control = Self {
            controller: Controller::new(&options),
            expected: BTreeMap::new(),
            queues: queues(setting),
            actions: Vec::new(),
        };
        control.begin(setting, paging);
        control
    }

    fn begin(&mut self, setting: &Setting, paging: &Paging) {
        let kind = setting.devices.first().map_or(0, |device| device.kind);
        for (model, queue) in self.queues.numbered() {
            let residence = paging.residence(model);
            let spec = VariantSpec {
                pages: residence.pages,
                shared: None,
                surface: None,
                load: residence.load,
                first_load: 0,
                queue: queue.clone(),
                kinds: vec![OnKind {
                    kind: KindIx::new(kind),
                    latency: None,
                    surface: None,
                    load: 0,
                    price: 1.0,
                    planned_rows: u32::MAX,
                }],
            };
            self.controller
                .on_variant(0, model, spec, &mut self.actions);
        }
        for device in setting.device_numbers() {
            let spec = DeviceSpec {
                kind: KindIx::new(kind),
                pages: paging.pages,
                slots: 1,
            };
            self.controller
                .on_device_up(0, device, spec, &mut self.actions);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Nanos> {
        self.controller.next_timer()
    }

    pub(super) fn on_timer(&mut self, now: Nanos) {
        self.controller.on_timer(now, &mut self.actions);
    }

    pub(super) fn on_request(&mut self, now: Nanos, model: VariantIx, request: Request<Token>) {
        self.controller
            .on_request(now, model, request, &mut self.actions);
    }

    /// A batch has left its device; `run` is its run, if it ran.
    pub(super) fn on_result(&mut self, now: Nanos, batch: BatchId, run: Option<Run>) {
        self.controller
            .on_result(now, batch, run, &mut self.actions);
    }

    /// A LOAD has ended, after `took` ns if it succeeded.
    pub(super) fn on_load_result(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        model: VariantIx,
        took: Option<Nanos>,
    ) {
        self.expected.remove(&(device, model));
        let loaded = took.map_or(LoadResult::Failed, LoadResult::After);
        self.controller
            .on_load_result(now, device, model, loaded, &mut self.actions);
    }

    pub(super) fn on_unloaded(&mut self, now: Nanos, device: DeviceIx, model: VariantIx) {
        self.controller
            .on_unloaded(now, device, model, &mut self.actions);
    }

    /// The expected time of a model's LOAD in progress, ns.
    pub(super) fn expected_load(&self, device: DeviceIx, model: VariantIx) -> Nanos {
        let known = self.expected.get(&(device, model));
        known.copied().unwrap_or(0)
    }
}

/// For each model: its queue, by the profile.
fn queues(setting: &Setting) -> IndexVec<VariantIx, QueueSpec> {
    let kind = setting.devices.first().map_or(0, |device| device.kind);
    let queue = |model: &sextant_simulator::Model| {
        let latency = model.latency.get(kind as usize).and_then(Option::as_ref)?;
        Some(model.queue(latency))
    };
    setting.models.iter().filter_map(queue).collect()
}

// === impl PagedWorld ===

impl PagedWorld<'_> {
    /// Carries out the decisions of the controller.
    pub(super) fn carry_out(&mut self, source: &mut dyn Source) {
        if self.control.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.control.actions);
        for action in actions.drain(..) {
            match action {
                Action::Infer {
                    device,
                    variant,
                    requests,
                    earliest,
                    latest,
                    expected,
                    id,
                } => {
                    let batch = Batch {
                        id,
                        rows: requests.iter().map(|request| request.rows).sum(),
                        requests,
                        expected,
                    };
                    self.infer(device, variant, batch, self.window(earliest, latest));
                }
                Action::Drop {
                    variant,
                    request,
                    reason,
                } => {
                    let Token {
                        arrived, client, ..
                    } = request.payload;
                    source.on_drop(self.now, variant.get(), client);
                    self.recorder
                        .missed(variant, arrived, Reason::Dropped(reason));
                }
                Action::Move(step) => self.order_move(step),
            }
        }
        self.control.actions = actions;
    }

    fn order_move(&mut self, step: placement::Action) {
        let (device, order) = match step {
            placement::Action::Load {
                device,
                variant: model,
                earliest,
                latest,
                expected,
            } => {
                self.control.expected.insert((device, model), expected);
                let residence = self.paging.residence(model);
                let order = Order::Load {
                    model,
                    pages: residence.pages,
                    window: self.window(earliest, latest),
                    profile: residence.load,
                };
                (device, order)
            }
            placement::Action::Unload {
                device,
                variant: model,
            } => (device, Order::Unload { model }),
        };
        let delay = self.network(|delay| delay.control);
        self.order(device, delay, order);
    }

    fn window(&self, earliest: Nanos, latest: Nanos) -> Window {
        Window {
            earliest,
            latest: match latest {
                NEVER => NEVER,
                _ => latest.saturating_add(self.paging.precision / 2),
            },
        }
    }

    fn infer(&mut self, device: DeviceIx, model: VariantIx, batch: Batch, window: Window) {
        let rows = batch.rows;
        let profile = self.control.queues[model].latency.of(rows);
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.batches.push(None);
            self.batches.len() as u32 - 1
        });
        self.batches[at as usize] = Some(batch);
        let order = Order::Infer {
            batch: at,
            model,
            window,
            profile,
        };
        let delay = self.network(|delay| delay.before_start(rows));
        self.order(device, delay, order);
    }
}
