//! What the driver's lock protects: the scheduler, its time, and the estimates it works with.

use std::collections::BTreeMap;

use sextant_policies::{
    profile::{Estimates, Estimation, Run},
    schedule::{self, Actions, NEVER, Nanos, Options, QueueSpec, Scheduler},
};

use crate::pending::Pending;

/// Estimates that no result has confirmed for this long go back to the profile, ns.
const PATIENCE: Nanos = 5_000_000_000;

/// See the module.
pub(crate) struct Core {
    pub(crate) scheduler: Box<dyn Scheduler<Pending>>,
    /// When the scheduler's next timer is due.
    pub(crate) next: Nanos,
    /// The scheduler's time.
    pub(crate) last: Nanos,
    /// By queue: the pools in which it has a seat.
    seats: Vec<Vec<u32>>,
    estimates: Estimates,
    /// By pool and queue: what the scheduler was told.
    specs: BTreeMap<(u32, u32), QueueSpec>,
}

impl Core {
    pub(crate) fn new(options: &Options, estimation: Estimation) -> Self {
        Self {
            scheduler: schedule::build(options),
            next: NEVER,
            last: 0,
            seats: Vec::new(),
            estimates: Estimates::new(estimation),
            specs: BTreeMap::new(),
        }
    }

    /// Plays the timers that are due by `now`.
    pub(crate) fn catch_up(
        &mut self,
        now: Nanos,
        precision: Nanos,
        actions: &mut Actions<Pending>,
    ) {
        while self.next <= now {
            let due = self.next;
            let at = if now - due > precision { now } else { due };
            let at = at.max(self.last);
            self.scheduler.on_timer(at, actions);
            self.next = self.scheduler.next_timer().unwrap_or(NEVER);
            if self.next <= at {
                return;
            }
        }
    }

    /// The pools in which a queue has a seat.
    pub(crate) fn seats_of(&self, queue: u32) -> &[u32] {
        self.seats.get(queue as usize).map_or(&[], Vec::as_slice)
    }

    /// Gives a queue a seat. `spec` holds the profile; what is known better is used in its place.
    pub(crate) fn seat(
        &mut self,
        now: Nanos,
        (pool, queue): (u32, u32),
        mut spec: QueueSpec,
        actions: &mut Actions<Pending>,
    ) {
        let at = queue as usize;
        if self.seats.len() <= at {
            self.seats.resize_with(at + 1, Vec::new);
        }
        if !self.seats[at].contains(&pool) {
            self.seats[at].push(pool);
        }
        self.estimates.seed(now, pool, queue, &spec.latency);
        if let Some(known) = self.estimates.table(pool, queue) {
            spec.latency = known.clone();
        }
        self.specs.insert((pool, queue), spec.clone());
        self.scheduler.on_loaded(now, pool, queue, spec, actions);
    }

    /// Takes the seat back.
    pub(crate) fn unseat(
        &mut self,
        now: Nanos,
        (pool, queue): (u32, u32),
        actions: &mut Actions<Pending>,
    ) {
        if let Some(seats) = self.seats.get_mut(queue as usize) {
            seats.retain(|of| *of != pool);
        }
        self.estimates.forget(pool, queue);
        self.specs.remove(&(pool, queue));
        self.scheduler.on_unloaded(now, pool, queue, actions);
    }

    /// Learns from a run; whether the scheduler was given a new table.
    pub(crate) fn observe(
        &mut self,
        now: Nanos,
        (pool, queue): (u32, u32),
        run: Run,
        actions: &mut Actions<Pending>,
    ) -> bool {
        let Some(latency) = self.estimates.observe(now, pool, queue, run) else {
            return false;
        };
        self.tell(now, (pool, queue), latency, actions);
        true
    }

    /// Takes stale estimates back to their profiles; the queues concerned.
    pub(crate) fn refresh(&mut self, now: Nanos, actions: &mut Actions<Pending>) -> Vec<u32> {
        let stale = self.estimates.refresh(now, PATIENCE);
        let queues = stale.iter().map(|(_, queue, _)| *queue).collect();
        for (pool, queue, latency) in stale {
            self.tell(now, (pool, queue), latency, actions);
        }
        queues
    }

    /// What the profile says of a batch, ns.
    pub(crate) fn profiled(&self, (pool, queue): (u32, u32), rows: u32) -> Option<Nanos> {
        Some(self.estimates.profile(pool, queue)?.of(rows))
    }

    /// How much longer than by its profile a lone query takes where it takes least, ns.
    pub(crate) fn excess(&self, queue: u32) -> Nanos {
        let excess = |pool: &u32| {
            let known = self.estimates.table(*pool, queue)?;
            let profile = self.estimates.profile(*pool, queue)?;
            Some(known.of(1).saturating_sub(profile.of(1)))
        };
        self.seats_of(queue)
            .iter()
            .filter_map(excess)
            .min()
            .unwrap_or(0)
    }

    fn tell(
        &mut self,
        now: Nanos,
        (pool, queue): (u32, u32),
        latency: schedule::LatencyTable,
        actions: &mut Actions<Pending>,
    ) {
        if let Some(spec) = self.specs.get_mut(&(pool, queue)) {
            spec.latency = latency;
            let spec = spec.clone();
            self.scheduler.on_loaded(now, pool, queue, spec, actions);
        }
    }
}
