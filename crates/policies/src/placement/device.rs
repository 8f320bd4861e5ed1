//! Pages, residents and the LOAD executor of one device.

use std::collections::VecDeque;

use super::Nanos;
use crate::schedule::{IndexedHeap, NEVER};

/// A LOAD that is not answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub model: u32,
    /// When it starts as far as is known.
    pub start: Nanos,
    pub expected: Nanos,
}

#[derive(Debug)]
pub(super) struct Device {
    pub pages: u32,
    pub free: u32,
    /// Models with a replica here, and its pages.
    pub residents: Vec<(u32, u32)>,
    /// What may be unloaded, by what it is worth to keep it.
    pub victims: IndexedHeap,
    /// Pages of those.
    pub evictable: u32,
    /// LOADs under way, in the order in which they run.
    pub loads: VecDeque<Load>,
    /// Whether a wanted model found no room here.
    pub short: bool,
    /// When it was last asked for its next LOAD.
    pub attempted: Nanos,
}

// === impl Load ===

impl Load {
    pub fn end(&self) -> Nanos {
        self.start.saturating_add(self.expected)
    }
}

// === impl Device ===

impl Device {
    pub fn new(pages: u32) -> Self {
        Self {
            pages,
            free: pages,
            residents: Vec::new(),
            victims: IndexedHeap::default(),
            evictable: 0,
            loads: VecDeque::new(),
            short: false,
            attempted: 0,
        }
    }

    /// Whether `pages` can be had, by unloading what may be unloaded.
    pub fn has_room(&self, pages: u32) -> bool {
        self.free.saturating_add(self.evictable) >= pages
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
    pub fn loaded(&mut self, now: Nanos, model: u32) {
        let Some(at) = self.loads.iter().position(|load| load.model == model) else {
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

    /// What the most valuable of the victims is worth that have to go for `pages`; `None` when
    /// there are not enough.
    pub fn dearest_victim(&mut self, pages: u32) -> Option<u64> {
        let (mut free, mut aside) = (self.free, Vec::new());
        while free < pages
            && let Some((worth, victim)) = self.victims.first()
        {
            self.victims.remove(victim);
            aside.push((worth, victim));
            free += self.pages_of(victim);
        }
        let dearest = aside.last().map(|(worth, _)| *worth);
        for (worth, victim) in aside {
            self.victims.set(victim, worth);
        }
        dearest.filter(|_| free >= pages)
    }

    fn pages_of(&self, model: u32) -> u32 {
        let resident = self.residents.iter().find(|(of, _)| *of == model);
        resident.map_or(0, |(_, pages)| *pages)
    }

    pub fn forget(&mut self, model: u32) {
        self.residents.retain(|(resident, _)| *resident != model);
    }
}
