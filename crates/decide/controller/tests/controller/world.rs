//! Made-up devices behind a [`Controller`] that check every action against the contract.

use std::collections::{BTreeMap, BTreeSet};

use sextant_controller::{
    Action, Actions, Controller, DeviceSpec, LoadResult, Options, Shape, Sharing,
};
use sextant_placement as placement;
use sextant_placement::{DesiredPlacement, Presence};
use sextant_profile::Estimation;
use sextant_schedule as schedule;
use sextant_schedule::{BatchId, NEVER, Nanos, Request};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

mod checks;
mod setting;

pub use setting::Setting;

/// Kinds of devices.
pub const KINDS: u32 = 6;

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    Arrive {
        variant: VariantIx,
        rows: u32,
        slack: Option<Nanos>,
    },
    Pass {
        nanos: Nanos,
    },
    Finish {
        which: usize,
    },
    EndLoad {
        which: usize,
        ok: bool,
    },
    Confirm {
        which: usize,
    },
    /// A device says that a variant is gone that nobody unloaded.
    Lose {
        device: DeviceIx,
        variant: VariantIx,
    },
    /// A device has not the variant of a batch that was sent to it: what it has of the variant comes back and is
    /// handed in again.
    Miss {
        which: usize,
    },
    /// A device says that it has a variant that nobody loaded.
    Find {
        device: DeviceIx,
        variant: VariantIx,
    },
    Respecify {
        variant: VariantIx,
    },
    Ring,
    Up {
        device: DeviceIx,
    },
    Down {
        device: DeviceIx,
    },
    /// A device is of another kind from now on, which runs everything alike.
    Kind {
        device: DeviceIx,
        kind: KindIx,
    },
    /// What is to be kept loaded, and for how long what is not.
    Want {
        list: Vec<(VariantIx, DesiredPlacement)>,
        idle_unload: Nanos,
    },
    Retire {
        variant: VariantIx,
    },
    /// Something else slows a variant down on a device, which it may leave where any other has it.
    Withdraw {
        variant: VariantIx,
        from: DeviceIx,
    },
    /// Something else slows a variant down on a device: it may move to any other.
    Relocate {
        variant: VariantIx,
        from: DeviceIx,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Residency {
    Loading { from: Nanos, until: Nanos },
    Loaded,
    Leaving,
}

#[derive(Debug, Clone)]
struct RunningBatch {
    device: DeviceIx,
    variant: VariantIx,
    end: Nanos,
    requests: Vec<Request<u64>>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Served { at: Nanos, late: bool },
    Dropped(schedule::DropReason),
}

pub struct World {
    setting: Setting,
    pub controller: Controller<u64>,
    pub now: Nanos,
    sent: u64,
    /// By number of the request.
    shapes: BTreeMap<u64, Shape>,
    pub answers: BTreeMap<u64, Answer>,
    /// Devices that are up, and their kinds.
    up: BTreeMap<DeviceIx, KindIx>,
    there: BTreeMap<(DeviceIx, VariantIx), Residency>,
    running: BTreeMap<BatchId, RunningBatch>,
    /// The sizes in each batch, in order.
    pub sizes: Vec<Vec<u64>>,
    pub loads: u64,
    pub unloads: u64,
}

// === impl World ===

impl World {
    /// All devices up, nothing loaded.
    pub fn new(setting: Setting) -> Self {
        let mut world = Self {
            controller: Controller::new(&Options {
                scheduling: setting.scheduling.clone(),
                placing: setting.placing.clone(),
                estimation: Estimation::Profile,
            }),
            setting,
            now: 0,
            sent: 0,
            shapes: BTreeMap::new(),
            answers: BTreeMap::new(),
            up: BTreeMap::new(),
            there: BTreeMap::new(),
            running: BTreeMap::new(),
            sizes: Vec::new(),
            loads: 0,
            unloads: 0,
        };
        (0..world.setting.variants.len() as u32).for_each(|at| world.specify(VariantIx::new(at)));
        (0..world.setting.devices.len() as u32).for_each(|at| world.up(DeviceIx::new(at)));
        world
    }

    pub fn play(&mut self, step: &Step) {
        match *step {
            Step::Want {
                ref list,
                idle_unload,
            } => self.want(list, idle_unload),
            Step::Retire { variant } => {
                self.act(|c, now, actions| {
                    c.on_retired(now, variant, actions);
                });
            }
            Step::Relocate { variant, from } => {
                let others: Vec<DeviceIx> =
                    self.up.keys().copied().filter(|at| *at != from).collect();
                self.act(|c, now, actions| {
                    c.on_relocate(now, (variant, from), &others, actions);
                });
            }
            Step::Withdraw { variant, from } => {
                let others: Vec<DeviceIx> =
                    self.up.keys().copied().filter(|at| *at != from).collect();
                self.act(|c, now, actions| {
                    c.on_withdraw(now, (variant, from), &others, actions);
                });
            }
            Step::Kind { device, kind } => self.change_kind(device, kind),
            Step::Arrive {
                variant,
                rows,
                slack,
            } => drop(self.arrive(variant, rows, slack)),
            Step::Pass { nanos } => self.pass(self.now + nanos),
            Step::Finish { which } if !self.setting.exact => {
                if let Some(id) = self.running.keys().nth(which).copied() {
                    self.finish(id);
                }
            }
            Step::EndLoad { which, ok } if !self.setting.exact => {
                let loading = self.loading();
                if let Some((place, _)) = loading.get(which) {
                    self.end_load(*place, ok);
                }
            }
            Step::Finish { .. } | Step::EndLoad { .. } => {}
            Step::Confirm { which } => {
                let mut leaving = self
                    .there
                    .iter()
                    .filter(|(_, of)| **of == Residency::Leaving);
                if let Some(place) = leaving.nth(which).map(|(place, _)| *place) {
                    self.confirm(place);
                }
            }
            Step::Lose { device, variant } => self.lose(device, variant),
            Step::Miss { which } => {
                let batch = self.running.values().nth(which);
                if let Some(place) = batch.map(|of| (of.device, of.variant)) {
                    self.give_back(place);
                }
            }
            Step::Find { device, variant } => self.find(device, variant),
            Step::Respecify { variant } => self.specify(variant),
            Step::Ring => self.act(|c, now, actions| c.on_timer(now, actions)),
            Step::Up { device } => self.up(device),
            Step::Down { device } => self.down(device),
        }
    }

    /// Hands a request in, in one of many shapes where its variant takes several; tells its number.
    pub fn arrive(&mut self, variant: VariantIx, rows: u32, slack: Option<Nanos>) -> u64 {
        let size = 10 + (self.sent * 37) % 400 / 3;
        let sharing = match variant.get() % 2 {
            0 => Sharing::Near,
            _ => Sharing::Equal(size),
        };
        self.arrive_shaped(variant, Shape { size, sharing }, rows, slack)
    }

    /// Hands a request of a shape in; tells its number.
    pub fn arrive_shaped(
        &mut self,
        variant: VariantIx,
        shape: Shape,
        rows: u32,
        slack: Option<Nanos>,
    ) -> u64 {
        let number = self.sent;
        self.sent += 1;
        self.shapes.insert(number, shape);
        let request = Request {
            payload: number,
            rows,
            deadline: slack.map_or(NEVER, |slack| self.now + slack),
        };
        self.act(|c, now, actions| c.on_shaped_request(now, (variant, shape), request, actions));
        number
    }

    /// Lets time pass: timers fire when they should, and exact devices end what is due.
    pub fn pass(&mut self, until: Nanos) {
        loop {
            let leaving = self.there.iter().find(|(_, of)| **of == Residency::Leaving);
            let leaving = leaving.map(|(place, _)| *place);
            if let Some(place) = leaving.filter(|_| self.setting.exact) {
                self.confirm(place);
                continue;
            }
            let ends = self.running.iter().map(|(id, running)| (running.end, *id));
            let end = ends.min().filter(|_| self.setting.exact);
            let load = self
                .loading()
                .into_iter()
                .map(|(place, until)| (until, place))
                .min();
            let load = load.filter(|_| self.setting.exact);
            let timer = self.controller.next_timer();
            let times = [end.map(|end| end.0), load.map(|load| load.0), timer];
            let Some(next) = times.into_iter().flatten().min() else {
                break;
            };
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            match (end, load) {
                (Some((at, id)), _) if at == next => self.finish(id),
                (_, Some((at, place))) if at == next => self.end_load(place, true),
                _ => self.fire(),
            }
        }
        self.now = self.now.max(until);
    }

    /// Lets everything end; tells how many requests were handed in.
    pub fn drain(&mut self) -> u64 {
        self.drain_within(NEVER)
    }

    /// Lets everything end, which takes so long at most where all devices do what they are told.
    pub fn drain_within(&mut self, most: Nanos) -> u64 {
        let down: Vec<DeviceIx> = (0..self.setting.devices.len() as u32)
            .map(DeviceIx::new)
            .filter(|device| !self.up.contains_key(device))
            .collect();
        down.into_iter().for_each(|device| self.up(device));
        // What is pinned may leave no room for what is waited for.
        self.want(&[], NEVER);
        let until = self.now.saturating_add(most);
        for _ in 0..1_000_000 {
            let leaving = self.there.iter().find(|(_, of)| **of == Residency::Leaving);
            if let Some(place) = leaving.map(|(place, _)| *place) {
                self.confirm(place);
            } else if let Some((id, running)) = self.running.iter().next() {
                let (id, end) = (*id, running.end);
                self.pass(end.max(self.now));
                if self.running.contains_key(&id) {
                    self.finish(id);
                }
            } else if let Some((place, until)) = self.loading().first().copied() {
                self.pass(until.max(self.now));
                if self.loading().iter().any(|(other, _)| *other == place) {
                    self.end_load(place, true);
                }
            } else if let Some(next) = self.controller.next_timer().filter(|next| *next <= until)
                && self.controller.waiting() > 0
            {
                self.pass(next.max(self.now));
            } else {
                break;
            }
        }
        assert_eq!(
            self.controller.waiting(),
            0,
            "requests wait for idle devices"
        );
        let demand = self.controller.placement().demand();
        for variant in (0..self.setting.variants.len() as u32).map(VariantIx::new) {
            assert_eq!(demand.of(variant), 0, "demand of nobody");
        }
        self.sent
    }

    pub fn served(&self) -> usize {
        let served = |answer: &&Answer| matches!(answer, Answer::Served { .. });
        self.answers.values().filter(served).count()
    }

    pub fn replicas(&self, variant: VariantIx) -> usize {
        self.loaded_on(variant).len()
    }

    pub fn loaded_on(&self, variant: VariantIx) -> Vec<DeviceIx> {
        let on = |device: &&DeviceIx| {
            let presence = self.controller.placement().presence(**device, variant);
            presence == Presence::Loaded
        };
        self.up.keys().filter(on).copied().collect()
    }

    pub fn want(&mut self, list: &[(VariantIx, DesiredPlacement)], idle_unload: Nanos) {
        self.act(|c, now, actions| c.on_desired(now, list, idle_unload, actions));
    }

    pub fn miss(&mut self, variant: VariantIx) {
        self.act(|c, now, actions| c.on_missed(now, variant, actions));
    }

    fn change_kind(&mut self, device: DeviceIx, kind: KindIx) {
        let slots = u32::from(self.setting.devices[device.get() as usize].1);
        let kind = KindIx::new(slots - 1 + 2 * kind.get());
        if let Some(known) = self.up.get_mut(&device) {
            *known = kind;
            self.act(|c, now, actions| c.on_device_kind(now, device, kind, actions));
        }
    }

    pub fn specify(&mut self, variant: VariantIx) {
        let spec = self.setting.variant(variant);
        self.act(|c, now, actions| c.on_variant(now, variant, spec, actions));
    }

    pub fn find(&mut self, device: DeviceIx, variant: VariantIx) {
        if !self.up.contains_key(&device) || self.there.contains_key(&(device, variant)) {
            return;
        }
        if self.free(device) >= self.needed(device, variant) {
            self.there.insert((device, variant), Residency::Loaded);
            self.act(|c, now, actions| {
                c.on_load_result(now, device, variant, LoadResult::Found, actions);
            });
        }
    }

    fn up(&mut self, device: DeviceIx) {
        let expected = self.forget(device);
        let (pages, slots) = self.setting.devices[device.get() as usize];
        let kind = KindIx::new(u32::from(slots) - 1);
        self.up.insert(device, kind);
        let spec = DeviceSpec { kind, pages, slots };
        let mut lost = vec![];
        self.act(|c, now, actions| lost = c.on_device_up(now, device, spec, actions));
        assert_eq!(lost, expected, "batches lost by a restart");
    }

    fn down(&mut self, device: DeviceIx) {
        let expected = self.forget(device);
        self.up.remove(&device);
        let mut lost = vec![];
        self.act(|c, now, actions| lost = c.on_device_down(now, device, actions));
        assert_eq!(lost, expected, "batches lost with a device");
    }

    fn forget(&mut self, device: DeviceIx) -> Vec<BatchId> {
        self.there.retain(|(on, _), _| *on != device);
        let lost = self.running.iter().filter(|(_, of)| of.device == device);
        let lost: Vec<BatchId> = lost.map(|(id, _)| *id).collect();
        self.running.retain(|_, of| of.device != device);
        lost
    }

    fn lose(&mut self, device: DeviceIx, variant: VariantIx) {
        let runs = self.running.values();
        let mut here = runs.filter(|of| (of.device, of.variant) == (device, variant));
        if here.next().is_none() && self.there.get(&(device, variant)) == Some(&Residency::Loaded) {
            self.confirm((device, variant));
        }
    }

    /// As the dispatcher tells it, batch by batch.
    fn give_back(&mut self, (device, variant): (DeviceIx, VariantIx)) {
        let here = self.running.iter();
        let here = here.filter(|(_, of)| (of.device, of.variant) == (device, variant));
        let here: Vec<BatchId> = here.map(|(id, _)| *id).collect();
        for id in here {
            let Some(of) = self.running.remove(&id) else {
                continue;
            };
            self.there.remove(&(device, variant));
            self.act(|c, now, actions| {
                c.on_unloaded(now, device, variant, actions);
                c.on_result(now, id, None, actions);
            });
            for request in of.requests {
                self.answers.remove(&request.payload);
                let shape = self.shapes[&request.payload];
                self.act(|c, now, actions| {
                    c.on_shaped_request(now, (variant, shape), request, actions);
                });
            }
        }
    }

    fn confirm(&mut self, (device, variant): (DeviceIx, VariantIx)) {
        self.there.remove(&(device, variant));
        self.act(|c, now, actions| c.on_unloaded(now, device, variant, actions));
    }

    fn loading(&self) -> Vec<((DeviceIx, VariantIx), Nanos)> {
        let loading = self.there.iter().filter_map(|(place, of)| match of {
            Residency::Loading { until, .. } => Some((*place, *until)),
            Residency::Loaded | Residency::Leaving => None,
        });
        loading.collect()
    }

    fn end_load(&mut self, (device, variant): (DeviceIx, VariantIx), ok: bool) {
        if ok {
            self.there.insert((device, variant), Residency::Loaded);
        } else {
            self.there.remove(&(device, variant));
        }
        let loaded = if ok {
            LoadResult::After(1)
        } else {
            LoadResult::Failed
        };
        self.act(|c, now, actions| c.on_load_result(now, device, variant, loaded, actions));
    }

    fn finish(&mut self, id: BatchId) {
        self.running.remove(&id);
        self.act(|c, now, actions| c.on_result(now, id, None, actions));
    }

    fn fire(&mut self) {
        for times in 0.. {
            assert!(times < 1_000, "a timer that is due for ever");
            self.act(|c, now, actions| c.on_timer(now, actions));
            if self
                .controller
                .next_timer()
                .is_none_or(|next| next > self.now)
            {
                return;
            }
        }
    }

    fn act(&mut self, event: impl FnOnce(&mut Controller<u64>, Nanos, &mut Actions<u64>)) {
        let mut actions = vec![];
        event(&mut self.controller, self.now, &mut actions);
        for action in actions {
            self.check(action);
        }
        for ((device, variant), of) in &self.there {
            let presence = self.controller.placement().presence(*device, *variant);
            let expected = match of {
                Residency::Loading { .. } => Presence::Loading,
                Residency::Loaded => Presence::Loaded,
                Residency::Leaving => Presence::Leaving,
            };
            assert_eq!(presence, expected, "variant {variant} on device {device}");
        }
        self.check_demand();
        self.check_pools();
        for device in self.up.keys() {
            let free = self.controller.placement().free_pages(*device);
            assert_eq!(free, self.free(*device), "free pages of device {device}");
        }
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        let before = self.answers.insert(number, answer);
        assert_eq!(before, None, "request {number} leaves twice: {answer:?}");
    }
}
