//! The facts by which all variants of an index are judged, beside their own instances.

use std::collections::{BTreeMap, BTreeSet};

use sextant_metadata::DeviceTypes;
use sextant_schedule::Nanos;
use sextant_types::{
    DeviceTypeName, EngineName, Slowdowns,
    index::{DeviceIx, KindIx},
};

use super::{Surroundings, Usable};

/// The basis of an index. Two indices that were made from the same basis judge the same variants equally.
#[derive(Default)]
pub(super) struct Basis {
    general: Option<General>,
    /// The workers that have an engine, by engine.
    able: BTreeMap<EngineName, Vec<EligibleWorker>>,
}

#[derive(PartialEq)]
struct General {
    types: DeviceTypes,
    round_trip: Nanos,
    slowdowns: Slowdowns,
}

/// The properties of a worker that matter to the variants that it can run.
#[derive(PartialEq)]
struct EligibleWorker {
    at: DeviceIx,
    kind: KindIx,
    device_type: Option<DeviceTypeName>,
    slowed: bool,
}

// === impl Basis ===

impl Basis {
    pub(super) fn new(
        around: &Surroundings<'_>,
        able: &BTreeMap<&EngineName, Vec<Usable<'_>>>,
    ) -> Self {
        let able = able.iter().map(|(engine, workers)| {
            let workers = workers.iter().map(EligibleWorker::from);
            ((*engine).clone(), workers.collect())
        });
        Self {
            general: Some(General {
                types: around.types.clone(),
                round_trip: around.round_trip,
                slowdowns: around.slowdowns.clone(),
            }),
            able: able.collect(),
        }
    }

    /// The engines whose variants are judged by the same facts in another index. Engines that no worker has are not
    /// among them.
    pub(super) fn same_engines(&self, other: &Self) -> BTreeSet<EngineName> {
        if self.general.is_none() || self.general != other.general {
            return BTreeSet::new();
        }
        let same = self.able.iter().filter(|(engine, workers)| {
            let others = other.able.get(*engine);
            others.is_some_and(|others| others == *workers)
        });
        same.map(|(engine, _)| engine.clone()).collect()
    }
}

impl From<&Usable<'_>> for EligibleWorker {
    fn from(worker: &Usable<'_>) -> Self {
        Self {
            at: worker.at,
            kind: worker.kind,
            device_type: worker.device_type.cloned(),
            slowed: worker.slowed,
        }
    }
}
