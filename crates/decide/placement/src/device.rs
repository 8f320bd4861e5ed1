//! Pages, residents and the LOAD executor of one device.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Nanos, Shared, VariantSpec};
use sextant_schedule::{IndexedHeap, NEVER};
use sextant_types::index::{KindIx, VariantIx};

/// A LOAD that is not answered yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub variant: VariantIx,
    /// When it starts, as far as is known.
    pub start: Nanos,
    pub expected: Nanos,
}

/// An UNLOAD that is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Unload {
    variant: VariantIx,
    expected: Nanos,
    /// The LOAD that waits for it; `None` while none was sent after it.
    before: Option<VariantIx>,
}

#[derive(Debug)]
pub(super) struct Device {
    /// Its kind. All devices of a kind load and run a variant alike.
    pub kind: KindIx,
    pub pages: u32,
    /// Pages that nothing holds. It is negative if more was found than there should be room for, as on a device that
    /// shares more than these records show.
    free: i64,
    /// Variants with a replica here, in any state.
    here: BTreeSet<VariantIx>,
    /// The variants that hold pages, and which pages.
    residents: BTreeMap<VariantIx, Footprint>,
    groups: BTreeMap<u32, Group>,
    /// The variants that may be unloaded, by the worth of keeping them.
    victims: IndexedHeap<VariantIx>,
    /// Pages that become free in addition when all of those are unloaded.
    evictable: u32,
    /// LOADs under way, in the order in which they run.
    pub loads: VecDeque<Load>,
    /// UNLOADs under way that take time, in the order in which they were sent.
    unloads: Vec<Unload>,
    /// Whether a desired variant found no room here.
    pub short: bool,
    /// When it was last asked for its next LOAD.
    pub attempted: Nanos,
}

/// The pages that a variant takes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    pages: u32,
    shared: Option<Shared>,
}

/// Variants here that share pages.
#[derive(Debug, Clone, Copy)]
struct Group {
    pages: u32,
    members: u32,
    /// The number of members that may not be unloaded.
    kept: u32,
}

// === impl Footprint ===

impl Footprint {
    pub fn of(spec: &VariantSpec) -> Self {
        Self {
            pages: spec.pages,
            shared: spec.shared,
        }
    }

    /// The pages that it takes on a device that has none of them.
    pub fn whole(&self) -> u32 {
        let shared = self.shared.map_or(0, |shared| shared.pages);
        self.pages.saturating_add(shared)
    }
}

// === impl Load ===

impl Load {
    pub fn end(&self) -> Nanos {
        self.start.saturating_add(self.expected)
    }
}

// === impl Device ===

impl Device {
    pub fn new(kind: KindIx, pages: u32) -> Self {
        Self {
            kind,
            pages,
            free: i64::from(pages),
            here: BTreeSet::new(),
            residents: BTreeMap::new(),
            groups: BTreeMap::new(),
            victims: IndexedHeap::default(),
            evictable: 0,
            loads: VecDeque::new(),
            unloads: Vec::new(),
            short: false,
            attempted: 0,
        }
    }

    /// Pages that nothing holds.
    pub fn free(&self) -> u32 {
        u32::try_from(self.free).unwrap_or(0)
    }

    /// The pages that a variant takes in addition to those that are here.
    pub fn missing(&self, footprint: Footprint) -> u32 {
        match footprint.shared {
            Some(shared) if self.groups.contains_key(&shared.group) => footprint.pages,
            _ => footprint.whole(),
        }
    }

    /// Whether a variant would fit without unloading anything.
    pub fn is_free_for(&self, footprint: Footprint) -> bool {
        self.free >= i64::from(self.missing(footprint))
    }

    /// Whether a variant would fit after everything that may be unloaded is gone.
    pub fn has_room(&self, footprint: Footprint) -> bool {
        let all = self.free + i64::from(self.evictable);
        // The pages that it shares with variants that may all be unloaded must stay, or be loaded again.
        let group = footprint.shared.map(|shared| shared.group);
        let group = group.and_then(|group| self.groups.get(&group));
        match group {
            Some(group) if group.kept > 0 => all >= i64::from(footprint.pages),
            _ => all >= i64::from(footprint.whole()),
        }
    }

    /// Whether a variant would fit after everything except `stays` is gone.
    pub fn has_room_beside(
        &self,
        footprint: Footprint,
        stays: impl Fn(&VariantIx) -> bool,
    ) -> bool {
        let mut groups = BTreeMap::new();
        let mut taken = 0u32;
        for (variant, held) in &self.residents {
            if stays(variant) {
                taken = taken.saturating_add(held.pages);
                groups.extend(held.shared.map(|shared| (shared.group, shared.pages)));
            }
        }
        if let Some(shared) = footprint.shared {
            groups.insert(shared.group, shared.pages);
        }
        let together = groups
            .values()
            .fold(footprint.pages, |sum, pages| sum.saturating_add(*pages));
        taken.saturating_add(together) <= self.pages
    }

    /// Adds a replica. For now it may not be unloaded.
    pub fn admit(&mut self, variant: VariantIx, footprint: Footprint) {
        self.free -= i64::from(self.missing(footprint));
        self.here.insert(variant);
        self.residents.insert(variant, footprint);
        if let Some(shared) = footprint.shared {
            let group = self.groups.entry(shared.group).or_insert(Group {
                pages: shared.pages,
                members: 0,
                kept: 0,
            });
            if group.members > 0 && group.kept == 0 {
                self.evictable -= group.pages;
            }
            group.members += 1;
            group.kept += 1;
        }
    }

    /// Frees the pages of a replica.
    pub fn release(&mut self, variant: VariantIx) {
        // A protected replica is not in the sums of the replicas that may be unloaded.
        self.protect(variant);
        let Some(footprint) = self.residents.remove(&variant) else {
            return;
        };
        self.free += i64::from(footprint.pages);
        let Some(shared) = footprint.shared else {
            return;
        };
        let Some(group) = self.groups.get_mut(&shared.group) else {
            return;
        };
        group.members -= 1;
        group.kept -= 1;
        if group.members == 0 {
            self.free += i64::from(group.pages);
            self.groups.remove(&shared.group);
        } else if group.kept == 0 {
            self.evictable += group.pages;
        }
    }

    /// Allows a replica to be unloaded, with the worth of keeping it.
    pub fn offer(&mut self, variant: VariantIx, worth: u64) {
        let Some(footprint) = self.residents.get(&variant) else {
            return;
        };
        if self.victims.key(variant).is_none() {
            self.evictable += footprint.pages;
            let shared = footprint.shared.map(|shared| shared.group);
            if let Some(group) = shared.and_then(|group| self.groups.get_mut(&group)) {
                group.kept -= 1;
                if group.kept == 0 {
                    self.evictable += group.pages;
                }
            }
        }
        self.victims.set(variant, worth);
    }

    /// Forbids unloading a replica.
    pub fn protect(&mut self, variant: VariantIx) {
        let Some(footprint) = self.residents.get(&variant) else {
            return;
        };
        if self.victims.remove(variant).is_none() {
            return;
        }
        self.evictable -= footprint.pages;
        let shared = footprint.shared.map(|shared| shared.group);
        if let Some(group) = shared.and_then(|group| self.groups.get_mut(&group)) {
            if group.kept == 0 {
                self.evictable -= group.pages;
            }
            group.kept += 1;
        }
    }

    /// The variant that is worth least among those that may be unloaded, and its worth.
    pub fn cheapest(&self) -> Option<(u64, VariantIx)> {
        self.victims.first()
    }

    /// The last computed worth of a variant that may be unloaded.
    pub fn worth_of(&self, variant: VariantIx) -> Option<u64> {
        self.victims.key(variant)
    }

    /// The variants that are here in any state.
    pub fn residents(&self) -> Vec<VariantIx> {
        self.here.iter().copied().collect()
    }

    /// Removes a variant entirely.
    pub fn forget(&mut self, variant: VariantIx) {
        self.release(variant);
        self.here.remove(&variant);
    }

    /// The time from which one more LOAD may be issued: when less than `ahead` is outstanding, or 0 for at once.
    /// [`NEVER`] until the device answers, if as much as `ahead` is queued behind a LOAD that may be stuck.
    pub fn ready_at(&self, ahead: Nanos) -> Nanos {
        let (Some(first), Some(last)) = (self.loads.front(), self.loads.back()) else {
            return 0;
        };
        if ahead == 0 || last.end() - first.end() >= ahead {
            return NEVER;
        }
        // At that time strictly less than the look-ahead is outstanding.
        last.end().saturating_sub(ahead - 1)
    }

    /// When a LOAD that is sent now could start: after all outstanding LOADs and UNLOADs.
    pub fn free_at(&self, now: Nanos) -> Nanos {
        self.loads_end(now).saturating_add(self.unload_time())
    }

    /// The expected time of the outstanding UNLOADs, ns.
    pub fn unload_time(&self) -> Nanos {
        let times = self.unloads.iter().map(|unload| unload.expected);
        times.fold(0, Nanos::saturating_add)
    }

    /// When all outstanding LOADs should have ended if no UNLOAD delays them. A LOAD that is overdue is assumed to end
    /// now.
    pub fn loads_end(&self, now: Nanos) -> Nanos {
        match (self.loads.front(), self.loads.back()) {
            (Some(first), Some(last)) => last
                .end()
                .saturating_add(now.saturating_sub(first.end()))
                .max(now),
            _ => now,
        }
    }

    /// A LOAD was sent. It waits for the UNLOADs that were sent before it.
    pub fn load_sent(&mut self, load: Load) {
        for unload in &mut self.unloads {
            unload.before = unload.before.or(Some(load.variant));
        }
        self.loads.push_back(load);
    }

    /// An UNLOAD was sent. LOADs that are sent later wait for it. An UNLOAD that is expected to take no time delays none.
    pub fn unload_sent(&mut self, variant: VariantIx, expected: Nanos) {
        if expected > 0 {
            self.unloads.push(Unload {
                variant,
                expected,
                before: None,
            });
        }
    }

    /// A LOAD has ended. The LOADs behind it follow from now on.
    pub fn loaded(&mut self, now: Nanos, variant: VariantIx) {
        let Some(at) = self.loads.iter().position(|load| load.variant == variant) else {
            return;
        };
        self.loads.remove(at);
        // They went before it.
        self.unloads.retain(|unload| unload.before != Some(variant));
        if at == 0 {
            self.start_loads(now);
        }
    }

    /// An UNLOAD has ended. The LOADs follow from now on if the first one waited for this UNLOAD alone.
    pub fn unloaded(&mut self, now: Nanos, variant: VariantIx) {
        let mut unloads = self.unloads.iter();
        let Some(at) = unloads.position(|unload| unload.variant == variant) else {
            return;
        };
        let before = self.unloads.remove(at).before;
        let first = self.loads.front().map(|load| load.variant);
        let waits = self.unloads.iter().any(|unload| unload.before == first);
        if first.is_some() && before == first && !waits {
            self.start_loads(now);
        }
    }

    /// The first LOAD starts now, and the others follow.
    fn start_loads(&mut self, now: Nanos) {
        let mut free = now;
        for load in &mut self.loads {
            load.start = free;
            free = load.end();
        }
    }

    /// The worth of the most valuable of the variants that must be unloaded for a variant; `None` if unloading does not
    /// free enough pages.
    pub fn dearest_victim(&mut self, footprint: Footprint) -> Option<u64> {
        let (mut aside, mut gone) = (Vec::new(), BTreeMap::new());
        let mut free = self.free;
        let fits = loop {
            if free >= i64::from(self.missing_without(footprint, &gone)) {
                break true;
            }
            let Some((worth, victim)) = self.victims.first() else {
                break false;
            };
            self.victims.remove(victim);
            aside.push((worth, victim));
            free += i64::from(self.freed_by(victim, &mut gone));
        };
        let dearest = aside.last().map(|(worth, _)| *worth);
        for (worth, victim) in aside {
            self.victims.set(victim, worth);
        }
        dearest.filter(|_| fits)
    }

    /// Like [`Self::missing`], without the members of groups that are in `gone`.
    fn missing_without(&self, footprint: Footprint, gone: &BTreeMap<u32, u32>) -> u32 {
        let group = footprint.shared.map(|shared| shared.group);
        let members = group.and_then(|group| self.groups.get(&group));
        let left = |group: &Group, of: u32| group.members > gone.get(&of).copied().unwrap_or(0);
        match (members, group) {
            (Some(members), Some(of)) if left(members, of) => footprint.pages,
            _ => footprint.whole(),
        }
    }

    /// The pages that become free when a victim is unloaded after those in `gone`. Adds the victim to `gone`.
    fn freed_by(&self, victim: VariantIx, gone: &mut BTreeMap<u32, u32>) -> u32 {
        let Some(footprint) = self.residents.get(&victim) else {
            return 0;
        };
        let mut pages = footprint.pages;
        if let Some(shared) = footprint.shared
            && let Some(group) = self.groups.get(&shared.group)
        {
            let left = gone.entry(shared.group).or_insert(0);
            *left += 1;
            if *left == group.members {
                pages += group.pages;
            }
        }
        pages
    }
}
