//! The part of a world that decides: the controller, as in a fleet, or for comparison only its
//! scheduler.

use sextant_controller as controller;
use sextant_controller::{Controller, DeviceSpec, LoadResult, OnKind, VariantSpec};
use sextant_placement as placement;
use sextant_profile::Estimation;
use sextant_schedule as schedule;
use sextant_schedule::{
    BatchId, DropReason, LatencyTable, Nanos, PoolIx, QueueSpec, Request, Scheduler, Schedulers,
};

use super::{Setting, Shape, Token};
use sextant_types::index::{DeviceIx, KindIx, QueueIx, VariantIx};

/// An action that must be carried out.
#[derive(Debug)]
pub(super) enum Order {
    Infer {
        model: VariantIx,
        device: DeviceIx,
        requests: Vec<Request<Token>>,
        window: (Nanos, Nanos),
        id: BatchId,
    },
    Drop {
        request: Request<Token>,
        reason: DropReason,
    },
}

/// The part that decides; see the module.
#[derive(Debug)]
pub(super) enum Control {
    /// Devices come up one by one, have every model loaded that they can run, and form pools
    /// accordingly.
    Fleet {
        controller: Box<Controller<Token>>,
        actions: controller::Actions<Token>,
    },
    /// All devices of a kind are one pool from the start.
    Pool {
        scheduler: Box<dyn Scheduler<Token>>,
        actions: schedule::Actions<Token>,
    },
}

impl Control {
    pub fn new<S: Schedulers>(setting: &Setting<S>) -> Self {
        match setting.shape {
            Shape::Fleet => Self::fleet(setting),
            Shape::Pool => Self::pool(setting),
        }
    }

    fn fleet<S: Schedulers>(setting: &Setting<S>) -> Self {
        let options = controller::Options {
            scheduling: setting.options.clone(),
            placing: placement::Options::default(),
            estimation: Estimation::Profile,
        };
        let mut controller = Box::new(Controller::new(&options));
        let mut actions = controller::Actions::new();
        for (at, model) in (0..).zip(&setting.models) {
            let kinds = (0..).zip(&model.latency).filter_map(|(kind, latency)| {
                let latency = LatencyTable::clone(latency.as_ref()?);
                Some(OnKind {
                    kind: KindIx::new(kind),
                    latency: Some(latency),
                    surface: None,
                    load: 0,
                    price: setting.price(kind) as f32,
                    planned_rows: u32::MAX,
                })
            });
            let kinds: Vec<OnKind> = kinds.collect();
            let Some(first) = kinds.first().and_then(|on| on.latency.as_ref()) else {
                continue;
            };
            let spec = VariantSpec {
                pages: 1,
                shared: None,
                surface: None,
                queue: model.queue(first),
                load: 1,
                first_load: 0,
                kinds,
            };
            controller.on_variant(0, VariantIx::new(at), spec, &mut actions);
        }
        Self::Fleet {
            controller,
            actions,
        }
    }

    fn pool<S: Schedulers>(setting: &Setting<S>) -> Self {
        let mut scheduler = setting.options.build();
        let mut actions = schedule::Actions::new();
        let kinds = setting.devices.iter().map(|device| device.kind);
        let kinds: std::collections::BTreeSet<u32> = kinds.collect();
        for kind in kinds {
            for (at, model) in (0..).zip(&setting.models) {
                if let Some(Some(latency)) = model.latency.get(kind as usize) {
                    let queue = QueueSpec {
                        price: setting.price(kind) as f32,
                        ..model.queue(latency)
                    };
                    scheduler.on_loaded(
                        0,
                        PoolIx::new(kind),
                        QueueIx::new(at),
                        queue,
                        &mut actions,
                    );
                }
            }
        }
        Self::Pool { scheduler, actions }
    }

    /// A device is up, with every model that it can run loaded.
    pub fn device_up<S>(&mut self, now: Nanos, device: DeviceIx, setting: &Setting<S>) {
        let kind = setting.device(device).kind;
        match self {
            Self::Fleet {
                controller,
                actions,
            } => {
                let spec = DeviceSpec {
                    kind: KindIx::new(kind),
                    pages: u32::MAX,
                    slots: 1,
                };
                controller.on_device_up(now, device, spec, actions);
                for (at, model) in (0..).zip(&setting.models) {
                    if let Some(Some(_)) = model.latency.get(kind as usize) {
                        controller.on_load_result(
                            now,
                            device,
                            VariantIx::new(at),
                            LoadResult::Found,
                            actions,
                        );
                    }
                }
                // What the waiting requests asked for is already there.
                actions.retain(|action| !matches!(action, controller::Action::Move(_)));
            }
            Self::Pool { scheduler, actions } => {
                let (pool, slots) = (PoolIx::new(kind), 1);
                scheduler.on_device_up(now, device, schedule::DeviceSpec { pool, slots }, actions);
            }
        }
    }

    /// A device is gone. Returns the batches that were under way on it.
    pub fn device_down(&mut self, now: Nanos, device: DeviceIx) -> Vec<BatchId> {
        match self {
            Self::Fleet {
                controller,
                actions,
            } => controller.on_device_down(now, device, actions),
            Self::Pool { scheduler, actions } => scheduler.on_device_down(now, device, actions),
        }
    }

    pub fn on_request(&mut self, now: Nanos, model: VariantIx, request: Request<Token>) {
        match self {
            Self::Fleet {
                controller,
                actions,
            } => controller.on_request(now, model, request, actions),
            Self::Pool { scheduler, actions } => {
                scheduler.on_request(now, QueueIx::new(model.get()), request, actions);
            }
        }
    }

    pub fn on_result(&mut self, now: Nanos, batch: BatchId) {
        match self {
            Self::Fleet {
                controller,
                actions,
            } => controller.on_result(now, batch, None, actions),
            Self::Pool { scheduler, actions } => scheduler.on_result(now, batch, actions),
        }
    }

    pub fn on_timer(&mut self, now: Nanos) {
        match self {
            Self::Fleet {
                controller,
                actions,
            } => controller.on_timer(now, actions),
            Self::Pool { scheduler, actions } => scheduler.on_timer(now, actions),
        }
    }

    pub fn next_timer(&self) -> Option<Nanos> {
        match self {
            Self::Fleet { controller, .. } => controller.next_timer(),
            Self::Pool { scheduler, .. } => scheduler.next_timer(),
        }
    }

    /// Appends the decisions since the last call to `orders`, in order.
    pub fn take_orders(&mut self, orders: &mut Vec<Order>) {
        match self {
            Self::Fleet { actions, .. } => {
                orders.extend(actions.drain(..).filter_map(Order::of_controller));
            }
            Self::Pool { actions, .. } => {
                orders.extend(actions.drain(..).map(Order::of_scheduler));
            }
        }
    }
}

impl Order {
    fn of_controller(action: controller::Action<Token>) -> Option<Self> {
        match action {
            controller::Action::Infer {
                device,
                variant,
                requests,
                earliest,
                latest,
                id,
                ..
            } => Some(Self::Infer {
                model: variant,
                device,
                requests,
                window: (earliest, latest),
                id,
            }),
            controller::Action::Drop {
                request, reason, ..
            } => Some(Self::Drop { request, reason }),
            // Every model is loaded wherever it can run, and there is room for all.
            controller::Action::Move(_) => None,
        }
    }

    fn of_scheduler(action: schedule::Action<Token>) -> Self {
        match action {
            schedule::Action::Infer {
                queue,
                device,
                requests,
                earliest,
                latest,
                id,
                ..
            } => Self::Infer {
                model: VariantIx::new(queue.get()),
                device,
                requests,
                window: (earliest, latest),
                id,
            },
            schedule::Action::Drop { request, reason } => Self::Drop { request, reason },
        }
    }
}
