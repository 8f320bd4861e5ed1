//! The parts of a run: types of devices, applications with their variants, queries.

use std::{collections::BTreeMap, sync::Arc};

use sextant_scaling::{rate_in_time, tenants::Tenant};
use sextant_schedule::LatencyTable;
use sextant_types::{
    BatchLatency, Digest, LeastQuality, Precision, Prefer, Quality,
    index::{ApplicationIx, IndexVec, VariantIx},
};

use super::Policy;
use crate::{
    Error, Jitter,
    trace::Trace,
    workload::{Gaps, Rate},
};

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Types of devices.
    pub types: Vec<DeviceType>,
    /// Applications.
    pub applications: IndexVec<ApplicationIx, Application>,
    /// Variants of all applications.
    pub variants: IndexVec<VariantIx, Variant>,
    /// The demand.
    pub classes: Vec<Class>,
    /// Recorded queries in place of the classes' rates. Their models are names of applications, and a query belongs to
    /// the first class of its application.
    pub recorded: Option<Arc<Trace>>,
    /// The settings of the autoscaler.
    pub scaling: Scaling,
    /// How run times scatter.
    pub jitter: Jitter,
    /// Time before anything counts, s.
    pub warm_up_s: f64,
    /// Time after it in which queries and costs count, s.
    pub measured_s: f64,
    /// The seed of queries and run times.
    pub seed: u64,
}

/// A type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceType {
    /// Its name.
    pub name: String,
    /// Price of one, US dollars an hour, from the moment it is ordered until it is gone.
    pub price_per_hour_usd: f64,
    /// Slots, at least 1; a batch occupies as many as its variant says.
    pub slots: u16,
    /// By the number of variants that run on one at the same time: the factor by which their batches then take longer,
    /// each at least 1. The last counts for more variants. An empty list means no interference.
    pub slowdown: Vec<f64>,
    /// Memory for variants, million bytes.
    pub memory_mb: u32,
    /// Time from the order until the device takes work, s.
    pub start_s: f64,
    /// The fewest devices.
    pub least: u32,
    /// The most devices.
    pub most: u32,
    /// The number that are up when the run begins.
    pub initial: u32,
    /// The number under a policy for which it is fixed, by the policy's name.
    pub fixed: BTreeMap<String, u32>,
}

/// The application that queries ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// The position in [`Setting::variants`] of the variant that answers all its queries under policies that pin. If it
    /// is missing, the variant whose queries cost least at full batches, of those that meet all targets.
    pub pinned: Option<VariantIx>,
    /// What it may use of the fleet.
    pub tenant: Tenant,
    /// Whether its variants say what dominates them, as a registry does. Otherwise the registry's rule determines it.
    pub is_marked: bool,
}

// === impl Variant ===

impl Variant {
    /// Whether it is accurate enough, by the rule of the live system.
    pub(super) fn is_good(&self, min_accuracy: Option<f64>) -> bool {
        let quality = match self.agreement {
            true => Quality::Agreement(self.accuracy),
            false => Quality::Accuracy(self.accuracy),
        };
        LeastQuality::new(min_accuracy, None).is_met_by(quality)
    }
}

/// A variant of an application.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Position of its application.
    pub application: ApplicationIx,
    /// Its accuracy, larger is better, in any unit that all variants of the application share.
    pub accuracy: f64,
    /// Whether that is agreement with an uploaded file, which meets no least accuracy.
    pub agreement: bool,
    /// Memory that it takes, million bytes.
    pub memory_mb: u32,
    /// Time to load it, ms.
    pub load_ms: f64,
    /// Slots that a batch of it occupies.
    pub slots: u16,
    /// By type of device: run times by rows; `None` if it cannot run there. The table's length is the largest batch.
    pub on: Vec<Option<Arc<LatencyTable>>>,
    /// What a registry knows of it in addition.
    pub registered: Entry,
}

/// What a registry knows of a variant in addition to its speed and accuracy.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its model; `None`: the model of all variants of the application that name none.
    pub model: Option<String>,
    /// Its engine. Engines that run it on other types of devices count as different ones.
    pub engine: String,
    /// Its number format. The most accurate variant in single precision stands for the uploaded file.
    pub precision: Precision,
    /// Its file. Variants with the same file, engine and number format hold their weights once.
    pub artefact: Option<Digest>,
    /// Bytes of the weights, out of the bytes that it takes.
    pub weights_bytes: u64,
    /// Bytes that it takes, exactly; `None`: [`Variant::memory_mb`].
    pub peak_memory_bytes: Option<u64>,
    /// The measured accuracy, of which [`Variant::accuracy`] is the lower end; `None`: the same.
    pub value: Option<f64>,
    /// The name of the variant that dominates it.
    pub dominated_by: Option<String>,
    /// The type of device on which it was registered; `None`: the first on which it runs.
    pub measured_on: Option<usize>,
    /// Whether it answers one query at a time.
    pub apart: bool,
    /// By type of device: the measurement there. Without a measurement, the run times count.
    pub measured: Vec<Option<Measurement>>,
}

/// The measurement of a variant on a type of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// In increasing order of size, never empty.
    pub batches: Vec<BatchLatency>,
    /// Time to load it, ms.
    pub load_ms: f64,
    /// Greatest rows a second.
    pub saturation_rps: f64,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            model: None,
            engine: "emulated".to_owned(),
            precision: Precision::Fp32,
            artefact: None,
            weights_bytes: 0,
            peak_memory_bytes: None,
            value: None,
            dominated_by: None,
            measured_on: None,
            apart: false,
            measured: Vec::new(),
        }
    }
}

/// Queries of one application with the same targets.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Position of the application.
    pub application: ApplicationIx,
    /// Time within which an answer counts, ms; `None` for no limit.
    pub latency_ms: Option<f64>,
    /// Least accuracy; `None` for no limit.
    pub min_accuracy: Option<f64>,
    /// Least share of the accuracy of the uploaded file; `None` for no limit.
    pub min_relative_accuracy: Option<f64>,
    /// The most that a thousand queries may cost at full batches, US dollars; `None` for no limit.
    pub max_cost_per_1k_usd: Option<f64>,
    /// Which of the variants that meet all of that answers.
    pub prefer: Option<Prefer>,
    /// The rate of queries.
    pub rate: Rate,
    /// The distribution of the gaps between queries.
    pub gaps: Gaps,
}

/// The settings of the autoscaler. The defaults are those of the live service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaling {
    /// How long devices stay that are no longer planned for, ms.
    pub hold_ms: u64,
    /// How long variants stay that are no longer planned for, ms.
    pub variant_hold_ms: u64,
    /// A need without queries for this long needs no device, ms.
    pub idle_ms: u64,
    /// The longest that the first query after a pause may wait for a start and a load, s.
    pub cold_start_s: Option<f64>,
    /// A variant that is loaded, not desired and unused for this long may be unloaded, ms.
    pub idle_unload_ms: u64,
    /// Share of each device's memory that is filled before anybody asks, 0 to 1.
    pub warm_memory_share: f64,
    /// The most that all devices together may cost, US dollars an hour.
    pub budget_per_hour_usd: Option<f64>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            hold_ms: 600_000,
            variant_hold_ms: 60_000,
            idle_ms: 600_000,
            cold_start_s: None,
            idle_unload_ms: 600_000,
            warm_memory_share: 0.5,
            budget_per_hour_usd: None,
        }
    }
}

// === impl Setting ===

impl Setting {
    /// The setting under a policy: with the numbers of devices that are fixed there, and one variant for each
    /// application if the policy pins.
    pub(super) fn under(&self, policy: Policy) -> Result<Self, Error> {
        let mut setting = self.clone();
        for of in &mut setting.types {
            let fixed = of.fixed.get(policy.name()).copied();
            let fixed = fixed.or((policy == Policy::ClipperPlus).then_some(of.initial));
            if let Some(count) = fixed {
                (of.least, of.most, of.initial) = (count, count, count);
            }
            of.initial = of.initial.clamp(of.least, of.most.max(of.least));
        }
        for application in setting.applications.numbers() {
            let pinned = match policy.is_pinned() {
                true => Some(setting.choose_pinned(application)?),
                false => None,
            };
            setting.applications[application].pinned = pinned;
        }
        Ok(setting)
    }

    /// Queries a second that one device of a type answers in time with a variant.
    pub fn rate_in_time(
        &self,
        variant: VariantIx,
        device: usize,
        target_ms: Option<f64>,
    ) -> Option<f64> {
        let (latency, side_by_side) = self.curve(variant, device)?;
        let run_ms = |rows: u32| latency.of(rows) as f64 / 1e6;
        rate_in_time(run_ms, latency.measured_rows(), side_by_side, target_ms)
    }

    /// Run times of a variant on a type of device, and how many of its batches run side by side.
    fn curve(&self, variant: VariantIx, device: usize) -> Option<(&LatencyTable, f64)> {
        let of = &self.variants[variant];
        let latency = of.on.get(device)?.as_ref()?;
        let slots = f64::from(self.types[device].slots.max(1));
        Some((latency, (slots / f64::from(of.slots.max(1))).max(1.0)))
    }

    /// Price of a thousand queries at full batches on a type of device, US dollars, computed as the registration prices
    /// a variant.
    pub(super) fn cost_per_1k_usd(&self, variant: &Variant, device: usize) -> Option<f64> {
        let latency = variant.on.get(device)?.as_ref()?;
        let rate = |rows: u32| f64::from(rows) / (latency.of(rows).max(1) as f64 / 1e9);
        let most = (1..=latency.measured_rows()).map(rate).fold(0.0, f64::max);
        let of = &self.types[device];
        let share = f64::from(variant.slots.max(1)) / f64::from(of.slots.max(1));
        Some(of.price_per_hour_usd * share.min(1.0) / 3600.0 / most.max(1e-9) * 1000.0)
    }

    /// The accuracy of an application's best variant.
    pub(super) fn best_accuracy(&self, application: ApplicationIx) -> f64 {
        let of = self.variants.iter();
        let of = of.filter(|variant| variant.application == application);
        of.map(|variant| variant.accuracy)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    fn choose_pinned(&self, application: ApplicationIx) -> Result<VariantIx, Error> {
        let of = &self.applications[application];
        if let Some(pinned) = of.pinned {
            return Ok(pinned);
        }
        let mut best: Option<(f64, VariantIx)> = None;
        for (at, variant) in self.variants.numbered() {
            if variant.application != application || !self.meets_all(at) {
                continue;
            }
            let costs = (0..self.types.len()).filter_map(|on| self.cost_per_1k_usd(variant, on));
            let cost = costs.fold(f64::INFINITY, f64::min);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, at));
            }
        }
        best.map(|(_, at)| at).ok_or_else(|| {
            let name = &of.name;
            Error::Setting(format!(
                "no variant of `{name}` meets all its targets: name one as `pinned`"
            ))
        })
    }

    /// Whether a variant meets all targets of its application's classes on some type.
    fn meets_all(&self, at: VariantIx) -> bool {
        let variant = &self.variants[at];
        let mut classes = self.classes.iter();
        classes.all(|class| {
            class.application != variant.application
                || (variant.is_good(class.min_accuracy)
                    && (0..self.types.len())
                        .any(|on| self.rate_in_time(at, on, class.latency_ms).is_some()))
        })
    }
}
