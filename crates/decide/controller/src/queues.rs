//! The queues of a variant: one where its queries come in one size, and otherwise one for each size that
//! shares batches, with the run times of that size. So a long query waits with long ones, and what it
//! takes says nothing of short ones.

use smallvec::SmallVec;

use super::{
    Controller, LatencyTable, Nanos, OnKind, PoolIx, QueueSpec, Request, TaggedPayload, VariantSpec,
};
use sextant_types::index::{KindIx, QueueIx, VariantIx};

/// Most queues of one variant, until they are looked through for one that nobody uses.
const MOST: usize = 64;

/// What of a query's inputs decides how long it runs, and with which others it shares a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Shape {
    /// Elements of one of its rows. Says nothing for a variant without a
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

/// What tells the queues of a variant apart.
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
    pub variant: VariantIx,
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
    /// The queue for a request of a variant that is known.
    pub(super) fn queue_for(
        &mut self,
        now: Nanos,
        variant: VariantIx,
        shape: Shape,
    ) -> Option<QueueIx> {
        let of = self.variant(variant)?;
        let Some(surface) = &of.spec.surface else {
            // Made with the variant.
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

    /// A new queue of a variant that is known, with a seat wherever the variant is ready.
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

    /// Ends the queue of a variant that was not used for longest, of those in which nothing waits or
    /// runs; tells whether there was one.
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

    /// Ends a queue in which nothing waits or runs.
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

    /// Tells the estimates of a queue on every kind of device that can run its variant.
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

    /// A request has come for a queue.
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

    /// Requests of so many rows have left a queue.
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

    /// A batch of a queue is under way, or not any more.
    pub(super) fn count_running(&mut self, queue: QueueIx, begins: bool) {
        let of = &mut self.queues[queue];
        match begins {
            _ if of.key == Key::All => {}
            true => of.running += 1,
            false => of.running -= 1,
        }
    }

    /// Whether a variant whose queries come in several sizes has no room for as many rows more: the
    /// scheduler looks at one queue at a time.
    pub(super) fn is_full(&self, variant: VariantIx, rows: u32) -> bool {
        self.variant(variant).is_some_and(|of| {
            let rows = of.waiting_rows + u64::from(rows);
            of.spec.surface.is_some() && rows > u64::from(of.spec.queue.max_waiting_rows)
        })
    }

    /// What is known of a variant is new: its queues have other run times, and a variant that came in one
    /// size comes in several, or the other way round.
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
        // The first is where requests go.
        if let Some(of) = self.variants.known_mut(variant)
            && let Some(at) = of.queues.iter().position(|known| *known == first)
        {
            of.queues.swap(0, at);
        }
    }

    /// What the scheduler is told of a queue on a pool: the run times that are known best.
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

    /// Where a variant whose queries come in several sizes runs slower than by its profile: kind of
    /// device, smallest and largest size, and how much longer a lone request takes, ns.
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

    /// Hands requests to the scheduler, those of one queue together.
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
    /// Whether nothing of it waits or runs, which is not known where all queries are alike.
    fn is_idle(&self) -> bool {
        self.key != Key::All && self.requests == 0 && self.running == 0
    }
}

/// Where a variant runs slower than by its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowdown {
    /// The kind of device.
    pub kind: KindIx,
    /// The smallest and the largest size that it is known of.
    pub sizes: (u64, u64),
    /// How much longer a lone request takes, ns.
    pub excess: Nanos,
}

impl VariantSpec {
    /// Run times of queries of a size where nothing is known of the kind of device.
    pub(super) fn latency(&self, size: u64) -> LatencyTable {
        match &self.surface {
            Some(surface) => surface.table(size),
            None => self.queue.latency.clone(),
        }
    }
}
