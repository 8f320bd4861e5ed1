//! The pools of a controller: devices of one kind on which the same variants are ready.

use std::collections::{BTreeMap, BTreeSet};

use sextant_types::index::{IndexVec, KindIx, PoolIx, VariantIx};

/// A set of variants as one number: the exclusive or of their marks. Two sets count as the same if their numbers are
/// equal. Among a million pools, two different sets have the same number with a probability of 1 in 10^26.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Content(u128);

#[derive(Debug, Default)]
struct Pool {
    kind: KindIx,
    content: Content,
    variants: BTreeSet<VariantIx>,
    devices: u32,
}

/// Every pool with a device, by its contents.
#[derive(Debug, Default)]
pub(super) struct Pools {
    list: IndexVec<PoolIx, Option<Pool>>,
    vacant: Vec<PoolIx>,
    by_content: BTreeMap<(KindIx, Content), PoolIx>,
}

// === impl Content ===

impl Content {
    /// The content with one variant more, or one fewer if it is already there.
    pub fn with(self, variant: VariantIx) -> Self {
        let low = u128::from(mixed(u64::from(variant.get()) << 1));
        let high = u128::from(mixed(u64::from(variant.get()) << 1 | 1));
        Self(self.0 ^ (high << 64 | low))
    }
}

/// A pseudo-random number, the same for the same argument (the finalizer of splitmix64).
fn mixed(value: u64) -> u64 {
    let mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

// === impl Pools ===

impl Pools {
    /// The pool of devices of a kind with this content.
    pub fn find(&self, kind: KindIx, content: Content) -> Option<PoolIx> {
        self.by_content.get(&(kind, content)).copied()
    }

    /// A new pool without devices.
    pub fn open(
        &mut self,
        kind: KindIx,
        content: Content,
        variants: BTreeSet<VariantIx>,
    ) -> PoolIx {
        let at = self.vacant.pop();
        let at = at.unwrap_or_else(|| self.list.push(None));
        self.list[at] = Some(Pool {
            kind,
            content,
            variants,
            devices: 0,
        });
        self.by_content.insert((kind, content), at);
        at
    }

    /// Removes a pool. Returns the variants that were on it.
    pub fn close(&mut self, pool: PoolIx) -> BTreeSet<VariantIx> {
        let Some(of) = self.list.get_mut(pool).and_then(Option::take) else {
            return BTreeSet::new();
        };
        self.by_content.remove(&(of.kind, of.content));
        self.vacant.push(pool);
        of.variants
    }

    /// Adds a variant to all devices of a pool, or removes it from all.
    pub fn change(&mut self, pool: PoolIx, variant: VariantIx) {
        let Some(Some(of)) = self.list.get_mut(pool) else {
            return;
        };
        self.by_content.remove(&(of.kind, of.content));
        of.content = of.content.with(variant);
        if !of.variants.remove(&variant) {
            of.variants.insert(variant);
        }
        self.by_content.insert((of.kind, of.content), pool);
    }

    /// A device joins a pool.
    pub fn join(&mut self, pool: PoolIx) {
        if let Some(Some(of)) = self.list.get_mut(pool) {
            of.devices += 1;
        }
    }

    /// A device leaves a pool. Returns the number of devices that are left.
    pub fn leave(&mut self, pool: PoolIx) -> u32 {
        let Some(Some(of)) = self.list.get_mut(pool) else {
            return 0;
        };
        of.devices -= 1;
        of.devices
    }

    pub fn devices(&self, pool: PoolIx) -> u32 {
        self.get(pool).map_or(0, |of| of.devices)
    }

    pub fn kind(&self, pool: PoolIx) -> Option<KindIx> {
        self.get(pool).map(|of| of.kind)
    }

    pub fn content(&self, pool: PoolIx) -> Content {
        self.get(pool).map_or(Content::default(), |of| of.content)
    }

    pub fn has(&self, pool: PoolIx, variant: VariantIx) -> bool {
        self.get(pool)
            .is_some_and(|of| of.variants.contains(&variant))
    }

    /// The variants in a pool.
    pub fn variants(&self, pool: PoolIx) -> BTreeSet<VariantIx> {
        self.get(pool)
            .map_or(BTreeSet::new(), |of| of.variants.clone())
    }

    fn get(&self, pool: PoolIx) -> Option<&Pool> {
        self.list.get(pool)?.as_ref()
    }
}
