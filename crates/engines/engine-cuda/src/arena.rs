//! The arena: all device memory that the engine uses, divided once.
//!
//! Entry points: [`Layout`] says where each part lies; [`Pages`] lends pages to models; [`Space`] lends ranges to
//! batches, and windows to models. Both lend until the lease is dropped, and neither ever takes a lease back. Without
//! room they return [`Error::OutOfMemory`].

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use parking_lot::Mutex;
use sextant_engine::{Error, Shortage, pages::PageShortage};

use crate::{
    driver::Paging,
    lower::ALIGNMENT,
    operation::{Address, Placed, Stage},
};

/// Slots in windows for each page. Every known model has a window, whether it is on the device or not. A model for
/// which no slots are left has no window.
const SLOTS: u64 = 8;

/// The layout of the arena: pages, workspace, inputs and outputs of batches. The windows lie behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Size of a page.
    pub page_bytes: u64,
    /// Number of pages; they begin at address 0.
    pub pages: u64,
    /// Size of the workspace, which lies behind the pages.
    pub workspace_bytes: u64,
    /// Size of the last part, for inputs and outputs.
    pub io_bytes: u64,
}

/// The pages of a device. The pages given back longest ago are lent first, so that a model that comes back soon gets
/// its own pages again.
#[derive(Debug)]
pub struct Pages {
    free: Mutex<VecDeque<u32>>,
}

/// Pages that a model holds.
#[derive(Debug)]
pub struct PageLease {
    pages: Vec<u32>,
    from: Arc<Pages>,
}

/// A range of addresses that is lent in parts.
#[derive(Debug)]
pub struct Space<S = Placed> {
    /// Free ranges, by start; none touches another.
    free: Mutex<BTreeMap<Address<S>, Address<S>>>,
    what: &'static str,
}

/// A part of a [`Space`].
#[derive(Debug)]
pub struct SpaceLease<S: Stage = Placed> {
    range: Range<Address<S>>,
    from: Arc<Space<S>>,
}

// === impl Layout ===

impl Layout {
    /// Bytes of the whole arena.
    pub fn bytes(&self) -> u64 {
        self.io().end.get()
    }

    /// First address of a page.
    pub fn page(&self, page: u32) -> Address {
        Address::new(u64::from(page) * self.page_bytes)
    }

    /// The workspace.
    pub fn workspace(&self) -> Range<Address> {
        let start = Address::new(self.pages * self.page_bytes);
        start..start + self.workspace_bytes
    }

    /// The part for inputs and outputs.
    pub fn io(&self) -> Range<Address> {
        let start = self.workspace().end;
        start..start + self.io_bytes
    }

    /// The windows of all models.
    pub fn paging(&self) -> Paging {
        Paging {
            page_bytes: self.page_bytes,
            pages: self.pages as u32,
            windows: Address::new(self.bytes().next_multiple_of(self.page_bytes)),
            slots: self.pages * SLOTS,
        }
    }
}

// === impl Pages ===

impl Pages {
    /// Pages `0..count`, all free.
    pub fn new(count: u32) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new((0..count).collect()),
        })
    }

    /// Number of pages that nobody holds.
    pub fn free(&self) -> usize {
        self.free.lock().len()
    }

    /// Lends `count` pages. Each is the wished one if that page is free and as many pages are wished as are lent.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when fewer are free.
    pub fn lend(self: &Arc<Self>, count: usize, wished: &[u32]) -> Result<PageLease, Error> {
        let mut free = self.free.lock();
        if free.len() < count {
            let reason = format!("{count} pages are needed, {} are free", free.len());
            let short = PageShortage {
                needed: count as u64,
                free: free.len() as u64,
            };
            return Err(Error::OutOfMemory(Shortage::of_pages(reason, short)));
        }
        let wished = if wished.len() == count { wished } else { &[] };
        let mut pages: Vec<Option<u32>> = vec![None; count];
        for (page, wish) in pages.iter_mut().zip(wished) {
            *page = free
                .iter()
                .position(|it| it == wish)
                .and_then(|at| free.remove(at));
        }
        for page in pages.iter_mut().filter(|page| page.is_none()) {
            *page = free.pop_front();
        }
        let pages = pages.into_iter().flatten().collect();
        Ok(PageLease {
            pages,
            from: Arc::clone(self),
        })
    }
}

// === impl PageLease ===

impl PageLease {
    /// The pages, in the order of the packing.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }
}

impl Drop for PageLease {
    fn drop(&mut self) {
        self.from.free.lock().extend(&self.pages);
    }
}

// === impl Space ===

impl<S: Stage> Space<S> {
    /// A space of which all is free; `what` names it in errors.
    pub fn new(range: Range<Address<S>>, what: &'static str) -> Arc<Self> {
        let free = BTreeMap::from([(range.start, range.end)]);
        Arc::new(Self {
            free: Mutex::new(free),
            what,
        })
    }

    /// Lends the first free range of at least `bytes`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when there is none.
    pub fn lend(self: &Arc<Self>, bytes: u64) -> Result<SpaceLease<S>, Error> {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let mut free = self.free.lock();
        let found = free.iter().find(|(start, end)| **end - **start >= bytes);
        let Some((start, end)) = found.map(|(start, end)| (*start, *end)) else {
            return Err(Error::OutOfMemory(
                format!(
                    "{bytes} bytes are needed of the {}: fewer batches at a time, or a larger one",
                    self.what
                )
                .into(),
            ));
        };
        free.remove(&start);
        if start + bytes < end {
            free.insert(start + bytes, end);
        }
        Ok(SpaceLease {
            range: start..start + bytes,
            from: Arc::clone(self),
        })
    }
}

// === impl SpaceLease ===

impl<S: Stage> SpaceLease<S> {
    /// First address.
    pub fn start(&self) -> Address<S> {
        self.range.start
    }
}

impl<S: Stage> Drop for SpaceLease<S> {
    fn drop(&mut self) {
        let mut free = self.from.free.lock();
        let Range { mut start, mut end } = self.range;
        if let Some(behind) = free.remove(&end) {
            end = behind;
        }
        let before = free.range(..start).next_back();
        if let Some((first, _)) = before.filter(|(_, last)| **last == start) {
            start = *first;
        }
        free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_comes_back_whole() {
        let space = Space::new(Address::new(256)..Address::new(256 * 9), "space");
        let mut leases: Vec<SpaceLease> = (0..4)
            .map(|_| space.lend(500).expect("there is room"))
            .collect();
        assert!(matches!(space.lend(1), Err(Error::OutOfMemory(_))));
        leases.swap(0, 2);
        leases.remove(1);
        assert_eq!(
            space.lend(512).expect("the gap fits").start().get(),
            256 * 3
        );
        drop(leases);
        assert_eq!(space.lend(256 * 8).expect("all is free").start().get(), 256);
    }

    #[test]
    fn pages_are_lent_as_wished_or_refused() {
        let pages = Pages::new(5);
        let first = pages.lend(2, &[3, 1]).expect("five are free");
        assert_eq!(first.pages(), [3, 1]);
        let second = pages.lend(2, &[1, 2]).expect("three are free");
        assert_eq!(second.pages(), [0, 2], "in place of 1 another");
        assert!(matches!(pages.lend(2, &[]), Err(Error::OutOfMemory(_))));
        drop(first);
        assert_eq!(pages.free(), 3);
    }
}
