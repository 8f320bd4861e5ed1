//! A page cache: which pages of a device's memory are taken (Clockwork, section 5.2).
//!
//! Memory for loaded models is given out in pages of one size, so that it cannot fragment: a load
//! succeeds exactly if enough pages are free, wherever they are, and a controller only needs to
//! know the number of free pages. A worker counts with it; an engine with memory of its own also
//! takes the numbers of the pages as their places.

/// Number of a page, from 0; it begins at this multiple of the page size.
pub type PageId = u32;

/// See the module. Holds numbers, no memory.
#[derive(Debug)]
pub struct PageCache {
    page_bytes: u64,
    pages: u32,
    /// Pages from here on were never taken.
    fresh: PageId,
    /// Pages that were released; the last is taken first.
    returned: Vec<PageId>,
}

/// Pages that a caller holds. Only [`PageCache::release`] makes them free again; dropping them
/// loses them, so that no page can be released twice.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "pages that are dropped stay taken"]
pub struct PageSet(Vec<PageId>);

/// Fewer pages are free than are needed; nothing was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{needed}` pages are needed, `{free}` are free")]
pub struct PageShortage {
    /// Pages that were asked for.
    pub needed: u64,
    /// Pages that are free.
    pub free: u64,
}

impl PageCache {
    /// A cache of free pages. Pages beyond what [`PageId`] can number are left out.
    pub fn new(page_bytes: u64, pages: u64) -> Self {
        Self {
            page_bytes: page_bytes.max(1),
            pages: PageId::try_from(pages).unwrap_or(PageId::MAX),
            fresh: 0,
            returned: Vec::new(),
        }
    }

    /// Size of a page, bytes; at least 1.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Number of pages.
    pub fn total(&self) -> u64 {
        u64::from(self.pages)
    }

    /// Number of free pages.
    pub fn free(&self) -> u64 {
        u64::from(self.pages - self.fresh) + self.returned.len() as u64
    }

    /// Number of pages that `bytes` fill, the last one perhaps in part.
    pub fn pages_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.page_bytes)
    }

    /// Takes `count` pages, in no particular order, or none.
    pub fn acquire(&mut self, count: u64) -> Result<PageSet, PageShortage> {
        let free = self.free();
        if count > free {
            return Err(PageShortage {
                needed: count,
                free,
            });
        }
        // It is at most `free`, so it fits the numbers of pages.
        let count = count as usize;
        let kept = self.returned.len().saturating_sub(count);
        let mut taken = self.returned.split_off(kept);
        let rest = (count - taken.len()) as u32;
        taken.extend(self.fresh..self.fresh + rest);
        self.fresh += rest;
        Ok(PageSet(taken))
    }

    /// Makes pages free that this cache has handed out.
    pub fn release(&mut self, pages: PageSet) {
        self.returned.extend(pages.0);
    }
}

impl PageSet {
    /// The pages' numbers.
    pub fn ids(&self) -> &[PageId] {
        &self.0
    }

    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the pages of another set of the same cache.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Keeps the first `count` pages and returns the others.
    pub fn shrink(&mut self, count: u64) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Self(self.0.split_off(count.min(self.0.len())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A small seeded generator (splitmix64): this crate has no other use for random numbers.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    #[test]
    fn pages_are_handed_out_once_and_only_while_enough_are_free() {
        let seed = 11;
        let (mut state, mut cache) = (seed, PageCache::new(16, 64));
        let mut held: Vec<PageSet> = Vec::new();
        for step in 0..20_000 {
            let taken: u64 = held.iter().map(PageSet::len).sum();
            assert_eq!(cache.free(), 64 - taken, "seed {seed}, step {step}");
            if random(&mut state).is_multiple_of(2) && !held.is_empty() {
                let at = random(&mut state) as usize % held.len();
                cache.release(held.swap_remove(at));
                continue;
            }
            let count = random(&mut state) % 24;
            let free = cache.free();
            match cache.acquire(count) {
                Ok(pages) => held.push(pages),
                Err(short) => assert_eq!(
                    (short, count > free),
                    (
                        PageShortage {
                            needed: count,
                            free
                        },
                        true
                    ),
                    "seed {seed}, step {step}"
                ),
            }
            let all: Vec<_> = held.iter().flat_map(|set| set.ids().to_vec()).collect();
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!(all.len(), distinct.len(), "seed {seed}, step {step}");
            assert!(
                all.iter().all(|page| *page < 64),
                "seed {seed}, step {step}"
            );
        }
    }

    #[test]
    fn sizes_are_rounded_up_to_pages_and_sets_grow_and_shrink() {
        let mut cache = PageCache::new(16, 10);
        assert_eq!(
            [0, 1, 16, 17].map(|bytes| cache.pages_for(bytes)),
            [0, 1, 1, 2]
        );
        let mut set = cache.acquire(3).unwrap();
        set.join(cache.acquire(2).unwrap());
        assert_eq!((set.len(), cache.free()), (5, 5));
        let rest = set.shrink(1);
        assert_eq!((set.len(), rest.len()), (1, 4));
        cache.release(rest);
        assert_eq!((cache.free(), cache.total()), (9, 10));
        cache.release(set);
        let odd = PageCache::new(0, u64::MAX);
        assert_eq!((odd.page_bytes(), odd.total()), (1, u64::from(u32::MAX)));
    }
}
