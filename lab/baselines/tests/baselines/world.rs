//! Devices on a virtual clock that run the batches that they are sent, one after the other.

use std::collections::{BTreeMap, VecDeque};

use sextant_baselines::Options;
use sextant_schedule::{
    Action, Actions, BatchId, Delay, DeviceSpec, DropReason, LatencyTable, NEVER, Nanos, PoolIx,
    QueueSpec, Request, Scheduler, Schedulers,
};
use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

/// One millisecond.
pub const MS: Nanos = 1_000_000;

/// A batch as it was sent.
#[derive(Debug, Clone)]
pub struct SentBatch {
    pub id: BatchId,
    pub queue: QueueIx,
    pub device: DeviceIx,
    pub requests: Vec<Request<u64>>,
    pub latest: Nanos,
    pub expected: Nanos,
    pub start: Nanos,
    pub end: Nanos,
}

impl SentBatch {
    pub fn rows(&self) -> u32 {
        self.requests.iter().map(|request| request.rows).sum()
    }

    pub fn payloads(&self) -> Vec<u64> {
        self.requests
            .iter()
            .map(|request| request.payload)
            .collect()
    }
}

/// A device: the times at which its slots become free, and its batches.
#[derive(Debug, Default)]
struct Device {
    slots: Vec<Nanos>,
    running: VecDeque<SentBatch>,
}

pub struct World {
    pub scheduler: Box<dyn Scheduler<u64>>,
    pub now: Nanos,
    /// All batches that were sent to a device, in order.
    pub log: Vec<SentBatch>,
    pub dropped: Vec<(u64, DropReason)>,
    /// Number of requests so far; the next one's payload.
    pub requests: u64,
    pub delay: Delay,
    /// Run times in percent of the profile's; batches take them in turn.
    pub percent: Vec<u64>,
    devices: BTreeMap<DeviceIx, Device>,
    specs: BTreeMap<(PoolIx, u32), QueueSpec>,
    pools: BTreeMap<DeviceIx, PoolIx>,
    ended: usize,
}

/// A batched queue with the run time `alpha_ms * rows + beta_ms`.
pub fn spec(alpha_ms: f64, beta_ms: f64, max_rows: u32) -> QueueSpec {
    QueueSpec {
        max_rows,
        planned_rows: u32::MAX,
        batched: true,
        slots: 1,
        latency: LatencyTable::linear(alpha_ms, beta_ms, max_rows).expect("a line"),
        max_waiting_rows: 100_000,
        tenant: TenantIx::new(0),
        priority: 100,
        weight: 1.0,
        price: 1.0,
    }
}

impl World {
    pub fn new(options: &Options) -> Self {
        Self {
            scheduler: options.build(),
            now: 0,
            log: Vec::new(),
            dropped: Vec::new(),
            requests: 0,
            delay: options.delay,
            percent: vec![100],
            devices: BTreeMap::new(),
            specs: BTreeMap::new(),
            pools: BTreeMap::new(),
            ended: 0,
        }
    }

    /// A world with `devices` devices in pool 0, which has these queues.
    pub fn with(options: &Options, devices: u32, specs: &[QueueSpec]) -> Self {
        let mut world = Self::new(options);
        for (queue, spec) in (0..).zip(specs) {
            world.load(PoolIx::new(0), QueueIx::new(queue), spec.clone());
        }
        (0..devices).for_each(|device| world.up(DeviceIx::new(device), PoolIx::new(0), 1));
        world
    }

    pub fn load(&mut self, pool: PoolIx, queue: QueueIx, spec: QueueSpec) {
        self.specs.insert((pool, queue.get()), spec.clone());
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_loaded(now, pool, queue, spec, actions));
    }

    pub fn unload(&mut self, pool: PoolIx, queue: QueueIx) {
        self.specs.remove(&(pool, queue.get()));
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_unloaded(now, pool, queue, actions));
    }

    pub fn up(&mut self, device: DeviceIx, pool: PoolIx, slots: u16) {
        let expected = self.lose(device);
        self.pools.insert(device, pool);
        let ends = vec![self.now; usize::from(slots)];
        let running = VecDeque::new();
        self.devices.insert(
            device,
            Device {
                slots: ends,
                running,
            },
        );
        let (now, spec) = (self.now, DeviceSpec { pool, slots });
        let mut lost = Vec::new();
        self.act(|scheduler, actions| lost = scheduler.on_device_up(now, device, spec, actions));
        assert_eq!(lost, expected, "batches lost by a restart");
    }

    pub fn down(&mut self, device: DeviceIx) {
        let expected = self.lose(device);
        let (now, mut lost) = (self.now, Vec::new());
        self.act(|scheduler, actions| lost = scheduler.on_device_down(now, device, actions));
        assert_eq!(lost, expected, "batches lost with a device");
    }

    /// Moves a device to another pool, as when the variants loaded on it change.
    pub fn transfer(&mut self, device: DeviceIx, pool: PoolIx) {
        if self.devices.contains_key(&device) {
            self.pools.insert(device, pool);
        }
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_device_moved(now, device, pool, actions));
    }

    fn lose(&mut self, device: DeviceIx) -> Vec<BatchId> {
        let gone = self.devices.remove(&device).unwrap_or_default();
        let mut lost: Vec<_> = gone.running.iter().map(|sent| sent.id).collect();
        lost.sort_unstable();
        lost
    }

    /// Delivers the result of a batch that ended long ago or was lost with its device.
    pub fn zombie(&mut self, which: usize) {
        let running = |id| {
            self.devices
                .values()
                .any(|of| of.running.iter().any(|s| s.id == id))
        };
        let over = self
            .log
            .iter()
            .map(|sent| sent.id)
            .filter(|id| !running(*id));
        let Some(id) = over.skip(which).min() else {
            return;
        };
        let (now, waiting) = (self.now, self.scheduler.waiting());
        self.act(|scheduler, actions| scheduler.on_result(now, id, actions));
        assert_eq!(
            self.scheduler.waiting(),
            waiting,
            "a zombie changed something"
        );
    }

    /// Sends a request of one row with `slack` ns ([`NEVER`]: no deadline) and returns its payload.
    pub fn request(&mut self, queue: QueueIx, slack: Nanos) -> u64 {
        self.request_of(queue, 1, slack)
    }

    /// Sends `count` such requests at once.
    pub fn requests(&mut self, count: u32, queue: QueueIx, slack: Nanos) -> Vec<u64> {
        (0..count).map(|_| self.request(queue, slack)).collect()
    }

    pub fn request_of(&mut self, queue: QueueIx, rows: u32, slack: Nanos) -> u64 {
        let payload = self.requests;
        self.requests += 1;
        let deadline = self.now.saturating_add(slack);
        let now = self.now;
        let request = Request {
            payload,
            rows,
            deadline,
        };
        self.act(|scheduler, actions| scheduler.on_request(now, queue, request, actions));
        payload
    }

    /// Lets time pass until `until`: batches end and timers fire when they should.
    pub fn pass(&mut self, until: Nanos) {
        loop {
            let ends = self
                .devices
                .iter()
                .filter_map(|(device, of)| of.running.iter().map(|sent| (sent.end, *device)).min());
            let end = ends.min();
            let timer = self.scheduler.next_timer();
            let next = end.map_or(NEVER, |(at, _)| at).min(timer.unwrap_or(NEVER));
            if next > until {
                break;
            }
            self.now = self.now.max(next);
            match end {
                Some((at, device)) if at == next => self.finish(DeviceIx::new(device.get()), at),
                _ => self.ring(),
            }
        }
        self.now = self.now.max(until);
    }

    /// Lets time pass until all batches have ended and no request waits.
    pub fn drain(&mut self) {
        for _ in 0..10_000 {
            let ends = self.devices.values().flat_map(|of| &of.running);
            let end = ends.map(|sent| sent.end).min();
            let next = end.into_iter().chain(self.scheduler.next_timer()).min();
            let Some(next) = next else { return };
            self.pass(next.max(self.now));
        }
        panic!("a timer stays due for ever");
    }

    fn ring(&mut self) {
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_timer(now, actions));
        let next = self.scheduler.next_timer();
        assert!(next.is_none_or(|next| next > now), "a timer stays due");
    }

    /// Calls the timer before it is due.
    pub fn ring_in_vain(&mut self) {
        if self.scheduler.next_timer().is_some_and(|at| at <= self.now) {
            return;
        }
        let (now, before) = (self.now, self.scheduler.next_timer());
        let mut actions = Actions::new();
        self.scheduler.on_timer(now, &mut actions);
        assert_eq!(actions, [], "a timer acted before it was due");
        let after = self.scheduler.next_timer().unwrap_or(NEVER);
        assert!(
            after >= before.unwrap_or(NEVER),
            "a timer was moved forward before it was due"
        );
    }

    fn finish(&mut self, device: DeviceIx, at: Nanos) {
        let of = self.devices.get_mut(&device).expect("it runs something");
        let ended = of.running.iter().position(|sent| sent.end == at);
        let sent = ended.and_then(|at| of.running.remove(at));
        let sent = sent.expect("it ends now");
        let now = self.now;
        self.act(|scheduler, actions| scheduler.on_result(now, sent.id, actions));
    }

    fn act(&mut self, event: impl FnOnce(&mut dyn Scheduler<u64>, &mut Actions<u64>)) {
        let mut actions = Actions::new();
        event(self.scheduler.as_mut(), &mut actions);
        for action in actions {
            match action {
                Action::Drop { request, reason } => self.dropped.push((request.payload, reason)),
                Action::Infer {
                    queue,
                    device,
                    requests,
                    earliest,
                    latest,
                    expected,
                    id,
                } => {
                    let sent = SentBatch {
                        id,
                        queue,
                        device,
                        requests,
                        latest,
                        expected,
                        start: earliest,
                        end: NEVER,
                    };
                    self.start(sent);
                }
            }
        }
    }

    fn start(&mut self, mut sent: SentBatch) {
        let pool = self.pools[&sent.device];
        let spec = self
            .specs
            .get(&(pool, sent.queue.get()))
            .expect("a queue that is loaded");
        assert!(sent.rows() <= spec.max_rows, "a batch over its maximum");
        assert!(
            spec.batched || sent.requests.len() == 1,
            "requests share no batch here"
        );
        assert!(sent.requests.is_sorted_by_key(|request| request.deadline));
        assert_eq!(sent.expected, spec.latency.of(sent.rows()));
        assert!(sent.start >= self.now + self.delay.before_start(sent.rows()));
        let of = self
            .devices
            .get_mut(&sent.device)
            .expect("a device that is up");
        let slot = of.slots.iter_mut().min().expect("a slot");
        sent.start = sent.start.max(*slot);
        let percent = self.percent[self.ended % self.percent.len()];
        self.ended += 1;
        sent.end = sent.start + sent.expected * percent / 100;
        *slot = sent.end;
        of.running.push_back(sent.clone());
        self.log.push(sent);
    }

    /// The payloads of the requests that were sent to a device or dropped, sorted.
    pub fn left(&self) -> Vec<u64> {
        let sent = self.log.iter().flat_map(SentBatch::payloads);
        let mut left: Vec<u64> = sent.chain(self.dropped.iter().map(|of| of.0)).collect();
        left.sort_unstable();
        left
    }

    /// Asserts that all batches ran in time and within their windows.
    pub fn assert_none_late(&self) {
        for sent in &self.log {
            let answer = sent.end + self.delay.response;
            let late = sent
                .requests
                .iter()
                .any(|request| answer > request.deadline);
            assert!(!late, "late: {sent:?}");
            assert!(sent.start <= sent.latest, "outside its window: {sent:?}");
        }
    }
}
