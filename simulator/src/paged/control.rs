//! The controller of a run: the policies, and the estimates that they work with.

use std::collections::BTreeMap;

use sextant_policies::{
    placement::{Resident, ResidentAction, ResidentActions, ResidentDevice, ResidentModel},
    profile::{Estimates, Estimation, Rolling10, RollingKey, Run},
    schedule::{BatchId, LatencyTable, NEVER, Nanos, QueueSpec, Request},
};

use super::{
    Batch, PagedWorld, Paging, Reason, Token,
    worker::{Order, Window},
};
use crate::{Setting, Source};

#[derive(Debug)]
pub(super) struct Control {
    resident: Resident<Token>,
    estimates: Estimates,
    /// Load times, where they are estimated.
    loads: Option<Rolling10>,
    /// By device and model: what a LOAD under way is expected to take.
    expected: BTreeMap<(u32, u32), Nanos>,
    /// By model and kind of device.
    queues: Vec<QueueSpec>,
    pub(super) actions: ResidentActions<Token>,
}

impl Control {
    pub(super) fn new(setting: &Setting, paging: &Paging) -> Self {
        let mut scheduling = setting.options.clone();
        scheduling.delay.response += paging.precision;
        let mut control = Self {
            resident: Resident::of(&scheduling, &paging.placement),
            estimates: Estimates::new(paging.estimation),
            loads: (paging.estimation != Estimation::Profile).then(Rolling10::default),
            expected: BTreeMap::new(),
            queues: queues(setting),
            actions: Vec::new(),
        };
        control.begin(setting, paging);
        control
    }

    fn begin(&mut self, setting: &Setting, paging: &Paging) {
        for (model, queue) in (0..).zip(&self.queues) {
            let residence = paging.residences[model as usize];
            let spec = ResidentModel {
                pages: residence.pages,
                shared: None,
                load: residence.load,
                pinned: false,
                queue: queue.clone(),
            };
            self.resident.on_model(0, model, spec, &mut self.actions);
        }
        for device in 0..setting.devices.len() as u32 {
            let spec = ResidentDevice {
                pages: paging.pages,
                slots: 1,
            };
            self.resident
                .on_device_up(0, device, spec, &mut self.actions);
        }
    }

    pub(super) fn next_timer(&self) -> Option<Nanos> {
        self.resident.next_timer()
    }

    pub(super) fn on_timer(&mut self, now: Nanos) {
        self.resident.on_timer(now, &mut self.actions);
    }

    pub(super) fn on_request(&mut self, now: Nanos, model: u32, request: Request<Token>) {
        self.resident
            .on_request(now, model, request, &mut self.actions);
    }

    pub(super) fn on_result(&mut self, now: Nanos, batch: BatchId) {
        self.resident.on_result(now, batch, &mut self.actions);
    }

    /// A batch of `rows` rows ran for `nanos` ns.
    pub(super) fn on_measured(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        rows: u32,
        nanos: Nanos,
    ) {
        let run = Run {
            rows,
            nanos,
            mhz: None,
        };
        let spec = &self.queues[model as usize];
        if self.estimates.table(device, model).is_none() {
            self.estimates.seed(now, device, model, &spec.latency);
        }
        if let Some(latency) = self.estimates.observe(now, device, model, run) {
            let queue = QueueSpec {
                latency,
                ..spec.clone()
            };
            self.resident
                .on_queue(now, device, model, queue, &mut self.actions);
        }
    }

    /// A LOAD has ended, after `took` ns if it succeeded.
    pub(super) fn on_load_result(
        &mut self,
        now: Nanos,
        device: u32,
        model: u32,
        took: Option<Nanos>,
    ) {
        self.expected.remove(&(device, model));
        if let (Some(loads), Some(nanos)) = (&mut self.loads, took) {
            let key = RollingKey {
                variant: model,
                rows: 0,
                device,
            };
            loads.observe(key, nanos);
            if let Some(load) = loads.estimate(key) {
                self.resident.on_load_estimate(now, device, model, load);
            }
        }
        let ok = took.is_some();
        self.resident
            .on_load_result(now, device, model, ok, &mut self.actions);
    }

    pub(super) fn on_unloaded(&mut self, now: Nanos, device: u32, model: u32) {
        self.resident
            .on_unloaded(now, device, model, &mut self.actions);
    }

    /// What the LOAD of a model that is under way is expected to take, ns.
    pub(super) fn expected_load(&self, device: u32, model: u32) -> Nanos {
        let known = self.expected.get(&(device, model));
        known.copied().unwrap_or(0)
    }
}

/// By model: its queue by the profile.
fn queues(setting: &Setting) -> Vec<QueueSpec> {
    let kind = setting.devices.first().map_or(0, |device| device.kind);
    let queue = |model: &crate::Model| {
        let latency = model.latency.get(kind as usize).and_then(Option::as_ref)?;
        Some(QueueSpec {
            max_rows: latency.measured_rows(),
            batched: true,
            slots: 1,
            latency: LatencyTable::clone(latency),
            max_waiting_rows: u32::MAX,
            priority: model.priority,
            weight: model.weight,
        })
    };
    setting.models.iter().filter_map(queue).collect()
}

// === impl PagedWorld ===

impl PagedWorld<'_> {
    /// Carries out what the controller has decided.
    pub(super) fn carry_out(&mut self, source: &mut dyn Source) {
        if self.control.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.control.actions);
        for action in actions.drain(..) {
            match action {
                ResidentAction::Infer {
                    device,
                    model,
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
                    self.infer(device, model, batch, self.window(earliest, latest));
                }
                ResidentAction::Drop {
                    model,
                    request,
                    reason,
                } => {
                    let Token {
                        arrived, client, ..
                    } = request.payload;
                    source.on_answer(self.now, model, client);
                    self.recorder
                        .missed(model, arrived, Reason::Dropped(reason));
                }
                ResidentAction::Load {
                    device,
                    model,
                    earliest,
                    latest,
                    expected,
                } => {
                    self.control.expected.insert((device, model), expected);
                    let residence = self.paging.residences[model as usize];
                    let order = Order::Load {
                        model,
                        pages: residence.pages,
                        window: self.window(earliest, latest),
                        profile: residence.load,
                    };
                    let delay = self.network(|delay| delay.control);
                    self.order(device, delay, order);
                }
                ResidentAction::Unload { device, model } => {
                    let delay = self.network(|delay| delay.control);
                    self.order(device, delay, Order::Unload { model });
                }
            }
        }
        self.control.actions = actions;
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

    fn infer(&mut self, device: u32, model: u32, batch: Batch, window: Window) {
        let rows = batch.rows;
        let profile = self.control.queues[model as usize].latency.of(rows);
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
