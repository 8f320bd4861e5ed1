//! Over random fleets, what the question makes of a service selects and plans what the service itself does: metrics of
//! both directions, agreement, several types of devices, measured and estimated profiles, shared weights, dominated
//! variants, instances in every state, targets of every kind.

mod fleet;

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sextant_metadata::{DeviceTypes, Worker};
use sextant_picture::{
    Forecast, InputSize, Interner, Need, Options, Picture, Snapshot, Surroundings, Usable,
};
use sextant_selection::{Decision, Demand, Entry, Index, Load, select};
use sextant_simulator::fleet::{Experiment, FleetView, Setting, ShownDevice};
use sextant_types::{
    Route, Slowdowns, TargetClass, Targets, Variant,
    index::{ApplicationIx, DeviceIx, KindIx, VariantIx},
};

use self::fleet::Live;
use super::{super::Parts, Targets as Overriding};

/// Fleets that are tried.
const FLEETS: u64 = 400;

/// How many times as long a variant is expected to take where nothing was measured.
const ESTIMATE: f64 = 2.0;

/// Nothing waits; further rows take no longer.
struct Idle;

impl Load for Idle {
    fn wait_ms(&self, _: VariantIx, _: KindIx) -> f64 {
        0.0
    }

    fn extra_ms(&self, _: VariantIx, _: KindIx, _: u32) -> f64 {
        0.0
    }
}

// === impl Live ===

impl Live {
    fn kind_of(&self, worker: &Worker) -> usize {
        let facts = worker.record.device_type.as_ref().expect("it says so");
        let position = self.types.iter().position(|it| it.name == facts.name);
        position.expect("a type of the fleet")
    }

    fn slowdowns(&self) -> Slowdowns {
        Slowdowns::of(self.view.variants.values().map(|it| &**it), ESTIMATE)
    }

    fn snapshot(&self, interner: &mut Interner) -> Snapshot {
        let types = DeviceTypes::of(self.view.workers.values());
        let workers = (0..).zip(self.view.workers.values()).map(|(at, worker)| {
            let usable = Usable {
                at: DeviceIx::new(at),
                kind: KindIx::new(self.kind_of(worker) as u32),
                device_type: worker.record.device_type.as_ref().map(|it| &it.name),
                engines: &worker.record.engines,
                slowed: false,
            };
            (&worker.id, usable)
        });
        let around = Surroundings {
            workers: workers.collect(),
            types: &types,
            round_trip: 0,
            slowdowns: self.slowdowns(),
        };
        Snapshot::build(&self.view, &around, interner, &Snapshot::default())
    }

    /// What the planner sees live, where nobody starts or ends workers.
    fn picture(&self, targets: &Targets, interner: &mut Interner) -> Picture {
        let forecast = Forecast {
            need: Need {
                application: self.application().clone(),
                class: TargetClass::of(targets),
                step: None,
            },
            of: self.expected,
            latency_ms: targets.latency_ms.map(|ms| (ms, ms)),
            queries_per_row: 1.0,
            step: None,
        };
        let options = Options {
            estimate_factor: ESTIMATE,
            ..Options::default()
        };
        let facts = BTreeMap::new();
        Picture::new(&self.view, vec![forecast], &facts, (&options, interner))
    }

    /// What the service answers about the application and its variants.
    fn shown(&self) -> Value {
        let bound = match self.metric.higher_is_better() {
            true => "min_accuracy",
            false => "max_error",
        };
        let of = &self.targets;
        let quality = of.min_quality.map(|quality| self.metric.quality(quality));
        let targets = json!({
            "latency_ms": of.latency_ms, bound: quality,
            "min_relative_accuracy": of.min_relative_accuracy,
            "max_cost_per_1k_usd": of.max_cost_per_1k_usd, "prefer": of.prefer,
        });
        let variants = self.view.variants.values();
        let variants: Vec<Value> = variants.map(|it| self.shown_variant(it)).collect();
        json!({
            "about": {"name": "app", "metric": self.metric.name(), "default_targets": targets},
            "variants": variants,
        })
    }

    fn shown_variant(&self, of: &Variant) -> Value {
        let slowdowns = self.slowdowns();
        let able = self.types.iter();
        let able = able.filter(|it| it.engines.contains(&of.spec.engine));
        let profiles = able.map(|it| {
            let profile = slowdowns.expected(of, &it.name).profile.into_owned();
            let latency = profile
                .batches
                .iter()
                .map(|it| json!({"batch": it.batch, "p50_ms": it.p50_ms, "p99_ms": it.p99_ms}));
            json!({
                "device_type": it.name.to_string(), "load_ms": profile.load_ms,
                "saturation_rps": profile.saturation_rps,
                "latency": latency.collect::<Vec<Value>>(),
            })
        });
        json!({
            "name": of.id.to_string(), "model": of.model.to_string(),
            "engine": of.spec.engine.to_string(), "precision": of.spec.precision.name(),
            "threads": of.spec.threads, "max_batch": of.spec.max_batch,
            "accuracy": {"kind": of.accuracy.kind.name(), "metric": self.metric.name(),
                "value": of.accuracy.value, "lower": of.accuracy.lower,
                "upper": of.accuracy.upper},
            "peak_memory_bytes": of.profile.peak_memory_bytes,
            "weights_bytes": of.profile.weights_bytes,
            "artefact": of.artefact.to_string(),
            "measured_on": of.measured_on.as_ref().map(ToString::to_string),
            "dominated_by": of.dominated_by.as_ref().map(ToString::to_string),
            "profiles": profiles.collect::<Vec<Value>>(),
        })
    }

    /// The same fleet as the question's experiment has it.
    fn setting(&self, workload: &std::path::Path) -> Setting {
        let workers = self.types.iter().map(|it| {
            json!({"name": "w", "device_type": {
                "name": it.name.to_string(), "slots": it.slots, "memory_bytes": it.memory_bytes,
                "price_per_hour_usd": it.price_per_hour_usd, "start_ms": it.start_ms}})
        });
        let workers = json!({"workers": workers.collect::<Vec<Value>>()});
        let parts = Parts {
            applications: &[self.shown()],
            workers: &workers,
            scaling: &json!({"pools": []}),
            devices: None,
            targets: Overriding::each(&[], &[]),
            workload,
            seconds: 1.0,
        };
        let text = parts.text().expect("a question");
        let mut experiment = Experiment::parse(&text, "what-if").expect("it is understood");
        experiment.cells.remove(0).setting
    }

    /// The workers as devices of the experiment.
    fn seen(&self) -> Vec<ShownDevice> {
        let names: Vec<_> = self.view.variants.keys().collect();
        let workers = (0..).zip(self.view.workers.values()).map(|(at, worker)| {
            let own = self.view.instances.values();
            let own = own.filter(|it| it.key.worker == worker.id).map(|it| {
                let at = names.binary_search(&&it.key.variant).expect("published");
                (VariantIx::new(at as u32), it.state)
            });
            ShownDevice {
                device: DeviceIx::new(at),
                kind: self.kind_of(worker),
                busy_share: worker.record.utilization,
                variants: own.collect(),
            }
        });
        workers.collect()
    }
}

type Names<'a> = &'a dyn Fn(VariantIx) -> String;

/// Entries with names in place of numbers.
fn named(entries: &[Entry], names: Names<'_>) -> Vec<(String, Entry)> {
    let named = entries.iter().map(|entry| {
        let ordinal = VariantIx::default();
        let entry_named = Entry {
            ordinal,
            ..entry.clone()
        };
        (names(entry.ordinal), entry_named)
    });
    let mut named: Vec<_> = named.collect();
    named.sort_by(|(a, one), (b, other)| a.cmp(b).then(one.kind.cmp(&other.kind)));
    named
}

/// What a query that asks for these targets is answered with when nothing waits.
fn chosen(index: &Index, targets: &Targets, names: Names<'_>) -> String {
    let demand = Demand {
        latency_ms: targets.latency_ms.unwrap_or(f64::INFINITY),
        least_quality: targets.least_quality(),
        max_cost_per_1k_usd: targets.max_cost_per_1k_usd.unwrap_or(f64::INFINITY),
        rows: 1,
        prefer: targets.prefer.unwrap_or_default(),
    };
    match select(index, &demand, &Idle) {
        Decision::Use { ordinal } => format!("use {}", names(ordinal)),
        Decision::LoadThenUse { ordinal } => format!("load {}", names(ordinal)),
        Decision::Warming { ordinal, .. } => format!("warm {}", names(ordinal)),
        Decision::Busy { ordinal, .. } => format!("wait for {}", names(ordinal)),
        Decision::Unavailable { ordinal } => format!("nobody loads {}", names(ordinal)),
        Decision::Infeasible { closest } => {
            let closest: Vec<String> = closest.into_iter().map(names).collect();
            format!("nothing but {closest:?}")
        }
    }
}

/// What the planner may choose from, and which choices have their weights in common.
fn choices(picture: &Picture, names: Names<'_>) -> Vec<String> {
    let problem = &picture.problem;
    let footprints = picture.input().footprints;
    let choices = problem.choices.iter().zip(&footprints);
    let choices = choices.map(|(of, footprint)| {
        let name = names(of.variant);
        let (rate, memory) = (of.rps, of.memory_share);
        let (own, shared) = (footprint.own_bytes, footprint.shared_bytes);
        let same = footprints.iter().filter(|it| it.group == footprint.group);
        let mut same: Vec<String> = same.map(|it| names(it.variant)).collect();
        same.sort();
        format!(
            "{name} for {} on {}: {rate:.6}/s {memory:.9} {} ms, {} run; {own} + {shared} with {same:?}",
            of.need, of.device, of.load_s, of.running
        )
    });
    let mut choices: Vec<String> = choices.collect();
    choices.sort();
    let ranks = picture.preferences.iter().zip(&problem.choices);
    let mut ranks: Vec<String> = ranks
        .map(|(rank, of)| format!("{rank} {} {}", names(of.variant), of.device))
        .collect();
    ranks.sort();
    choices.extend(ranks);
    choices.extend(problem.devices.iter().map(|of| format!("{of:?}")));
    choices.extend(picture.kinds.iter().map(|of| format!("{:?}", of.measured)));
    choices
}

#[test]
fn what_the_service_selects_and_plans_is_what_is_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let workload = folder.path().join("queries.csv");
    std::fs::write(&workload, "timestamp,application\n0.5,app\n").expect("a file");
    let (mut answered, mut planned) = (0, 0);
    for seed in 0..FLEETS {
        let live = Live::random(&mut ChaCha8Rng::seed_from_u64(seed));
        let mut interner = Interner::default();
        let snapshot = live.snapshot(&mut interner);
        let setting = live.setting(&workload);
        let mut simulated = FleetView::new(&setting);
        simulated.show(live.seen());
        let here = |at| snapshot.known(at).expect("known").variant.id.to_string();
        let there = |at: VariantIx| setting.variants[at].name.clone();
        let application = live.application();
        let index = snapshot.application(application).expect("it has variants");
        let index = index.index_at(InputSize::default());
        let entries = simulated.entries(ApplicationIx::new(0));
        let (own, other) = (named(index.entries(), &here), named(entries, &there));
        assert_eq!(own, other, "seed {seed}");
        let route = Route::Application(application.clone());
        let targets = snapshot.in_figures(&route, live.targets, InputSize::default());
        let other = simulated.targets(&setting.classes[0]);
        assert_eq!(targets, other, "seed {seed}");
        let decided = chosen(index, &targets, &here);
        let simulated_index = Index::new(entries.to_vec());
        assert_eq!(
            decided,
            chosen(&simulated_index, &other, &there),
            "seed {seed}"
        );
        answered += u32::from(decided.starts_with("use "));
        let own = choices(&live.picture(&targets, &mut interner), &here);
        let picture = simulated.picture(&setting, &[live.expected], Default::default());
        planned += picture.problem.choices.len();
        assert_eq!(own, choices(&picture, &there), "seed {seed}");
    }
    assert!(
        answered > 50 && planned > 500,
        "{answered}, {planned} of {FLEETS}"
    );
}
