//! Which variant answers a query, and the controller that runs it: the dispatcher's part.

use sextant_controller as controller;
use sextant_controller::{Actions, Controller, DeviceSpec, OnKind, VariantSpec};
use sextant_placement as placement;
use sextant_placement::Wanted;
use sextant_schedule::{NEVER, Nanos, QueueSpec};
use sextant_selection as select;
use sextant_selection::{Decision, Demand, Entry, Index, Readiness};

use super::{Policy, Setting, variants::Presences};
use sextant_types::{
    LeastQuality,
    index::{ApplicationIx, DeviceIx, IndexVec, KindIx, VariantIx},
};

/// A query on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) arrived: Nanos,
    pub(super) class: u32,
    pub(super) variant: VariantIx,
    /// Whether its variant had to be loaded.
    pub(super) load: bool,
    /// How often it was placed.
    pub(super) placed: u8,
}

/// The dispatcher of a run. A model of the controller is a variant, a kind a type of device.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) controller: Controller<Token>,
    pub(super) actions: Actions<Token>,
    /// By application.
    indices: IndexVec<ApplicationIx, Index>,
    /// What is wanted, as the controller was told.
    wanted: Vec<(VariantIx, Wanted)>,
}

/// What selection asks about the load.
struct Waits<'a> {
    controller: &'a Controller<Token>,
    now: Nanos,
}

impl Control {
    pub(super) fn new(setting: &Setting, policy: Policy) -> Self {
        let mut options = controller::Options::default();
        options.scheduling.policy = policy.scheduling();
        let mut control = Self {
            controller: Controller::new(&options),
            actions: Actions::new(),
            indices: (setting.applications.iter())
                .map(|_| Index::default())
                .collect(),
            wanted: Vec::new(),
        };
        for at in setting.variants.numbers() {
            if let Some(spec) = model_spec(setting, at) {
                let Self {
                    controller,
                    actions,
                    ..
                } = &mut control;
                controller.on_variant(0, at, spec, actions);
            }
        }
        control
    }

    /// A device takes work.
    pub(super) fn device_up(
        &mut self,
        now: Nanos,
        device: DeviceIx,
        setting: &Setting,
        kind: usize,
    ) {
        let of = &setting.types[kind];
        let spec = DeviceSpec {
            kind: KindIx::new(kind as u32),
            pages: of.memory_mb,
            slots: of.slots.max(1),
        };
        self.controller
            .on_device_up(now, device, spec, &mut self.actions);
    }

    /// A device takes no new work.
    pub(super) fn device_down(&mut self, now: Nanos, device: DeviceIx) {
        self.controller
            .on_device_down(now, device, &mut self.actions);
    }

    /// What is loaded where is another thing for an application.
    pub(super) fn index(
        &mut self,
        setting: &Setting,
        application: ApplicationIx,
        there: &Presences<'_>,
    ) {
        let pinned = setting.applications[application].pinned;
        let mut entries = Vec::new();
        for (at, variant) in setting.variants.numbered() {
            if variant.application == application && pinned.is_none_or(|pinned| pinned == at) {
                entries.extend(self::entries(setting, at, there));
            }
        }
        let all: Vec<usize> = (0..entries.len()).collect();
        select::mark_dominated(&mut entries, &all);
        self.indices[application] = Index::new(entries);
    }

    /// Which variant answers a query of a class that came at `arrived`.
    pub(super) fn choose(
        &self,
        now: Nanos,
        setting: &Setting,
        class: u32,
        arrived: Nanos,
    ) -> Decision {
        let of = &setting.classes[class as usize];
        let spent_ms = (now - arrived) as f64 / 1e6;
        let demand = Demand {
            latency_ms: of.latency_ms.map_or(f64::INFINITY, |ms| ms - spent_ms),
            least_quality: LeastQuality::new(of.min_accuracy, None),
            max_cost_per_1k_usd: f64::INFINITY,
            rows: 1,
        };
        let waits = Waits {
            controller: &self.controller,
            now,
        };
        select::select(&self.indices[of.application], &demand, &waits)
    }

    /// What is wanted loaded now, by variant in order.
    pub(super) fn want(
        &mut self,
        now: Nanos,
        wanted: Vec<(VariantIx, Wanted)>,
        idle_unload: Nanos,
    ) {
        if self.wanted != wanted {
            self.controller
                .on_wanted(now, &wanted, idle_unload, &mut self.actions);
            self.wanted = wanted;
        }
    }

    /// Moves a variant from a device to the first of others that can take it.
    pub(super) fn relocate(&mut self, now: Nanos, of: (VariantIx, DeviceIx), to: &[DeviceIx]) {
        self.controller.on_relocate(now, of, to, &mut self.actions);
    }

    /// What is wanted, as it was last told.
    pub(super) fn wanted(&self) -> &[(VariantIx, Wanted)] {
        &self.wanted
    }
}

/// A variant as the controller knows it; `None` where no type of device runs it.
fn model_spec(setting: &Setting, at: VariantIx) -> Option<VariantSpec> {
    let variant = &setting.variants[at];
    let tenant = setting.applications[variant.application].tenant;
    let load = (variant.load_ms * 1e6) as Nanos;
    let kinds = variant.on.iter().enumerate().filter_map(|(kind, latency)| {
        let of = &setting.types[kind];
        Some(OnKind {
            kind: KindIx::new(kind as u32),
            latency: Some((**latency.as_ref()?).clone()),
            surface: None,
            load,
            price: (of.price_per_hour_usd / f64::from(of.slots.max(1))) as f32,
        })
    });
    let kinds: Vec<OnKind> = kinds.collect();
    let latency = kinds.first()?.latency.clone()?;
    Some(VariantSpec {
        pages: variant.memory_mb,
        shared: None::<placement::Shared>,
        surface: None,
        load,
        queue: QueueSpec {
            max_rows: latency.measured_rows(),
            batched: true,
            slots: variant.slots.max(1),
            latency,
            max_waiting_rows: u32::MAX,
            tenant: variant.application.into(),
            priority: tenant.priority,
            weight: tenant.weight as f32,
            price: 1.0,
        },
        kinds,
    })
}

/// What selection knows of a variant: an entry for each type of device that is up, and where it is
/// loaded somewhere for those types alone.
fn entries(setting: &Setting, at: VariantIx, there: &Presences<'_>) -> Vec<Entry> {
    let variant = &setting.variants[at];
    let mut entries = Vec::new();
    let mut nowhere = None;
    for (kind, latency) in variant.on.iter().enumerate() {
        let Some(latency) = latency else { continue };
        let readiness = there.readiness(at, kind);
        let entry = Entry {
            ordinal: at,
            kind: KindIx::new(kind as u32),
            quality_bound: variant.accuracy,
            agreement: variant.agreement,
            latency_ms: latency.of(1) as f64 / 1e6,
            load_ms: variant.load_ms,
            cost_per_1k_usd: setting.cost_per_1k_usd(variant, kind).unwrap_or(0.0),
            max_rows: latency.measured_rows(),
            dominated: false,
            readiness,
        };
        match readiness {
            Readiness::Failed => nowhere = Some(entry),
            _ => entries.push(entry),
        }
    }
    if entries.iter().any(|it| it.readiness == Readiness::Active) {
        entries.retain(|entry| entry.readiness == Readiness::Active);
    }
    match entries.is_empty() {
        true => nowhere.into_iter().collect(),
        false => entries,
    }
}

impl select::Load for Waits<'_> {
    fn wait_ms(&self, variant: VariantIx, kind: KindIx) -> f64 {
        let on = self.controller.runs_on(variant);
        let here = on.filter(|(_, of, _)| *of == kind);
        let waits = here.map(|(pool, _, excess)| {
            let busy = self.controller.load(pool).busy_until;
            let busy = busy.saturating_sub(self.now);
            let ahead = self.controller.ahead(pool, variant);
            busy.saturating_add(ahead).saturating_add(excess)
        });
        match waits.min().unwrap_or(NEVER) {
            NEVER => f64::INFINITY,
            wait => wait as f64 / 1e6,
        }
    }

    fn extra_ms(&self, _: VariantIx, _: KindIx, _rows: u32) -> f64 {
        0.0
    }
}
