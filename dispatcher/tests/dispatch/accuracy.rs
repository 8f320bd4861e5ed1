//! Accuracy as a target: of a named variant, of a model, and of agreement between variants.

use sextant_types::{
    AccuracyKind, ApplicationId, Code, ModelId, Precision, Route, Targets, Variant,
};

use crate::world::{Kind, World, output, query, targets, variant_route};

const FAST: Kind = Kind {
    name: "m-fast",
    quality: 0.8,
    latency_ms: 1.0,
    load_ms: 1.0,
    cost: 1.0,
    memory: 100,
    artefact: b"fine",
    threads: 1,
    max_batch: 4,
};

/// `FAST` under another name, cost and latency.
fn like_fast(name: &'static str, cost: f64, latency_ms: f64) -> Kind {
    Kind {
        name,
        cost,
        latency_ms,
        ..FAST
    }
}

/// A query for a variant cannot use another one, so it is refused if the variant cannot meet its targets.
#[tokio::test(flavor = "multi_thread")]
async fn a_named_variant_is_refused_for_targets_that_it_cannot_meet() {
    let world = World::new().await;
    world.serve(FAST).await;
    for (quality, cost) in [(Some(0.9), None), (None, Some(0.5))] {
        let mut named = query(&[1.0, 2.0]);
        named.route = variant_route("m-fast");
        named.targets = targets(None, quality);
        named.targets.max_cost_per_1k_usd = cost;
        let error = world.ask(named.clone()).await.unwrap_err();
        assert_eq!(error.code, Code::TargetInfeasible, "{error}");
        let closest: Vec<_> = error.closest.iter().map(|it| it.variant.as_str()).collect();
        assert_eq!(closest, ["m-fast"]);
        assert_eq!(error.closest[0].quality_bound, 0.8);
        named.best_effort = true;
        let answer = world.ask(named).await.unwrap();
        assert_eq!(output(&answer), [2.0, 4.0]);
        assert!(!answer.targets_met);
    }
    let mut within = query(&[1.0, 2.0]);
    within.route = variant_route("m-fast");
    within.targets = targets(None, Some(0.8));
    assert!(world.ask(within).await.unwrap().targets_met);
}

/// A query that names a model means the model that was trained: variants that its validation set cannot distinguish
/// from it may answer. A query that names an application and asks for nothing gets the cheapest variant.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_named_answers_as_accurately_as_it_was_uploaded() {
    let world = World::new().await;
    for (kind, precision, value) in [
        (like_fast("m-single", 2.0, 200.0), Precision::Fp32, 0.90),
        (like_fast("m-near", 1.0, 200.0), Precision::Int8Static, 0.87),
        (like_fast("m-far", 0.5, 1.0), Precision::Int8Dynamic, 0.80),
    ] {
        let measured = |variant: &mut Variant| {
            variant.spec.precision = precision;
            variant.accuracy.value = value;
            variant.accuracy.lower = value - 0.05;
            variant.accuracy.upper = value + 0.05;
        };
        world.publish_with("app", kind, measured).await;
    }
    let ask = async |route: Route, targets: Targets| {
        let mut query = query(&[1.0, 2.0]);
        (query.route, query.targets) = (route, targets);
        world.ask(query).await.unwrap().variant.to_string()
    };
    let model = || Route::Model(ModelId::new("m").unwrap());
    let application = || Route::Application(ApplicationId::new("app").unwrap());
    // Stated targets take precedence. (This comes before any run shows how quick the variants really are.)
    assert_eq!(ask(model(), targets(Some(100.0), None)).await, "m-far");
    assert_eq!(ask(model(), Targets::default()).await, "m-near");
    assert_eq!(ask(application(), Targets::default()).await, "m-far");
    assert_eq!(ask(model(), targets(None, Some(0.7))).await, "m-far");
    assert_eq!(ask(model(), targets(None, Some(0.84))).await, "m-single");
    // The uploaded file's bound is 0.85, the others' are 0.82 and 0.75.
    let share = |share, least| Targets {
        min_relative_accuracy: Some(share),
        ..targets(None, least)
    };
    for (asked, least, answers) in [
        (1.0, None, "m-single"),
        (0.99, None, "m-single"),
        (0.96, None, "m-near"),
        (0.88, None, "m-far"),
        (0.88, Some(0.8), "m-near"),
    ] {
        for route in [model(), application()] {
            assert_eq!(ask(route, share(asked, least)).await, answers, "{asked}");
        }
    }
    let mut named = query(&[1.0, 2.0]);
    (named.route, named.targets) = (variant_route("m-far"), share(0.9, None));
    let refused = world.ask(named).await.unwrap_err();
    assert_eq!(refused.code, Code::TargetInfeasible, "{refused}");
}

/// `m-agrees` agrees with its own file, which says nothing about how often that file is right.
#[tokio::test(flavor = "multi_thread")]
async fn agreement_meets_a_share_and_no_accuracy() {
    let world = World::new().await;
    let measured = |of: AccuracyKind, model: &'static str, precision, value: f64| {
        move |variant: &mut Variant| {
            variant.model = ModelId::new(model).unwrap();
            variant.spec.precision = precision;
            variant.accuracy.kind = of;
            variant.accuracy.value = value;
            variant.accuracy.lower = value - 0.05;
            variant.accuracy.records = 89;
        }
    };
    let (labelled, agrees) = (AccuracyKind::Accuracy, AccuracyKind::Agreement);
    let single = Precision::Fp32;
    for (kind, measured) in [
        (
            like_fast("m-labelled", 3.0, 5.0),
            measured(labelled, "m", single, 0.90),
        ),
        (
            like_fast("a-single", 2.0, 2.0),
            measured(agrees, "a", single, 1.0),
        ),
        (
            like_fast("a-small", 1.0, 1.0),
            measured(agrees, "a", Precision::Int8Static, 0.97),
        ),
    ] {
        world.serve_with("app", kind, measured).await;
    }
    let ask = async |targets: Targets| {
        let mut query = query(&[1.0, 2.0]);
        query.route = Route::Application(ApplicationId::new("app").unwrap());
        query.targets = targets;
        world.ask(query).await
    };
    let answered = async |targets: Targets| ask(targets).await.unwrap().variant.to_string();
    // The more expensive and slower one, whose accuracy is known.
    assert_eq!(answered(targets(None, Some(0.8))).await, "m-labelled");
    assert_eq!(answered(Targets::default()).await, "a-small");
    let share = |share| Targets {
        min_relative_accuracy: Some(share),
        ..Targets::default()
    };
    assert_eq!(answered(share(0.99)).await, "a-single");
    assert_eq!(answered(share(0.96)).await, "a-small");
    let both = Targets {
        min_quality: Some(0.5),
        ..share(0.99)
    };
    assert_eq!(answered(both).await, "m-labelled");
    let refused = ask(targets(None, Some(0.88))).await.unwrap_err();
    assert_eq!(refused.code, Code::TargetInfeasible, "{refused}");
    let expected = "0.9 measured, sure of 0.85 with 89 records; about 1100 records";
    assert!(refused.message.contains(expected), "{refused}");
    let first = &refused.closest[0];
    assert_eq!(
        (first.variant.as_str(), first.kind),
        ("m-labelled", labelled)
    );
    let other = refused.closest.iter().find(|it| it.kind == agrees);
    assert_eq!(other.map(|it| &*it.verdict), Some("agreement"));
    let mut named = query(&[1.0, 2.0]);
    (named.route, named.targets) = (variant_route("a-single"), targets(None, Some(0.1)));
    let refused = world.ask(named).await.unwrap_err();
    assert!(
        refused.message.contains("`min_relative_accuracy` alone"),
        "{refused}"
    );
}
