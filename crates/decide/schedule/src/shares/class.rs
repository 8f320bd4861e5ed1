//! The tenants of one priority, with a heap for each minimum that a decision needs.

use smallvec::SmallVec;

use super::{
    super::{IndexedHeap, NEVER, Nanos},
    AHEAD, Backlog, MEMORY, PATIENT, TAKEN,
};
use sextant_types::index::{IndexVec, QueueIx, TenantIx};

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) priority: u8,
    pub(super) weight: f32,
    pub(super) queues: SmallVec<[QueueIx; 2]>,
    /// Its finish tag. While the tenant waits, it is no less than the time of its class.
    pub(super) finish: Nanos,
    pub(super) work: Nanos,
    pub(super) batch: Nanos,
    /// The least time that its queries lately left beyond their own run; [`NEVER`] before the first.
    pub(super) room: Nanos,
    pub(super) noted: Nanos,
}

/// The classes, highest priority first. There are few.
#[derive(Debug, Default)]
pub(super) struct Classes(Vec<Class>);

/// The tenants of one priority.
#[derive(Debug, Default)]
pub(super) struct Class {
    pub(super) priority: u8,
    /// Virtual time.
    pub(super) time: Nanos,
    /// The virtual time that was last reported.
    told: Option<Nanos>,
    /// The number of tenants.
    pub(super) members: u32,
    /// Tenants that wait, by finish tag.
    finishes: IndexedHeap<TenantIx>,
    /// Tenants that wait, by the tag beyond which others go after them.
    limits: IndexedHeap<TenantIx>,
    /// Tenants that wait, by the part of their room that others may take.
    rooms: IndexedHeap<TenantIx>,
    /// Tenants that asked lately, by a time at which they did.
    recent: IndexedHeap<TenantIx>,
    /// Those of them whose waiting work fits into the part of their room that others may take, by that part.
    pub(super) modest: IndexedHeap<TenantIx>,
    /// Tenants whose candidates are held back, by finish tag.
    pub(super) kept_back: IndexedHeap<TenantIx>,
}

// === impl Tenant ===

impl Tenant {
    pub(super) fn new(priority: u8, time: Nanos) -> Self {
        Self {
            priority,
            weight: 1.0,
            queues: SmallVec::new(),
            finish: time,
            work: 0,
            batch: 0,
            room: NEVER,
            noted: 0,
        }
    }

    /// The tag of its next batch.
    pub(super) fn tag(&self, class: &Class) -> Nanos {
        self.finish.max(class.time)
    }

    /// The most work that a tenant with little waiting may have, on this many slots.
    #[inline]
    pub(super) fn little(&self, slots: Nanos) -> Nanos {
        (self.room / TAKEN).saturating_mul(slots)
    }

    pub(super) fn backlog(&self, tenant: TenantIx, lag: Nanos) -> Backlog {
        Backlog {
            tenant,
            priority: self.priority,
            weight: self.weight,
            work: self.work,
            batch: self.batch,
            lag,
        }
    }
}

// === impl Classes ===

impl Classes {
    #[inline]
    pub(super) fn get(&self, priority: u8) -> Option<&Class> {
        self.0.iter().find(|class| class.priority == priority)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, priority: u8) -> Option<&mut Class> {
        let mut classes = self.0.iter_mut();
        classes.find(|class| class.priority == priority)
    }

    /// The class of a priority. It is made if there is none.
    pub(super) fn grown(&mut self, priority: u8) -> &mut Class {
        let at = self.0.partition_point(|class| class.priority > priority);
        if self
            .0
            .get(at)
            .is_none_or(|class| class.priority != priority)
        {
            let class = Class {
                priority,
                ..Class::default()
            };
            self.0.insert(at, class);
        }
        &mut self.0[at]
    }

    /// The classes of this priority and of higher ones.
    #[inline]
    pub(super) fn from(&mut self, priority: u8) -> impl Iterator<Item = &mut Class> {
        let classes = self.0.iter_mut();
        classes.take_while(move |class| class.priority >= priority)
    }

    /// The tenants of this priority and of higher ones that wait, in no particular order.
    pub(super) fn waiting_from(&self, priority: u8) -> impl Iterator<Item = TenantIx> + Clone {
        let classes = self.0.iter();
        let classes = classes.take_while(move |class| class.priority >= priority);
        classes.flat_map(|class| class.waiting())
    }

    /// The least room of the tenants of any class that asked lately and have little waiting.
    #[inline]
    pub(super) fn least_modest(&self) -> Nanos {
        let classes = self.0.iter().map(|class| class.modest.least());
        classes.fold(NEVER, Nanos::min)
    }

    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|class| class.members > 0);
    }
}

// === impl Class ===

impl Class {
    /// The least tag beyond which a tenant has had its share.
    pub(super) fn limit(&self) -> Nanos {
        self.limits.first_key().unwrap_or(NEVER)
    }

    /// Half of the least room of the tenants that wait.
    pub(super) fn room(&self) -> Nanos {
        self.rooms.first_key().unwrap_or(NEVER)
    }

    /// The least finish tag of the tenants that wait.
    pub(super) fn least_finish(&self) -> Nanos {
        self.finishes.first_key().unwrap_or(NEVER)
    }

    /// The tenants that wait, in no particular order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = TenantIx> + Clone {
        self.finishes.iter().map(|(_, tenant)| tenant)
    }

    /// Sets the virtual time to `time`, if it was less.
    pub(super) fn pass(&mut self, time: Nanos) {
        self.time = self.time.max(time);
    }

    /// The virtual time, if it has changed since the last call.
    pub(super) fn take_time(&mut self) -> Option<Nanos> {
        (self.told.replace(self.time) != Some(self.time)).then_some(self.time)
    }

    /// Ranks a tenant by its finish tag, and by its room while it waits.
    pub(super) fn rank(&mut self, tenant: TenantIx, of: &Tenant) {
        if of.work > 0 {
            let room = of.room.min(PATIENT);
            self.finishes.set(tenant, of.finish);
            self.limits
                .set(tenant, of.finish.saturating_add(room / AHEAD));
            self.rooms.set(tenant, room / TAKEN);
        } else {
            self.finishes.remove(tenant);
            self.limits.remove(tenant);
            self.rooms.remove(tenant);
        }
        if self.kept_back.key(tenant).is_some() {
            self.kept_back.set(tenant, of.finish);
        }
    }

    /// Remembers that a tenant has asked. A tenant that is known keeps its recorded time, which is checked when it is
    /// old, so that not every query moves the entry.
    pub(super) fn remember(&mut self, tenant: TenantIx, of: &Tenant) {
        if of.room < NEVER && self.recent.key(tenant).is_none() {
            self.recent.set(tenant, of.noted);
        }
    }

    /// Decides again whether a tenant that asked lately has little waiting.
    pub(super) fn judge(&mut self, tenant: TenantIx, of: &Tenant, slots: Nanos) {
        match self.recent.key(tenant).is_some() && of.work <= of.little(slots) {
            true => self.modest.set(tenant, of.room / TAKEN),
            false => drop(self.modest.remove(tenant)),
        }
    }

    /// Forgets the tenants that have not asked lately.
    pub(super) fn forget(&mut self, now: Nanos, tenants: &IndexVec<TenantIx, Option<Box<Tenant>>>) {
        while let Some((at, tenant)) = self.recent.first()
            && now.saturating_sub(at) > MEMORY
        {
            let of = tenants.known(tenant);
            match of.filter(|of| now.saturating_sub(of.noted) <= MEMORY) {
                Some(of) => self.recent.set(tenant, of.noted),
                None => {
                    self.recent.remove(tenant);
                    self.modest.remove(tenant);
                }
            }
        }
    }

    /// The next tenant that is held back without having had more than its share. It is then no longer held back.
    pub(super) fn next_released(&mut self) -> Option<TenantIx> {
        let (finish, tenant) = self.kept_back.first()?;
        let is_over = finish.max(self.time) <= self.limit();
        is_over.then(|| {
            self.kept_back.remove(tenant);
            tenant
        })
    }

    /// Removes a tenant from this class. Returns whether it was held back.
    pub(super) fn quit(&mut self, tenant: TenantIx) -> bool {
        self.members -= 1;
        self.finishes.remove(tenant);
        self.limits.remove(tenant);
        self.rooms.remove(tenant);
        self.recent.remove(tenant);
        self.modest.remove(tenant);
        self.kept_back.remove(tenant).is_some()
    }
}
