//! The subject of the measurement: the scheduler alone, or the whole controller as a fleet drives
//! it.

use std::hint::black_box;

use rand::{SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use sextant_baselines::Options;
use sextant_controller as controller;
use sextant_controller::{Controller, DeviceSpec, LoadResult, OnKind, VariantSpec};
use sextant_placement as placement;
use sextant_profile::{Estimation, Run};
use sextant_schedule as schedule;
use sextant_schedule::{BatchId, Nanos, PoolIx, Request, Scheduler, Schedulers};

use super::{SEED, Size, spec};
use sextant_types::index::{DeviceIx, KindIx, QueueIx, VariantIx};

/// The subject, and the variants that its devices hold. Devices have one slot each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The scheduler alone, with all devices in one pool.
    Pool,
    /// The controller. Up to 32 devices hold every variant. With more, eight devices each hold the
    /// same.
    Fleet,
    /// The controller. Each variant is on eight devices that were drawn for it, so that hardly any
    /// two hold the same.
    Spread,
}

/// The number of devices that hold the same variants, and of devices of each variant.
const ALIKE: u32 = 8;

/// What has been decided.
pub enum Order {
    Infer {
        rows: usize,
        earliest: Nanos,
        id: BatchId,
    },
    Drop,
}

/// What is driven; see the module.
pub enum Subject {
    Pool(Box<dyn Scheduler<u64>>, schedule::Actions<u64>),
    Fleet(Box<Controller<u64>>, controller::Actions<u64>),
}

impl Shape {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Fleet => "fleet",
            Self::Spread => "spread",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Pool, Self::Fleet, Self::Spread]
            .into_iter()
            .find(|shape| shape.name() == name)
    }
}

impl Subject {
    pub fn new(options: &Options, size: Size) -> Self {
        match size.shape {
            Shape::Pool => Self::pool(options, size),
            Shape::Fleet => Self::fleet(options, size, &alike(size)),
            Shape::Spread => Self::fleet(options, size, &spread(size)),
        }
    }

    fn pool(options: &Options, size: Size) -> Self {
        let mut scheduler = options.build();
        let mut actions = schedule::Actions::with_capacity(64);
        for queue in 0..size.queues {
            let spec = spec(size, queue);
            scheduler.on_loaded(0, PoolIx::new(0), QueueIx::new(queue), spec, &mut actions);
        }
        for device in 0..size.devices {
            let spec = schedule::DeviceSpec {
                pool: PoolIx::new(0),
                slots: 1,
            };
            scheduler.on_device_up(0, DeviceIx::new(device), spec, &mut actions);
        }
        Self::Pool(scheduler, actions)
    }

    /// `held` are the variants of each device.
    fn fleet(options: &Options, size: Size, held: &[Vec<u32>]) -> Self {
        let mut controller = Box::new(Controller::new(&controller::Options {
            scheduling: options.clone(),
            placing: placement::Options::default(),
            estimation: Estimation::default(),
        }));
        let mut actions = controller::Actions::with_capacity(64);
        for variant in 0..size.queues {
            let on = OnKind {
                kind: KindIx::new(0),
                latency: None,
                surface: None,
                load: 0,
                price: 1.0,
                planned_rows: u32::MAX,
            };
            let spec = VariantSpec {
                pages: 1,
                shared: None,
                surface: None,
                queue: spec(size, variant),
                load: 8_000_000,
                first_load: 0,
                kinds: vec![on],
            };
            controller.on_variant(0, VariantIx::new(variant), spec, &mut actions);
        }
        for (device, held) in (0..).map(DeviceIx::new).zip(held) {
            let spec = DeviceSpec {
                kind: KindIx::new(0),
                pages: u32::MAX,
                slots: 1,
            };
            controller.on_device_up(0, device, spec, &mut actions);
            for variant in held {
                controller.on_load_result(
                    0,
                    device,
                    VariantIx::new(*variant),
                    LoadResult::Found,
                    &mut actions,
                );
            }
        }
        Self::Fleet(controller, actions)
    }

    /// A request for the queue or the variant of this number.
    #[inline]
    pub fn request(&mut self, at: Nanos, number: u32, request: Request<u64>) {
        match self {
            Self::Pool(scheduler, actions) => {
                scheduler.on_request(at, QueueIx::new(number), request, actions);
            }
            Self::Fleet(controller, actions) => {
                controller.on_request(at, VariantIx::new(number), request, actions);
            }
        }
    }

    #[inline]
    pub fn result(&mut self, at: Nanos, batch: BatchId, run: Run) {
        match self {
            Self::Pool(scheduler, actions) => scheduler.on_result(at, batch, actions),
            Self::Fleet(controller, actions) => {
                controller.on_result(at, batch, Some(run), actions);
            }
        }
    }

    #[inline]
    pub fn timer(&mut self, at: Nanos) {
        match self {
            Self::Pool(scheduler, actions) => scheduler.on_timer(at, actions),
            Self::Fleet(controller, actions) => controller.on_timer(at, actions),
        }
    }

    #[inline]
    pub fn next_timer(&self) -> Option<Nanos> {
        match self {
            Self::Pool(scheduler, _) => scheduler.next_timer(),
            Self::Fleet(controller, _) => controller.next_timer(),
        }
    }

    /// Takes the changes, as callers that keep copies do.
    #[inline]
    pub fn take_news(&mut self, pools: &mut Vec<PoolIx>) {
        let mut news = 0;
        match self {
            Self::Pool(scheduler, _) => scheduler.take_news(PoolIx::new(0), &mut |_| news += 1),
            Self::Fleet(controller, _) => {
                controller.take_changed_pools(pools);
                for pool in pools.iter() {
                    black_box(controller.load(*pool));
                    controller.take_news(*pool, &mut |_| news += 1);
                }
            }
        }
        black_box(news);
    }

    /// Forgets the decisions, as a caller that has carried them out.
    #[inline]
    pub fn clear(&mut self) {
        match self {
            Self::Pool(_, actions) => actions.clear(),
            Self::Fleet(_, actions) => actions.clear(),
        }
    }

    /// Returns the decisions.
    pub fn take(&mut self) -> Vec<Order> {
        match self {
            Self::Pool(_, actions) => actions.drain(..).map(of_scheduler).collect(),
            Self::Fleet(_, actions) => actions.drain(..).filter_map(of_controller).collect(),
        }
    }
}

fn of_scheduler(action: schedule::Action<u64>) -> Order {
    match action {
        schedule::Action::Infer {
            requests,
            earliest,
            id,
            ..
        } => Order::Infer {
            rows: requests.len(),
            earliest,
            id,
        },
        schedule::Action::Drop { .. } => Order::Drop,
    }
}

fn of_controller(action: controller::Action<u64>) -> Option<Order> {
    match action {
        controller::Action::Infer {
            requests,
            earliest,
            id,
            ..
        } => Some(Order::Infer {
            rows: requests.len(),
            earliest,
            id,
        }),
        controller::Action::Drop { .. } => Some(Order::Drop),
        // Additional replicas are not answered, so that the shape stays.
        controller::Action::Move(_) => None,
    }
}

/// The variants of each device if eight devices each hold the same, or all variants if there are
/// few devices.
fn alike(size: Size) -> Vec<Vec<u32>> {
    let groups = match size.devices {
        0..=32 => 1,
        devices => devices / ALIKE,
    };
    let of_group = |group: u32| (0..size.queues).filter(move |queue| queue % groups == group);
    let device = |device: u32| of_group(device % groups).collect();
    (0..size.devices).map(device).collect()
}

/// The same if each variant is on devices that were drawn for it.
fn spread(size: Size) -> Vec<Vec<u32>> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut held = vec![Vec::new(); size.devices as usize];
    for queue in 0..size.queues {
        let count = ALIKE.min(size.devices) as usize;
        for device in index::sample(&mut random, size.devices as usize, count) {
            held[device].push(queue);
        }
    }
    held
}
