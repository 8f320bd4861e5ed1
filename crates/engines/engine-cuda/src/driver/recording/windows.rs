//! Windows of the simulated device.

use std::cell::RefCell;

use super::{Address, Error, Operation, Range, overlap, wrong};
use crate::driver::Paging;

/// The mapping of pages to slots.
pub(super) struct Windows {
    paging: Paging,
    /// The page in each slot.
    slots: Vec<Option<u32>>,
    /// The slot into which each page was last mapped.
    last: Vec<Option<usize>>,
}

// === impl Windows ===

impl Windows {
    pub fn new(paging: Paging, unit: u64, arena_bytes: u64) -> Result<Self, Error> {
        let pages = u64::from(paging.pages) * paging.page_bytes;
        let is_good = paging.page_bytes.is_multiple_of(unit)
            && paging.windows.get().is_multiple_of(paging.page_bytes)
            && paging.windows.get() >= arena_bytes
            && pages <= arena_bytes;
        if !is_good {
            return Err(wrong(&format!(
                "windows {paging:?} over {arena_bytes} bytes"
            )));
        }
        Ok(Self {
            slots: vec![None; paging.slots as usize],
            last: vec![None; paging.pages as usize],
            paging,
        })
    }

    /// Maps pages and returns how many were not there before. `pending` holds the ranges that pending work still reads.
    pub fn map(
        &mut self,
        window: Address,
        pages: &[u32],
        pending: &[Range<Address>],
    ) -> Result<usize, Error> {
        let slots = self.paging.slots_of(window, pages)?;
        let range = window..window + pages.len() as u64 * self.paging.page_bytes;
        if pending.iter().any(|read| overlap(read, &range)) {
            return Err(wrong(&format!("{range:?} is mapped while work reads it")));
        }
        let mut moved = 0;
        for (slot, page) in slots.zip(pages) {
            moved += usize::from(self.slots[slot] != Some(*page));
            self.slots[slot] = Some(*page);
            self.last[*page as usize] = Some(slot);
        }
        Ok(moved)
    }

    /// The address in the arena of a range that is read.
    pub fn place(&self, range: Range<Address>) -> Result<Address, Error> {
        let start = range.start;
        if start < self.paging.windows {
            return Ok(start);
        }
        let offset = start - self.paging.windows;
        let (slot, inside) = (
            offset / self.paging.page_bytes,
            offset % self.paging.page_bytes,
        );
        if inside + (range.end - start) > self.paging.page_bytes {
            return Err(wrong(&format!("{range:?} is in several pages")));
        }
        let page = self.slots.get(slot as usize).copied().flatten();
        let page = page.ok_or_else(|| wrong(&format!("{range:?} is read and not mapped")))?;
        if self.last[page as usize] != Some(slot as usize) {
            return Err(wrong(&format!(
                "page {page} is read at {range:?}, it was mapped elsewhere since"
            )));
        }
        Ok(Address::new(
            u64::from(page) * self.paging.page_bytes + inside,
        ))
    }

    /// An operation with every address in the arena.
    pub fn place_operation(&self, operation: &Operation) -> Result<Operation, Error> {
        let writes = operation.writes();
        if writes.end > self.paging.windows {
            return Err(wrong(&format!("{} writes into a window", operation.name())));
        }
        for read in operation.reads() {
            self.place(read)?;
        }
        // An address from which nothing is read may still lie outside the mapped pages.
        let problem = RefCell::new(None);
        let placed = operation.map_addresses(|address| {
            self.place(address..address).unwrap_or_else(|error| {
                *problem.borrow_mut() = Some(error);
                address
            })
        });
        match problem.into_inner() {
            Some(error) => Err(error),
            None => Ok(placed),
        }
    }
}
