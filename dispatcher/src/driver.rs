//! Drives the controller in real time. It has a lock, a clock, an alarm, and the workers that receive the work.
//!
//! One controller serves all workers of a dispatcher. Each worker is a device with pages and slots; a processor has one
//! slot per core. Workers that are alike are of one kind. Only the controller picks the worker of a batch and orders
//! LOADs and UNLOADs. It orders them for queries of variants that are loaded nowhere, which wait in it, and for what
//! the autoscaler wants loaded. The driver learns from the metadata store's feed what workers had loaded before they
//! were known here.
//!
//! Threads wake a little late, and a deferred batch may have a window of zero width: if one more row costs nothing, the
//! last moment at which a row could join is also the last moment to start. The controller's time is therefore kept
//! exact. Before an event, the driver plays the timers that are due, each at the time at which it was due, provided
//! that this time is no more than [`PRECISION`] ago. Deadlines are brought forward by [`PRECISION`], and the windows
//! for the worker stay open longer by [`PRECISION`].
//!
//! Workers come and go. A worker that may be used is a device that is up. A worker that is gone, that drains, or that
//! another dispatcher leads is a device that is down. Queries that wait for a device that goes down wait for another
//! one, and its client answers what runs on it.

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
    /// Whether work is given out. It is changed before the controller is told.
    leads: AtomicBool,
    clock: Clock,
    state: Mutex<State>,
    gauges: Gauges,
    loads: Arc<LoadQueues>,
    sent: Arc<SendCounters>,
    alarm: Alarm,
    /// How late a timer may be played and a batch may start, ns.
    precision: Nanos,
    /// The time that messages take, as the scheduler counts it.
    delay: Delay,
    online: Arc<OnlineMeter>,
    costs: Costs,
    /// The prices of the workers' devices, by position.
    tariffs: ArcSwap<IndexVec<DeviceIx, Option<Arc<Tariff>>>>,
    /// Batches that were sent and have no outcome yet.
    under_way: AtomicUsize,
    this: Weak<Self>,
}

/// The time that a deferred batch leaves to the threads that start it, ns.
const PRECISION: Nanos = 1_000_000;

/// Time between two checks whether batches are under way.
const SETTLE: Duration = Duration::from_millis(5);

/// Answers the alarm of a driver until it is dropped.
pub(crate) struct Ticker {
    driver: Arc<Driver>,
}

thread_local! {
    /// An empty list of actions, which the next step on this thread fills.
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

    /// Counts of what was sent to the workers.
    pub(crate) fn sent(&self) -> &SendCounters {
        &self.sent
    }

    /// The time that messages add to a lone query on its way to a worker and back, ns.
    pub(crate) fn round_trip(&self) -> Nanos {
        self.delay
            .before_start(1)
            .saturating_add(self.delay.response)
    }

    /// Queues a query. Its reply arrives exactly once.
    pub(crate) fn enqueue(&self, request: Request<Pending>) {
        let of = (request.payload.number, request.payload.shape);
        self.step(|controller, now, actions| {
            controller.on_shaped_request(now, of, request, actions);
        });
    }

    /// Estimates that selection reads.
    pub(crate) fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// The cost of device time.
    pub(crate) fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Sets the prices of the workers' devices from now on, by position.
    pub(crate) fn set_tariffs(&self, tariffs: IndexVec<DeviceIx, Option<Arc<Tariff>>>) {
        self.tariffs.store(Arc::new(tariffs));
    }

    /// The price of the device of the worker at position `at`.
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

    /// Answers the alarm on a blocking thread of the runtime.
    pub(crate) fn tick(self: &Arc<Self>) -> Ticker {
        let driver = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            while driver.alarm.wait(driver.clock) {
                // Any step plays the timers that are due.
                driver.step(|_, _, _| {});
            }
        });
        Ticker {
            driver: Arc::clone(self),
        }
    }

    /// Makes one step of the controller under the lock, then carries out its actions outside the lock.
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
        // A thread that is ending keeps no list.
        SPARE.try_with(|spare| spare.set(actions)).ok();
    }

    /// Handles a batch that was not sent, because nobody waits for it any longer or because its worker went away at
    /// that moment. The controller may not have been told yet that the worker is gone; it is told now, so that the
    /// requests wait elsewhere.
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
        // The clock is read under the lock, so that the controller's time never goes back.
        let now = self.clock.now();
        state.catch_up(now, self.precision, actions);
        step(&mut state.controller, now, actions);
        state.played(now);
        self.publish(&mut state);
        self.alarm.set(state.next);
    }

    /// Copies what has changed, for readers that do not take the lock.
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
