//! The variants and device types of a run as a registry has them, and the fleet of a run as the metadata store shows
//! it. The live system's picture is made from these.

use std::{collections::BTreeMap, sync::Arc};

use sextant_picture::frontier;
use sextant_types::{
    Accuracy, AccuracyKind, ApplicationId, BatchLatency, DeviceType, DeviceTypeName, Digest,
    EngineName, Metric, ModelId, Optimization, Profile, Release, Resources, Signature, Sizes,
    VariantId, VariantSpec, fit,
    index::{ApplicationIx, IndexVec, VariantIx},
};

use super::{Setting, Variant, setting};

/// The registrations of a run; see the module.
#[derive(Debug)]
pub(super) struct Registrations {
    /// By position. Whatever their names are, they sort by their numbers.
    pub(super) applications: IndexVec<ApplicationIx, ApplicationId>,
    pub(super) variants: IndexVec<VariantIx, Arc<sextant_types::Variant>>,
    /// By position.
    pub(super) types: Vec<Arc<DeviceType>>,
}

// === impl Registrations ===

impl Registrations {
    pub(super) fn of(setting: &Setting) -> Self {
        let engines = setting.variants.iter().map(engine);
        let engines: Vec<EngineName> = engines.collect();
        let types = setting.types.iter().enumerate();
        let types: Vec<Arc<DeviceType>> = types
            .map(|(kind, of)| Arc::new(device_type(setting, &engines, (kind, of))))
            .collect();
        let numbers = setting.applications.numbers();
        let applications: IndexVec<ApplicationIx, ApplicationId> =
            numbers.map(|at| name("a", at.get())).collect();
        let made = setting.variants.numbered().map(|(at, of)| {
            let application = &applications[of.application];
            let mut variant = variant(setting, (at, of), &types);
            variant.application = application.clone();
            variant
        });
        let mut variants: Vec<sextant_types::Variant> = made.collect();
        mark(setting, &mut variants);
        Self {
            applications,
            variants: variants.into_iter().map(Arc::new).collect(),
            types,
        }
    }
}

/// Sets for each variant what dominates it: as the file says, or else by the registry's rule.
fn mark(setting: &Setting, variants: &mut [sextant_types::Variant]) {
    for (at, of) in setting.applications.numbered() {
        let members = setting.variants.numbered();
        let members = members.filter(|(_, variant)| variant.application == at);
        let members: Vec<(VariantIx, &Variant)> = members.collect();
        if of.is_marked {
            for (number, variant) in &members {
                let by = variant.registered.dominated_by.as_ref();
                let by = by.and_then(|by| members.iter().find(|(_, of)| of.name == *by));
                variants[number.get() as usize].dominated_by =
                    by.map(|(by, _)| name("v", by.get()));
            }
            continue;
        }
        let positions = members.iter().map(|(number, _)| number.get() as usize);
        let own: Vec<usize> = positions.collect();
        let all: Vec<sextant_types::Variant> = own.iter().map(|at| variants[*at].clone()).collect();
        for (at, by) in own.into_iter().zip(frontier::dominators(&all)) {
            variants[at].dominated_by = by;
        }
    }
}

/// A number as a name that sorts as the number does.
pub(super) fn name<N: std::str::FromStr>(prefix: &str, number: u32) -> N
where
    N::Err: std::fmt::Debug,
{
    let text = format!("{prefix}-{number:08}");
    text.parse()
        .expect("letters, a dash and digits obey the rule")
}

/// A type runs a variant if it has the variant's engine. A variant that runs on other types has another engine.
fn engine(of: &Variant) -> EngineName {
    let on = of.on.iter().map(|on| if on.is_some() { '1' } else { '0' });
    EngineName(format!(
        "{}.{}",
        of.registered.engine,
        on.collect::<String>()
    ))
}

fn device_type(
    setting: &Setting,
    engines: &[EngineName],
    (kind, of): (usize, &setting::DeviceType),
) -> DeviceType {
    let here = setting.variants.iter().zip(engines);
    let here = here.filter(|(variant, _)| variant.on.get(kind).is_some_and(Option::is_some));
    let mut engines: Vec<EngineName> = here.map(|(_, engine)| engine.clone()).collect();
    engines.sort();
    engines.dedup();
    DeviceType {
        name: name::<DeviceTypeName>("t", kind as u32),
        engines,
        slots: of.slots.max(1),
        memory_bytes: bytes(of.memory_mb),
        price_per_hour_usd: of.price_per_hour_usd,
        start_ms: (of.start_s * 1e3) as u64,
    }
}

fn variant(
    setting: &Setting,
    (at, of): (VariantIx, &Variant),
    types: &[Arc<DeviceType>],
) -> sextant_types::Variant {
    let mut profiles: BTreeMap<DeviceTypeName, Profile> = BTreeMap::new();
    for (kind, facts) in types.iter().enumerate() {
        if let Some(profile) = profile(of, kind) {
            profiles.insert(facts.name.clone(), profile);
        }
    }
    let first = of.registered.measured_on;
    let first = first.or_else(|| of.on.iter().position(Option::is_some));
    let first = first.and_then(|kind| types.get(kind));
    let here = first.and_then(|facts| Some((facts, profiles.remove(&facts.name)?)));
    let model = of.registered.model.as_deref();
    let mut variant = sextant_types::Variant {
        id: name::<VariantId>("v", at.get()),
        application: name("a", of.application.get()),
        model: model_id(setting, of, model),
        spec: VariantSpec {
            engine: engine(of),
            precision: of.registered.precision,
            optimization: Optimization::All,
            threads: of.slots.max(1),
            max_batch: u16::try_from(most_rows(of)).unwrap_or(u16::MAX),
        },
        artefact: artefact(of, at),
        signature: Signature {
            inputs: Vec::new(),
            outputs: Vec::new(),
            batched: true,
        },
        padding: None,
        accuracy: accuracy(of),
        measured_on: None,
        profile: here.as_ref().map_or_else(nothing, |(_, it)| it.clone()),
        profiles,
        cost_per_hour_usd: 0.0,
        cost_per_1k_usd: 0.0,
        dominated_by: None,
        apart: (of.registered.apart).then(|| "so it was registered".to_owned()),
        resources: resources(setting, of.application),
        release: Release::default(),
        foreign: false,
    };
    if let Some((facts, _)) = here {
        variant.price(facts);
    }
    variant
}

/// The id of a variant's model in its application. Variants without a given model belong to one.
fn model_id(setting: &Setting, of: &Variant, model: Option<&str>) -> ModelId {
    let application = of.application;
    let same = |it: &&Variant| it.application == application;
    let mut known: Vec<&str> = (setting.variants.iter().filter(same))
        .filter_map(|it| it.registered.model.as_deref())
        .collect();
    known.sort_unstable();
    known.dedup();
    let at = model.and_then(|model| known.binary_search(&model).ok());
    let at = at.map_or(0, |at| at + 1);
    let text = format!("m-{:08}-{at}", application.get());
    ModelId::new(text).expect("letters, dashes and digits obey the rule")
}

/// The artefact. It is the same for variants that share their weights.
fn artefact(of: &Variant, at: VariantIx) -> Digest {
    of.registered.artefact.unwrap_or_else(|| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&at.get().to_be_bytes());
        Digest::from_bytes(bytes)
    })
}

/// On a metric's quality scale, where larger is better.
fn accuracy(of: &Variant) -> Accuracy {
    Accuracy {
        kind: match of.agreement {
            true => AccuracyKind::Agreement,
            false => AccuracyKind::Accuracy,
        },
        metric: Metric::Custom,
        value: of.registered.value.unwrap_or(of.accuracy),
        lower: of.accuracy,
        upper: of.accuracy,
        records: 1,
        evaluation_batch: 1,
    }
}

fn resources(setting: &Setting, application: ApplicationIx) -> Resources {
    let (set, usual) = (
        setting.applications[application].tenant,
        sextant_scaling::tenants::Tenant::default(),
    );
    Resources {
        budget_per_hour_usd: set.budget_per_hour_usd,
        least_workers: set.least,
        most_workers: set.most,
        priority: (set.priority != usual.priority).then_some(set.priority),
        weight: (set.weight != usual.weight).then_some(set.weight),
        ..Resources::default()
    }
}

/// The measurement on a type, or the run times there as if they had been measured.
fn profile(of: &Variant, kind: usize) -> Option<Profile> {
    let table = of.on.get(kind)?.as_ref()?;
    let measured = of.registered.measured.get(kind).and_then(Option::as_ref);
    let batches = match measured {
        Some(measured) => measured.batches.clone(),
        None => (1..=table.measured_rows())
            .map(|batch| {
                let ms = table.of(batch) as f64 / 1e6;
                BatchLatency {
                    batch,
                    p50_ms: ms,
                    p99_ms: ms,
                    mean_ms: ms,
                    samples: 1,
                }
            })
            .collect(),
    };
    let saturation_rps = measured.map(|it| it.saturation_rps);
    let peak = of.registered.peak_memory_bytes;
    Some(Profile {
        load_ms: measured.map_or(of.load_ms, |it| it.load_ms),
        saturation_rps: saturation_rps.unwrap_or_else(|| fit::saturation_rps(&batches)),
        batches,
        peak_memory_bytes: peak.unwrap_or_else(|| bytes(of.memory_mb)),
        weights_bytes: of.registered.weights_bytes,
        ..nothing()
    })
}

/// The profile of a variant that runs nowhere.
fn nothing() -> Profile {
    Profile {
        load_ms: 0.0,
        first_load_ms: None,
        batches: Vec::new(),
        alpha_ms: 0.0,
        beta_ms: 0.0,
        residual_ms: 0.0,
        saturation_rps: 0.0,
        peak_memory_bytes: 0,
        weights_bytes: 0,
        sizes: Sizes::default(),
        concurrent: Vec::new(),
    }
}

fn most_rows(of: &Variant) -> u32 {
    let rows = of.on.iter().flatten().map(|table| table.measured_rows());
    rows.max().unwrap_or(1)
}

/// Converts million bytes to bytes.
fn bytes(mb: u32) -> u64 {
    u64::from(mb) * 1_000_000
}
