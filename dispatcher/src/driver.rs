//! Drives the controller in real time: a lock, a clock, an alarm, and the workers behind it.
//!
//! One controller serves all workers of a dispatcher. Each worker is a device with pages and slots, a
//! processor one slot per core; workers that are alike are of one kind. The controller and nothing
//! else picks the worker of a batch and orders LOADs and UNLOADs: for the queries of variants that
//! are loaded nowhere, which wait in it, and for what the autoscaler wants loaded. What workers had
//! loaded before they were known here is learnt from the metadata store's feed.
//!
//! Threads wake a little late, and a deferred batch may have a window of no width: where one more
//! row costs nothing, the last moment at which one could join is the last moment to start. So the
//! controller's time is kept exact: before an event, the timers that are due are played at the times at
//! which they were due, as long as that is no more than [`PRECISION`] ago. Deadlines are brought
//! forward by as much, and the worker's windows kept open by as much.
//!
//! Workers come and go. A worker that may be used is a device that is up; one that is gone, that
//! drains, or that another dispatcher leads is a device that is down: what waits for it waits
//! elsewhere, what runs on it is answered by its client.

mod carry;
mod members;
mod state;
mod variants;

use std::{
    cell::Cell,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use carry::UnsentBatch;
use parking_lot::Mutex;
use sextant_controller as controller;
use sextant_controller::{Actions, Controller};
use sextant_schedule::{Delay, Nanos, Request, Schedulers};
use state::State;

use crate::{
    Config,
    clock::{Alarm, Clock},
    costs::{Costs, Tariff},
    gauges::Gauges,
    loads::LoadQueues,
    meter::OnlineMeter,
    metrics::SendCounters,
    pending::Pending,
    workers::Workers,
};
use sextant_types::index::{DeviceIx, IndexVec};

/// The scheduler of a dispatcher and the workers that it fills.
pub(crate) struct Driver {
    workers: Workers,
    /// Whether work is given out at all. Changed before the core is told.
    leads: AtomicBool,
    clock: Clock,
    state: Mutex<State>,
    gauges: Gauges,
    loads: Arc<LoadQueues>,
    sent: Arc<SendCounters>,
    alarm: Alarm,
    /// How late a timer may be played and a batch may start, ns.
    precision: Nanos,
    /// What messages cost, as the scheduler counts it.
    delay: Delay,
    online: Arc<OnlineMeter>,
    costs: Costs,
    /// What the workers' devices cost, by position.
    tariffs: ArcSwap<IndexVec<DeviceIx, Option<Arc<Tariff>>>>,
    /// Batches that were sent and have no outcome.
    under_way: AtomicUsize,
    this: Weak<Self>,
}

/// What a deferred batch leaves to the threads that start it, ns.
const PRECISION: Nanos = 1_000_000;

/// Time between two looks at whether batches are under way.
const SETTLE: Duration = Duration::from_millis(5);

/// Keeps the alarm of a driver answered; dropping it ends that.
pub(crate) struct Ticker {
    driver: Arc<Driver>,
}

thread_local! {
    /// The empty list of actions that the next step on this thread fills.
    static SPARE: Cell<Actions<Pending>> = const { Cell::new(Vec::new()) };
}

// === impl Driver ===

impl Driver {
    /// A driver that leads and has no workers yet.
    pub(crate) fn new(
        config: &Config,
        schedulers: &impl Schedulers,
        clock: Clock,
        online: Arc<OnlineMeter>,
    ) -> Arc<Self> {
        let mut schedulers = schedulers.clone();
        let precision = if schedulers.defers() { PRECISION } else { 0 };
        let (mut delay, network) = (schedulers.delay(), config.network);
        delay.control = delay.control.saturating_add(network.control);
        delay.data_per_row = delay.data_per_row.saturating_add(network.data_per_row);
        delay.response = delay.response.saturating_add(network.response);
        schedulers.set_delay(Delay {
            response: delay.response.saturating_add(precision),
            ..delay
        });
        let state = State::new(&controller::Options {
            scheduling: schedulers,
            placing: config.placement.clone(),
            estimation: config.estimation,
        });
        let sent = Arc::<SendCounters>::default();
        Arc::new_cyclic(|this| Self {
            gauges: Gauges::default(),
            loads: Arc::new(LoadQueues::counted_in(&sent)),
            sent,
            workers: Workers::new(),
            leads: AtomicBool::new(true),
            clock,
            state: Mutex::new(state),
            alarm: Alarm::new(),
            precision,
            delay,
            online,
            costs: Costs::new(),
            tariffs: ArcSwap::default(),
            under_way: AtomicUsize::new(0),
            this: Weak::clone(this),
        })
    }

    /// The workers, by position.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// What was sent to the workers.
    pub(crate) fn sent(&self) -> &SendCounters {
        &self.sent
    }

    /// What messages cost a lone query on its way to a worker and back, ns.
    pub(crate) fn round_trip(&self) -> Nanos {
        self.delay
            .before_start(1)
            .saturating_add(self.delay.response)
    }

    /// Queues a query; its reply arrives exactly once.
    pub(crate) fn enqueue(&self, request: Request<Pending>) {
        let of = (request.payload.number, request.payload.shape);
        self.step(|controller, now, actions| {
            controller.on_shaped_request(now, of, request, actions);
        });
    }

    /// Estimates for selection.
    pub(crate) fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// What device time has cost.
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The workers' devices cost so much from now on, by position.
    pub(crate) fn set_tariffs(&self, tariffs: IndexVec<DeviceIx, Option<Arc<Tariff>>>) {
        self.tariffs.store(Arc::new(tariffs));
    }

    /// What the device of the worker at position `at` costs.
    pub(crate) fn tariff(&self, at: DeviceIx) -> Option<Arc<Tariff>> {
        self.tariffs.load().get(at)?.clone()
    }

    /// Queries that wait for a batch.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().controller.waiting()
    }

    /// Waits until every batch that was sent has an outcome.
    pub(crate) async fn settled(&self) {
        while self.under_way.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(SETTLE).await;
        }
    }

    /// Answers the alarm on a thread of the runtime that may block.
    pub(crate) fn tick(self: &Arc<Self>) -> Ticker {
        let driver = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            while driver.alarm.wait(driver.clock) {
                // The step plays what is due, whatever it was made for.
                driver.step(|_, _, _| {});
            }
        });
        Ticker {
            driver: Arc::clone(self),
        }
    }

    /// One step of the controller, then what it asks for, outside the lock.
    fn step(&self, step: impl FnOnce(&mut Controller<Pending>, Nanos, &mut Actions<Pending>)) {
        let mut actions = SPARE.try_with(Cell::take).unwrap_or_default();
        self.decide(step, &mut actions);
        loop {
            let mut unsent = Vec::new();
            for action in actions.drain(..) {
                unsent.extend(self.carry_out(action));
            }
            if unsent.is_empty() {
                break;
            }
            self.decide(
                |controller, now, actions| {
                    for batch in unsent {
                        self.take_back(controller, now, batch, actions);
                    }
                },
                &mut actions,
            );
        }
        // A thread that is ending keeps nothing.
        SPARE.try_with(|spare| spare.set(actions)).ok();
    }

    /// A batch was not sent, because nobody waits for it any more or because its worker went away
    /// in this moment. That the worker is gone may not have been told yet; what would be sent to it
    /// now waits elsewhere.
    fn take_back(
        &self,
        controller: &mut Controller<Pending>,
        now: Nanos,
        batch: UnsentBatch,
        actions: &mut Actions<Pending>,
    ) {
        if self.workers.is_away(batch.device) {
            controller.on_device_down(now, batch.device, actions);
            self.count_slots(controller);
        }
        controller.on_result(now, batch.id, None, actions);
        for request in batch.requests {
            let of = (batch.variant, request.payload.shape);
            controller.on_shaped_request(now, of, request, actions);
        }
    }

    fn decide(
        &self,
        step: impl FnOnce(&mut Controller<Pending>, Nanos, &mut Actions<Pending>),
        actions: &mut Actions<Pending>,
    ) {
        let mut state = self.state.lock();
        // Read under the lock: the controller's time never goes back.
        let now = self.clock.now();
        state.catch_up(now, self.precision, actions);
        step(&mut state.controller, now, actions);
        state.played(now);
        self.publish(&mut state);
        self.alarm.set(state.next);
    }

    /// Copies what has changed for those who read it without the lock.
    fn publish(&self, state: &mut State) {
        let State {
            controller,
            pools,
            variants,
            ..
        } = state;
        controller.take_changed_pools(pools);
        for pool in pools.iter() {
            let gauge = self.gauges.pool(*pool);
            gauge.set_load(controller.load(*pool));
            controller.take_news(*pool, &mut |news| gauge.tell(news));
        }
        controller.take_changed_variants(variants);
        for variant in variants.iter() {
            let of = controller.runs_on(*variant);
            let tenant = controller.tenant(*variant);
            self.gauges
                .set_variant(*variant, tenant, of, controller.excesses(*variant));
        }
    }
}

// === impl Ticker ===

impl Drop for Ticker {
    fn drop(&mut self) {
        self.driver.alarm.stop();
        self.driver.loads.stop();
    }
}
