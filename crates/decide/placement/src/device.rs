//! Pages, residents and the LOAD executor of one device.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Nanos, Shared, VariantSpec};
use sextant_schedule::{IndexedHeap, NEVER};
use sextant_types::index::{KindIx, VariantIx};

/// A LOAD that is not answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub variant: VariantIx,
    /// When it starts as far as is known.
    pub start: Nanos,
    pub expected: Nanos,
}

#[derive(Debug)]
pub(super) struct Device {
    /// Which kind it is of: all of a kind load and run a variant alike.
    pub kind: KindIx,
    pub pages: u32,
    /// Pages that nothing holds; below zero where more was found than there should be room for, as
    /// on a device that shares more than these books know.
    free: i64,
    /// Variants with a replica here in any form.
    here: BTreeSet<VariantIx>,
    /// Those that hold pages, and which.
    residents: BTreeMap<VariantIx, Footprint>,
    groups: BTreeMap<u32, Group>,
    /// What may be unloaded, by what it is worth to keep it.
    victims: IndexedHeap<VariantIx>,
    /// Pages that are free once all of those are gone, beside the free ones.
    evictable: u32,
    /// LOADs under way, in the order in which they run.
    pub loads: VecDeque<Load>,
    /// Whether a desired variant found no room here.
    pub short: bool,
    /// When it was last asked for its next LOAD.
    pub attempted: Nanos,
}

/// What a variant takes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Footprint {
    pages: u32,
    shared: Option<Shared>,
}

/// Variants here that hold pages together.
#[derive(Debug, Clone, Copy)]
struct Group {
    pages: u32,
    members: u32,
    /// Members that may not be unloaded.
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

    /// Pages of a device that has nothing of it.
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
            short: false,
            attempted: 0,
        }
    }

    /// Pages that nothing holds.
    pub fn free(&self) -> u32 {
        u32::try_from(self.free).unwrap_or(0)
    }

    /// Pages that a variant takes in addition to what is there.
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

    /// Whether a variant would fit once everything is gone that may be unloaded.
    pub fn has_room(&self, footprint: Footprint) -> bool {
        let all = self.free + i64::from(self.evictable);
        // What it shares with variants that may all be unloaded has to stay, or to come again.
        let group = footprint.shared.map(|shared| shared.group);
        let group = group.and_then(|group| self.groups.get(&group));
        match group {
            Some(group) if group.kept > 0 => all >= i64::from(footprint.pages),
            _ => all >= i64::from(footprint.whole()),
        }
    }

    /// Whether a variant would fit once everything is gone but what `stays`.
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

    /// A replica comes; for now it may not be unloaded.
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

    /// A replica's pages are given back.
    pub fn release(&mut self, variant: VariantIx) {
        // Counted as one that must stay, it leaves the sums of the others alone.
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

    /// A replica may be unloaded, and to keep it is worth so much.
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

    /// A replica may not be unloaded.
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

    /// What is worth least of what may be unloaded, and what it is worth.
    pub fn cheapest(&self) -> Option<(u64, VariantIx)> {
        self.victims.first()
    }

    /// What a variant is worth that may be unloaded, as it was last valued.
    pub fn worth_of(&self, variant: VariantIx) -> Option<u64> {
        self.victims.key(variant)
    }

    /// The variants that are here in any form.
    pub fn residents(&self) -> Vec<VariantIx> {
        self.here.iter().copied().collect()
    }

    /// A variant is gone.
    pub fn forget(&mut self, variant: VariantIx) {
        self.release(variant);
        self.here.remove(&variant);
    }

    /// From when one more LOAD may be issued: with less than `ahead` outstanding, 0 for at once.
    /// [`NEVER`] while it has to answer first: as much as `ahead` lies behind a LOAD that may be
    /// stuck.
    pub fn ready_at(&self, ahead: Nanos) -> Nanos {
        let (Some(first), Some(last)) = (self.loads.front(), self.loads.back()) else {
            return 0;
        };
        if ahead == 0 || last.end() - first.end() >= ahead {
            return NEVER;
        }
        // Strictly less than the look-ahead is outstanding then.
        last.end().saturating_sub(ahead - 1)
    }

    /// When everything outstanding should have ended; what is overdue is taken to end now.
    pub fn free_at(&self, now: Nanos) -> Nanos {
        match (self.loads.front(), self.loads.back()) {
            (Some(first), Some(last)) => last
                .end()
                .saturating_add(now.saturating_sub(first.end()))
                .max(now),
            _ => now,
        }
    }

    /// A LOAD has ended; those behind it follow from now on.
    pub fn loaded(&mut self, now: Nanos, variant: VariantIx) {
        let Some(at) = self.loads.iter().position(|load| load.variant == variant) else {
            return;
        };
        self.loads.remove(at);
        if at == 0 {
            let mut free = now;
            for load in &mut self.loads {
                load.start = free;
                free = load.end();
            }
        }
    }

    /// What the most valuable of the victims is worth that have to go for a variant; `None` when there
    /// are not enough.
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

    /// [`Self::missing`] without members of groups that are `gone`.
    fn missing_without(&self, footprint: Footprint, gone: &BTreeMap<u32, u32>) -> u32 {
        let group = footprint.shared.map(|shared| shared.group);
        let members = group.and_then(|group| self.groups.get(&group));
        let left = |group: &Group, of: u32| group.members > gone.get(&of).copied().unwrap_or(0);
        match (members, group) {
            (Some(members), Some(of)) if left(members, of) => footprint.pages,
            _ => footprint.whole(),
        }
    }

    /// Pages that come free when a victim goes after those that are `gone`, to which it is added.
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
