//! The metrics of a dispatcher.

use prometheus_client::{encoding::text::encode, registry::Registry};
use sextant_types::{Code, ModelId, Release, Stage, Variant};

use crate::world::{Kind, World, query, targets, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn queries_batches_and_loads_are_shown() {
    let world = World::new().await;
    let mut registry = Registry::with_prefix("sextant");
    world.dispatcher.register_metrics(&mut registry);
    world.publish(Kind::default()).await;
    for number in 0..2 {
        world.ask(query(&[number as f32, 0.0])).await.unwrap();
    }
    world.ask(query(&[1.0, 0.0, 2.0, 0.0])).await.unwrap();
    let mut infeasible = query(&[1.0, 0.0]);
    infeasible.targets = targets(None, Some(0.99));
    let error = world.ask(infeasible).await.unwrap_err();
    assert_eq!(error.code, Code::TargetInfeasible);
    // The metadata store reports what is loaded a little later than the worker answers.
    wait_until(|| text(&registry).contains("sextant_dispatcher_loaded_variants 1.0")).await;
    let shown = text(&registry);
    for line in [
        "sextant_dispatcher_leading 1.0",
        "sextant_dispatcher_waiting_queries 0.0",
        "sextant_dispatcher_loaded_variants 1.0",
        "sextant_dispatcher_pools 1.0",
        "sextant_dispatcher_batches_total 3",
        "sextant_dispatcher_rows_total 4",
        "sextant_dispatcher_loads_total{application=\"app\"} 1",
        "sextant_dispatcher_load_failures_total{application=\"app\"} 0",
        "sextant_dispatcher_queries_offered_total{application=\"app\"} 4",
        "sextant_dispatcher_queries_answered_total{application=\"app\"} 3",
        "sextant_dispatcher_queries_late_total{application=\"app\"} 0",
        "sextant_dispatcher_query_refusals_total{application=\"app\",code=\"target_infeasible\"} 1",
        "sextant_dispatcher_uncounted_queries_total 0",
        "# UNIT sextant_dispatcher_query_waiting_seconds seconds",
    ] {
        assert!(shown.lines().any(|it| it == line), "`{line}` in\n{shown}");
    }
    let of = "{application=\"app\",variant=\"m-a\"}";
    let read = |name: &str| {
        let start = format!("sextant_dispatcher_{name}_total{of} ");
        let value = shown.lines().find_map(|line| line.strip_prefix(&start));
        value.expect(name).parse::<f64>().unwrap()
    };
    let (seconds, usd) = (read("run_seconds"), read("cost_usd"));
    assert!(seconds > 0.0);
    // The worker does not report its device: a core costs 0.036 US dollars an hour. Run times are
    // counted in whole nanoseconds, and no batch loses more than one.
    assert!((usd - seconds * 1e-5).abs() < 3e-9 * 1e-5, "{usd}");
    assert_eq!(read("offline_cost_usd"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_fails_is_shown() {
    let world = World::new().await;
    let mut registry = Registry::with_prefix("sextant");
    world.dispatcher.register_metrics(&mut registry);
    let broken = Kind {
        artefact: b"broken",
        ..Kind::default()
    };
    world.publish(broken).await;
    let error = world.ask(query(&[1.0, 0.0])).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    let shown = text(&registry);
    let line = "sextant_dispatcher_load_failures_total{application=\"app\"} 1";
    assert!(shown.lines().any(|it| it == line), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_a_canary_has_not_answered_is_counted_once() {
    let world = World::new().await;
    let mut registry = Registry::with_prefix("sextant");
    world.dispatcher.register_metrics(&mut registry);
    world.serve(Kind::default()).await;
    let canary = Kind {
        name: "m2-a",
        ..Kind::default()
    };
    let tried = |variant: &mut Variant| {
        variant.model = ModelId::new("m2").unwrap();
        variant.release = Release {
            name: Some(ModelId::new("m").unwrap()),
            version: 2,
            stage: Stage::Canary { percent: 100.0 },
            since_ms: 0,
        };
    };
    world.serve_with("app", canary, tried).await;
    // Both versions fail.
    world.ask(query(&[-1.0, 0.0])).await.unwrap_err();
    let shown = text(&registry);
    let line = "sextant_dispatcher_queries_offered_total{application=\"app\"} 1";
    assert!(shown.lines().any(|it| it == line), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_variant_cost_and_its_application_asked_is_shown_until_it_is_deleted() {
    let world = World::new().await;
    let mut registry = Registry::with_prefix("sextant");
    world.dispatcher.register_metrics(&mut registry);
    let variant = world.publish(Kind::default()).await;
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    let (of, asked) = ("variant=\"m-a\"", "queries_offered_total{");
    assert!(text(&registry).contains(of) && text(&registry).contains(asked));
    let retired = world.metadata.retire_variant(&variant.id).await;
    assert!(retired.unwrap());
    wait_until(|| !text(&registry).contains(of)).await;
    assert!(!text(&registry).contains("application=\"app\""));
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}
