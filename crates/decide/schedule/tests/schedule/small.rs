//! Small histories, event by event.

use sextant_baselines::{Options, Policy};
use sextant_schedule::{
    Action, Actions, BatchId, DeviceSpec, DropReason, LatencyTable, NEVER, Nanos, PoolIx,
    QueueSpec, Request, Scheduler, Schedulers,
};
use sextant_types::index::{DeviceIx, QueueIx, TenantIx};

/// A scheduler that is told one thing at a time.
pub struct Small {
    pub scheduler: Box<dyn Scheduler<u64>>,
}

/// A batch that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedBatch {
    pub requests: Vec<u64>,
    pub device: DeviceIx,
    pub earliest: Nanos,
    pub latest: Nanos,
    pub id: BatchId,
}

/// One slot, `10 * rows + 100` ns a batch.
pub fn spec(max_rows: u32) -> QueueSpec {
    let nanos = (1..=u64::from(max_rows.max(8))).map(|rows| 100 + 10 * rows);
    QueueSpec {
        max_rows,
        planned_rows: u32::MAX,
        batched: true,
        slots: 1,
        latency: LatencyTable::new(nanos.collect()).unwrap(),
        max_waiting_rows: 64,
        tenant: TenantIx::new(0),
        priority: 100,
        weight: 1.0,
        price: 1.0,
    }
}

/// The batch that the actions consist of.
pub fn batch(actions: &[Action<u64>]) -> StartedBatch {
    let [Action::Infer { .. }] = actions else {
        panic!("expected one batch, got {actions:?}");
    };
    batches(actions).remove(0)
}

/// The batches among the actions.
pub fn batches(actions: &[Action<u64>]) -> Vec<StartedBatch> {
    let started = actions.iter().filter_map(|action| match action {
        Action::Infer {
            requests,
            device,
            earliest,
            latest,
            id,
            ..
        } => Some(StartedBatch {
            requests: requests.iter().map(|request| request.payload).collect(),
            device: *device,
            earliest: *earliest,
            latest: *latest,
            id: *id,
        }),
        Action::Drop { .. } => None,
    });
    started.collect()
}

/// The drops among the actions.
pub fn drops(actions: &[Action<u64>]) -> Vec<(u64, DropReason)> {
    let dropped = actions.iter().filter_map(|action| match action {
        Action::Drop { request, reason } => Some((request.payload, *reason)),
        Action::Infer { .. } => None,
    });
    dropped.collect()
}

// === impl Small ===

impl Small {
    /// One device with `slots` slots; its queues are `specs`.
    pub fn new(options: &Options, slots: u16, specs: &[QueueSpec]) -> Self {
        let mut small = Self {
            scheduler: options.build(),
        };
        small.up(0, PoolIx::new(0), slots);
        for (queue, spec) in specs.iter().enumerate() {
            small.load(PoolIx::new(0), queue as u32, spec);
        }
        small
    }

    pub fn of(policy: Policy, slots: u16, specs: &[QueueSpec]) -> Self {
        Self::new(&Options::of(policy), slots, specs)
    }

    pub fn up(&mut self, device: u32, pool: PoolIx, slots: u16) {
        self.up_at(0, device, DeviceSpec { pool, slots });
    }

    pub fn up_at(&mut self, now: Nanos, device: u32, spec: DeviceSpec) -> Actions<u64> {
        let mut actions = Actions::new();
        self.scheduler
            .on_device_up(now, DeviceIx::new(device), spec, &mut actions);
        actions
    }

    pub fn load(&mut self, pool: PoolIx, queue: u32, spec: &QueueSpec) {
        let mut actions = Actions::new();
        self.scheduler
            .on_loaded(0, pool, QueueIx::new(queue), spec.clone(), &mut actions);
        assert_eq!(actions, []);
    }

    /// A request of one row.
    pub fn request(
        &mut self,
        now: Nanos,
        queue: u32,
        payload: u64,
        deadline: Nanos,
    ) -> Actions<u64> {
        let request = Request {
            payload,
            rows: 1,
            deadline,
        };
        self.rows(now, queue, request)
    }

    pub fn rows(&mut self, now: Nanos, queue: u32, request: Request<u64>) -> Actions<u64> {
        let mut actions = Actions::new();
        let queue = QueueIx::new(queue);
        self.scheduler.on_request(now, queue, request, &mut actions);
        actions
    }

    pub fn result(&mut self, now: Nanos, id: BatchId) -> Actions<u64> {
        let mut actions = Actions::new();
        self.scheduler.on_result(now, id, &mut actions);
        actions
    }

    /// The next timer, which must be at `now`.
    pub fn timer(&mut self, now: Nanos) -> Actions<u64> {
        assert_eq!(self.scheduler.next_timer(), Some(now));
        self.late_timer(now)
    }

    pub fn late_timer(&mut self, now: Nanos) -> Actions<u64> {
        let mut actions = Actions::new();
        self.scheduler.on_timer(now, &mut actions);
        actions
    }

    /// Keeps the only slot busy with a request without a deadline.
    pub fn occupy(&mut self, now: Nanos, queue: u32) -> BatchId {
        batch(&self.request(now, queue, u64::MAX, NEVER)).id
    }
}
