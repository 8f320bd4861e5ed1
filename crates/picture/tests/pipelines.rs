//! Tests that plans keep the accuracy of a pipeline whose second step runs for only a part of its queries.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, sync::Arc};

use sextant_metadata::{View, conformance::sample_variant};
use sextant_picture::{Forecast, Interner, Need, Options, Picture, Plans, StepLoad};
use sextant_scaling::demand;
use sextant_types::{
    ApplicationId, DeviceType, DeviceTypeName, ModelId, Route, StepOf, TargetClass, Targets,
    Variant, VariantId, WholeAccuracy,
};

/// By name: the model, the accuracy, and the run time of a row, ms.
const VARIANTS: [(&str, &str, f64, f64); 4] = [
    ("m-1", "fast", 0.8, 1.0),
    ("m-2", "fast", 0.9, 1.9),
    ("m-3", "slow", 0.7, 5.0),
    ("m-4", "slow", 0.9, 12.0),
];

/// The accuracy that was measured of the whole pipeline while `m-2` and `m-4` answered. With `m-3` it is as accurate as
/// long as at most a quarter of the queries run the second step.
const MEASURED: f64 = 0.95;
const LEAST: f64 = 0.9;

/// A fleet that may have workers of one type.
struct World {
    view: View,
    known: BTreeMap<DeviceTypeName, Arc<DeviceType>>,
    options: Options,
    interner: Interner,
    plans: Plans,
}

fn variant((name, model, lower, ms): (&str, &str, f64, f64), on: &DeviceType) -> Variant {
    let mut of = Variant::clone(&sample_variant(name, 1.0));
    of.model = ModelId::new(model).unwrap();
    of.measured_on = Some(on.name.clone());
    of.spec.max_batch = 1;
    of.accuracy.lower = lower;
    for batch in &mut of.profile.batches {
        (batch.p50_ms, batch.p99_ms, batch.mean_ms) = (ms, ms, ms);
    }
    (of.profile.alpha_ms, of.profile.beta_ms) = (0.0, ms);
    of.profile.saturation_rps = 1000.0 / ms;
    of
}

/// The demand of a step on a model, this many a second, with the variant that answered it while the whole pipeline was
/// measured.
fn asked(step: &str, after: &[&str], answered: &str, rps: f64) -> Forecast {
    Forecast {
        need: Need {
            application: ApplicationId::new("app").unwrap(),
            class: TargetClass::of(&Targets {
                latency_ms: Some(25.0),
                ..Targets::default()
            }),
            step: Some(StepOf {
                pipeline: ApplicationId::new("cascade").unwrap(),
                step: step.to_owned(),
                after: after.iter().map(|name| (*name).to_owned()).collect(),
                asks: Route::Model(ModelId::new(step).unwrap()),
            }),
        },
        of: demand::Forecast {
            expected: demand::Expected {
                mean_rps: rps,
                burst_rps: rps,
                forecast_rps: 0.0,
            },
            rps,
            ..demand::Forecast::default()
        },
        latency_ms: Some((20.0, 30.0)),
        queries_per_row: 1.0,
        step: Some(StepLoad {
            runs_per_row: 1.0,
            whole_ms: Some((50.0, 60.0)),
            accuracy: Some(WholeAccuracy {
                least: LEAST,
                measured: MEASURED,
                answered: vec![VariantId::new(answered).unwrap()],
            }),
        }),
    }
}

// === impl World ===

impl World {
    fn new() -> Self {
        let of = Arc::new(DeviceType {
            name: DeviceTypeName::new("small").unwrap(),
            engines: vec![sample_variant("m-1", 1.0).spec.engine.clone()],
            slots: 1,
            memory_bytes: 1 << 30,
            price_per_hour_usd: 0.5,
            start_ms: 1000,
        });
        let published = VARIANTS.map(|it| Arc::new(variant(it, &of)));
        Self {
            view: View {
                variants: published.map(|it| (it.id.clone(), it)).into(),
                ..View::default()
            },
            options: Options {
                estimate_factor: 1.0,
                pools: BTreeMap::from([(of.name.clone(), (0, 20))]),
                ..Options::default()
            },
            known: BTreeMap::from([(of.name.clone(), of)]),
            interner: Interner::default(),
            plans: Plans::default(),
        }
    }

    /// What runs the first step and the second if this many queries come a second and `again` of them run the second.
    fn staffed(&mut self, queries: f64, again: f64) -> Vec<String> {
        let outlooks = vec![
            asked("fast", &[], "m-2", queries),
            asked("slow", &["fast"], "m-4", again),
        ];
        let numbers = (&self.options, &mut self.interner);
        let mut picture = Picture::new(&self.view, outlooks, &self.known, numbers);
        picture.staff(&mut self.plans);
        let staff = picture.staff.iter();
        staff.map(|it| it.variant.to_string()).collect()
    }
}

#[test]
fn a_step_counts_towards_the_whole_by_the_share_of_the_queries_that_run_it() {
    // 0.95 * (1 - 0.2 + 0.2 * 0.7) / (1 - 0.2 + 0.2 * 0.9) is 0.91, and 0.95 * 0.7 / 0.9 is 0.74.
    assert_eq!(World::new().staffed(500.0, 100.0), ["m-2", "m-3"]);
    assert_eq!(World::new().staffed(100.0, 100.0), ["m-2", "m-4"]);
}

#[test]
fn a_plan_is_made_anew_where_more_queries_run_a_step_than_it_is_accurate_enough_for() {
    let mut world = World::new();
    assert_eq!(world.staffed(500.0, 100.0), ["m-2", "m-3"]);
    // The load of each step is near what it was. If not for its accuracy, the plan would last.
    assert_eq!(world.staffed(360.0, 80.0), ["m-2", "m-3"]);
    assert_eq!(world.staffed(360.0, 108.0), ["m-2", "m-4"]);
    // A plan that is more accurate than is asked lasts.
    assert_eq!(world.staffed(380.0, 80.0), ["m-2", "m-4"]);
}

/// The budget would pay for the steps alone, but not for them beside workers of another type that stay whatever they
/// cost.
#[test]
fn a_plan_takes_no_devices_that_the_budget_does_not_pay_for_beside_those_that_there_must_be() {
    let mut world = World::new();
    let spare = DeviceType {
        name: DeviceTypeName::new("spare").unwrap(),
        engines: Vec::new(),
        slots: 1,
        memory_bytes: 1 << 30,
        price_per_hour_usd: 0.5,
        start_ms: 1000,
    };
    let name = spare.name.clone();
    world.options.pools.insert(name.clone(), (20, 20));
    world.known.insert(name, Arc::new(spare));
    for (budget, is_staffed) in [(20.0, true), (10.0, false)] {
        world.options.budget_per_hour_usd = Some(budget);
        let staffed = world.staffed(500.0, 100.0);
        assert_eq!(!staffed.is_empty(), is_staffed, "{budget}: {staffed:?}");
    }
}
