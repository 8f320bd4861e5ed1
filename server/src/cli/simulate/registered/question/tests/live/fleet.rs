//! Random fleets as a metadata store shows them.

use std::{collections::BTreeMap, sync::Arc};

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use sextant_metadata::{Instance, InstanceKey, InstanceState, View, Worker, WorkerRecord};
use sextant_picture::frontier;
use sextant_scaling::demand;
use sextant_types::{
    Accuracy, AccuracyKind, ApplicationId, BatchLatency, DeviceType, DeviceTypeName, Digest,
    EngineName, Metric, Optimization, Precision, Prefer, Profile, Signature, Sizes, Targets,
    Variant, VariantSpec, WorkerId, fit,
};

const METRICS: [Metric; 7] = [
    Metric::Top1,
    Metric::R2,
    Metric::Auc,
    Metric::LogLoss,
    Metric::MeanAbsoluteError,
    Metric::RootMeanSquareError,
    Metric::MeanAbsolutePercentageError,
];

/// One application, its variants, workers and what is loaded on them.
pub(super) struct Live {
    pub(super) view: View,
    pub(super) types: Vec<Arc<DeviceType>>,
    pub(super) metric: Metric,
    pub(super) targets: Targets,
    pub(super) expected: demand::Forecast,
}

impl Live {
    pub(super) fn random(random: &mut ChaCha8Rng) -> Self {
        let types: Vec<Arc<DeviceType>> = (0..random.random_range(1..4))
            .map(|at| Arc::new(device_type(at, random)))
            .collect();
        let metric = *METRICS.choose(random).expect("some");
        let mut variants = variants(&types, metric, random);
        frontier::mark(&mut variants);
        let named = variants.into_iter().map(|it| (it.id.clone(), Arc::new(it)));
        let mut live = Self {
            view: View {
                variants: named.collect(),
                ..View::default()
            },
            targets: targets(metric, random),
            expected: demand::Forecast {
                rps: random.random_range(0.0..500.0),
                ..demand::Forecast::default()
            },
            metric,
            types,
        };
        for kind in 0..live.types.len() {
            for _ in 0..random.random_range(1..3) {
                live.add_worker(kind, random);
            }
        }
        live
    }

    pub(super) fn application(&self) -> &ApplicationId {
        let mut variants = self.view.variants.values();
        &variants.next().expect("some").application
    }

    /// A worker with instances in any state.
    fn add_worker(&mut self, kind: usize, random: &mut ChaCha8Rng) {
        let facts = Arc::clone(&self.types[kind]);
        let name = format!("w-{:02}", self.view.workers.len());
        let id: WorkerId = name.parse().expect("a name");
        for variant in self.view.variants.values() {
            if facts.engines.contains(&variant.spec.engine) && random.random_bool(0.5) {
                let state = *InstanceState::ALL.choose(random).expect("some");
                let instance = instance(variant, &id, state);
                self.view.instances.insert(instance.key.clone(), instance);
            }
        }
        self.view.workers.insert(id.clone(), worker(id, facts));
    }
}

fn instance(of: &Variant, worker: &WorkerId, state: InstanceState) -> Instance {
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

fn worker(id: WorkerId, facts: Arc<DeviceType>) -> Worker {
    Worker {
        id,
        record: WorkerRecord {
            engines: facts.engines.clone(),
            cores: facts.slots,
            memory_bytes: facts.memory_bytes,
            utilization: 0.25,
            device_type: Some(facts),
            ..WorkerRecord::default()
        },
        lease_until_ms: u64::MAX,
        leaving: false,
    }
}

fn device_type(at: usize, random: &mut ChaCha8Rng) -> DeviceType {
    let engines = ["ort", "rten"].into_iter();
    // The first type has every engine.
    let engines = engines.filter(|_| at == 0 || random.random_bool(0.7));
    DeviceType {
        engines: engines.map(|it| EngineName(it.to_owned())).collect(),
        name: format!("type-{at}").parse().expect("a name"),
        slots: random.random_range(1..9),
        memory_bytes: random.random_range(20..4000) * 1_000_000,
        price_per_hour_usd: random.random_range(0.1..4.0),
        start_ms: 30_000,
    }
}

fn variants(types: &[Arc<DeviceType>], metric: Metric, random: &mut ChaCha8Rng) -> Vec<Variant> {
    let mut variants = Vec::new();
    for model in 0..random.random_range(1..4) {
        let kind = match random.random_range(0..5) {
            0 => AccuracyKind::Agreement,
            1 => AccuracyKind::Unknown,
            _ => AccuracyKind::Accuracy,
        };
        for number in 0..random.random_range(1..6) {
            let accuracy = accuracy(kind, metric, random);
            variants.push(variant((model, number), accuracy, types, random));
        }
    }
    variants
}

fn accuracy(kind: AccuracyKind, metric: Metric, random: &mut ChaCha8Rng) -> Accuracy {
    let value: f64 = random.random_range(0.5..0.95);
    let half = random.random_range(0.0..0.05);
    Accuracy {
        kind,
        metric,
        value,
        lower: value - half,
        upper: value + half,
        records: 1000,
        evaluation_batch: 1,
    }
}

fn variant(
    (model, number): (usize, usize),
    accuracy: Accuracy,
    types: &[Arc<DeviceType>],
    random: &mut ChaCha8Rng,
) -> Variant {
    let engine = EngineName(["ort", "rten"][random.random_range(0..2)].to_owned());
    let able = types.iter().filter(|it| it.engines.contains(&engine));
    let able: Vec<_> = able.collect();
    let registered = *able.choose(random).expect("the first has every engine");
    let max_batch = 1 << random.random_range(0..5u16);
    let profile = profile(max_batch, random);
    let mut profiles: BTreeMap<DeviceTypeName, Profile> = BTreeMap::new();
    for it in able.iter().filter(|it| it.name != registered.name) {
        let factor = random.random_range(0.3..5.0);
        if random.random_bool(0.5) {
            profiles.insert(it.name.clone(), profile.slowed(factor).into_owned());
        }
    }
    let precisions = [Precision::Fp32, Precision::Fp16, Precision::Int8Static];
    let mut variant = Variant {
        id: format!("m{model}-{number}").parse().expect("a name"),
        application: "app".parse().expect("a name"),
        model: format!("m{model}").parse().expect("a name"),
        spec: VariantSpec {
            engine,
            precision: *precisions.choose(random).expect("some"),
            optimization: Optimization::All,
            threads: random.random_range(1..5),
            max_batch,
        },
        // Few files: some variants share their weights.
        artefact: Digest::from_bytes([random.random_range(0..3); 32]),
        signature: Signature {
            inputs: Vec::new(),
            outputs: Vec::new(),
            batched: true,
        },
        padding: None,
        accuracy,
        profile,
        measured_on: None,
        profiles,
        cost_per_hour_usd: 0.0,
        cost_per_1k_usd: 0.0,
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    };
    variant.price(registered);
    variant
}

fn profile(max_batch: u16, random: &mut ChaCha8Rng) -> Profile {
    let lone: f64 = random.random_range(0.5..80.0);
    let sizes = (0..).map(|power| 1u32 << power);
    let sizes = sizes.take_while(|batch| *batch <= u32::from(max_batch));
    let batches = sizes.map(|batch| {
        let p50_ms = lone * f64::from(batch).powf(0.8) * random.random_range(0.9..1.1);
        BatchLatency {
            batch,
            p50_ms,
            p99_ms: p50_ms * random.random_range(1.0..2.0),
            mean_ms: p50_ms,
            samples: 10,
        }
    });
    let batches: Vec<BatchLatency> = batches.collect();
    let peak_memory_bytes = random.random_range(1_000_000..900_000_000);
    Profile {
        load_ms: random.random_range(1.0..4000.0),
        first_load_ms: None,
        alpha_ms: 0.0,
        beta_ms: 0.0,
        residual_ms: 0.0,
        saturation_rps: fit::saturation_rps(&batches),
        peak_memory_bytes,
        weights_bytes: random.random_range(0..peak_memory_bytes),
        sizes: Sizes::default(),
        concurrent: Vec::new(),
        batches,
    }
}

fn targets(metric: Metric, random: &mut ChaCha8Rng) -> Targets {
    let mut maybe = |value: f64| random.random_bool(0.5).then_some(value);
    let quality = maybe(0.75).map(|value| metric.quality(value));
    let min_relative_accuracy = maybe(0.95);
    let (latency_ms, most_usd) = (maybe(400.0), maybe(0.1));
    Targets {
        latency_ms: latency_ms.map(|most| random.random_range(1.0..most)),
        min_quality: quality,
        min_relative_accuracy,
        max_cost_per_1k_usd: most_usd.map(|most| random.random_range(1e-4..most)),
        prefer: (random.random_bool(0.5)).then(|| *Prefer::ALL.choose(random).expect("some")),
        ..Targets::default()
    }
}
