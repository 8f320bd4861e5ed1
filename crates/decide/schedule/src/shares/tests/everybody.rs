//! Shares that are found by looking at every tenant at each event. What [`super::super::Shares`] stores must be the
//! same.

use std::{cmp, collections::BTreeMap};

use smallvec::SmallVec;

use super::super::{AHEAD, Backlog, MEMORY, NEVER, Nanos, PATIENT, QueueSpec, TAKEN, longest};
use sextant_types::index::{QueueIx, TenantIx};

#[derive(Debug)]
struct Tenant {
    priority: u8,
    weight: f32,
    queues: SmallVec<[QueueIx; 2]>,
    finish: Nanos,
    work: Nanos,
    batch: Nanos,
    /// The least time that its queries lately left beyond their own run.
    room: Nanos,
    noted: Nanos,
    /// Whether its candidates are held back.
    kept_back: bool,
}

/// The tenants of one priority.
#[derive(Debug)]
struct Class {
    /// Virtual time.
    time: Nanos,
    /// The least tag beyond which a tenant has had its share.
    limit: Nanos,
    /// Half of the least room of the tenants that wait.
    room: Nanos,
}

/// The shares of a pool's tenants.
#[derive(Debug, Default)]
pub(super) struct ReferenceShares {
    tenants: BTreeMap<TenantIx, Tenant>,
    classes: BTreeMap<u8, Class>,
    work: Nanos,
    /// Queues of tenants that are no longer held back.
    due: Vec<QueueIx>,
}

// === impl Tenant ===

impl Tenant {
    /// The tag of its next batch. While it waits, its finish tag is no less than the virtual time.
    fn tag(&self, class: &Class) -> Nanos {
        self.finish.max(class.time)
    }

    /// The part of its room that others may take; [`NEVER`] for a tenant that has not asked lately.
    fn taken(&self, now: Nanos) -> Nanos {
        match now.saturating_sub(self.noted) <= MEMORY {
            true => self.room / TAKEN,
            false => NEVER,
        }
    }

    /// The tag beyond which others go after it.
    fn limit(&self, class: &Class) -> Nanos {
        let room = self.room.min(PATIENT);
        self.tag(class).saturating_add(room / AHEAD)
    }
}

// === impl Class ===

impl Default for Class {
    fn default() -> Self {
        Self {
            time: 0,
            limit: NEVER,
            room: NEVER,
        }
    }
}

// === impl ReferenceShares ===

impl ReferenceShares {
    /// A queue has a seat on the pool.
    pub fn enter(&mut self, queue: QueueIx, spec: &QueueSpec) {
        let time = self.classes.entry(spec.priority).or_default().time;
        let batch = spec.work(spec.max_rows) * Nanos::from(spec.slots);
        let tenant = self.tenants.entry(spec.tenant).or_insert(Tenant {
            priority: spec.priority,
            weight: 1.0,
            queues: SmallVec::new(),
            finish: time,
            work: 0,
            batch: 0,
            room: NEVER,
            noted: 0,
            kept_back: false,
        });
        if tenant.priority != spec.priority {
            tenant.finish = time;
        }
        tenant.priority = spec.priority;
        tenant.weight = spec.weight.max(f32::MIN_POSITIVE);
        tenant.batch = tenant.batch.max(batch);
        tenant.queues.push(queue);
    }

    /// A queue no longer has a seat in the pool, and none of its work counts as waiting.
    pub fn leave(&mut self, queue: QueueIx, tenant: TenantIx) {
        let Some(of) = self.tenants.get_mut(&tenant) else {
            return;
        };
        of.queues.retain(|known| *known != queue);
        if of.queues.is_empty() {
            self.tenants.remove(&tenant);
            let tenants = &self.tenants;
            let used = |priority: u8| tenants.values().any(|it| it.priority == priority);
            self.classes.retain(|priority, _| used(*priority));
        }
    }

    /// Device time of the work that waits for the pool, times slots, ns.
    pub fn work(&self) -> Nanos {
        self.work
    }

    /// A part of a tenant's waiting work changes from `before` to `after`.
    pub fn count(&mut self, tenant: TenantIx, before: Nanos, after: Nanos) {
        let changed = |work: Nanos| work.saturating_sub(before).saturating_add(after);
        self.work = changed(self.work);
        let Some(of) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let now = changed(of.work);
        let waits = (of.work > 0, now > 0);
        if waits == (false, true) {
            let time = self.classes.get(&of.priority).map_or(0, |it| it.time);
            of.finish = of.finish.max(time);
        }
        of.work = now;
        if waits.0 != waits.1 {
            let priority = of.priority;
            self.renew(priority);
        }
    }

    /// A query has come that may take `room` beyond its own run.
    pub fn note(&mut self, now: Nanos, tenant: TenantIx, room: Nanos) {
        let Some(of) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let room = room.min(PATIENT);
        if room > of.room && now.saturating_sub(of.noted) <= MEMORY {
            return;
        }
        let is_news = of.room != room;
        (of.room, of.noted) = (room, now);
        if is_news && of.work > 0 {
            let priority = of.priority;
            self.renew(priority);
        }
    }

    /// A batch of a tenant starts that takes `work` of device time, times slots.
    pub fn charge(&mut self, tenant: TenantIx, work: Nanos) {
        let Some(of) = self.tenants.get_mut(&tenant) else {
            return;
        };
        let priority = of.priority;
        let class = self.classes.entry(priority).or_default();
        let start = of.tag(class);
        // The cast saturates.
        let turn = (work as f64 / f64::from(of.weight)) as Nanos;
        of.finish = start.saturating_add(turn);
        let others = self.tenants.values();
        let waiting = others.filter(|other| other.priority == priority && other.work > 0);
        let first = waiting.map(|other| other.finish).fold(start, Nanos::min);
        class.time = class.time.max(first);
        self.renew(priority);
    }

    /// Determines again which tenants of a priority have had their share.
    fn renew(&mut self, priority: u8) {
        let Some(class) = self.classes.get_mut(&priority) else {
            return;
        };
        (class.limit, class.room) = (NEVER, NEVER);
        let mut kept_back = false;
        for of in self.tenants.values() {
            if of.priority == priority && of.work > 0 {
                class.limit = class.limit.min(of.limit(class));
                class.room = class.room.min(of.room.min(PATIENT) / TAKEN);
            }
            kept_back |= of.kept_back;
        }
        if !kept_back {
            return;
        }
        for of in self.tenants.values_mut() {
            if of.priority == priority && of.kept_back && of.tag(class) <= class.limit {
                of.kept_back = false;
                self.due.extend_from_slice(&of.queues);
            }
        }
    }

    /// A queue whose candidates need no longer be held back.
    pub fn next_due(&mut self) -> Option<QueueIx> {
        self.due.pop()
    }

    /// Whether the candidates of a tenant are held back on a pool of `slots` slots.
    pub fn keeps_back(&mut self, tenant: TenantIx, slots: u32) -> bool {
        self.tenants.len() > 1 && self.keeps_back_among(tenant, slots)
    }

    fn keeps_back_among(&mut self, tenant: TenantIx, slots: u32) -> bool {
        let Some(of) = self.tenants.get_mut(&tenant) else {
            return false;
        };
        let Some(class) = self.classes.get(&of.priority) else {
            return false;
        };
        let is_contended = self.work > class.room.saturating_mul(Nanos::from(slots));
        let kept_back = is_contended && of.tag(class) > class.limit;
        of.kept_back |= kept_back;
        kept_back
    }

    /// The most rows of a tenant's next batch on a pool of `slots` slots, for the sake of others.
    pub fn most_rows(&self, now: Nanos, spec: &QueueSpec, slots: u32) -> u32 {
        match self.tenants.len() > 1 {
            true => self.most_rows_among(now, spec, slots),
            false => u32::MAX,
        }
    }

    fn most_rows_among(&self, now: Nanos, spec: &QueueSpec, slots: u32) -> u32 {
        let slots = Nanos::from(slots);
        let Some(of) = self.tenants.get(&spec.tenant) else {
            return u32::MAX;
        };
        let tag = self.classes.get(&of.priority).map_or(0, |it| of.tag(it));
        let others = self.tenants.iter().filter(|(id, other)| {
            let is_due = match other.priority.cmp(&of.priority) {
                cmp::Ordering::Greater => true,
                cmp::Ordering::Less => false,
                cmp::Ordering::Equal => other.finish <= tag,
            };
            is_due && **id != spec.tenant
        });
        let rooms = others.filter_map(|(_, other)| {
            let room = other.taken(now);
            let most = room.saturating_mul(slots);
            // A tenant that floods the pool itself does not need short batches from others.
            (self.work > most && other.work <= most).then_some(room)
        });
        match rooms.min() {
            Some(room) => longest(&spec.latency, room, spec.max_rows),
            None => u32::MAX,
        }
    }

    /// The backlogs, by tenant.
    pub fn backlogs(&self) -> impl Iterator<Item = Backlog> {
        self.tenants.iter().map(|(tenant, of)| Backlog {
            tenant: *tenant,
            priority: of.priority,
            weight: of.weight,
            work: of.work,
            batch: of.batch,
            lag: self
                .classes
                .get(&of.priority)
                .map_or(0, |class| of.finish.saturating_sub(class.time)),
        })
    }
}
