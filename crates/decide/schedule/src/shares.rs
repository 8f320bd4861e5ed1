//! Weighted max-min shares of a pool's device time among tenants.
//!
//! A tenant below its share must not be delayed by another tenant's load. While devices suffice, the earliest deadline
//! goes first, whichever tenant asks. The *room* of a tenant is the time that its targets leave beyond the run. When
//! the waiting work would delay a tenant by more than half of its room, the pool is *contended*. Device time is then
//! shared out by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): each tenant has a finish tag `F`, and
//! the pool has a virtual time `V` for each priority. A batch that takes `c` of device time begins at the tag `S =
//! max(F, V)`, with `V` as it was when its tenant began to wait, and moves `F` to `S + c / weight`. The new `V` is the
//! least `S` of the tenants that wait or begin. A tenant whose tag exceeds that of a waiting tenant by more than an
//! eighth of the other's room has had its share for now and goes after it; otherwise the deadline decides. No tenant
//! saves up shares while it is idle, and no device idles while a tenant waits.
//!
//! A batch is not interrupted, so its length counts as well. On a contended pool a tenant runs batches of at most half
//! the room of the tenants that would be due next and have little waiting. Four times the fixed cost of a batch is
//! always allowed, so that tight targets of one tenant cost the others at most a quarter of their throughput.
//!
//! A higher priority goes before all shares.
//!
//! An event touches only the tenant that it concerns, and no tenant that is merely registered. The tenants that wait,
//! that are held back and that asked lately are in the heaps of their class ([`Class`]), and the first entries of these
//! heaps decide.

use std::cmp;

use super::{LatencyTable, NEVER, Nanos, QueueSpec};
use sextant_types::index::{IndexVec, QueueIx, TenantIx};

mod class;
#[cfg(test)]
mod tests;

use class::{Class, Classes, Tenant};

/// The waiting work of a tenant in a pool, and the share that it is entitled to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backlog {
    /// The tenant.
    pub tenant: TenantIx,
    /// A higher priority goes first.
    pub priority: u8,
    /// The share of what is served if not everything can be served.
    pub weight: f32,
    /// Device time that the waiting work will take, times the slots that it occupies, ns.
    pub work: Nanos,
    /// The most of `work` that may run in one batch.
    pub batch: Nanos,
    /// Device time that an equal tenant of weight 1 gets before this tenant has its turn again, ns.
    pub lag: Nanos,
}

/// A change of a pool's shares, for callers that keep a copy of [`Backlog`]s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum News {
    /// The backlog of a tenant, with its finish tag. Its lag is the amount by which the tag exceeds the time of its
    /// priority. That time moves for all tenants of a priority at once.
    Tenant {
        /// Its lag is not filled in; it is 0 here.
        backlog: Backlog,
        /// The finish tag.
        finish: Nanos,
    },
    /// A tenant no longer has a queue in the pool.
    Gone(TenantIx),
    /// The virtual time of a priority.
    Time {
        /// The priority.
        priority: u8,
        /// Its time.
        time: Nanos,
    },
}

/// How long a tenant's targets are remembered after the last query, ns.
const MEMORY: Nanos = 1_000_000_000;

/// The room of a query without a target, ns.
const PATIENT: Nanos = 1_000_000_000;

/// Others may take one part in this many of a tenant's room.
const TAKEN: Nanos = 2;

/// Others may be ahead of a tenant by one part in this many of its room.
const AHEAD: Nanos = 8;

/// A batch may always run this many times its fixed cost.
const FIXED: f64 = 4.0;

/// The shares of a pool's tenants.
///
/// The entries of a lone tenant in the heaps of its class are not maintained, because nothing reads them. They are made
/// when a second tenant comes.
#[derive(Debug, Default)]
pub(super) struct Shares {
    tenants: IndexVec<TenantIx, Option<Box<Tenant>>>,
    /// The number of tenants.
    count: usize,
    classes: Classes,
    work: Nanos,
    /// The number of slots by which it was last decided which tenants have little waiting.
    slots: Nanos,
    /// Queues of tenants that are no longer held back.
    due: Vec<QueueIx>,
    news: ChangeList,
}

/// The tenants that have changed since they were last taken, each once.
#[derive(Debug, Default)]
struct ChangeList {
    list: Vec<TenantIx>,
    marked: IndexVec<TenantIx, bool>,
}

/// How much device time goes before a query that `tenant` adds, times the slots that it occupies, ns: its own waiting
/// work, what equal tenants get by their weights until that is served, and all work of a higher priority. `None` for a
/// tenant that is not known there. Other tenants without waiting work may be left out.
pub fn ahead(tenant: TenantIx, backlogs: impl Iterator<Item = Backlog> + Clone) -> Option<Nanos> {
    let own = backlogs.clone().find(|it| it.tenant == tenant)?;
    // No other tenant gets a turn within one batch.
    let later = own.work.saturating_sub(own.batch);
    let turns = later as f64 / f64::from(own.weight) + own.lag as f64;
    let others = backlogs.filter(|it| it.tenant != tenant);
    let before = others.map(|other| match other.priority.cmp(&own.priority) {
        cmp::Ordering::Greater => other.work,
        cmp::Ordering::Less => 0,
        // The cast saturates.
        cmp::Ordering::Equal => other.work.min((turns * f64::from(other.weight)) as Nanos),
    });
    Some(before.fold(own.work, Nanos::saturating_add))
}

// === impl Shares ===

impl Shares {
    /// A queue has a seat on the pool.
    pub fn enter(&mut self, queue: QueueIx, spec: &QueueSpec) {
        let (tenant, priority) = (spec.tenant, spec.priority);
        let time = self.classes.grown(priority).time;
        let slot = self.tenants.grown(tenant);
        let is_new = slot.is_none();
        let of = slot.get_or_insert_with(|| Box::new(Tenant::new(priority, time)));
        let before = std::mem::replace(&mut of.priority, priority);
        if before != priority {
            of.finish = time;
        }
        of.weight = spec.weight.max(f32::MIN_POSITIVE);
        let batch = spec.work(spec.max_rows.min(spec.planned_rows)) * Nanos::from(spec.slots);
        of.batch = of.batch.max(batch);
        of.queues.push(queue);
        self.news.add(tenant);
        let was_kept_back = before != priority && self.quit(tenant, before);
        if is_new || before != priority {
            let class = self.classes.grown(priority);
            class.members += 1;
            if was_kept_back {
                class.kept_back.set(tenant, time);
            }
        }
        self.count += usize::from(is_new);
        match is_new && self.count == 2 {
            true => self.tenants.numbers().for_each(|it| self.arrange(it)),
            false => self.arrange(tenant),
        }
    }

    /// A queue no longer has a seat in the pool, and none of its work counts as waiting.
    pub fn leave(&mut self, queue: QueueIx, tenant: TenantIx) {
        let Some(of) = self.tenants.known_mut(tenant) else {
            return;
        };
        of.queues.retain(|known| *known != queue);
        if !of.queues.is_empty() {
            return;
        }
        let priority = of.priority;
        self.news.add(tenant);
        *self.tenants.grown(tenant) = None;
        self.count -= 1;
        self.quit(tenant, priority);
        self.classes.drop_empty();
    }

    /// Removes a tenant from a class. Returns whether it was held back there.
    fn quit(&mut self, tenant: TenantIx, priority: u8) -> bool {
        let class = self.classes.get_mut(priority);
        class.is_some_and(|class| class.quit(tenant))
    }

    /// Ranks a tenant among those of its class, if there are others.
    fn arrange(&mut self, tenant: TenantIx) {
        let slots = self.slots;
        if self.count > 1
            && let Some((of, class)) = self.tenant(tenant)
        {
            class.rank(tenant, of);
            class.remember(tenant, of);
            class.judge(tenant, of, slots);
        }
    }

    /// Device time of the work that waits for the pool, times slots, ns.
    pub fn work(&self) -> Nanos {
        self.work
    }

    /// A part of a tenant's waiting work changes from `before` to `after`.
    pub fn count(&mut self, tenant: TenantIx, before: Nanos, after: Nanos) {
        if before == after {
            return;
        }
        let changed = |work: Nanos| work.saturating_sub(before).saturating_add(after);
        self.work = changed(self.work);
        let Some(of) = self.tenants.known_mut(tenant) else {
            return;
        };
        let Some(class) = self.classes.get_mut(of.priority) else {
            return;
        };
        let (before, priority) = (of.work, of.priority);
        of.work = changed(before);
        let (waited, waits) = (before > 0, of.work > 0);
        if waits && !waited {
            of.finish = of.finish.max(class.time);
        }
        self.news.add(tenant);
        if self.count < 2 {
            return;
        }
        let little = of.little(self.slots);
        if (before <= little) != (of.work <= little) {
            class.judge(tenant, of, self.slots);
        }
        if waits != waited {
            class.rank(tenant, of);
            self.release(priority);
        }
    }

    /// A query has come that may take `room` beyond its own run.
    pub fn note(&mut self, now: Nanos, tenant: TenantIx, room: Nanos) {
        let Some(of) = self.tenants.known_mut(tenant) else {
            return;
        };
        let room = room.min(PATIENT);
        let was_recent = now.saturating_sub(of.noted) <= MEMORY;
        if room > of.room && was_recent {
            return;
        }
        let is_news = of.room != room;
        (of.room, of.noted) = (room, now);
        if was_recent && !is_news {
            return;
        }
        let priority = of.priority;
        let class = self.classes.get_mut(priority);
        let Some(class) = class.filter(|_| self.count > 1) else {
            return;
        };
        class.remember(tenant, of);
        class.judge(tenant, of, self.slots);
        if is_news && of.work > 0 {
            class.rank(tenant, of);
            self.release(priority);
        }
    }

    /// A batch of a tenant starts that takes `work` of device time, times slots.
    pub fn charge(&mut self, tenant: TenantIx, work: Nanos) {
        let Some(of) = self.tenants.known_mut(tenant) else {
            return;
        };
        let Some(class) = self.classes.get_mut(of.priority) else {
            return;
        };
        let start = of.tag(class);
        // The cast saturates.
        let turn = (work as f64 / f64::from(of.weight)) as Nanos;
        of.finish = start.saturating_add(turn);
        self.news.add(tenant);
        if self.count < 2 {
            return class.pass(start);
        }
        if of.work > 0 || class.kept_back.key(tenant).is_some() {
            class.rank(tenant, of);
        }
        class.pass(class.least_finish().min(start));
        let priority = of.priority;
        self.release(priority);
    }

    /// Moves the candidates of those tenants of a priority forward that no longer have more than their share.
    fn release(&mut self, priority: u8) {
        let Some(class) = self.classes.get_mut(priority) else {
            return;
        };
        while let Some(tenant) = class.next_released() {
            if let Some(of) = self.tenants.known(tenant) {
                self.due.extend_from_slice(&of.queues);
            }
        }
    }

    /// A queue whose candidates need no longer be held back.
    pub fn next_due(&mut self) -> Option<QueueIx> {
        self.due.pop()
    }

    /// Whether the candidates of a tenant are held back on a pool of `slots` slots.
    #[inline]
    pub fn keeps_back(&mut self, tenant: TenantIx, slots: u32) -> bool {
        self.count > 1 && self.keeps_back_among(tenant, slots)
    }

    fn keeps_back_among(&mut self, tenant: TenantIx, slots: u32) -> bool {
        let work = self.work;
        let Some((of, class)) = self.tenant(tenant) else {
            return false;
        };
        let is_contended = work > class.room().saturating_mul(Nanos::from(slots));
        let kept_back = is_contended && of.tag(class) > class.limit();
        if kept_back {
            class.kept_back.set(tenant, of.finish);
        }
        kept_back
    }

    /// The most rows of a tenant's next batch on a pool of `slots` slots, for the sake of others.
    #[inline]
    pub fn most_rows(&mut self, now: Nanos, spec: &QueueSpec, slots: u32) -> u32 {
        let slots = Nanos::from(slots);
        match self.count > 1 && (self.slots != slots || self.is_crowded()) {
            true => self.most_rows_among(now, spec, slots),
            false => u32::MAX,
        }
    }

    /// Whether more work waits than fits into the least room of the tenants that asked lately and have little waiting.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.work > self.classes.least_modest().saturating_mul(self.slots)
    }

    fn most_rows_among(&mut self, now: Nanos, spec: &QueueSpec, slots: Nanos) -> u32 {
        if self.slots != slots {
            self.slots = slots;
            self.tenants.numbers().for_each(|it| self.arrange(it));
        }
        let tenants = &self.tenants;
        let Some(of) = tenants.known(spec.tenant) else {
            return u32::MAX;
        };
        // Only tenants whose room is less than the waiting work count.
        let mut least = match self.work {
            0 => 0,
            work => (work - 1).checked_div(slots).map_or(NEVER, |most| most + 1),
        };
        let none = least;
        for class in self.classes.from(of.priority) {
            if class.modest.least() >= least {
                continue;
            }
            class.forget(now, tenants);
            let tag = match class.priority == of.priority {
                true => of.tag(class),
                false => NEVER,
            };
            let is_due = |other: TenantIx| {
                let of = tenants.known(other);
                other != spec.tenant && of.is_some_and(|of| of.finish <= tag)
            };
            least = class.modest.least_below(least, is_due).unwrap_or(least);
        }
        match least < none {
            true => longest(&spec.latency, least, spec.max_rows),
            false => u32::MAX,
        }
    }

    /// The backlogs, by tenant.
    pub fn backlogs(&self) -> impl Iterator<Item = Backlog> {
        let tenants = self.tenants.numbered();
        tenants.filter_map(|(tenant, of)| Some(self.backlog(tenant, of.as_ref()?)))
    }

    /// How much device time goes before a query that a tenant adds, as [`ahead`].
    pub fn ahead(&self, tenant: TenantIx) -> Option<Nanos> {
        let of = self.tenants.known(tenant)?;
        if self.count < 2 {
            return Some(of.work);
        }
        let waiting = self.classes.waiting_from(of.priority);
        let others = waiting.filter(|other| *other != tenant);
        let all = std::iter::once(tenant).chain(others);
        let backlogs = all.filter_map(|it| Some(self.backlog(it, self.tenants.known(it)?)));
        ahead(tenant, backlogs)
    }

    /// Passes to `each` what has changed since the last call.
    pub fn take_news(&mut self, each: &mut dyn FnMut(News)) {
        for class in self.classes.from(0) {
            if let Some(time) = class.take_time() {
                let priority = class.priority;
                each(News::Time { priority, time });
            }
        }
        for tenant in self.news.list.drain(..) {
            *self.news.marked.grown(tenant) = false;
            each(match self.tenants.known(tenant) {
                Some(of) => {
                    let (backlog, finish) = (of.backlog(tenant, 0), of.finish);
                    News::Tenant { backlog, finish }
                }
                None => News::Gone(tenant),
            });
        }
    }

    fn backlog(&self, tenant: TenantIx, of: &Tenant) -> Backlog {
        let class = self.classes.get(of.priority);
        let lag = class.map_or(0, |class| of.finish.saturating_sub(class.time));
        of.backlog(tenant, lag)
    }

    fn tenant(&mut self, tenant: TenantIx) -> Option<(&Tenant, &mut Class)> {
        let of = self.tenants.known(tenant)?;
        Some((of, self.classes.get_mut(of.priority)?))
    }
}

// === impl ChangeList ===

impl ChangeList {
    #[inline]
    fn add(&mut self, tenant: TenantIx) {
        if !std::mem::replace(self.marked.grown(tenant), true) {
            self.list.push(tenant);
        }
    }
}

/// The most rows of a batch that delays others by no more than `room`, at least 1.
fn longest(latency: &LatencyTable, room: Nanos, most: u32) -> u32 {
    let always = (FIXED * latency.fixed_part()) as Nanos;
    latency.rows_within(room.max(always), most).max(1)
}
