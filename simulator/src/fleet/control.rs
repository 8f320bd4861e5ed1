//! The dispatcher's part: which variant answers a query, and the controller that runs it.

use std::sync::Arc;

use sextant_controller as controller;
use sextant_controller::{Actions, Controller, DeviceSpec, VariantSpec};
use sextant_picture::{IndexedVariant, Queueing};
use sextant_placement::DesiredPlacement;
use sextant_schedule::{NEVER, Nanos, Schedulers};
use sextant_selection as select;
use sextant_selection::{Decision, Demand};

use super::{FleetView, Setting, ShownDevice};
use sextant_types::index::{DeviceIx, KindIx, VariantIx};

/// Memory is counted in millions of bytes.
const PAGE_BYTES: u64 = 1_000_000;

/// A query that is being answered.
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

/// The dispatcher of a run. The controller's variants are variants, and its kinds are types of device.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) controller: Controller<Token>,
    pub(super) actions: Actions<Token>,
    /// The state of the fleet, as the dispatcher and the autoscaler see it.
    pub(super) shown: FleetView,
    /// Whether the state has changed since it was last shown.
    pub(super) is_stale: bool,
    /// The desired placement, as the controller was told.
    desired: Vec<(VariantIx, DesiredPlacement)>,
}

/// The load, as selection asks about it.
struct LoadView<'a> {
    controller: &'a Controller<Token>,
    now: Nanos,
}

impl Control {
    pub(super) fn new(setting: &Setting, schedulers: &impl Schedulers) -> Self {
        let ours = controller::Options::default();
        let options = controller::Options {
            scheduling: schedulers.clone(),
            placing: ours.placing,
            estimation: ours.estimation,
        };
        let mut control = Self {
            controller: Controller::new(&options),
            actions: Actions::new(),
            shown: FleetView::new(setting),
            is_stale: true,
            desired: Vec::new(),
        };
        for (at, spec) in specs(setting, &mut control.shown) {
            let Self {
                controller,
                actions,
                ..
            } = &mut control;
            controller.on_variant(0, at, spec, actions);
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

    /// The variant that answers a query of a class that arrived at `arrived`.
    pub(super) fn choose(
        &self,
        now: Nanos,
        setting: &Setting,
        class: u32,
        arrived: Nanos,
    ) -> Decision {
        let of = &setting.classes[class as usize];
        let spent_ms = (now - arrived) as f64 / 1e6;
        let targets = self.shown.targets(of);
        let demand = Demand {
            latency_ms: of.latency_ms.map_or(f64::INFINITY, |ms| ms - spent_ms),
            least_quality: targets.least_quality(),
            max_cost_per_1k_usd: targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY),
            rows: 1,
            prefer: targets.prefer.unwrap_or_default(),
        };
        let waits = LoadView {
            controller: &self.controller,
            now,
        };
        select::select(self.shown.index(of.application), &demand, &waits)
    }

    /// Sets what is desired to be loaded now, by variant in order.
    pub(super) fn want(
        &mut self,
        now: Nanos,
        desired: Vec<(VariantIx, DesiredPlacement)>,
        idle_unload: Nanos,
    ) {
        if self.desired != desired {
            self.controller
                .on_desired(now, &desired, idle_unload, &mut self.actions);
            self.desired = desired;
        }
    }

    /// Moves a variant from a device to the first of the others that can take it.
    pub(super) fn relocate(&mut self, now: Nanos, of: (VariantIx, DeviceIx), to: &[DeviceIx]) {
        self.controller.on_relocate(now, of, to, &mut self.actions);
    }

    /// The desired placement, as it was last told.
    pub(super) fn desired(&self) -> &[(VariantIx, DesiredPlacement)] {
        &self.desired
    }
}

/// Every variant that some type of device runs, as the controller knows it: by the facts that hold if a device of each
/// type is up.
fn specs(setting: &Setting, shown: &mut FleetView) -> Vec<(VariantIx, VariantSpec)> {
    let each = (0..setting.types.len()).map(|kind| ShownDevice {
        device: DeviceIx::new(kind as u32),
        kind,
        busy_share: 0.0,
        variants: Vec::new(),
    });
    shown.show(each.collect());
    let known: Vec<Arc<IndexedVariant>> = shown.snapshot().all().cloned().collect();
    let specs = known.iter().map(|known| {
        let application = setting.variants[known.ordinal].application;
        let tenant = setting.applications[application].tenant;
        let queueing = Queueing {
            max_waiting_rows: u32::MAX,
            priority: tenant.priority,
            weight: tenant.weight as f32,
        };
        let kinds = known
            .hosts
            .iter()
            .map(|host| known.on_kind(host.kind, None));
        let weights = shown.weights(known.ordinal);
        let spec = known.spec(queueing, PAGE_BYTES, weights, kinds.collect());
        (known.ordinal, spec)
    });
    let specs = specs.collect();
    shown.show(Vec::new());
    specs
}

impl select::Load for LoadView<'_> {
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
