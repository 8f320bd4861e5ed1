//! Which variants are worth considering.
//!
//! A variant is dominated when another variant of the same application runs on the same devices, is there at least as
//! good in all five of accuracy bound, latency of a lone query, load time, hourly cost and throughput at saturation,
//! and is better in one of them. (At least as good in the last two implies the price per thousand rows.) *On the same
//! devices* means that it was registered on the same type, and that it was measured on every further type on which the
//! dominated one was measured, where it is no slower to load, to answer and at saturation. Variants are therefore
//! compared at the price of one device. A GPU, whatever it costs, does not exclude the variants of processors, and a
//! fleet that loses its GPUs keeps a frontier. Selection, which knows the price of each device, decides which hardware
//! a query goes to.
//!
//! A version that is not current is compared only with its own variants. It excludes no variant that answers, and it is
//! complete when it is tried.
//!
//! Only accuracies are compared with each other. Agreement with one uploaded file says nothing about another file, so a
//! variant of a model without labels dominates only variants of that model and is dominated only by them.
//!
//! Times and throughputs are measured, and two measurements of the same thing differ. They are therefore compared in
//! steps of a fifth; otherwise noise alone would keep near-copies on the frontier. Of variants that are equal in all
//! five, the one measured on the most types is kept, then the one with the largest maximum batch, then the one with the
//! lower price, then the one with the smaller name. Domination is a partial order, so every dominated variant has a
//! dominator that is not dominated itself. That one is named, and if there are several, the cheapest.
//! is named, the cheapest if there are several.

use std::{cmp::Ordering, collections::BTreeMap};

use sextant_types::{DeviceTypeName, ModelId, Profile, Stage, Variant, VariantId};

/// The scores by which variants are compared. In each, smaller is better.
#[derive(Debug, Clone, PartialEq)]
struct Scores {
    registered_on: Option<DeviceTypeName>,
    /// The model, if the quality is agreement with an uploaded file or the version is not current. The variant is then
    /// compared only with variants of that model.
    alone: Option<ModelId>,
    /// Cost first, so that sorting finds the cheapest dominator first.
    here: [f64; 5],
    /// Latency, load time and throughput on further types of devices.
    elsewhere: BTreeMap<DeviceTypeName, [f64; 3]>,
}

/// For each variant, in the order given, the variant on the frontier that dominates it. All must belong to one
/// application. The variants are sorted, then each is compared with the frontier so far: n log n + n times the
/// frontier's size.
pub fn dominators(variants: &[Variant]) -> Vec<Option<VariantId>> {
    let scores: Vec<Scores> = variants.iter().map(Scores::of).collect();
    let mut order: Vec<usize> = (0..variants.len()).collect();
    order.sort_by(|a, b| {
        let by_scores = scores[*a].compare(&scores[*b]);
        by_scores.then_with(|| preference(&variants[*a], &variants[*b]))
    });
    let mut frontier: Vec<usize> = Vec::new();
    let mut dominated_by = vec![None; variants.len()];
    for index in order {
        // A dominator sorts before the variants that it dominates.
        let dominator = frontier
            .iter()
            .find(|other| scores[**other].covers(&scores[index]));
        match dominator {
            Some(other) => dominated_by[index] = Some(variants[*other].id.clone()),
            None => frontier.push(index),
        }
    }
    dominated_by
}

/// Sets `dominated_by` on all variants of one application and returns those that changed.
pub fn mark(variants: &mut [Variant]) -> Vec<Variant> {
    let dominators = dominators(variants);
    let mut changed = Vec::new();
    for (variant, dominator) in variants.iter_mut().zip(dominators) {
        if variant.dominated_by != dominator {
            variant.dominated_by = dominator;
            changed.push(variant.clone());
        }
    }
    changed
}

/// The preference among equals: the one that serves the most rows at once, then the cheaper one.
fn preference(a: &Variant, b: &Variant) -> Ordering {
    let by_batch = b.spec.max_batch.cmp(&a.spec.max_batch);
    let by_price = || a.cost_per_1k_usd.total_cmp(&b.cost_per_1k_usd);
    by_batch.then_with(by_price).then_with(|| a.id.cmp(&b.id))
}

/// A measured value, in steps of a fifth.
fn step(measured: f64) -> f64 {
    (measured.max(1e-9).ln() / 1.2f64.ln()).round()
}

/// Latency, load time and throughput in steps.
fn speeds(profile: &Profile) -> [f64; 3] {
    [
        step(profile.latency_ms(1)),
        step(profile.load_ms),
        -step(profile.saturation_rps),
    ]
}

fn compare(one: &[f64], other: &[f64]) -> Ordering {
    let pairs = one.iter().zip(other);
    pairs
        .map(|(a, b)| a.total_cmp(b))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn is_covered(worse: &[f64], better: &[f64]) -> bool {
    better
        .iter()
        .zip(worse)
        .all(|(a, b)| a.total_cmp(b).is_le())
}

fn is_alone(variant: &Variant) -> bool {
    !variant.accuracy.kind.is_accuracy() || variant.release.stage != Stage::Current
}

impl Scores {
    fn of(variant: &Variant) -> Self {
        let [latency, load, throughput] = speeds(&variant.profile);
        let quality = -variant.accuracy.quality_bound();
        let elsewhere = variant.profiles.iter();
        Self {
            registered_on: variant.measured_on.clone(),
            alone: is_alone(variant).then(|| variant.model.clone()),
            here: [
                variant.cost_per_hour_usd,
                quality,
                latency,
                load,
                throughput,
            ],
            elsewhere: elsewhere
                .map(|(name, profile)| (name.clone(), speeds(profile)))
                .collect(),
        }
    }

    /// An order in which a variant that covers another comes before it.
    fn compare(&self, other: &Self) -> Ordering {
        let most_types = other.elsewhere.len().cmp(&self.elsewhere.len());
        let elsewhere = || self.elsewhere.iter().zip(&other.elsewhere);
        let by_types = elsewhere().map(|((a, _), (b, _))| a.cmp(b));
        let by_speeds = elsewhere().map(|((_, a), (_, b))| compare(a, b));
        self.registered_on
            .cmp(&other.registered_on)
            .then_with(|| self.alone.cmp(&other.alone))
            .then_with(|| compare(&self.here, &other.here))
            .then(most_types)
            .then_with(|| {
                by_types
                    .chain(by_speeds)
                    .find(|it| it.is_ne())
                    .unwrap_or(Ordering::Equal)
            })
    }

    fn covers(&self, other: &Self) -> bool {
        let mut elsewhere = other.elsewhere.iter();
        self.registered_on == other.registered_on
            && self.alone == other.alone
            && is_covered(&other.here, &self.here)
            && elsewhere.all(|(name, theirs)| {
                let mine = self.elsewhere.get(name);
                mine.is_some_and(|mine| is_covered(theirs, mine))
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sextant_types::{
        Accuracy, AccuracyKind, ApplicationId, BatchLatency, Digest, EngineName, Metric,
        Optimization, Precision, Profile, Signature, VariantSpec,
    };

    use super::*;

    /// Small integers, so that ties are common: cost, accuracy, latency, load time, throughput.
    fn variant(index: usize, scores: [u8; 5]) -> Variant {
        let [cost, accuracy, latency, load, throughput] = scores.map(f64::from);
        Variant {
            id: VariantId::new(format!("v{index:04}")).expect("valid"),
            application: ApplicationId::new("a").expect("valid"),
            model: ModelId::new("m").expect("valid"),
            spec: VariantSpec {
                engine: EngineName("emulated".to_owned()),
                precision: Precision::Fp32,
                optimization: Optimization::All,
                threads: 1,
                max_batch: 1,
            },
            artefact: Digest::from_bytes([0; 32]),
            signature: Signature {
                inputs: Vec::new(),
                outputs: Vec::new(),
                batched: true,
            },
            padding: None,
            accuracy: Accuracy {
                kind: AccuracyKind::Accuracy,
                metric: Metric::Top1,
                value: 1.0,
                lower: accuracy,
                upper: 1.0,
                records: 1,
                evaluation_batch: 32,
            },
            profile: Profile {
                load_ms: load,
                first_load_ms: None,
                batches: vec![BatchLatency {
                    batch: 1,
                    p50_ms: latency,
                    p99_ms: latency,
                    mean_ms: latency,
                    samples: 1,
                }],
                alpha_ms: 0.0,
                beta_ms: 0.0,
                residual_ms: 0.0,
                saturation_rps: throughput,
                peak_memory_bytes: 0,
                weights_bytes: 0,
                sizes: Default::default(),
                concurrent: Vec::new(),
            },
            cost_per_hour_usd: cost,
            cost_per_1k_usd: 0.0,
            measured_on: None,
            profiles: Default::default(),
            dominated_by: None,
            apart: None,
            resources: Default::default(),
            release: Default::default(),
            foreign: false,
        }
    }

    fn device(name: &str) -> DeviceTypeName {
        DeviceTypeName::new(name).expect("valid")
    }

    /// Variants on one of two types of devices, some of them also measured on a third.
    fn variants() -> impl Strategy<Value = Vec<Variant>> {
        let scores = proptest::array::uniform5(0u8..4);
        let one = (scores, 0..2usize, proptest::option::of(0u8..3));
        proptest::collection::vec(one, 0..60).prop_map(|all| {
            let numbered = all.into_iter().enumerate();
            let made = numbered.map(|(i, (scores, on, elsewhere))| {
                let mut made = variant(i, scores);
                made.measured_on = Some(device(["cpu", "gpu"][on]));
                let slower = |factor| made.profile.slowed(f64::from(factor) + 1.0).into_owned();
                let elsewhere = elsewhere.map(|factor| (device("other"), slower(factor)));
                made.profiles = elsewhere.into_iter().collect();
                made
            });
            made.collect()
        })
    }

    fn beats(a: &Variant, b: &Variant) -> bool {
        let (x, y) = (Scores::of(a), Scores::of(b));
        x.covers(&y) && (x != y || a.id < b.id)
    }

    proptest! {
        #[test]
        fn alone_comparing_all_pairs(mut variants in variants()) {
            let found = dominators(&variants);
            for (variant, dominator) in variants.iter().zip(&found) {
                let desired = variants.iter().any(|other| beats(other, variant));
                prop_assert_eq!(dominator.is_some(), desired);
                if let Some(id) = dominator {
                    let at = variants.iter().position(|other| other.id == *id).expect("known");
                    prop_assert!(beats(&variants[at], variant));
                    prop_assert!(found[at].is_none(), "the dominator is on the frontier");
                }
            }
            // The order does not matter, and marking twice changes nothing.
            mark(&mut variants);
            let mut reversed: Vec<Variant> = variants.iter().rev().cloned().collect();
            prop_assert!(mark(&mut reversed).is_empty());
            prop_assert!(mark(&mut variants).is_empty());
        }

        #[test]
        fn adding_and_taking_away_a_model_restores_the_marks(
            before in variants(),
            added in variants(),
        ) {
            let mut before = before;
            mark(&mut before);
            let mut all = before.clone();
            all.extend(added.into_iter().enumerate().map(|(i, mut variant)| {
                variant.id = VariantId::new(format!("w{i:04}")).expect("valid");
                variant
            }));
            mark(&mut all);
            all.truncate(before.len());
            mark(&mut all);
            prop_assert_eq!(all, before);
        }
    }

    #[test]
    fn the_cheapest_dominator_is_named() {
        let variants = [
            variant(0, [3, 1, 3, 3, 1]),
            variant(1, [2, 2, 2, 2, 2]),
            variant(2, [1, 1, 3, 3, 1]),
        ];
        let found = dominators(&variants);
        assert_eq!(found, [Some(variants[2].id.clone()), None, None]);
    }

    #[test]
    fn hardware_does_not_put_other_hardware_aside() {
        let mut gpu = variant(0, [1, 3, 1, 1, 3]);
        let cpu = variant(1, [2, 1, 2, 2, 1]);
        assert_eq!(
            dominators(&[gpu.clone(), cpu.clone()])[1],
            Some(gpu.id.clone())
        );
        gpu.measured_on = Some(device("gpu"));
        assert_eq!(dominators(&[gpu, cpu]), [None, None]);
    }

    #[test]
    fn what_is_better_only_on_one_of_two_devices_dominates_nothing() {
        let better = variant(0, [1, 3, 1, 1, 3]);
        let mut other = variant(1, [2, 1, 2, 2, 1]);
        let slow = better.profile.slowed(9.0).into_owned();
        other.profiles.insert(device("b"), other.profile.clone());
        let found = dominators(&[better.clone(), other.clone()]);
        assert_eq!(found[1], None, "not measured on `b`");
        let mut measured = better.clone();
        measured.profiles.insert(device("b"), slow);
        assert_eq!(
            dominators(&[measured.clone(), other.clone()])[1],
            None,
            "slower on `b`"
        );
        measured
            .profiles
            .insert(device("b"), better.profile.clone());
        assert_eq!(dominators(&[measured, other])[1], Some(better.id));
    }

    #[test]
    fn agreement_dominates_its_own_model_alone() {
        let of = |index, model: &str, kind, scores| {
            let mut made = variant(index, scores);
            made.model = ModelId::new(model).expect("valid");
            made.accuracy.kind = kind;
            made
        };
        let (good, bad) = ([1, 3, 1, 1, 3], [2, 1, 2, 2, 1]);
        for kind in [AccuracyKind::Agreement, AccuracyKind::Unknown] {
            let agrees = of(0, "a", kind, good);
            let labelled = of(1, "b", AccuracyKind::Accuracy, bad);
            let own = of(2, "a", kind, bad);
            let other = of(3, "c", kind, bad);
            let marked = dominators(&[agrees.clone(), labelled, own, other]);
            assert_eq!(marked, [None, None, Some(agrees.id), None]);
        }
        let labelled = of(0, "a", AccuracyKind::Accuracy, good);
        let agrees = of(1, "b", AccuracyKind::Agreement, bad);
        assert_eq!(dominators(&[labelled, agrees]), [None, None]);
    }

    #[test]
    fn nothing_is_dominated_alone() {
        assert_eq!(dominators(&[variant(0, [9; 5])]), [None]);
        assert!(dominators(&[]).is_empty());
    }
}
