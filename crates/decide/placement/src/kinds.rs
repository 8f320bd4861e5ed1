//! The kinds of devices: how many of each are up, and what a variant can expect of them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::Nanos;
use sextant_types::index::KindIx;

/// The devices that are up.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// By kind and pages: the number of devices that are up.
    up: BTreeMap<(KindIx, u32), u32>,
    devices: usize,
    /// By kind: the expected time of an UNLOAD as it was learnt, ns.
    unloads: BTreeMap<KindIx, Nanos>,
}

/// A kind of device that can run a variant.
#[derive(Debug, Clone, Copy)]
struct EligibleKind {
    kind: KindIx,
    /// Time of a LOAD by the profile, ns; 0 if only the specification is known.
    told: Nanos,
    /// The time as it was learnt.
    learnt: Option<Nanos>,
}

/// The kinds of devices that can run a variant.
#[derive(Debug, Default)]
pub(super) struct ByKind(SmallVec<[EligibleKind; 1]>);

// === impl Kinds ===

impl Kinds {
    /// Adds a device.
    pub fn add(&mut self, kind: KindIx, pages: u32) {
        *self.up.entry((kind, pages)).or_default() += 1;
        self.devices += 1;
    }

    /// Removes a device.
    pub fn remove(&mut self, kind: KindIx, pages: u32) {
        if let Some(count) = self.up.get_mut(&(kind, pages)) {
            *count -= 1;
            self.devices -= 1;
            if *count == 0 {
                self.up.remove(&(kind, pages));
            }
        }
    }

    /// The number of devices that are up.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// The expected time of an UNLOAD on a device of a kind, ns; 0 if it is not known.
    pub fn unload(&self, kind: KindIx) -> Nanos {
        self.unloads.get(&kind).copied().unwrap_or(0)
    }

    /// Sets the expected time of an UNLOAD on a kind.
    pub fn learn_unload(&mut self, kind: KindIx, unload: Nanos) {
        self.unloads.insert(kind, unload);
    }

    /// The kinds with a device that is up.
    pub fn up(&self) -> impl Iterator<Item = KindIx> + '_ {
        self.up.keys().map(|(kind, _)| *kind)
    }

    /// The kinds with a device that is up and has at least this many pages.
    pub fn with_pages(&self, least: u32) -> impl Iterator<Item = KindIx> + '_ {
        let large = self.up.keys().filter(move |(_, pages)| *pages >= least);
        large.map(|(kind, _)| *kind)
    }
}

// === impl ByKind ===

impl ByKind {
    /// Sets the kinds that can run the variant, with the time of a LOAD on each, 0 for the time in the specification. A
    /// learnt time is kept while the profile of its kind stays the same.
    pub fn set(&mut self, kinds: &[(KindIx, Nanos)]) {
        let again = kinds.iter().map(|(kind, told)| {
            let known = self.of(*kind).filter(|known| known.told == *told);
            EligibleKind {
                kind: *kind,
                told: *told,
                learnt: known.and_then(|known| known.learnt),
            }
        });
        self.0 = again.collect();
    }

    /// Time of a LOAD, ns, if it is known; else 0.
    pub fn load(&self, kind: KindIx) -> Nanos {
        let of = self.of(kind);
        of.map_or(0, |able| able.learnt.unwrap_or(able.told))
    }

    /// Sets the expected time of a LOAD on a kind.
    pub fn learn(&mut self, kind: KindIx, load: Nanos) {
        if let Some(able) = self.0.iter_mut().find(|able| able.kind == kind) {
            able.learnt = Some(load);
        }
    }

    /// Whether a variant can run there.
    pub fn is_able(&self, kind: KindIx) -> bool {
        self.of(kind).is_some()
    }

    fn of(&self, kind: KindIx) -> Option<&EligibleKind> {
        self.0.iter().find(|able| able.kind == kind)
    }
}
