//! The workers that can be reached, and which of them are alike.

use std::collections::{BTreeMap, BTreeSet};

use sextant_health::interference::Place;
use sextant_metadata::{InstanceState, View};
use sextant_rpc::WorkerInfo;
use sextant_types::{
    DeviceTypeName, EngineName, VariantId, WorkerId,
    index::{DeviceIx, KindIx, VariantIx},
};

use super::emptying::leaves;
use crate::{demand::class_of, driver::Driver};
use sextant_picture::Usable;

/// Kinds of workers, by number.
#[derive(Default)]
pub(super) struct Kinds(Vec<Kind>);

/// The properties of workers that run and load every variant alike.
#[derive(Clone, PartialEq)]
struct Kind {
    /// The type of their device. If it is not reported, the name of the device without the number that tells it from
    /// other devices of the machine.
    device: String,
    engines: BTreeSet<EngineName>,
    cores: u16,
    page_bytes: u64,
    /// The position of a worker that something else slows down. While other workers of its kind are not slowed down, it
    /// is a kind of its own: its times say nothing about them, and batches go to them first.
    slowed: Option<DeviceIx>,
}

/// A worker that can be reached.
pub(super) struct Present {
    pub(super) at: DeviceIx,
    pub(super) id: WorkerId,
    pub(super) life: u64,
    pub(super) kind: KindIx,
    /// The number of the kind that it would have if nothing slowed it down.
    alike: KindIx,
    /// Whether it is a kind of its own because something slows it down.
    pub(super) slowed: bool,
    pub(super) device_type: Option<DeviceTypeName>,
    pub(super) info: WorkerInfo,
}

/// By worker: variants on it.
type ByWorker<'a> = BTreeMap<&'a WorkerId, Vec<&'a VariantId>>;

// === impl Kinds ===

impl Kinds {
    /// The workers that can be reached.
    pub(super) fn present(&mut self, driver: &Driver, view: &View) -> Vec<Present> {
        let slowed = interfered(view);
        let members = driver.workers().load();
        let reachable = members.numbered().filter_map(|(at, member)| {
            let info = member.client.as_ref()?.info();
            Some((at, member, info))
        });
        let described = reachable.map(|(at, member, info)| {
            let record = view.workers.get(&member.id).map(|worker| &worker.record);
            let device = record.map_or("", |record| &*record.device);
            let device_type = record.and_then(|record| record.device_type.as_ref());
            let device_type = device_type.map(|of| of.name.clone());
            let kind = Kind::of(device, device_type.as_ref(), &info);
            let one = Present {
                at,
                id: member.id.clone(),
                life: member.life,
                kind: KindIx::new(0),
                alike: self.number_of(&kind),
                slowed: false,
                device_type,
                info,
            };
            (one, kind)
        });
        let mut described: Vec<(Present, Kind)> = described.collect();
        set_apart(&mut described, &slowed);
        let numbered = described.into_iter().map(|(one, kind)| Present {
            slowed: kind.slowed.is_some(),
            kind: self.number_of(&kind),
            ..one
        });
        numbered.collect()
    }

    /// The number of a kind. A kind that is new gets a new number.
    fn number_of(&mut self, kind: &Kind) -> KindIx {
        let known = self.0.iter().position(|known| known == kind);
        let at = known.unwrap_or_else(|| {
            self.0.push(kind.clone());
            self.0.len() - 1
        });
        KindIx::new(at as u32)
    }
}

/// The workers that may be used and stay, as input for the treatment of interference. `number` gives the numbers of the
/// variants. Workers that are to leave are left out: everything moves from them anyway, and a variant that moved to one
/// would have to move back.
pub(super) fn places(
    view: &View,
    present: &[Present],
    mut number: impl FnMut(&VariantId) -> VariantIx,
) -> Vec<Place> {
    let slowed = interfered(view);
    let mut serving = ByWorker::new();
    for instance in view.instances.values().filter(|it| it.state.is_serving()) {
        let key = &instance.key;
        serving.entry(&key.worker).or_default().push(&key.variant);
    }
    let usable = present.iter().filter(|one| one.is_usable(view));
    let staying = usable.filter(|one| !leaves(view, &one.id));
    let places = staying.map(|one| {
        let of = slowed.get(&one.id).into_iter().flatten();
        let serves = serving.get(&one.id).into_iter().flatten();
        Place {
            worker: one.at,
            kind: one.alike,
            busy_share: one.info.utilization,
            interfered: of.map(|variant| number(variant)).collect(),
            serves: serves.map(|variant| number(variant)).collect(),
        }
    });
    places.collect()
}

fn interfered(view: &View) -> ByWorker<'_> {
    let mut all = ByWorker::new();
    for instance in view.instances.values() {
        if instance.state == InstanceState::Interfered {
            let key = &instance.key;
            all.entry(&key.worker).or_default().push(&key.variant);
        }
    }
    all
}

/// Makes each worker with an interfered instance a kind of its own, if other workers of its kind are not slowed down.
fn set_apart(described: &mut [(Present, Kind)], slowed: &ByWorker<'_>) {
    if slowed.is_empty() {
        return;
    }
    let healthy = described
        .iter()
        .filter(|(one, _)| !slowed.contains_key(&one.id));
    let healthy: Vec<Kind> = healthy.map(|(_, kind)| kind.clone()).collect();
    for (one, kind) in described {
        if slowed.contains_key(&one.id) && healthy.contains(kind) {
            kind.slowed = Some(one.at);
        }
    }
}

// === impl Kind ===

impl Kind {
    fn of(device: &str, device_type: Option<&DeviceTypeName>, info: &WorkerInfo) -> Self {
        let class = class_of(device);
        Self {
            device: device_type.map_or(class, DeviceTypeName::as_str).to_owned(),
            engines: info.engines.iter().cloned().collect(),
            cores: info.cores,
            page_bytes: info.pages.page_bytes,
            slowed: None,
        }
    }
}

// === impl Present ===

impl Present {
    /// Whether new work may be sent to it.
    pub(super) fn is_usable(&self, view: &View) -> bool {
        let worker = view.workers.get(&self.id);
        worker.is_some_and(|worker| !worker.record.draining)
    }

    pub(super) fn usable(&self) -> Usable<'_> {
        Usable {
            at: self.at,
            kind: self.kind,
            device_type: self.device_type.as_ref(),
            engines: &self.info.engines,
            slowed: self.slowed,
        }
    }

    pub(super) fn runs(&self, engine: &EngineName) -> bool {
        self.info.engines.contains(engine)
    }
}
