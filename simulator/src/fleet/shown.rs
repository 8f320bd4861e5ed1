//! The fleet of a run as the live system would see it: the metadata store's view of it, and the picture that is made
//! from that ([`sextant_picture`]). Selection and planner of the simulator decide only by this.

use std::{collections::BTreeMap, fmt, sync::Arc};

use sextant_metadata::{
    DeviceTypes, Instance, InstanceKey, InstanceState, View, Worker, WorkerRecord,
};
use sextant_picture::{InputSize, Interner, Picture, Snapshot, Surroundings, Usable};
use sextant_scaling as scaling;
use sextant_scaling::demand;
use sextant_selection::{Entry, Index};
use sextant_types::{
    ApplicationId, DeviceType, DeviceTypeName, Route, Slowdowns, TargetClass, Targets, WorkerId,
    index::{ApplicationIx, DeviceIx, KindIx, VariantIx},
};

use super::{Class, Setting, registered::Registrations, registered::name};

/// A device that takes work.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownDevice {
    /// Its number.
    pub device: DeviceIx,
    /// Position of its type.
    pub kind: usize,
    /// Share of the time for which it was busy, 0 to 1.
    pub busy_share: f64,
    /// The variants that it has or loads.
    pub variants: Vec<(VariantIx, InstanceState)>,
}

/// The visible state of the fleet; see the module.
pub struct FleetView {
    registered: Registrations,
    view: View,
    interner: Interner,
    facts: BTreeMap<DeviceTypeName, Arc<DeviceType>>,
    slowdowns: Slowdowns,
    snapshot: Snapshot,
    /// The devices that were last shown.
    devices: Vec<ShownDevice>,
    /// The empty index of an application without a published variant.
    nothing: Index,
}

impl fmt::Debug for FleetView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetView").finish_non_exhaustive()
    }
}

// === impl ShownDevice ===

impl ShownDevice {
    /// Whether another device differs only in how busy it is.
    fn is_like(&self, other: &Self) -> bool {
        let what = |seen: &Self| (seen.device, seen.kind);
        what(self) == what(other) && self.variants == other.variants
    }
}

// === impl FleetView ===

impl FleetView {
    /// Makes the state of a setting in which no device is up.
    pub fn new(setting: &Setting) -> Self {
        let registered = Registrations::of(setting);
        let mut interner = Interner::default();
        for application in registered.applications.iter() {
            interner.application(application);
        }
        let mut view = View::default();
        for (at, variant) in registered.variants.numbered() {
            interner.ordinal(&variant.id);
            let application = setting.variants[at].application;
            let pinned = setting.applications[application].pinned;
            let runs = setting.variants[at].on.iter().any(Option::is_some);
            if runs && pinned.is_none_or(|pinned| pinned == at) {
                view.variants
                    .insert(variant.id.clone(), Arc::clone(variant));
            }
        }
        let facts = registered.types.iter();
        let facts = facts.map(|facts| (facts.name.clone(), Arc::clone(facts)));
        let mut shown = Self {
            slowdowns: Slowdowns::of(registered.variants.iter().map(|it| &**it), 1.0),
            facts: facts.collect(),
            registered,
            view,
            interner,
            snapshot: Snapshot::default(),
            devices: Vec::new(),
            nothing: Index::default(),
        };
        shown.rebuild();
        shown
    }

    /// Sets the devices that take work now.
    pub fn show(&mut self, devices: Vec<ShownDevice>) {
        let is_same = self.devices.len() == devices.len()
            && (self.devices.iter().zip(&devices)).all(|(one, other)| one.is_like(other));
        self.devices = devices;
        // Selection does not depend on how busy they are.
        match is_same {
            true => self.measure(),
            false => self.rebuild(),
        }
    }

    /// The entries that may answer an application now.
    pub fn entries(&self, application: ApplicationIx) -> &[Entry] {
        self.index(application).entries()
    }

    /// The picture for the planner, if this much of each class is expected.
    pub fn picture(
        &mut self,
        setting: &Setting,
        expected: &[demand::Forecast],
        policy: scaling::Policy,
    ) -> Picture {
        let classes = setting.classes.iter().zip(expected);
        let outlooks = classes.map(|(class, of)| sextant_picture::Forecast {
            need: sextant_picture::Need {
                application: self.application(class.application).clone(),
                class: TargetClass::of(&self.targets(class)),
                step: None,
            },
            of: *of,
            latency_ms: class.latency_ms.map(|ms| (ms, ms)),
            queries_per_row: 1.0,
            step: None,
        });
        let outlooks = outlooks.collect();
        let pools = setting.types.iter().zip(&self.registered.types);
        // The number of other devices is fixed.
        let pools = pools.filter(|(of, _)| of.most > of.least);
        let pools = pools.map(|(of, facts)| (facts.name.clone(), (of.least, of.most)));
        let options = sextant_picture::Options {
            policy,
            serves_silent: false,
            budget_per_hour_usd: setting.scaling.budget_per_hour_usd,
            estimate_factor: 1.0,
            counts_surroundings: false,
            round_trip: 0,
            pools: pools.collect(),
        };
        let numbers = (&options, &mut self.interner);
        Picture::new(&self.view, outlooks, &self.facts, numbers)
    }

    /// What should be loaded, by variant: the planned variants, and in addition those that are kept warm.
    pub(super) fn in_order(
        &mut self,
        planned: &BTreeMap<VariantIx, u32>,
        warm_memory_share: f64,
    ) -> Vec<(VariantIx, sextant_placement::DesiredPlacement)> {
        let named = planned.iter().map(|(variant, count)| {
            let id = &self.registered.variants[*variant].id;
            (id.clone(), *count)
        });
        let named = named.collect();
        let warm = match warm_memory_share > 0.0 {
            true => sextant_picture::kept_warm(&self.view, warm_memory_share, &mut self.interner),
            false => Vec::new(),
        };
        let desired = sextant_picture::desired(&named, warm);
        sextant_picture::in_order(&desired, &self.snapshot)
    }

    /// The time ahead for which load is forecast, s.
    pub(super) fn ahead_s(&self) -> f64 {
        sextant_picture::ahead_s(self.registered.types.iter().map(|facts| &**facts))
    }

    /// The index of what may answer an application now.
    pub(super) fn index(&self, application: ApplicationIx) -> &Index {
        let scope = self.snapshot.application(self.application(application));
        scope.map_or(&self.nothing, |scope| scope.index_at(InputSize::default()))
    }

    /// The targets of a class with figures in place of shares.
    pub fn targets(&self, class: &Class) -> Targets {
        let targets = Targets {
            latency_ms: class.latency_ms,
            min_quality: class.min_accuracy,
            min_relative_accuracy: class.min_relative_accuracy,
            max_cost_per_1k_usd: class.max_cost_per_1k_usd,
            prefer: class.prefer,
            ..Targets::default()
        };
        let route = Route::Application(self.application(class.application).clone());
        self.snapshot
            .in_figures(&route, targets, InputSize::default())
    }

    /// The facts about the variants if one device of each type is up.
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The group of variants that hold their weights once together.
    pub(super) fn weights(&mut self, variant: VariantIx) -> u32 {
        let variant = &self.registered.variants[variant];
        self.interner.weights(variant)
    }

    fn measure(&mut self) {
        for seen in &self.devices {
            let id = name::<WorkerId>("d", seen.device.get());
            if let Some(worker) = self.view.workers.get_mut(&id) {
                worker.record.utilization = seen.busy_share;
            }
        }
    }

    fn rebuild(&mut self) {
        self.view.workers.clear();
        self.view.instances.clear();
        for seen in &self.devices {
            let worker = self.worker(seen);
            for (variant, state) in &seen.variants {
                let instance = self.instance(&worker.id, *variant, *state);
                self.view.instances.insert(instance.key.clone(), instance);
            }
            self.view.workers.insert(worker.id.clone(), worker);
        }
        let usable = self.devices.iter().filter_map(|seen| {
            let id = name::<WorkerId>("d", seen.device.get());
            let (id, _) = self.view.workers.get_key_value(&id)?;
            let facts = &self.registered.types[seen.kind];
            let usable = Usable {
                at: seen.device,
                kind: KindIx::new(seen.kind as u32),
                device_type: Some(&facts.name),
                engines: &facts.engines,
                slowed: false,
            };
            Some((id, usable))
        });
        let types = DeviceTypes::of(self.view.workers.values());
        let around = Surroundings {
            workers: usable.collect(),
            types: &types,
            round_trip: 0,
            slowdowns: self.slowdowns.clone(),
        };
        let before = std::mem::take(&mut self.snapshot);
        self.snapshot = Snapshot::build(&self.view, &around, &mut self.interner, &before);
    }

    fn application(&self, application: ApplicationIx) -> &ApplicationId {
        &self.registered.applications[application]
    }

    fn worker(&self, seen: &ShownDevice) -> Worker {
        let facts = &self.registered.types[seen.kind];
        Worker {
            id: name::<WorkerId>("d", seen.device.get()),
            record: WorkerRecord {
                device_type: Some(Arc::clone(facts)),
                engines: facts.engines.clone(),
                cores: facts.slots,
                memory_bytes: facts.memory_bytes,
                utilization: seen.busy_share,
                ..WorkerRecord::default()
            },
            lease_until_ms: u64::MAX,
            leaving: false,
        }
    }

    fn instance(&self, worker: &WorkerId, variant: VariantIx, state: InstanceState) -> Instance {
        let of = &self.registered.variants[variant];
        Instance {
            key: InstanceKey::new(of.id.clone(), worker.clone()),
            application: of.application.clone(),
            state,
            version: 1,
            since_ms: 0,
            lease_until_ms: u64::MAX,
            load: 0.0,
            reason: None,
        }
    }
}
