//! Online queries.

use std::sync::{Arc, atomic::Ordering};

use sextant_dispatcher::{Config, Dispatcher};
use sextant_metadata::{Command, InProcessStore, InstanceKey, Transition};
use sextant_rpc::{Answer, Dispatch, Load, QueryError};
use sextant_types::{Code, EngineName, ModelId, Route, Targets, Variant, VariantId};

use crate::world::{
    Kind, PATIENCE, World, for_step, output, query, row, targets, variant_route, wait_until,
};

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

/// Queries that went to a more expensive variant on the same device would fill it further.
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
    // The first batch runs. The next one is closed only when the device is free again.
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

/// A world whose only device runs a query for 300 ms, and until the gate is open; and its answer.
async fn busy() -> (World, tokio::task::JoinHandle<Result<Answer, QueryError>>) {
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
    (world, first)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_would_be_late_is_refused_while_the_device_is_busy() {
    let (world, first) = busy().await;
    let mut hurried = query(&[1.0, 1.0]);
    hurried.targets = targets(Some(400.0), None);
    let error = world.ask(hurried).await.unwrap_err();
    assert_eq!(error.code, Code::Overloaded);
    assert!(error.retry_after_ms.is_some());
    world.gate.open();
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_may_take_longer_than_its_share_of_the_time_while_the_whole_is_in_time() {
    let (world, first) = busy().await;
    let mut patient = query(&[1.0, 1.0]);
    patient.targets = targets(Some(400.0), None);
    patient.step = Some(for_step(60_000.0, Some(30_000.0)));
    let second = world.send(patient);
    wait_until(|| world.dispatcher.waiting() == 1).await;
    world.gate.open();
    assert!(first.await.unwrap().is_ok());
    assert!(second.await.unwrap().is_ok());
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
    // The profile promises a free device in a millisecond, but the gate stays closed.
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

/// Six equal models of which the first dominates the others. Each has a variant that dominates
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
    // Another variant of the model exists.
    world.publish(GOOD).await;
    wait_until(|| world.dispatcher.is_ready(&route)).await;
    let answer = world.ask(query(&[1.0, 1.0])).await.unwrap();
    assert_eq!(answer.variant.as_str(), "m-good");
}
