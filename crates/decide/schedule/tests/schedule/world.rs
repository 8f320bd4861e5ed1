//! A scheduler with made-up devices that check every action against the contract.

use std::collections::{BTreeMap, BTreeSet};

use sextant_baselines::{Options, Policy};
use sextant_schedule::{
    Action, Actions, BatchId, Delay, DeviceSpec, LatencyTable, NEVER, Nanos, PoolIx, QueueSpec,
    Request, Scheduler, Schedulers,
};
use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

/// By device: its first pool, and its slots.
pub const DEVICES: [(u32, u16); 4] = [(0, 3), (0, 1), (1, 2), (2, 1)];
/// By pool: how many times slower than the first it is.
pub const SLOWNESS: [u64; 3] = [1, 2, 5];
/// Queues.
pub const QUEUES: u32 = 5;

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    Arrive {
        queue: QueueIx,
        rows: u32,
        slack: Option<Nanos>,
    },
    /// Time passes; timers fire exactly when they should.
    Pass {
        nanos: Nanos,
    },
    /// A batch ends, early or late. Only where devices are not exact.
    Finish {
        which: usize,
    },
    /// The result of a batch that ended long ago comes again.
    Zombie {
        which: usize,
    },
    /// The timer rings although it need not.
    Ring,
    Load {
        pool: PoolIx,
        queue: QueueIx,
    },
    Unload {
        pool: PoolIx,
        queue: QueueIx,
    },
    Up {
        device: DeviceIx,
    },
    Down {
        device: DeviceIx,
    },
    /// What is loaded on a device has changed.
    Move {
        device: DeviceIx,
        pool: PoolIx,
    },
}

/// What a history is played on.
#[derive(Debug, Clone)]
pub struct Setting {
    pub policy: Policy,
    pub hold: f64,
    pub beta_lambda: bool,
    pub delay: Delay,
    /// Whether batches take exactly as long as the profile says.
    pub exact: bool,
}

#[derive(Debug, Clone, Copy)]
struct RunningBatch {
    device: DeviceIx,
    slots: u16,
    start: Nanos,
    end: Nanos,
}

pub struct World {
    setting: Setting,
    scheduler: Box<dyn Scheduler<u64>>,
    now: Nanos,
    sent: u64,
    answered: Vec<u64>,
    running: BTreeMap<BatchId, RunningBatch>,
    ended: Vec<BatchId>,
    up: BTreeSet<DeviceIx>,
    /// By device: its pool now.
    pools: [PoolIx; DEVICES.len()],
    seats: BTreeSet<(PoolIx, QueueIx)>,
}

/// Run time of `rows` rows on the fastest pool: 10 ns a row and 100 ns for the batch.
pub fn table(slowness: u64) -> LatencyTable {
    LatencyTable::new((1..=8).map(|rows| slowness * (100 + 10 * rows)).collect()).unwrap()
}

fn spec(pool: PoolIx, queue: QueueIx) -> QueueSpec {
    let (max_rows, slots, batched, priority) = [
        (1, 1, true, 100),
        (8, 1, true, 100),
        (4, 2, true, 100),
        (4, 9, false, 100),
        (8, 1, true, 200),
    ][queue.get() as usize];
    QueueSpec {
        max_rows,
        planned_rows: u32::MAX,
        batched,
        slots,
        latency: table(SLOWNESS[pool.get() as usize]),
        max_waiting_rows: 64,
        tenant: TenantIx::new(0),
        priority,
        weight: 1.0,
        price: 1.0,
    }
}

// === impl World ===

impl World {
    /// All devices up, the queues spread over the pools.
    pub fn new(setting: Setting) -> Self {
        let options = Options {
            hold: setting.hold,
            beta_lambda: setting.beta_lambda,
            delay: setting.delay,
            preferred_rows: vec![2, 4],
            max_queue_delay: 150,
            ..Options::of(setting.policy)
        };
        let mut world = Self {
            setting,
            scheduler: options.build(),
            now: 0,
            sent: 0,
            answered: vec![],
            running: BTreeMap::new(),
            ended: vec![],
            up: BTreeSet::new(),
            pools: DEVICES.map(|(pool, _)| PoolIx::new(pool)),
            seats: BTreeSet::new(),
        };
        (0..DEVICES.len() as u32).for_each(|device| world.up(DeviceIx::new(device)));
        for (pool, queue) in [
            (0, 0),
            (0, 1),
            (1, 1),
            (1, 2),
            (0, 3),
            (2, 4),
            (0, 4),
            (1, 4),
        ] {
            world.load(PoolIx::new(pool), QueueIx::new(queue));
        }
        world
    }

    pub fn play(&mut self, step: &Step) {
        match *step {
            Step::Arrive { queue, rows, slack } => self.arrive(queue, rows, slack),
            Step::Pass { nanos } => self.pass(self.now + nanos),
            Step::Finish { which } if !self.setting.exact => {
                if let Some(id) = self.running.keys().nth(which).copied() {
                    self.finish(id);
                }
            }
            Step::Finish { .. } => {}
            Step::Zombie { which } => {
                if let Some(id) = self.ended.get(which).copied() {
                    let (now, waiting) = (self.now, self.scheduler.waiting());
                    self.act(|scheduler, actions| scheduler.on_result(now, id, actions));
                    assert_eq!(
                        self.scheduler.waiting(),
                        waiting,
                        "a zombie started a batch"
                    );
                }
            }
            Step::Ring => self.ring(),
            Step::Load { pool, queue } => self.load(pool, queue),
            Step::Unload { pool, queue } => self.unload(pool, queue),
            Step::Up { device } => self.up(device),
            Step::Down { device } => self.down(device),
            Step::Move { device, pool } => self.transfer(device, pool),
        }
    }

    /// Lets everything finish; tells how many requests came and which were answered, in order.
    pub fn drain(mut self) -> (u64, Vec<u64>) {
        let down: Vec<DeviceIx> = (0..DEVICES.len() as u32)
            .map(DeviceIx::new)
            .filter(|device| !self.up.contains(device))
            .collect();
        down.into_iter().for_each(|device| self.up(device));
        for (device, (pool, _)) in (0..).zip(DEVICES) {
            self.transfer(DeviceIx::new(device), PoolIx::new(pool));
        }
        loop {
            if let Some(id) = self.running.keys().next().copied() {
                let ends = self.running[&id].end;
                self.pass(ends.max(self.now) + 1);
                if self.running.contains_key(&id) {
                    self.finish(id);
                }
                continue;
            }
            let Some(next) = self.scheduler.next_timer() else {
                break;
            };
            self.pass(next.max(self.now));
        }
        assert_eq!(
            self.scheduler.waiting(),
            0,
            "requests wait for idle devices"
        );
        self.answered.sort_unstable();
        (self.sent, self.answered)
    }

    fn arrive(&mut self, queue: QueueIx, rows: u32, slack: Option<Nanos>) {
        let request = Request {
            payload: self.sent,
            rows,
            deadline: slack.map_or(NEVER, |slack| self.now + slack),
        };
        self.sent += 1;
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_request(now, queue, request, actions));
    }

    fn load(&mut self, pool: PoolIx, queue: QueueIx) {
        self.seats.insert((pool, queue));
        let now = self.now;
        self.act(|scheduler, actions| {
            scheduler.on_loaded(now, pool, queue, spec(pool, queue), actions);
        });
    }

    fn unload(&mut self, pool: PoolIx, queue: QueueIx) {
        self.seats.remove(&(pool, queue));
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_unloaded(now, pool, queue, actions));
    }

    fn transfer(&mut self, device: DeviceIx, pool: PoolIx) {
        if self.up.contains(&device) {
            self.pools[device.get() as usize] = pool;
        }
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_device_moved(now, device, pool, actions));
    }

    fn up(&mut self, device: DeviceIx) {
        let (pool, slots) = (
            self.pools[device.get() as usize],
            DEVICES[device.get() as usize].1,
        );
        self.up.insert(device);
        let expected = self.lose(device);
        let (now, mut lost) = (self.now, vec![]);
        self.act(|scheduler, actions| {
            lost = scheduler.on_device_up(now, device, DeviceSpec { pool, slots }, actions);
        });
        assert_eq!(lost, expected, "batches lost by a restart");
    }

    fn down(&mut self, device: DeviceIx) {
        self.up.remove(&device);
        let expected = self.lose(device);
        let (now, mut lost) = (self.now, vec![]);
        self.act(|scheduler, actions| lost = scheduler.on_device_down(now, device, actions));
        assert_eq!(lost, expected, "batches lost with a device");
    }

    fn lose(&mut self, device: DeviceIx) -> Vec<BatchId> {
        let on_it = |running: &RunningBatch| running.device == device;
        let lost: Vec<BatchId> = self
            .running
            .iter()
            .filter(|(_, running)| on_it(running))
            .map(|(id, _)| *id)
            .collect();
        self.running.retain(|_, running| !on_it(running));
        self.ended.extend(&lost);
        lost
    }

    fn finish(&mut self, id: BatchId) {
        self.running.remove(&id);
        self.ended.push(id);
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_result(now, id, actions));
    }

    /// Lets time pass until `until`: batches end where devices are exact, and timers fire.
    fn pass(&mut self, until: Nanos) {
        loop {
            let ends = self.running.iter().map(|(id, running)| (running.end, *id));
            let end = ends.min().filter(|_| self.setting.exact);
            let timer = self.scheduler.next_timer();
            let next = end.map_or(NEVER, |(at, _)| at).min(timer.unwrap_or(NEVER));
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            match end {
                Some((at, id)) if at == next => self.finish(id),
                _ => self.fire(),
            }
        }
        self.now = self.now.max(until);
    }

    fn fire(&mut self) {
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_timer(now, actions));
        let next = self.scheduler.next_timer();
        assert!(
            next.is_none_or(|next| next > now),
            "a timer that is due for ever"
        );
        self.ring();
        assert_eq!(self.scheduler.next_timer(), next);
    }

    /// Before its time, or again, a timer changes nothing.
    fn ring(&mut self) {
        let now = self.now;
        let before = (self.scheduler.next_timer(), self.scheduler.waiting());
        // A plan that is stalled as printed comes loose with whatever happens next.
        let loose =
            self.setting.policy == Policy::SymphonyPaper && self.setting.delay != Delay::default();
        if loose || before.0.is_some_and(|next| next <= now) {
            return;
        }
        let mut actions = Actions::new();
        self.scheduler.on_timer(now, &mut actions);
        assert_eq!(actions, [], "a timer that rang in vain acts");
        let after = (self.scheduler.next_timer(), self.scheduler.waiting());
        assert_eq!(after, before, "a timer that rang in vain");
    }

    fn act(&mut self, event: impl FnOnce(&mut dyn Scheduler<u64>, &mut Actions<u64>)) {
        let mut actions = Actions::new();
        event(self.scheduler.as_mut(), &mut actions);
        for action in actions {
            match action {
                Action::Drop { request, .. } => self.answered.push(request.payload),
                Action::Infer {
                    queue,
                    device,
                    requests,
                    earliest,
                    latest,
                    expected,
                    id,
                } => {
                    assert!(earliest <= latest, "a window that is closed");
                    let end = earliest + expected;
                    self.check(queue, device, &requests, end, expected);
                    let (pool, slots) = (
                        self.pools[device.get() as usize],
                        DEVICES[device.get() as usize].1,
                    );
                    self.answered.extend(requests.iter().map(|r| r.payload));
                    let running = RunningBatch {
                        device,
                        slots: spec(pool, queue).slots.clamp(1, slots),
                        start: earliest,
                        end,
                    };
                    assert!(self.running.insert(id, running).is_none(), "a batch twice");
                }
            }
        }
        self.check_slots();
    }

    fn check(
        &self,
        queue: QueueIx,
        device: DeviceIx,
        requests: &[Request<u64>],
        end: Nanos,
        expected: Nanos,
    ) {
        let pool = self.pools[device.get() as usize];
        assert!(self.up.contains(&device), "a device that is down");
        assert!(
            self.seats.contains(&(pool, queue)),
            "a variant that is not loaded"
        );
        let spec = spec(pool, queue);
        let rows: u32 = requests.iter().map(|request| request.rows).sum();
        assert!(rows <= spec.max_rows, "a batch over its maximum");
        assert!(
            spec.batched || requests.len() == 1,
            "requests share no batch here"
        );
        assert_eq!(expected, spec.latency.of(rows));
        assert!(
            requests.is_sorted_by_key(|request| request.deadline),
            "not by deadline"
        );
        let answer = end + self.setting.delay.response;
        let late = requests.iter().any(|request| answer > request.deadline);
        assert!(
            self.setting.policy == Policy::Timeout || !late,
            "a batch that is late"
        );
    }

    /// What is sent may wait behind what runs, but never more runs than there are slots.
    fn check_slots(&self) {
        for (device, (_, slots)) in DEVICES.iter().enumerate() {
            let on_it: Vec<&RunningBatch> = self
                .running
                .values()
                .filter(|running| running.device == DeviceIx::new(device as u32))
                .collect();
            for at in on_it.iter().map(|running| running.start) {
                let overlap = |other: &&&RunningBatch| other.start <= at && at < other.end;
                let used: u16 = on_it.iter().filter(overlap).map(|other| other.slots).sum();
                assert!(
                    used <= *slots,
                    "device {device} uses {used} of {slots} slots"
                );
            }
            if self.setting.delay == Delay::default() {
                let used: u16 = on_it.iter().map(|running| running.slots).sum();
                assert!(
                    used <= *slots,
                    "device {device} uses {used} of {slots} slots"
                );
            }
        }
    }
}
