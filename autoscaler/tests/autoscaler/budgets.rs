//! The resources that applications may use, as they come with their variants.

use std::collections::BTreeMap;

use sextant_metadata::{ApplicationDemand, Count, Demand, Limit};
use sextant_types::{ApplicationId, Resources, TargetClass, Variant, VariantId};

use super::{world::*, *};

/// A variant of an application that may use these resources.
fn variant_of(application: &str, name: &str, resources: Resources) -> Variant {
    Variant {
        application: ApplicationId::new(application).unwrap(),
        resources,
        ..variant(name)
    }
}

async fn ask(store: &UnsteadyStore, rates: &[(&str, u64)]) {
    let rows = rates.iter().map(|(application, rps)| ApplicationDemand {
        application: ApplicationId::new(application).unwrap(),
        class: TargetClass::default(),
        variant: None,
        offered: *rps,
        input_rows: *rps,
        sized_rows: 0.0,
        latency_ms: None,
        answered: *rps,
        late: 0,
        kept: 0,
        refused: BTreeMap::new(),
        queueing_ms: 0,
        step: None,
    });
    let demand = Demand {
        window_ms: 1000,
        applications: rows.collect(),
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
}

fn needed(desired: &DesiredState, name: &str) -> u32 {
    let id = VariantId::new(name).unwrap();
    desired.of(&id).map_or(0, |of| of.needed)
}

fn held_back(desired: &DesiredState) -> Vec<(&str, Limit)> {
    let each = desired.held_back.iter();
    each.map(|of| (of.application.as_str(), of.limit)).collect()
}

#[tokio::test]
async fn what_a_budget_does_not_pay_for_is_not_planned_for_and_says_so() {
    let store = Arc::new(UnsteadyStore::new(256));
    let poor = Resources {
        budget_per_hour_usd: Some(0.0),
        ..Resources::default()
    };
    publish(&store, variant_of("poor", "m-a", poor)).await;
    publish(&store, variant_of("rich", "m-b", Resources::default())).await;
    beat_of(&store, "w1", &device_type("small", 0.5), false).await;
    start(&store, None);
    ask(&store, &[("poor", 10), ("rich", 10)]).await;
    let desired = until(&store, "held back", |it| !it.held_back.is_empty()).await;
    assert_eq!(held_back(&desired), [("poor", Limit::Budget)]);
    assert!(
        desired.held_back[0].reason.contains("budget of 0"),
        "{desired:#?}"
    );
    let desired = until(&store, "planned", |it| needed(it, "m-b") == 1).await;
    assert_eq!(needed(&desired, "m-a"), 0);
    // The next publication raises the budget.
    let paid = Resources {
        budget_per_hour_usd: Some(100.0),
        ..Resources::default()
    };
    publish(&store, variant_of("poor", "m-a", paid)).await;
    let desired = until(&store, "planned", |it| needed(it, "m-a") == 1).await;
    assert_eq!(held_back(&desired), []);
}

#[tokio::test]
async fn a_worker_is_kept_for_an_application_that_nobody_asks() {
    let store = Arc::new(UnsteadyStore::new(256));
    let kept = Resources {
        least_workers: 1,
        ..Resources::default()
    };
    publish(&store, variant_of("kept", "m-a", kept)).await;
    publish(&store, variant_of("other", "m-b", Resources::default())).await;
    beat_of(&store, "w1", &device_type("small", 0.5), false).await;
    start(&store, None);
    let desired = until(&store, "kept", |it| needed(it, "m-a") == 1).await;
    let of = desired.of(&VariantId::new("m-a").unwrap()).unwrap();
    assert!(of.workers == Count::Everywhere || of.workers == Count::Workers(1));
    assert_eq!(needed(&desired, "m-b"), 0);
}

#[tokio::test]
async fn a_higher_priority_goes_first_where_one_worker_is_not_enough() {
    let store = Arc::new(UnsteadyStore::new(256));
    let first = Resources {
        priority: Some(200),
        ..Resources::default()
    };
    // The first application alone would fill more than the one worker.
    publish(&store, variant_of("first", "m-b", first)).await;
    publish(&store, variant_of("last", "m-a", Resources::default())).await;
    beat_of(&store, "w1", &device_type("small", 0.5), false).await;
    start(&store, None);
    ask(&store, &[("first", 5000), ("last", 5000)]).await;
    let desired = until(&store, "planned", |it| needed(it, "m-b") == 1).await;
    let desired = match desired.held_back.is_empty() {
        true => until(&store, "held back", |it| !it.held_back.is_empty()).await,
        false => desired,
    };
    let limits = held_back(&desired);
    assert!(limits.contains(&("last", Limit::Others)), "{limits:?}");
}
