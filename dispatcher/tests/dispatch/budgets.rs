//! Queries of applications that have a budget.

use std::sync::atomic::Ordering;

use sextant_rpc::QueryError;
use sextant_types::{Code, Resources, Variant};

use crate::world::{Kind, SLOW, World, query, targets, wait_until};

/// The price that an expensive variant lists for a query, US dollars.
const DEAR: f64 = 0.1;

fn dear() -> Kind {
    Kind {
        name: "dear-a",
        cost: DEAR * 1000.0,
        ..Kind::default()
    }
}

/// Gives the application of a variant a budget.
fn budget(usd_per_hour: f64) -> impl Fn(&mut Variant) {
    move |variant| {
        variant.resources = Resources {
            budget_per_hour_usd: Some(usd_per_hour),
            ..Resources::default()
        };
    }
}

fn exhausted(error: &QueryError) -> Option<u64> {
    assert_eq!(error.code, Code::BudgetExhausted, "{error:?}");
    assert!(error.message.contains("`app`"), "{error:?}");
    error.retry_after_ms
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_paid_answers_though_a_dearer_variant_is_ready() {
    let world = World::new().await;
    world.serve_with("app", dear(), budget(0.0)).await;
    let free = Kind {
        name: "free-b",
        cost: 0.0,
        quality: 0.5,
        ..Kind::default()
    };
    world.publish_with("app", free, budget(0.0)).await;
    let answer = world.ask(query(&[1.0, 0.0])).await.unwrap();
    assert_eq!(answer.variant.as_str(), "free-b");
    // Targets take precedence over money: the free variant is not accurate enough.
    let mut good = query(&[1.0, 0.0]);
    good.targets = targets(None, Some(0.6));
    let refused = world.ask(good.clone()).await.unwrap_err();
    assert_eq!(exhausted(&refused), None, "a budget of nothing never pays");
    // The same holds for queries that would take any answer, or that name the variant.
    good.best_effort = true;
    let answer = world.ask(good).await;
    assert!(answer.is_err() || answer.is_ok_and(|it| it.variant.as_str() == "free-b"));
    let mut named = query(&[1.0, 0.0]);
    named.route = crate::world::variant_route("dear-a");
    exhausted(&world.ask(named).await.unwrap_err());
    // A query that cannot be met at all does not depend on money.
    let mut perfect = query(&[1.0, 0.0]);
    perfect.targets = targets(None, Some(2.0));
    let refused = world.ask(perfect).await.unwrap_err();
    assert_eq!(refused.code, Code::TargetInfeasible);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_charged_until_it_is_known_what_it_did_cost() {
    let world = World::new().await;
    // A full bucket holds what one query lists.
    world.serve_with("app", dear(), budget(DEAR * 60.0)).await;
    world.gate.close();
    let first = world.send(query(&[SLOW, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let refused = world.ask(query(&[1.0, 0.0])).await.unwrap_err();
    let wait_ms = exhausted(&refused).expect("it fills");
    assert!((1..=60_000).contains(&wait_ms), "{wait_ms}");
    world.gate.open();
    // It ran for a moment on a cheap core, so most of the charge is given back.
    first.await.unwrap().unwrap();
    world.ask(query(&[1.0, 0.0])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_budget_counts_as_soon_as_it_is_published() {
    let world = World::new().await;
    let variant = world.serve_with("app", dear(), budget(0.0)).await;
    exhausted(&world.ask(query(&[1.0, 0.0])).await.unwrap_err());
    let mut raised = Variant::clone(&variant);
    budget(1000.0)(&mut raised);
    let mut freed = Variant::clone(&variant);
    freed.resources = Resources::default();
    for change in [raised, freed] {
        world.metadata.publish_variant(change.into()).await.unwrap();
        loop {
            match world.ask(query(&[1.0, 0.0])).await {
                Ok(_) => break,
                Err(error) => drop(exhausted(&error)),
            }
        }
    }
}
