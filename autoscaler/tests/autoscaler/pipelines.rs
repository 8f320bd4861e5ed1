//! Pipelines with a target: their plan becomes the desired state.

use std::collections::BTreeMap;

use sextant_metadata::{ApplicationDemand, Demand, StepDemand};
use sextant_types::{
    ApplicationId, DeviceType, ModelId, Route, StepOf, TargetClass, Targets, Variant, WholeAccuracy,
};

use super::{
    scaling::{Shelf, pool, run, until_true, wants},
    world::{beat_of, device_type, publish, until, variant},
    *,
};

/// Demand of one second: queries for a step, with their rows and the runs of the step.
fn row(step: &str, after: &[&str], (runs, rows): (u64, u64)) -> ApplicationDemand {
    let variant = match step {
        "find" => "m-a",
        _ => "m-b",
    };
    let asks = Route::Variant(VariantId::new(variant).unwrap());
    ApplicationDemand {
        application: ApplicationId::new("app").unwrap(),
        class: TargetClass::of(&Targets {
            latency_ms: Some(25.0),
            ..Targets::default()
        }),
        variant: None,
        offered: rows,
        input_rows: rows,
        sized_rows: 0.0,
        latency_ms: Some((20.0, 30.0)),
        answered: rows,
        late: 0,
        kept: 0,
        refused: BTreeMap::new(),
        queueing_ms: 0,
        step: Some(StepDemand {
            of: StepOf {
                pipeline: ApplicationId::new("pages").unwrap(),
                step: step.to_owned(),
                after: after.iter().map(|name| (*name).to_owned()).collect(),
                asks,
            },
            runs: runs as f64,
            whole_ms: Some((50.0, 60.0)),
            accuracy: None,
        }),
    }
}

/// `rps` queries a second find something; one in ten of them has four lines to read.
async fn ask_pages(store: &UnsteadyStore, rps: u64) {
    let demand = Demand {
        window_ms: 1000,
        applications: vec![
            row("find", &[], (rps, rps)),
            row("read", &["find"], (rps / 10, rps / 10 * 4)),
        ],
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
}

/// A variant for each step, measured on these devices.
async fn publish_steps(store: &UnsteadyStore, of: &DeviceType) {
    for name in ["m-a", "m-b"] {
        let measured = Variant {
            measured_on: Some(of.name.clone()),
            ..variant(name)
        };
        publish(store, measured).await;
    }
}

fn needed(desired: &DesiredState, name: &str) -> u32 {
    let of = desired
        .variants
        .iter()
        .find(|it| it.variant.as_str() == name);
    of.map_or(0, |it| it.needed)
}

#[tokio::test]
async fn a_pipelines_plan_is_what_is_desired_and_each_decision_says_so() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish_steps(&store, &of).await;
    run(&store, pool(&shelf, &of, 0, 20));
    // A device answers 1,000 rows a second: two devices find, and one reads.
    ask_pages(&store, 1500).await;
    let planned = until(&store, "a plan", |it| wants(it, "small") == Some(3)).await;
    let decision = planned.decisions.iter().find(|it| it.to == 3).unwrap();
    for told in [
        "pipeline `pages` within 50 ms",
        "step `find`",
        "step `read`",
        "`m-b`",
    ] {
        assert!(decision.reason.contains(told), "{told}: {decision:?}");
    }
    until_true("three machines", || shelf.count() == 3).await;
    for number in 0..3 {
        beat_of(&store, &format!("m{number}"), &of, false).await;
    }
    let is_placed = |it: &DesiredState| (needed(it, "m-a"), needed(it, "m-b")) == (2, 1);
    let placed = until(&store, "the steps' variants", is_placed).await;
    assert_eq!(wants(&placed, "small"), Some(3), "the demand counts once");
    let of_variant = placed.decisions.iter().rev();
    let of_variant = of_variant.filter(|it| it.to == 2);
    let reasons: Vec<_> = of_variant.map(|it| &*it.reason).collect();
    assert!(
        reasons
            .iter()
            .any(|it| it.contains("step `find`") && it.contains("2 batches")),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn a_plan_for_which_there_is_no_room_leaves_the_steps_to_the_plan_for_all() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish_steps(&store, &of).await;
    run(&store, pool(&shelf, &of, 0, 1));
    // One device has time for both steps in turn, and the plan has one for each.
    ask_pages(&store, 100).await;
    let shared = until(&store, "one", |it| wants(it, "small") == Some(1)).await;
    let told = shared.decisions.iter().find(|it| it.to == 1).unwrap();
    assert!(!told.reason.contains("pipeline"), "{told:?}");
    beat_of(&store, "m0", &of, false).await;
    until(&store, "a variant", |it| needed(it, "m-a") == 1).await;
}

/// The largest desired batches, by variant.
fn batches(desired: &DesiredState) -> Vec<(&str, u32)> {
    let batches = desired.batches.iter();
    batches
        .map(|it| (it.variant.as_str(), it.max_rows))
        .collect()
}

#[tokio::test]
async fn the_largest_batches_of_a_plan_are_desired_but_of_what_answers_others_too() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    for name in ["m-a", "m-b"] {
        let mut measured = Variant {
            measured_on: Some(of.name.clone()),
            ..variant(name)
        };
        // Batches of more than eight rows take longer for each row, and soon longer than the target.
        measured.spec.max_batch = 64;
        let rows = [(1, 2.0), (8, 8.0), (64, 640.0)];
        let rows = rows.map(|(batch, ms)| sextant_types::BatchLatency {
            batch,
            p50_ms: ms,
            p99_ms: ms,
            mean_ms: ms,
            samples: 10,
        });
        measured.profile.batches = rows.to_vec();
        publish(&store, measured).await;
    }
    run(&store, pool(&shelf, &of, 0, 20));
    let mut rows = vec![
        row("find", &[], (1000, 1000)),
        row("read", &["find"], (100, 400)),
    ];
    let demand = |applications: Vec<ApplicationDemand>| Demand {
        window_ms: 1000,
        applications,
        ..Demand::default()
    };
    store.set_demand(demand(rows.clone())).await.unwrap();
    let planned = until(&store, "bounds", |it| batches(it).len() == 2).await;
    let told = &planned.decisions.last().unwrap().reason;
    for (variant, most) in batches(&planned) {
        assert!(most < 64, "{variant}: {most}");
        let said = format!("by `{variant}`");
        let step = told.split("; ").find(|it| it.contains(&said)).unwrap();
        assert!(step.contains(&format!("up to {most} rows")), "{step}");
    }
    assert_eq!(planned.batches[0].device_type, of.name);
    // Clients also ask the application directly, and one of its variants answers them.
    for number in 0..8 {
        beat_of(&store, &format!("m{number}"), &of, false).await;
    }
    rows.push(ApplicationDemand {
        step: None,
        ..row("read", &[], (100, 100))
    });
    store.set_demand(demand(rows)).await.unwrap();
    until(&store, "one bound", |it| batches(it).len() == 1).await;
}

/// The same for a step that asks this variant.
fn row_of(step: &str, after: &[&str], asks: &str, runs: u64) -> ApplicationDemand {
    let mut row = row(step, after, (runs, runs));
    if let Some(step) = &mut row.step {
        step.of.asks = Route::Variant(VariantId::new(asks).unwrap());
    }
    row
}

/// The desired state on workers that answer 1,000 rows a second each, after these steps were asked.
async fn planned(applications: Vec<ApplicationDemand>, workers: u32) -> Arc<DesiredState> {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    for name in ["m-a", "m-b", "m-c"] {
        let measured = Variant {
            measured_on: Some(of.name.clone()),
            ..variant(name)
        };
        publish(&store, measured).await;
    }
    run(&store, pool(&shelf, &of, 0, 20));
    let demand = Demand {
        window_ms: 1000,
        applications,
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
    until(&store, "a plan", |it| wants(it, "small") == Some(workers)).await
}

/// Rows a second that the plan has for a step, according to the decision about the workers.
fn rate_of(desired: &DesiredState, step: &str) -> f64 {
    let told = &desired.decisions[0].reason;
    let begin = format!("its step `{step}` (");
    let rest = told
        .split_once(&begin)
        .unwrap_or_else(|| panic!("{told}"))
        .1;
    rest.split(' ')
        .next()
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap()
}

/// A variant of a model with this accuracy and this time for a row.
fn accurate(name: &str, model: &str, (lower, ms): (f64, f64), on: &DeviceType) -> Variant {
    let mut of = Variant {
        model: ModelId::new(model).unwrap(),
        measured_on: Some(on.name.clone()),
        ..variant(name)
    };
    of.accuracy.lower = lower;
    for batch in &mut of.profile.batches {
        (batch.p50_ms, batch.p99_ms, batch.mean_ms) = (ms, ms, ms);
    }
    (of.profile.beta_ms, of.profile.saturation_rps) = (ms, 1000.0 / ms);
    of
}

/// The variants by which the plan runs the steps, in the next desired state with so many workers.
async fn planned_by(store: &UnsteadyStore, least: Option<f64>, workers: u32) -> Vec<String> {
    let asked = |step: &str, after: &[&str], model: &str, answered: &str| {
        let mut row = row(step, after, (500, 500));
        if let Some(step) = &mut row.step {
            step.of.asks = Route::Model(ModelId::new(model).unwrap());
            step.accuracy = least.map(|least| WholeAccuracy {
                least,
                // The accuracies of the steps alone would give 0.81.
                measured: 0.8,
                answered: vec![VariantId::new(answered).unwrap()],
            });
        }
        row
    };
    let demand = Demand {
        window_ms: 1000,
        applications: vec![
            asked("find", &[], "finder", "m-2"),
            asked("read", &["find"], "reader", "m-4"),
        ],
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
    let planned = until(store, "a plan", |it| wants(it, "small") == Some(workers)).await;
    let told = planned.decisions.iter().rev().find(|it| it.to == workers);
    let told = told.unwrap().reason.split("; ").filter_map(|part| {
        let (_, variant) = part.split_once(" by `")?;
        Some(variant.split('`').next()?.to_owned())
    });
    told.collect()
}

#[tokio::test]
async fn the_whole_is_as_accurate_as_its_queries_ask() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    for (name, model, figures) in [
        ("m-1", "finder", (0.8, 1.0)),
        ("m-2", "finder", (0.9, 1.9)),
        ("m-3", "reader", (0.88, 1.0)),
        ("m-4", "reader", (0.9, 1.9)),
    ] {
        publish(&store, accurate(name, model, figures, &of)).await;
    }
    run(&store, pool(&shelf, &of, 0, 20));
    // The cheapest plan has 0.8 * 0.88, and the next one 0.9 * 0.88.
    assert_eq!(planned_by(&store, None, 2).await, ["m-1", "m-3"]);
    assert_eq!(planned_by(&store, Some(0.75), 3).await, ["m-2", "m-3"]);
    assert_eq!(planned_by(&store, Some(0.8), 4).await, ["m-2", "m-4"]);
}

#[tokio::test]
async fn a_split_is_planned_as_steps_of_which_a_query_runs_one() {
    let rows = vec![
        row_of("score", &[], "m-a", 300),
        row_of("score", &[], "m-b", 300),
        row_of("last", &["score"], "m-c", 600),
    ];
    let desired = planned(rows, 3).await;
    let rates = ["score of m-a", "score of m-b", "last"].map(|step| rate_of(&desired, step));
    let [one, other, last] = rates;
    assert!((one / other - 1.0).abs() < 0.05, "{rates:?}");
    assert!(
        (last / (one + other) - 1.0).abs() < 0.05,
        "all come to it: {rates:?}"
    );
}

#[tokio::test]
async fn the_steps_of_a_pipeline_that_is_a_step_are_planned_with_the_outer_ones() {
    // The inner pipeline asks its second step for a fifth of its rows, and all of its answers are read.
    let rows = vec![
        row_of("crop", &[], "m-c", 500),
        row_of("inner.fast", &["crop"], "m-a", 500),
        row_of("inner.slow", &["inner.fast"], "m-b", 100),
        row_of("last", &["inner"], "m-c", 500),
    ];
    let desired = planned(rows, 4).await;
    let steps = ["crop", "inner.fast", "inner.slow", "last"];
    let rates = steps.map(|step| rate_of(&desired, step));
    for (rate, share) in rates.iter().zip([1.0, 1.0, 0.2, 1.0]) {
        assert!((rate / rates[0] - share).abs() < 0.02, "{rates:?}");
    }
}
