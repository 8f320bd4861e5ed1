//! Online queries.

use std::sync::{Arc, atomic::Ordering};

use sextant_dispatcher::{Config, Dispatcher};
use sextant_metadata::{Command, InProcessStore, InstanceKey, Transition};
use sextant_rpc::{Answer, Dispatch, Load, Route};
use sextant_types::{
    AccuracyKind, ApplicationId, Code, EngineName, ModelId, Precision, Targets, Variant, VariantId,
};

use crate::world::{Kind, PATIENCE, World, output, query, row, targets, variant_route, wait_until};

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

const GOOD: Kind = Kind {
    name: "m-good",
    quality: 0.95,
    latency_ms: 50.0,
    cost: 5.0,
    ..FAST
};

#[tokio::test(flavor = "multi_thread")]
async fn targets_decide_which_variant_answers() {
    let world = World::new().await;
    world.serve(FAST).await;
    world.serve(GOOD).await;
    let mut cheap = query(&[1.0, 2.0]);
    cheap.targets = targets(Some(5000.0), Some(0.7));
    let answer = world.ask(cheap).await.unwrap();
    assert_eq!(answer.variant.as_str(), "m-fast");
    assert_eq!(output(&answer), [2.0, 4.0]);
    assert!(answer.targets_met);
    let mut exact = query(&[1.0, 2.0]);
    exact.targets = targets(Some(5000.0), Some(0.9));
    exact.explain = true;
    let answer = world.ask(exact).await.unwrap();
    assert_eq!(answer.variant.as_str(), "m-good");
    let explanation = answer.explanation.unwrap();
    assert_eq!(explanation.considered, 2);
    assert_eq!(explanation.candidates[0].verdict, "selected");
    assert_eq!(explanation.candidates[1].verdict, "accuracy");
}

/// The variant is overloaded on a worker from now on.
async fn overload(world: &World, variant: &Variant, at: usize) {
    let transition = Transition {
        key: InstanceKey {
            variant: variant.id.clone(),
            worker: world.workers[at].info().worker,
        },
        application: variant.application.clone(),
        expected_version: None,
        command: Command::Overload,
    };
    world.metadata.transition(&transition, 0).await.unwrap();
}

/// The answer to a query with targets, once the state of `variant` is `state`.
async fn answer_once(world: &World, variant: &str, state: &str) -> Answer {
    let begun = std::time::Instant::now();
    loop {
        let mut asked = query(&[1.0, 2.0]);
        asked.targets = targets(Some(5000.0), Some(0.7));
        asked.explain = true;
        let answer = world.ask(asked).await.unwrap();
        let candidates = &answer.explanation.as_ref().unwrap().candidates;
        let of = candidates.iter().find(|of| of.variant.as_str() == variant);
        if of.unwrap().state == state {
            return answer;
        }
        let last = format!("{variant} is {} and not {state}", of.unwrap().state);
        assert!(begun.elapsed() < PATIENCE, "{last}");
    }
}

/// Queries that went to a dearer variant on the same device would fill it further.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_device_answers_with_the_cheapest_variant_and_not_with_another() {
    let world = World::new().await;
    let fast = world.serve(FAST).await;
    world.serve(GOOD).await;
    overload(&world, &fast, 0).await;
    let answer = answer_once(&world, "m-fast", "degraded").await;
    assert_eq!(answer.variant.as_str(), "m-fast");
    let answer = answer_once(&world, "m-good", "degraded").await;
    assert_eq!(answer.variant.as_str(), "m-fast");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_with_room_is_asked_before_a_full_one() {
    let world = World::with(Config::default(), 2).await;
    let fast = world.publish(FAST).await;
    let good = world.publish(GOOD).await;
    for (worker, variant) in world.workers.iter().zip([&fast, &good]) {
        worker
            .load(Load::at_once(Arc::clone(variant)))
            .await
            .unwrap();
    }
    let answer = answer_once(&world, "m-good", "active").await;
    assert_eq!(answer.variant.as_str(), "m-fast");
    overload(&world, &fast, 0).await;
    let answer = answer_once(&world, "m-fast", "degraded").await;
    assert_eq!(answer.variant.as_str(), "m-good");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_has_waited_too_long_is_late_and_not_impossible() {
    let world = World::new().await;
    world.serve(FAST).await;
    let mut waited = query(&[1.0, 2.0]);
    waited.targets = targets(Some(5000.0), Some(0.7));
    let arrived = std::time::Instant::now().checked_sub(std::time::Duration::from_secs(5));
    waited.arrived = arrived.expect("the machine runs longer");
    let error = world.ask(waited).await.unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_nothing_meets_is_refused_with_the_closest() {
    let world = World::new().await;
    world.serve(FAST).await;
    world.serve(GOOD).await;
    let mut impossible = query(&[1.0, 2.0]);
    impossible.targets = targets(Some(10.0), Some(0.9));
    let error = world.ask(impossible.clone()).await.unwrap_err();
    assert_eq!(error.code, Code::TargetInfeasible);
    assert_eq!(error.closest[0].variant.as_str(), "m-fast");
    impossible.best_effort = true;
    let answer = world.ask(impossible).await.unwrap();
    assert_eq!(answer.variant.as_str(), "m-fast");
    assert!(!answer.targets_met);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_variant_is_loaded_for_the_query_that_needs_it() {
    let world = World::new().await;
    world.publish(FAST).await;
    let answer = world.ask(query(&[3.0, 4.0])).await.unwrap();
    assert_eq!(output(&answer), [6.0, 8.0]);
    wait_until(|| world.dispatcher.is_loaded(&variant_route("m-fast"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_takes_too_long_warms_and_says_so() {
    let world = World::new().await;
    world
        .publish(Kind {
            load_ms: 60_000.0,
            ..FAST
        })
        .await;
    let mut hurried = query(&[1.0, 1.0]);
    hurried.targets = targets(Some(2000.0), None);
    let error = world.ask(hurried.clone()).await.unwrap_err();
    assert_eq!(error.code, Code::Warming);
    assert_eq!(error.retry_after_ms, Some(60_000));
    wait_until(|| world.dispatcher.is_loaded(&variant_route("m-fast"))).await;
    hurried.arrived = std::time::Instant::now();
    assert!(world.ask(hurried).await.is_ok(), "the promise holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_be_loaded_is_an_error_and_others_go_on() {
    let world = World::new().await;
    world
        .publish(Kind {
            name: "m-bad",
            artefact: b"broken",
            cost: 0.1,
            ..FAST
        })
        .await;
    let mut named = query(&[1.0, 1.0]);
    named.route = variant_route("m-bad");
    let error = world.ask(named).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(
        error.message.contains("broken on purpose"),
        "{}",
        error.message
    );
    world.serve(FAST).await;
    assert!(world.ask(query(&[1.0, 1.0])).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_not_there_is_refused_and_nothing_is_evicted() {
    let world = World::new().await;
    world.serve(FAST).await;
    world
        .publish(Kind {
            name: "m-huge",
            memory: 5000,
            artefact: b"huge",
            ..FAST
        })
        .await;
    let mut named = query(&[1.0, 1.0]);
    named.route = variant_route("m-huge");
    assert_eq!(world.ask(named).await.unwrap_err().code, Code::Unavailable);
    assert!(world.dispatcher.is_loaded(&variant_route("m-fast")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_worth_least_makes_room_for_what_a_query_needs() {
    let world = World::new().await;
    let kinds = [("m-one", b"one"), ("m-two", b"two")].map(|(name, artefact)| Kind {
        name,
        memory: 600,
        artefact,
        ..FAST
    });
    for kind in kinds {
        world.publish(kind).await;
    }
    // Both do not fit into the worker's thousand bytes.
    for round in 0..3 {
        for kind in kinds {
            let mut named = query(&[round as f32, 1.0]);
            named.route = variant_route(kind.name);
            let answer = world.ask(named).await.unwrap();
            assert_eq!(output(&answer), [2.0 * round as f32, 2.0]);
            assert_eq!(answer.variant.as_str(), kind.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_meet_on_a_busy_device_share_a_batch_row_exactly() {
    let world = World::new().await;
    world.serve(FAST).await;
    world.gate.close();
    let first = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let mut waiting = Vec::new();
    for number in [1.0f32, 2.0] {
        waiting.push((number, world.send(query(&[number, 10.0 * number]))));
    }
    let two_rows = world.send(query(&[7.0, 7.0, 8.0, 8.0]));
    // The first batch runs; the next one is closed only when the device is free again.
    let all_wait = || world.dispatcher.waiting() == 3;
    wait_until(all_wait).await;
    world.gate.open();
    assert_eq!(output(&first.await.unwrap().unwrap()), [0.0, 0.0]);
    for (number, handle) in waiting {
        let answer = handle.await.unwrap().unwrap();
        assert_eq!(output(&answer), [2.0 * number, 20.0 * number]);
        assert_eq!(answer.timings.batch_rows, 4);
    }
    assert_eq!(
        output(&two_rows.await.unwrap().unwrap()),
        [14.0, 14.0, 16.0, 16.0]
    );
    assert_eq!(
        world.gate.entered.load(Ordering::SeqCst),
        2,
        "two runs for four queries"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_query_does_not_spoil_its_batch() {
    let world = World::new().await;
    world.serve(FAST).await;
    world.gate.close();
    let first = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let good = world.send(query(&[1.0, 1.0]));
    let bad = world.send(query(&[-1.0, 1.0]));
    wait_until(|| world.dispatcher.waiting() == 2).await;
    world.gate.open();
    assert!(first.await.unwrap().is_ok());
    assert_eq!(output(&good.await.unwrap().unwrap()), [2.0, 2.0]);
    let error = bad.await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::EngineFailed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_would_be_late_is_refused_while_the_device_is_busy() {
    let world = World::new().await;
    world
        .serve(Kind {
            latency_ms: 300.0,
            ..FAST
        })
        .await;
    world.gate.close();
    let first = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let mut hurried = query(&[1.0, 1.0]);
    hurried.targets = targets(Some(400.0), None);
    let error = world.ask(hurried).await.unwrap_err();
    assert_eq!(error.code, Code::Overloaded);
    assert!(error.retry_after_ms.is_some());
    world.gate.open();
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_impossible_while_it_waits_is_refused_at_its_deadline() {
    let world = World::new().await;
    world.serve(FAST).await;
    world.gate.close();
    let first = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let mut waiting = query(&[1.0, 1.0]);
    waiting.targets = targets(Some(80.0), None);
    // The profile promises a free device in a millisecond; the gate breaks the promise.
    let error = world.ask(waiting).await.unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded);
    world.gate.open();
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn unloading_under_load_answers_every_query_once() {
    let world = Arc::new(World::new().await);
    world.serve(FAST).await;
    let mut running = Vec::new();
    for number in 0..200 {
        running.push(world.send(query(&[number as f32, 0.0])));
    }
    let name = VariantId::new("m-fast").unwrap();
    world.worker.unload(&name).await.unwrap();
    for (number, handle) in running.into_iter().enumerate() {
        match handle.await.unwrap() {
            Ok(answer) => assert_eq!(output(&answer), [2.0 * number as f32, 0.0]),
            Err(error) => assert!(error.code.kind().is_retryable(), "{error}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_unknown_before_the_metadata_was_read() {
    let store = Arc::new(InProcessStore::new());
    let (dispatcher, service) = Dispatcher::start(Config::default(), Vec::new(), store);
    let error = dispatcher.query(query(&[1.0, 0.0])).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.retry_after_ms.is_some());
    let running = tokio::spawn(service.run(std::future::pending()));
    dispatcher.informed().await;
    let error = dispatcher.query(query(&[1.0, 0.0])).await.unwrap_err();
    assert_eq!(error.code, Code::ApplicationNotFound);
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_inputs_and_unknown_names_have_codes() {
    let world = World::new().await;
    world.dispatcher.informed().await;
    let mut unknown = query(&[1.0, 1.0]);
    assert_eq!(
        world.ask(unknown.clone()).await.unwrap_err().code,
        Code::ApplicationNotFound
    );
    unknown.route = Route::Model(ModelId::new("nope").unwrap());
    assert_eq!(
        world.ask(unknown).await.unwrap_err().code,
        Code::ModelNotFound
    );
    world.serve(FAST).await;
    let mut wrong = query(&[1.0, 1.0]);
    wrong.inputs[0].name = "z".to_owned();
    assert_eq!(
        world.ask(wrong).await.unwrap_err().code,
        Code::InvalidTensor
    );
    let mut nan = query(&[1.0, 1.0]);
    nan.targets = Targets {
        latency_ms: Some(f64::NAN),
        ..Targets::default()
    };
    assert_eq!(world.ask(nan).await.unwrap_err().code, Code::InvalidTarget);
    let mut many = query(&[1.0; 10]);
    many.inputs = row(&[1.0; 10]);
    let error = world.ask(many).await.unwrap_err();
    assert_eq!(
        error.code,
        Code::InvalidTensor,
        "5 rows, 4 at most: {error}"
    );
}

/// Six models alike of which the first dominates the others, and in each a variant that dominates
/// another one.
#[tokio::test(flavor = "multi_thread")]
async fn models_that_others_dominate_are_ready_and_answer_their_first_query() {
    let world = World::new().await;
    let names = ["k1", "k2", "k3", "k4", "k5", "k6"];
    for name in names {
        for (suffix, cost) in [("a", 1.0), ("b", 2.0)] {
            let kind = Kind {
                cost,
                memory: 20,
                ..FAST
            };
            let dominated = |variant: &mut Variant| {
                variant.id = VariantId::new(format!("{name}-{suffix}")).unwrap();
                variant.model = ModelId::new(name).unwrap();
                let best = VariantId::new("k1-a").unwrap();
                variant.dominated_by = (variant.id != best).then_some(best);
            };
            world.publish_with("app", kind, dominated).await;
        }
    }
    for name in names {
        let route = Route::Model(ModelId::new(name).unwrap());
        assert!(world.dispatcher.is_ready(&route), "{name}");
        assert!(!world.dispatcher.is_loaded(&route), "{name}");
        let mut named = query(&[3.0, 4.0]);
        named.route = route;
        let answer = world.ask(named).await.unwrap();
        assert_eq!(answer.variant.as_str(), format!("{name}-a"));
        assert_eq!(output(&answer), [6.0, 8.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_worker_can_load_is_not_ready_and_says_why() {
    let world = World::new().await;
    let foreign = |variant: &mut Variant| {
        variant.spec.engine = EngineName("elsewhere".to_owned());
    };
    world.publish_with("app", FAST, foreign).await;
    let route = Route::Model(ModelId::new("m").unwrap());
    assert!(!world.dispatcher.is_ready(&route));
    assert!(!world.dispatcher.is_ready(&variant_route("m-fast")));
    let error = world.ask(query(&[1.0, 1.0])).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert!(
        error.message.contains("no worker has the engine"),
        "{error}"
    );
    // Another one of the model is there.
    world.publish(GOOD).await;
    wait_until(|| world.dispatcher.is_ready(&route)).await;
    let answer = world.ask(query(&[1.0, 1.0])).await.unwrap();
    assert_eq!(answer.variant.as_str(), "m-good");
}

/// A query for one variant has no other one to turn to: what it cannot have is refused.
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

/// Whoever names a model means the model that was trained: what its validation set cannot tell apart from it may
/// answer. Whoever names an application and asks for nothing gets the cheapest.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_named_answers_as_accurately_as_it_was_uploaded() {
    let world = World::new().await;
    let kind = |name, cost, latency_ms| Kind {
        name,
        cost,
        latency_ms,
        ..FAST
    };
    for (kind, precision, value) in [
        (kind("m-single", 2.0, 200.0), Precision::Fp32, 0.90),
        (kind("m-near", 1.0, 200.0), Precision::Int8Static, 0.87),
        (kind("m-far", 0.5, 1.0), Precision::Int8Dynamic, 0.80),
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
    // Targets that were stated go first. (Before any run tells how quick these are in truth.)
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

/// `m-agrees` agrees with its own file, which says nothing of how often that is right.
#[tokio::test(flavor = "multi_thread")]
async fn agreement_meets_a_share_and_no_accuracy() {
    let world = World::new().await;
    let kind = |name, cost, latency_ms| Kind {
        name,
        cost,
        latency_ms,
        ..FAST
    };
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
            kind("m-labelled", 3.0, 5.0),
            measured(labelled, "m", single, 0.90),
        ),
        (
            kind("a-single", 2.0, 2.0),
            measured(agrees, "a", single, 1.0),
        ),
        (
            kind("a-small", 1.0, 1.0),
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
    // Dearer and slower, and the one of which an accuracy is known.
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
    let wanted = "0.9 measured, sure of 0.85 with 89 records; about 1100 records";
    assert!(refused.message.contains(wanted), "{refused}");
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
