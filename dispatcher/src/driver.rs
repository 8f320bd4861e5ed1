//! Drives the scheduling core in real time: a lock, a clock, an alarm, and the workers behind it.
//!
//! One scheduler serves all workers of a dispatcher, joined with the placement that decides what is
//! loaded where on behalf of queries. Each worker is a device with pages and slots, a processor one
//! slot per core. A variant is one queue, with a seat on every device that has it loaded, so that
//! the core and nothing else picks the worker; queries of a variant that is loaded nowhere wait in
//! the core for the LOAD that the placement decides on. LOADs and UNLOADs that others asked for, as
//! the autoscaler does, are learnt from the metadata store's feed.
//!
//! Threads wake a little late, and a deferred batch may have a window of no width: where one more
//! row costs nothing, the last moment at which one could join is the last moment to start. So the
//! core's time is kept exact: before an event, the timers that are due are played at the times at
//! which they were due, as long as that is no more than [`PRECISION`] ago. Deadlines are brought
//! forward by as much, and the worker's windows kept open by as much.
//!
//! Run times are estimates that follow the devices: each result is compared with what was expected,
//! and the scheduler is given a new table when one has moved.
//!
//! Workers come and go. A worker that may be used is a device that is up; one that is gone, that
//! drains, or that another dispatcher leads is a device that is down: what waits for it waits
//! elsewhere, what runs on it is answered by its client.

mod carry;
mod members;
mod variants;

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use sextant_policies::{
    placement::ResidentAction,
    schedule::{Delay, NEVER, Nanos, Options, Policy, Request},
};

use crate::{
    Config,
    clock::{Alarm, Clock},
    core::{Actions, Core},
    gauges::Gauges,
    meter::OnlineMeter,
    mover::Movers,
    pending::Pending,
    workers::Workers,
};

/// The scheduler of a dispatcher and the workers that it fills.
pub(crate) struct Driver {
    workers: Workers,
    /// Whether work is given out at all. Changed before the core is told.
    leads: AtomicBool,
    clock: Clock,
    core: Mutex<Core>,
    gauges: Gauges,
    movers: Arc<Movers>,
    alarm: Alarm,
    /// How late a timer may be played and a batch may start, ns.
    precision: Nanos,
    /// What messages cost, as the scheduler counts it.
    delay: Delay,
    online: Arc<OnlineMeter>,
    /// Batches that were sent and have no outcome.
    under_way: AtomicUsize,
    this: Weak<Self>,
}

/// What a deferred batch leaves to the threads that start it, ns.
const PRECISION: Nanos = 1_000_000;

/// Time between two looks at whether batches are under way.
const SETTLE: Duration = Duration::from_millis(5);

/// Keeps the alarm of a driver answered; dropping it ends that.
pub(crate) struct Ticking {
    driver: Arc<Driver>,
}

/// Whose estimates a step may have changed, beside those of the queues in its actions.
#[derive(Clone, Copy)]
enum Touched {
    Queue(u32),
    Pool(u32),
    Everything,
    Nothing,
}

thread_local! {
    /// The empty list of actions that the next step on this thread fills.
    static SPARE: Cell<Actions> = const { Cell::new(Vec::new()) };
}

// === impl Driver ===

impl Driver {
    /// A driver that leads and has no workers yet.
    pub(crate) fn new(config: &Config, clock: Clock, online: Arc<OnlineMeter>) -> Arc<Self> {
        let mut options = config.schedule.clone();
        let precision = if defers(&options) { PRECISION } else { 0 };
        let (delay, network) = (&mut options.delay, config.network);
        delay.control = delay.control.saturating_add(network.control);
        delay.data_per_row = delay.data_per_row.saturating_add(network.data_per_row);
        delay.response = delay.response.saturating_add(network.response);
        let delay = *delay;
        options.delay.response = delay.response.saturating_add(precision);
        let core = Core::new(&options, &config.placement, config.estimation);
        Arc::new_cyclic(|this| Self {
            gauges: Gauges::default(),
            movers: Arc::default(),
            workers: Workers::new(),
            leads: AtomicBool::new(true),
            clock,
            core: Mutex::new(core),
            alarm: Alarm::new(),
            precision,
            delay,
            online,
            under_way: AtomicUsize::new(0),
            this: Weak::clone(this),
        })
    }

    /// The workers, by position.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// What messages cost a lone query on its way to a worker and back, ns.
    pub(crate) fn round_trip(&self) -> Nanos {
        self.delay
            .before_start(1)
            .saturating_add(self.delay.response)
    }

    /// Queues a query; its reply arrives exactly once.
    pub(crate) fn enqueue(&self, request: Request<Pending>) {
        let queue = request.payload.queue;
        self.step(Touched::Queue(queue), |core, now, actions| {
            core.request(now, queue, request, actions);
        });
    }

    /// Takes estimates that no result has confirmed for a while back to the profiles.
    pub(crate) fn refresh_estimates(&self) {
        self.step(Touched::Nothing, |core, now, actions| {
            for queue in core.refresh(now, actions) {
                self.gauges.set_excess(queue, core.excess(queue));
            }
        });
    }

    /// Estimates for selection.
    pub(crate) fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Queries that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().resident.waiting()
    }

    /// Waits until every batch that was sent has an outcome.
    pub(crate) async fn settled(&self) {
        while self.under_way.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Answers the alarm on a thread of the runtime that may block.
    pub(crate) fn tick(self: &Arc<Self>) -> Ticking {
        let driver = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            while driver.alarm.wait(driver.clock) {
                // The step plays what is due, whatever it was made for.
                driver.step(Touched::Nothing, |_, _, _| {});
            }
        });
        Ticking {
            driver: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the scheduler, then what it asks for, outside the lock.
    fn step(&self, touched: Touched, step: impl FnOnce(&mut Core, Nanos, &mut Actions)) {
        let mut actions = SPARE.try_with(Cell::take).unwrap_or_default();
        self.decide(touched, step, &mut actions);
        loop {
            let mut unsent = Vec::new();
            for action in actions.drain(..) {
                unsent.extend(self.carry_out(action));
            }
            if unsent.is_empty() {
                break;
            }
            // Their devices are free again.
            let finish = |core: &mut Core, now: Nanos, actions: &mut Actions| {
                for batch in &unsent {
                    core.finished(now, *batch, actions);
                }
            };
            self.decide(Touched::Everything, finish, &mut actions);
        }
        // A thread that is ending keeps nothing.
        SPARE.try_with(|spare| spare.set(actions)).ok();
    }

    fn decide(
        &self,
        touched: Touched,
        step: impl FnOnce(&mut Core, Nanos, &mut Actions),
        actions: &mut Actions,
    ) {
        let mut core = self.lock();
        // Read under the lock: the scheduler's time never goes back.
        let now = self.clock.now();
        core.catch_up(now, self.precision, actions);
        step(&mut core, now, actions);
        core.last = now;
        core.next = core.resident.next_timer().unwrap_or(NEVER);
        self.publish(&core, touched, actions);
        self.alarm.set(core.next);
    }

    /// Copies the estimates that may have changed.
    fn publish(&self, core: &Core, touched: Touched, actions: &Actions) {
        let mut last = None;
        match touched {
            Touched::Queue(queue) => {
                self.publish_seats(core, queue);
                last = Some(queue);
            }
            Touched::Pool(pool) => self.publish_pool(core, pool),
            Touched::Everything => {
                let pools = 0..core.devices();
                return pools.for_each(|pool| self.publish_pool(core, pool));
            }
            Touched::Nothing => {}
        }
        for action in actions {
            let (ResidentAction::Infer { model: queue, .. }
            | ResidentAction::Drop { model: queue, .. }
            | ResidentAction::Load { model: queue, .. }
            | ResidentAction::Unload { model: queue, .. }) = action;
            let queue = *queue;
            if last != Some(queue) {
                self.publish_seats(core, queue);
                last = Some(queue);
            }
        }
    }

    fn publish_seats(&self, core: &Core, queue: u32) {
        let seats = core.resident.loaded_on(queue).iter();
        seats.for_each(|pool| self.publish_pool(core, *pool));
    }

    fn publish_pool(&self, core: &Core, pool: u32) {
        self.gauges.set_load(pool, core.resident.load(pool));
    }
}

/// Whether the policy lets batches wait for idle devices.
fn defers(options: &Options) -> bool {
    match options.policy {
        Policy::Symphony | Policy::SymphonyPaper => true,
        Policy::Sextant => options.hold > 0.0,
        _ => false,
    }
}

// === impl Ticking ===

impl Drop for Ticking {
    fn drop(&mut self) {
        self.driver.alarm.stop();
        self.driver.movers.stop();
    }
}
