//! When lanes are planned anew, and what happens to the requests in them.

use sextant_schedule::PoolIx;

use super::{
    super::slots::SlotBatch, Actions, Demand, Lane, NEVER, Nanos, PoolQueues, Queue, Replicas,
    Request, RequestQueue, Routes, Share, Sharing, Station,
};
use sextant_types::index::{IndexVec, QueueIx, SlotIx};

/// Rates are first computed after this time, then after twice this time and so on, always from the first request on,
/// until an epoch is over: the rates of one second are rough.
const FIRST: Nanos = 1_000_000_000;
/// When the target of a queue becomes known, others follow soon. One plan after this time serves all of them.
const SETTLING: Nanos = 50_000_000;

impl<T, S: Sharing> Replicas<T, S> {
    /// Counts an arrival for rates and targets.
    pub(super) fn count(&mut self, now: Nanos, queue: QueueIx, request: &Request<T>) {
        self.requests += 1;
        self.waiting += 1;
        let Some(of) = self.queues.known_mut(queue) else {
            return;
        };
        of.rows += request.rows;
        of.arrived += u64::from(request.rows);
        of.by_pool.count(of.rows, &mut self.queued);
        let known = of.target != NEVER;
        if request.deadline != NEVER {
            of.target = request.deadline.saturating_sub(now);
        }
        let Some(epoch) = self.sharing.epoch() else {
            return;
        };
        if self.plan_at == NEVER {
            let wait = if self.measured {
                epoch
            } else {
                FIRST.min(epoch)
            };
            self.counted_from = now;
            self.plan_at = now.saturating_add(wait.max(1));
        }
        if !known && request.deadline != NEVER {
            self.plan_at = self.plan_at.min(now.saturating_add(SETTLING));
        }
    }

    /// Makes a plan when it is due, or when the last one names slots or queues that are gone.
    pub(super) fn keep_planned(&mut self, now: Nanos, actions: &mut Actions<T>) {
        if self.plan_at <= now {
            self.take_rates(now);
            self.stale = true;
        }
        if std::mem::take(&mut self.stale) {
            self.lay_out(now, actions);
        }
    }

    /// How long arrivals are counted before rates are computed from them.
    fn first_wait(&self, epoch: Nanos) -> Nanos {
        let first = if self.measured { epoch } else { FIRST };
        first.min(epoch).max(1)
    }

    /// Computes the rates since counting began. After a whole epoch, counting begins anew if anything came; otherwise
    /// with the next request.
    fn take_rates(&mut self, now: Nanos) {
        let Some(epoch) = self.sharing.epoch() else {
            return;
        };
        let elapsed = now.saturating_sub(self.counted_from);
        let first = self.first_wait(epoch);
        if elapsed < first {
            self.plan_at = self.counted_from.saturating_add(first);
            return;
        }
        let mut any = false;
        for of in self.queues.iter_mut().flatten() {
            any |= of.arrived > 0;
            of.rate = Some(of.arrived as f64 / elapsed as f64);
        }
        if elapsed < epoch {
            let next = elapsed.saturating_mul(2).min(epoch);
            self.plan_at = self.counted_from.saturating_add(next);
            return;
        }
        self.measured = true;
        self.counted_from = now;
        self.queues
            .iter_mut()
            .flatten()
            .for_each(|of| of.arrived = 0);
        self.plan_at = match any {
            true => now.saturating_add(epoch.max(1)),
            false => NEVER,
        };
    }

    /// Plans every lane anew. Requests in a lane that remains keep their place; the others are routed as if they came
    /// now.
    fn lay_out(&mut self, now: Nanos, actions: &mut Actions<T>) {
        let plans: Vec<_> = self.slots.pools().map(|pool| self.plan(pool)).collect();
        let mut old = std::mem::take(&mut self.stations);
        let slots = self.slots.numbers();
        self.stations = slots.map(|_| Station::default()).collect();
        let mut targets: IndexVec<QueueIx, _> = self.queues.iter().map(|_| Vec::new()).collect();
        for (slot, shares) in plans.into_iter().flatten() {
            let mut lanes = old.get_mut(slot).map(|of| std::mem::take(&mut of.lanes));
            for share in shares {
                let station = &mut self.stations[slot];
                let lane = station.lanes.len() as u32;
                targets[share.queue].push((slot, lane, share.weight));
                station.add(share, lanes.as_mut());
            }
            if let (Some(lanes), Some(of)) = (lanes, old.get_mut(slot)) {
                of.lanes = lanes;
            }
        }
        for (targets, of) in targets.iter().zip(self.queues.iter_mut()) {
            if let Some(of) = of {
                of.routes = Routes::new(targets, self.sharing.frontends());
            }
        }
        for (queue, request) in self.displaced(old) {
            self.route(now, queue, request);
        }
        for slot in self.stations.numbers() {
            if self.slots.is_up(slot) {
                self.serve(now, slot, actions);
            } else {
                self.timers.remove(slot);
            }
        }
    }

    /// The slots of a pool with the desired queues of each.
    fn plan(&self, pool: PoolIx) -> Vec<(SlotIx, Vec<Share>)> {
        let slots: Vec<SlotIx> = self.slots.of_pool(pool).collect();
        let numbered = self.queues.numbered();
        let demands: Vec<Demand<'_>> = numbered
            .filter_map(|(queue, of)| {
                let of = of.as_ref()?;
                Some(Demand {
                    queue,
                    rate: of.rate.map(|rate| rate * self.part(of, slots.len())),
                    target: of.target,
                    spec: &of.by_pool.on(pool)?.spec,
                    delay: self.delay,
                })
            })
            .collect();
        if demands.is_empty() || slots.is_empty() {
            return Vec::new();
        }
        let plan = self.sharing.plan(&demands, slots.len() as u32);
        slots.into_iter().zip(plan).collect()
    }

    /// The part of a queue's requests that goes to a pool of `slots` slots; it is proportional to the number of slots.
    fn part(&self, of: &Queue<T>, slots: usize) -> f64 {
        let all: u32 = of
            .by_pool
            .iter()
            .map(|on_pool| self.slots.load(on_pool.pool, 0).slots)
            .sum();
        slots as f64 / f64::from(all.max(1))
    }

    /// Requests in removed lanes and without a lane, by queue.
    fn displaced(
        &mut self,
        mut old: IndexVec<SlotIx, Station<T, S::Memory>>,
    ) -> Vec<(QueueIx, Request<T>)> {
        let mut displaced = Vec::new();
        for mut lane in old.iter_mut().flat_map(|of| std::mem::take(&mut of.lanes)) {
            let requests = lane.requests.clear();
            displaced.extend(requests.into_iter().map(|request| (lane.queue, request)));
        }
        for (queue, of) in self.queues.numbers().zip(self.queues.iter_mut()) {
            if let Some(of) = of
                && !of.stranded.is_empty()
            {
                let requests = of.stranded.clear();
                displaced.extend(requests.into_iter().map(|request| (queue, request)));
                self.expiries.remove(queue);
            }
        }
        displaced.sort_by_key(|(queue, request)| (*queue, request.deadline));
        displaced
    }

    /// Takes back all waiting requests of a queue.
    pub(super) fn recall(&mut self, queue: QueueIx) -> Vec<Request<T>> {
        let Some(of) = self.queues.known_mut(queue) else {
            return Vec::new();
        };
        self.expiries.remove(queue);
        let mut requests = of.stranded.clear();
        for (slot, lane) in of.routes.targets() {
            let station = &mut self.stations[*slot];
            requests.extend(station.lanes[*lane as usize].requests.clear());
            station.turn.retain(|waiting| waiting != lane);
        }
        requests.sort_by_key(|request| request.deadline);
        requests
    }

    /// Tells a lane how long its batch ran.
    pub(super) fn learn(&mut self, now: Nanos, slot: SlotIx, sent: &SlotBatch) {
        let Some(of) = self.queues.known(sent.queue) else {
            return;
        };
        let ran = now.saturating_sub(sent.start);
        let lanes = self.stations.get_mut(slot);
        let lane = lanes.and_then(|of| of.lanes.iter_mut().find(|lane| lane.queue == sent.queue));
        if let Some(lane) = lane {
            self.sharing
                .learn(&mut lane.memory, sent.rows, ran, of.target);
        }
    }
}

// === impl Station ===

impl<T, M> Default for Station<T, M> {
    fn default() -> Self {
        Self {
            lanes: Vec::new(),
            turn: std::collections::VecDeque::new(),
        }
    }
}

impl<T, M: Default> Station<T, M> {
    /// Adds a lane, with what the slot's lane of the same queue held before.
    fn add(&mut self, share: Share, before: Option<&mut Vec<Lane<T, M>>>) {
        let kept = before.and_then(|lanes| {
            let at = lanes.iter().position(|lane| lane.queue == share.queue)?;
            Some(lanes.swap_remove(at))
        });
        let (requests, memory) = kept.map_or_else(
            || (RequestQueue::default(), M::default()),
            |lane| (lane.requests, lane.memory),
        );
        if !requests.is_empty() {
            self.turn.push_back(self.lanes.len() as u32);
        }
        self.lanes.push(Lane {
            queue: share.queue,
            requests,
            planned: share.rows,
            memory,
        });
    }
}

// === impl Queue ===

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            by_pool: PoolQueues::default(),
            routes: Routes::default(),
            stranded: RequestQueue::default(),
            rows: 0,
            target: NEVER,
            arrived: 0,
            rate: None,
        }
    }
}
