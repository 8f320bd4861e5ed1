//! Made-up devices behind a [`Controller`] that check every action against the contract.

use std::collections::{BTreeMap, BTreeSet};

use sextant_controller::{
    Action, Actions, Controller, DeviceSpec, Loaded, ModelSpec, OnKind, Options, Shape, Sharing,
};
use sextant_placement as placement;
use sextant_placement::{Presence, Shared, Wanted};
use sextant_profile::{Estimation, Surface};
use sextant_schedule as schedule;
use sextant_schedule::{BatchId, LatencyTable, NEVER, Nanos, QueueSpec, Request};

mod checks;

/// What a history is played on.
#[derive(Debug, Clone)]
pub struct Setting {
    pub scheduling: schedule::Options,
    pub placing: placement::Options,
    /// By device: pages and slots.
    pub devices: Vec<(u32, u16)>,
    /// By model: pages, time of a LOAD, run time of one row, and of each further one.
    pub models: Vec<(u32, Nanos, Nanos, Nanos)>,
    /// By model: what it holds together with the others of its group; nothing beyond the list.
    pub shared: Vec<Option<Shared>>,
    pub max_rows: u32,
    /// Models whose queries come in several sizes: run times are those of a query of size 100 and grow
    /// with the size.
    pub shaped: Vec<u32>,
    /// Whether LOADs and batches take exactly as long as expected and all succeed.
    pub exact: bool,
}

/// Kinds of devices.
pub const KINDS: u32 = 6;

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    Arrive {
        model: u32,
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
    /// A device says that a model is gone that nobody unloaded.
    Lose {
        device: u32,
        model: u32,
    },
    /// A device says that it has a model that nobody loaded.
    Find {
        device: u32,
        model: u32,
    },
    Respecify {
        model: u32,
    },
    Ring,
    Up {
        device: u32,
    },
    Down {
        device: u32,
    },
    /// A device is of another kind from now on, which runs everything alike.
    Kind {
        device: u32,
        kind: u32,
    },
    /// What is to be kept loaded, and for how long what is not.
    Want {
        list: Vec<(u32, Wanted)>,
        idle_unload: Nanos,
    },
    Retire {
        model: u32,
    },
    /// Something else slows a model down on a device: it may move to any other.
    Relocate {
        model: u32,
        from: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum There {
    Loading { from: Nanos, until: Nanos },
    Loaded,
    Leaving,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    device: u32,
    model: u32,
    end: Nanos,
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
    up: BTreeMap<u32, u32>,
    there: BTreeMap<(u32, u32), There>,
    running: BTreeMap<BatchId, Running>,
    /// The sizes in each batch, in order.
    pub sizes: Vec<Vec<u64>>,
    pub loads: u64,
    pub unloads: u64,
}

// === impl Setting ===

impl Setting {
    fn shared(&self, model: u32) -> Option<Shared> {
        self.shared.get(model as usize).copied().flatten()
    }

    fn surface(&self, model: u32) -> Option<Surface> {
        let (_, _, first, more) = self.models[model as usize];
        let table = |size: u64| {
            let rows = 0..u64::from(self.max_rows);
            let nanos = rows.map(|row| (first + row * more) * size / 100);
            (size, LatencyTable::new(nanos.collect()).unwrap())
        };
        let tables = [50, 100, 200, 400].map(table).to_vec();
        let surface = Surface::new(tables, self.max_rows);
        surface.filter(|_| self.shaped.contains(&model))
    }

    fn model(&self, model: u32) -> ModelSpec {
        let (pages, load, first, more) = self.models[model as usize];
        let rows = 0..u64::from(self.max_rows);
        let latency = LatencyTable::new(rows.map(|row| first + row * more).collect()).unwrap();
        ModelSpec {
            pages,
            shared: self.shared(model),
            surface: self.surface(model),
            load,
            kinds: (0..KINDS)
                .map(|kind| OnKind {
                    kind,
                    latency: None,
                    surface: None,
                    load: 0,
                    price: 1.0,
                })
                .collect(),
            queue: QueueSpec {
                max_rows: self.max_rows,
                batched: true,
                slots: 1,
                latency,
                max_waiting_rows: 500,
                tenant: 0,
                priority: 100,
                weight: 1.0,
                price: 1.0,
            },
        }
    }
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
        (0..world.setting.models.len() as u32).for_each(|model| world.specify(model));
        (0..world.setting.devices.len() as u32).for_each(|device| world.up(device));
        world
    }

    pub fn play(&mut self, step: &Step) {
        match *step {
            Step::Want {
                ref list,
                idle_unload,
            } => self.want(list, idle_unload),
            Step::Retire { model } => {
                self.act(|c, now, actions| c.on_retired(now, model, actions));
            }
            Step::Relocate { model, from } => {
                let others: Vec<u32> = self.up.keys().copied().filter(|at| *at != from).collect();
                self.act(|c, now, actions| c.on_relocate(now, (model, from), &others, actions));
            }
            Step::Kind { device, kind } => self.change_kind(device, kind),
            Step::Arrive { model, rows, slack } => drop(self.arrive(model, rows, slack)),
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
                let mut leaving = self.there.iter().filter(|(_, of)| **of == There::Leaving);
                if let Some(place) = leaving.nth(which).map(|(place, _)| *place) {
                    self.confirm(place);
                }
            }
            Step::Lose { device, model } => self.lose(device, model),
            Step::Find { device, model } => self.find(device, model),
            Step::Respecify { model } => self.specify(model),
            Step::Ring => self.act(|c, now, actions| c.on_timer(now, actions)),
            Step::Up { device } => self.up(device),
            Step::Down { device } => self.down(device),
        }
    }

    /// Hands a request in, in one of many shapes where its model takes several; tells its number.
    pub fn arrive(&mut self, model: u32, rows: u32, slack: Option<Nanos>) -> u64 {
        let size = 10 + (self.sent * 37) % 400 / 3;
        let sharing = match model % 2 {
            0 => Sharing::Near,
            _ => Sharing::Equal(size),
        };
        self.arrive_shaped(model, Shape { size, sharing }, rows, slack)
    }

    /// Hands a request of a shape in; tells its number.
    pub fn arrive_shaped(
        &mut self,
        model: u32,
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
        self.act(|c, now, actions| c.on_shaped_request(now, (model, shape), request, actions));
        number
    }

    /// Lets time pass: timers fire when they should, and exact devices end what is due.
    pub fn pass(&mut self, until: Nanos) {
        loop {
            let leaving = self.there.iter().find(|(_, of)| **of == There::Leaving);
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
        let down: Vec<u32> = (0..self.setting.devices.len() as u32)
            .filter(|device| !self.up.contains_key(device))
            .collect();
        down.into_iter().for_each(|device| self.up(device));
        // What is pinned may leave no room for what is waited for.
        self.want(&[], NEVER);
        for _ in 0..1_000_000 {
            let leaving = self.there.iter().find(|(_, of)| **of == There::Leaving);
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
            } else if let Some(next) = self.controller.next_timer()
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
        for model in 0..self.setting.models.len() as u32 {
            assert_eq!(demand.of(model), 0, "demand of nobody");
        }
        self.sent
    }

    pub fn served(&self) -> usize {
        let served = |answer: &&Answer| matches!(answer, Answer::Served { .. });
        self.answers.values().filter(served).count()
    }

    pub fn replicas(&self, model: u32) -> usize {
        self.loaded_on(model).len()
    }

    pub fn loaded_on(&self, model: u32) -> Vec<u32> {
        let on = |device: &&u32| {
            let presence = self.controller.placement().presence(**device, model);
            presence == Presence::Loaded
        };
        self.up.keys().filter(on).copied().collect()
    }

    pub fn want(&mut self, list: &[(u32, Wanted)], idle_unload: Nanos) {
        self.act(|c, now, actions| c.on_wanted(now, list, idle_unload, actions));
    }

    pub fn miss(&mut self, model: u32) {
        self.act(|c, now, actions| c.on_missed(now, model, actions));
    }

    fn change_kind(&mut self, device: u32, kind: u32) {
        let slots = u32::from(self.setting.devices[device as usize].1);
        let kind = slots - 1 + 2 * kind;
        if let Some(known) = self.up.get_mut(&device) {
            *known = kind;
            self.act(|c, now, actions| c.on_device_kind(now, device, kind, actions));
        }
    }

    pub fn specify(&mut self, model: u32) {
        let spec = self.setting.model(model);
        self.act(|c, now, actions| c.on_model(now, model, spec, actions));
    }

    pub fn find(&mut self, device: u32, model: u32) {
        if !self.up.contains_key(&device) || self.there.contains_key(&(device, model)) {
            return;
        }
        if self.free(device) >= self.needed(device, model) {
            self.there.insert((device, model), There::Loaded);
            self.act(|c, now, actions| {
                c.on_load_result(now, device, model, Loaded::Found, actions);
            });
        }
    }

    fn up(&mut self, device: u32) {
        let expected = self.forget(device);
        let (pages, slots) = self.setting.devices[device as usize];
        let kind = u32::from(slots) - 1;
        self.up.insert(device, kind);
        let spec = DeviceSpec { kind, pages, slots };
        let mut lost = vec![];
        self.act(|c, now, actions| lost = c.on_device_up(now, device, spec, actions));
        assert_eq!(lost, expected, "batches lost by a restart");
    }

    fn down(&mut self, device: u32) {
        let expected = self.forget(device);
        self.up.remove(&device);
        let mut lost = vec![];
        self.act(|c, now, actions| lost = c.on_device_down(now, device, actions));
        assert_eq!(lost, expected, "batches lost with a device");
    }

    fn forget(&mut self, device: u32) -> Vec<BatchId> {
        self.there.retain(|(on, _), _| *on != device);
        let lost = self.running.iter().filter(|(_, of)| of.device == device);
        let lost: Vec<BatchId> = lost.map(|(id, _)| *id).collect();
        self.running.retain(|_, of| of.device != device);
        lost
    }

    fn lose(&mut self, device: u32, model: u32) {
        let runs = self.running.values();
        let mut here = runs.filter(|of| (of.device, of.model) == (device, model));
        if here.next().is_none() && self.there.get(&(device, model)) == Some(&There::Loaded) {
            self.confirm((device, model));
        }
    }

    fn confirm(&mut self, (device, model): (u32, u32)) {
        self.there.remove(&(device, model));
        self.act(|c, now, actions| c.on_unloaded(now, device, model, actions));
    }

    fn loading(&self) -> Vec<((u32, u32), Nanos)> {
        let loading = self.there.iter().filter_map(|(place, of)| match of {
            There::Loading { until, .. } => Some((*place, *until)),
            There::Loaded | There::Leaving => None,
        });
        loading.collect()
    }

    fn end_load(&mut self, (device, model): (u32, u32), ok: bool) {
        if ok {
            self.there.insert((device, model), There::Loaded);
        } else {
            self.there.remove(&(device, model));
        }
        let loaded = if ok { Loaded::After(1) } else { Loaded::Failed };
        self.act(|c, now, actions| c.on_load_result(now, device, model, loaded, actions));
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

    fn free(&self, device: u32) -> u32 {
        let on = |place: &&(u32, u32), of: &There| place.0 == device && *of != There::Leaving;
        let here = self.there.iter().filter(|(place, of)| on(place, of));
        let (mut taken, mut groups) = (0, BTreeMap::new());
        for ((_, model), _) in here {
            taken += self.setting.models[*model as usize].0;
            if let Some(shared) = self.setting.shared(*model) {
                groups.insert(shared.group, shared.pages);
            }
        }
        self.setting.devices[device as usize].0 - taken - groups.values().sum::<u32>()
    }

    /// Pages that a LOAD takes, with what its group does not hold already.
    fn needed(&self, device: u32, model: u32) -> u32 {
        let own = self.setting.models[model as usize].0;
        let Some(shared) = self.setting.shared(model) else {
            return own;
        };
        let held = self.there.iter().any(|((on, other), of)| {
            let group = self.setting.shared(*other).map(|shared| shared.group);
            *on == device && *of != There::Leaving && group == Some(shared.group)
        });
        own + if held { 0 } else { shared.pages }
    }

    fn act(&mut self, event: impl FnOnce(&mut Controller<u64>, Nanos, &mut Actions<u64>)) {
        let mut actions = vec![];
        event(&mut self.controller, self.now, &mut actions);
        for action in actions {
            self.check(action);
        }
        for ((device, model), of) in &self.there {
            let presence = self.controller.placement().presence(*device, *model);
            let expected = match of {
                There::Loading { .. } => Presence::Loading,
                There::Loaded => Presence::Loaded,
                There::Leaving => Presence::Leaving,
            };
            assert_eq!(presence, expected, "model {model} on device {device}");
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
