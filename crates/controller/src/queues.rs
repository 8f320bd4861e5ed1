//! The queues of a model: one where its queries come in one size, and otherwise one for each size that
//! shares batches, with the run times of that size. So a long query waits with long ones, and what it
//! takes says nothing of short ones.

use smallvec::SmallVec;

use super::{
    Controller, LatencyTable, ModelSpec, Nanos, OnKind, PoolIx, QueueSpec, Request, Tagged,
};

/// Most queues of one model, until they are looked through for one that nobody uses.
const MOST: usize = 64;

/// What of a query's inputs decides how long it runs, and with which others it shares a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Shape {
    /// Elements of one of its rows. Says nothing for a model without a
    /// [`Surface`](sextant_profile::Surface).
    pub size: u64,
    /// Which queries it may share a batch with.
    pub sharing: Sharing,
}

/// Which queries share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Sharing {
    /// Those of near sizes: they are padded.
    #[default]
    Near,
    /// Only those whose dimensions are the same; the number names the dimensions.
    Equal(u64),
}

/// What tells the queues of a model apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// All queries are alike.
    All,
    /// Up to this size, which ends a bucket.
    Near(u64),
    /// These dimensions.
    Equal(u64),
    /// Up to this size, and each query runs for itself.
    Alone(u64),
}

/// A queue of the scheduler.
#[derive(Debug)]
pub(super) struct Queue {
    pub model: u32,
    key: Key,
    /// The smallest and the largest size.
    pub sizes: (u64, u64),
    /// Run times where nothing is known of the kind of device.
    pub latency: LatencyTable,
    /// Requests that are neither in a batch nor dropped; not counted where all queries are alike.
    requests: u32,
    /// Batches under way, counted alike.
    running: u32,
    /// When the last request came.
    used: Nanos,
}

impl<T> Controller<T> {
    /// The queue for a request of a model that is known.
    pub(super) fn queue_for(&mut self, now: Nanos, model: u32, shape: Shape) -> Option<u32> {
        let of = self.model(model)?;
        let Some(surface) = &of.spec.surface else {
            // Made with the model.
            return of.queues.first().copied();
        };
        let bucket = surface.bucket(shape.size);
        let (key, sizes) = match shape.sharing {
            Sharing::Near => (Key::Near(bucket.1), bucket),
            Sharing::Equal(dims) => (Key::Equal(dims), (shape.size, shape.size)),
        };
        if let Some(known) = self.shaped.get(&(model, key)) {
            return Some(*known);
        }
        if of.queues.len() >= MOST && !self.close_idle(now, model) && key != Key::Near(bucket.1) {
            let key = Key::Alone(bucket.1);
            let known = self.shaped.get(&(model, key)).copied();
            return known.or_else(|| self.open_queue(now, model, key, bucket));
        }
        self.open_queue(now, model, key, sizes)
    }

    /// A new queue of a model that is known, with a seat wherever the model is ready.
    fn open_queue(&mut self, now: Nanos, model: u32, key: Key, sizes: (u64, u64)) -> Option<u32> {
        let queue = Queue {
            model,
            key,
            sizes,
            latency: self.model(model)?.spec.latency(sizes.1),
            requests: 0,
            running: 0,
            used: now,
        };
        let at = match self.vacant_queues.pop() {
            Some(at) => {
                self.queues[at as usize] = queue;
                at
            }
            None => {
                self.queues.push(queue);
                self.queues.len() as u32 - 1
            }
        };
        if key != Key::All {
            self.shaped.insert((model, key), at);
        }
        if let Some(Some(of)) = self.models.get_mut(model as usize) {
            of.queues.push(at);
        }
        self.seed(now, at);
        for pool in self.pools_of(model).to_vec() {
            self.seat_queue(now, pool, at);
        }
        Some(at)
    }

    /// Ends the queue of a model that was not used for longest, of those in which nothing waits or
    /// runs; tells whether there was one.
    fn close_idle(&mut self, now: Nanos, model: u32) -> bool {
        let Some(of) = self.model(model) else {
            return false;
        };
        let idle = of
            .queues
            .iter()
            .filter(|queue| self.queues[**queue as usize].is_idle());
        let oldest = idle.min_by_key(|queue| self.queues[**queue as usize].used);
        match oldest.copied() {
            Some(queue) => self.close_queue(now, queue),
            None => return false,
        }
        true
    }

    /// Ends a queue in which nothing waits or runs.
    pub(super) fn close_queue(&mut self, now: Nanos, queue: u32) {
        let Queue { model, key, .. } = self.queues[queue as usize];
        for pool in self.pools_of(model).to_vec() {
            self.scheduler
                .on_unloaded(now, pool, queue, &mut self.actions);
        }
        for kind in self.kinds_of(model) {
            self.estimates.forget(kind, queue);
        }
        self.shaped.remove(&(model, key));
        if let Some(Some(of)) = self.models.get_mut(model as usize) {
            of.queues.retain(|known| *known != queue);
        }
        self.vacant_queues.push(queue);
        self.changed_models.add(model);
    }

    /// The queues of a model.
    pub(super) fn queues_of(&self, model: u32) -> SmallVec<[u32; 1]> {
        let of = self.model(model);
        of.map_or_else(SmallVec::new, |of| of.queues.clone())
    }

    fn kinds_of(&self, model: u32) -> SmallVec<[u32; 4]> {
        let kinds = self.model(model).into_iter().flat_map(|of| &of.spec.kinds);
        kinds.map(|on| on.kind).collect()
    }

    /// The model of a queue.
    pub(super) fn model_of(&self, queue: u32) -> u32 {
        self.queues[queue as usize].model
    }

    /// Tells the estimates of a queue on every kind of device that can run its model.
    pub(super) fn seed(&mut self, now: Nanos, queue: u32) {
        let of = &self.queues[queue as usize];
        let Some(Some(model)) = self.models.get(of.model as usize) else {
            return;
        };
        for on in &model.spec.kinds {
            let profile = model.profile(on.kind, of);
            self.estimates.seed(now, on.kind, queue, &profile);
        }
    }

    /// A request has come for a queue.
    pub(super) fn count_request(&mut self, now: Nanos, queue: u32, rows: u32) {
        let of = &mut self.queues[queue as usize];
        if of.key == Key::All {
            return;
        }
        of.requests += 1;
        of.used = now;
        if let Some(Some(model)) = self.models.get_mut(of.model as usize) {
            model.waiting_rows += u64::from(rows);
        }
    }

    /// Requests of so many rows have left a queue.
    pub(super) fn count_left(&mut self, queue: u32, requests: u32, rows: u32) {
        let of = &mut self.queues[queue as usize];
        if of.key == Key::All {
            return;
        }
        of.requests -= requests;
        if let Some(Some(model)) = self.models.get_mut(of.model as usize) {
            model.waiting_rows = model.waiting_rows.saturating_sub(u64::from(rows));
        }
    }

    /// A batch of a queue is under way, or not any more.
    pub(super) fn count_running(&mut self, queue: u32, begins: bool) {
        let of = &mut self.queues[queue as usize];
        match begins {
            _ if of.key == Key::All => {}
            true => of.running += 1,
            false => of.running -= 1,
        }
    }

    /// Whether a model whose queries come in several sizes has no room for as many rows more: the
    /// scheduler looks at one queue at a time.
    pub(super) fn is_full(&self, model: u32, rows: u32) -> bool {
        self.model(model).is_some_and(|of| {
            let rows = of.waiting_rows + u64::from(rows);
            of.spec.surface.is_some() && rows > u64::from(of.spec.queue.max_waiting_rows)
        })
    }

    /// What is known of a model is new: its queues have other run times, and a model that came in one
    /// size comes in several, or the other way round.
    pub(super) fn renew_queues(&mut self, now: Nanos, model: u32) {
        let Some(of) = self.model(model) else { return };
        let plain = of.spec.surface.is_none();
        for queue in of.queues.clone() {
            let of = &self.queues[queue as usize];
            if plain && of.is_idle() {
                self.close_queue(now, queue);
                continue;
            }
            let to = of.sizes.1;
            if let Some(latency) = self.model(model).map(|of| of.spec.latency(to)) {
                self.queues[queue as usize].latency = latency;
            }
        }
        if !plain {
            return;
        }
        let queues = self.queues_of(model);
        let all = |queue: &u32| self.queues[*queue as usize].key == Key::All;
        let known = queues.iter().copied().find(all);
        let open = || self.open_queue(now, model, Key::All, (0, u64::MAX));
        let Some(first) = known.or_else(open) else {
            return;
        };
        // The first is where requests go.
        if let Some(Some(of)) = self.models.get_mut(model as usize)
            && let Some(at) = of.queues.iter().position(|known| *known == first)
        {
            of.queues.swap(0, at);
        }
    }

    /// What the scheduler is told of a queue on a pool: the run times that are known best.
    pub(super) fn queue_on(&self, pool: PoolIx, queue: u32) -> Option<QueueSpec> {
        let of = &self.queues[queue as usize];
        let (model, kind) = (self.model(of.model)?, self.pools.kind(pool)?);
        let known = self.estimates.table(kind, queue).cloned();
        let spec = &model.spec.queue;
        Some(QueueSpec {
            latency: known.unwrap_or_else(|| model.profile(kind, of)),
            price: model.on(kind).map_or(spec.price, |on| on.price),
            batched: spec.batched && !matches!(of.key, Key::Alone(_)),
            ..spec.clone()
        })
    }

    /// Where a model whose queries come in several sizes runs slower than by its profile: kind of
    /// device, smallest and largest size, and how much longer a lone request takes, ns.
    pub fn excesses(&self, model: u32) -> impl Iterator<Item = Excess> {
        let kinds = self.kinds_of(model);
        let queues = self.queues_of(model).into_iter();
        let shaped = queues.filter(|queue| self.queues[*queue as usize].key != Key::All);
        shaped.flat_map(move |queue| {
            let kinds = kinds.clone().into_iter();
            kinds.filter_map(move |kind| {
                let excess = self.excess(kind, queue);
                let sizes = self.queues[queue as usize].sizes;
                (excess > 0).then_some(Excess {
                    kind,
                    sizes,
                    excess,
                })
            })
        })
    }

    pub(super) fn forget_kinds(&mut self, model: u32, known: &[OnKind]) {
        let Some(of) = self.model(model) else { return };
        let gone = known.iter().filter(|gone| of.on(gone.kind).is_none());
        let gone: SmallVec<[u32; 4]> = gone.map(|gone| gone.kind).collect();
        for queue in self.queues_of(model) {
            for kind in &gone {
                self.estimates.forget(*kind, queue);
            }
        }
    }

    /// Hands requests to the scheduler, those of one queue together.
    pub(super) fn hand_in(&mut self, now: Nanos, requests: Vec<Request<Tagged<T>>>) {
        let mut rest = requests;
        while let Some(queue) = rest.first().map(|request| request.payload.queue) {
            let (of_queue, others) = rest
                .into_iter()
                .partition(|request| request.payload.queue == queue);
            self.scheduler
                .on_requests(now, queue, of_queue, &mut self.actions);
            rest = others;
        }
    }
}

impl Queue {
    /// Whether nothing of it waits or runs, which is not known where all queries are alike.
    fn is_idle(&self) -> bool {
        self.key != Key::All && self.requests == 0 && self.running == 0
    }
}

/// Where a model runs slower than by its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The kind of device.
    pub kind: u32,
    /// The smallest and the largest size that it is known of.
    pub sizes: (u64, u64),
    /// How much longer a lone request takes, ns.
    pub excess: Nanos,
}

impl ModelSpec {
    /// Run times of queries of a size where nothing is known of the kind of device.
    pub(super) fn latency(&self, size: u64) -> LatencyTable {
        match &self.surface {
            Some(surface) => surface.table(size),
            None => self.queue.latency.clone(),
        }
    }
}
