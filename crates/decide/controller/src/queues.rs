//! The queues of a variant: one if its queries come in one size, otherwise one for each size that shares batches, with
//! the run times of that size. A long query therefore waits with long ones, and its run time says nothing about short
//! ones.

use smallvec::SmallVec;

use super::{
    Controller, LatencyTable, Nanos, OnKind, PoolIx, QueueSpec, Request, TaggedPayload, VariantSpec,
};
use sextant_types::index::{KindIx, QueueIx, VariantIx};

/// When a variant has this many queues, an unused one is closed before another is opened.
const MOST: usize = 64;

/// The properties of a query's inputs that determine its run time and the queries with which it shares a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Shape {
    /// Elements of one of its rows. It is not used for a variant without a [`Surface`](sextant_profile::Surface).
    pub size: u64,
    /// The queries with which it may share a batch.
    pub sharing: Sharing,
}

/// The queries that share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Sharing {
    /// Queries of similar sizes, which are padded.
    #[default]
    Near,
    /// Only queries with the same dimensions. The number identifies the dimensions.
    Equal(u64),
}

/// Distinguishes the queues of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// All queries of the variant.
    All,
    /// Queries up to this size, which is the end of a bucket.
    Near(u64),
    /// Queries with these dimensions.
    Equal(u64),
    /// Queries up to this size, each of which runs alone.
    Alone(u64),
}

/// A queue of the scheduler.
#[derive(Debug)]
pub(super) struct Queue {
    pub variant: VariantIx,
    key: Key,
    /// The smallest and the largest size.
    pub sizes: (u64, u64),
    /// Run times for kinds of device of which nothing is known.
    pub latency: LatencyTable,
    /// Requests that are neither in a batch nor dropped. They are not counted for [`Key::All`].
    requests: u32,
    /// Batches under way. They are not counted for [`Key::All`].
    running: u32,
    /// When the last request came.
    used: Nanos,
}

impl<T> Controller<T> {
    /// The queue for a request of a known variant.
    pub(super) fn queue_for(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        shape: Shape,
    ) -> Option<QueueIx> {
        let of = self.variant(variant)?;
        let Some(surface) = &of.spec.surface else {
            // The queue was made with the variant.
            return of.queues.first().copied();
        };
        let bucket = surface.bucket(shape.size);
        let (key, sizes) = match shape.sharing {
            Sharing::Near => (Key::Near(bucket.1), bucket),
            Sharing::Equal(dims) => (Key::Equal(dims), (shape.size, shape.size)),
        };
        if let Some(known) = self.shaped.get(&(variant, key)) {
            return Some(*known);
        }
        if of.queues.len() >= MOST && !self.close_idle(now, variant) && key != Key::Near(bucket.1) {
            let key = Key::Alone(bucket.1);
            let known = self.shaped.get(&(variant, key)).copied();
            return known.or_else(|| self.open_queue(now, variant, key, bucket));
        }
        self.open_queue(now, variant, key, sizes)
    }

    /// Opens a queue of a known variant, with a seat in every pool in which the variant is ready.
    fn open_queue(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        key: Key,
        sizes: (u64, u64),
    ) -> Option<QueueIx> {
        let queue = Queue {
            variant,
            key,
            sizes,
            latency: self.variant(variant)?.spec.latency(sizes.1),
            requests: 0,
            running: 0,
            used: now,
        };
        let at = match self.vacant_queues.pop() {
            Some(at) => {
                self.queues[at] = queue;
                at
            }
            None => self.queues.push(queue),
        };
        if key != Key::All {
            self.shaped.insert((variant, key), at);
        }
        if let Some(of) = self.variants.known_mut(variant) {
            of.queues.push(at);
        }
        self.seed(now, at);
        for pool in self.pools_of(variant).to_vec() {
            self.seat_queue(now, pool, at);
        }
        Some(at)
    }

    /// Closes the queue of a variant that has been unused for longest, among those in which nothing waits or runs.
    /// Returns whether there was one.
    fn close_idle(&mut self, now: Nanos, variant: VariantIx) -> bool {
        let Some(of) = self.variant(variant) else {
            return false;
        };
        let idle = of
            .queues
            .iter()
            .filter(|queue| self.queues[**queue].is_idle());
        let oldest = idle.min_by_key(|queue| self.queues[**queue].used);
        match oldest.copied() {
            Some(queue) => self.close_queue(now, queue),
            None => return false,
        }
        true
    }

    /// Closes a queue in which nothing waits or runs.
    pub(super) fn close_queue(&mut self, now: Nanos, queue: QueueIx) {
        let Queue { variant, key, .. } = self.queues[queue];
        for pool in self.pools_of(variant).to_vec() {
            self.scheduler
                .on_unloaded(now, pool, queue, &mut self.actions);
        }
        for kind in self.kinds_of(variant) {
            self.estimates.forget(kind, queue);
        }
        self.shaped.remove(&(variant, key));
        if let Some(of) = self.variants.known_mut(variant) {
            of.queues.retain(|known| *known != queue);
        }
        self.vacant_queues.push(queue);
        self.changed_variants.add(variant);
    }

    /// The queues of a variant.
    pub(super) fn queues_of(&self, variant: VariantIx) -> SmallVec<[QueueIx; 1]> {
        let of = self.variant(variant);
        of.map_or_else(SmallVec::new, |of| of.queues.clone())
    }

    fn kinds_of(&self, variant: VariantIx) -> SmallVec<[KindIx; 4]> {
        let kinds = self
            .variant(variant)
            .into_iter()
            .flat_map(|of| &of.spec.kinds);
        kinds.map(|on| on.kind).collect()
    }

    /// The variant of a queue.
    pub(super) fn variant_of(&self, queue: QueueIx) -> VariantIx {
        self.queues[queue].variant
    }

    /// Gives the estimator the profile of a queue on every kind of device that can run its variant.
    pub(super) fn seed(&mut self, now: Nanos, queue: QueueIx) {
        let of = &self.queues[queue];
        let Some(variant) = self.variants.known(of.variant) else {
            return;
        };
        for on in &variant.spec.kinds {
            let profile = variant.profile(on.kind, of);
            self.estimates.seed(now, on.kind, queue, &profile);
        }
    }

    /// A request has arrived for a queue.
    pub(super) fn count_request(&mut self, now: Nanos, queue: QueueIx, rows: u32) {
        let of = &mut self.queues[queue];
        if of.key == Key::All {
            return;
        }
        of.requests += 1;
        of.used = now;
        if let Some(variant) = self.variants.known_mut(of.variant) {
            variant.waiting_rows += u64::from(rows);
        }
    }

    /// Requests with this many rows in all have left a queue.
    pub(super) fn count_left(&mut self, queue: QueueIx, requests: u32, rows: u32) {
        let of = &mut self.queues[queue];
        if of.key == Key::All {
            return;
        }
        of.requests -= requests;
        if let Some(variant) = self.variants.known_mut(of.variant) {
            variant.waiting_rows = variant.waiting_rows.saturating_sub(u64::from(rows));
        }
    }

    /// A batch of a queue is under way, or no longer under way.
    pub(super) fn count_running(&mut self, queue: QueueIx, begins: bool) {
        let of = &mut self.queues[queue];
        match begins {
            _ if of.key == Key::All => {}
            true => of.running += 1,
            false => of.running -= 1,
        }
    }

    /// Whether a variant whose queries come in several sizes has no room for this many more rows. The scheduler checks
    /// only one queue at a time.
    pub(super) fn is_full(&self, variant: VariantIx, rows: u32) -> bool {
        self.variant(variant).is_some_and(|of| {
            let rows = of.waiting_rows + u64::from(rows);
            of.spec.surface.is_some() && rows > u64::from(of.spec.queue.max_waiting_rows)
        })
    }

    /// The facts about a variant have changed: its queues have other run times, and its queries may now come in several
    /// sizes instead of one, or the other way round.
    pub(super) fn renew_queues(&mut self, now: Nanos, variant: VariantIx) {
        let Some(of) = self.variant(variant) else {
            return;
        };
        let plain = of.spec.surface.is_none();
        for queue in of.queues.clone() {
            let of = &self.queues[queue];
            if plain && of.is_idle() {
                self.close_queue(now, queue);
                continue;
            }
            let to = of.sizes.1;
            if let Some(latency) = self.variant(variant).map(|of| of.spec.latency(to)) {
                self.queues[queue].latency = latency;
            }
        }
        if !plain {
            return;
        }
        let queues = self.queues_of(variant);
        let all = |queue: &QueueIx| self.queues[*queue].key == Key::All;
        let known = queues.iter().copied().find(all);
        let open = || self.open_queue(now, variant, Key::All, (0, u64::MAX));
        let Some(first) = known.or_else(open) else {
            return;
        };
        // Requests go to the first queue.
        if let Some(of) = self.variants.known_mut(variant)
            && let Some(at) = of.queues.iter().position(|known| *known == first)
        {
            of.queues.swap(0, at);
        }
    }

    /// The specification of a queue in a pool, with the best known run times.
    pub(super) fn queue_on(&self, pool: PoolIx, queue: QueueIx) -> Option<QueueSpec> {
        let of = &self.queues[queue];
        let (variant, kind) = (self.variant(of.variant)?, self.pools.kind(pool)?);
        let known = self.estimates.table(kind, queue).cloned();
        let spec = &variant.spec.queue;
        Some(QueueSpec {
            latency: known.unwrap_or_else(|| variant.profile(kind, of)),
            price: variant.on(kind).map_or(spec.price, |on| on.price),
            planned_rows: variant.on(kind).map_or(u32::MAX, |on| on.planned_rows),
            batched: spec.batched && !matches!(of.key, Key::Alone(_)),
            ..spec.clone()
        })
    }

    /// Where a variant whose queries come in several sizes runs slower than its profile says: the kind of device, the
    /// smallest and the largest size, and the additional time of a lone request, ns.
    pub fn excesses(&self, variant: VariantIx) -> impl Iterator<Item = Slowdown> {
        let kinds = self.kinds_of(variant);
        let queues = self.queues_of(variant).into_iter();
        let shaped = queues.filter(|queue| self.queues[*queue].key != Key::All);
        shaped.flat_map(move |queue| {
            let kinds = kinds.clone().into_iter();
            kinds.filter_map(move |kind| {
                let excess = self.excess(kind, queue);
                let sizes = self.queues[queue].sizes;
                (excess > 0).then_some(Slowdown {
                    kind,
                    sizes,
                    excess,
                })
            })
        })
    }

    pub(super) fn forget_kinds(&mut self, variant: VariantIx, known: &[OnKind]) {
        let Some(of) = self.variant(variant) else {
            return;
        };
        let gone = known.iter().filter(|gone| of.on(gone.kind).is_none());
        let gone: SmallVec<[KindIx; 4]> = gone.map(|gone| gone.kind).collect();
        for queue in self.queues_of(variant) {
            for kind in &gone {
                self.estimates.forget(*kind, queue);
            }
        }
    }

    /// Hands requests to the scheduler. Those of one queue go together.
    pub(super) fn hand_in(&mut self, now: Nanos, requests: Vec<Request<TaggedPayload<T>>>) {
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
    /// Whether none of its requests waits or runs. This is not known for [`Key::All`], for which it returns `false`.
    fn is_idle(&self) -> bool {
        self.key != Key::All && self.requests == 0 && self.running == 0
    }
}

/// Where a variant runs slower than its profile says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowdown {
    /// The kind of device.
    pub kind: KindIx,
    /// The smallest and the largest size to which it applies.
    pub sizes: (u64, u64),
    /// The additional time of a lone request, ns.
    pub excess: Nanos,
}

impl VariantSpec {
    /// Run times of queries of a size, for kinds of device of which nothing is known.
    pub(super) fn latency(&self, size: u64) -> LatencyTable {
        match &self.surface {
            Some(surface) => surface.table(size),
            None => self.queue.latency.clone(),
        }
    }
}
