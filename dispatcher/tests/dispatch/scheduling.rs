//! One scheduler over all workers, by the configured policy.

use std::sync::atomic::Ordering;

use sextant_baselines::{Options, Policy};
use sextant_dispatcher::{Choice, Config, Tenant};
use sextant_metadata::{Command, DesiredState, InstanceKey, PlannedBatch, Transition};
use sextant_profile::Estimation;
use sextant_rpc::{ActionKind, Answer, Query, QueryError};
use sextant_schedule::Delay;
use sextant_types::{ApplicationId, Code, ConcurrentRun, DeviceType, DeviceTypeName, EngineName};
use tokio::task::JoinHandle;

use crate::world::{
    Kind, PATIENCE, SLOW, World, output, query, targets, variant_route, wait_until,
};

mod side_by_side;

fn named(name: &str, values: &[f32]) -> Query {
    Query {
        route: variant_route(name),
        ..query(values)
    }
}

async fn answer(handle: JoinHandle<Result<Answer, QueryError>>) -> Answer {
    handle.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_with_the_same_variant_share_one_queue() {
    let world = World::with(Config::default(), 2).await;
    world.serve(Kind::default()).await;
    world.gate.close();
    let first = [0.0, 1.0].map(|number| world.send(query(&[number, 0.0])));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 2).await;
    let rest = [2.0, 3.0, 4.0].map(|number| world.send(query(&[number, 0.0])));
    wait_until(|| world.dispatcher.waiting() == 3).await;
    world.gate.open();
    for (number, handle) in first.into_iter().chain(rest).enumerate() {
        let answer = answer(handle).await;
        assert_eq!(output(&answer), [2.0 * number as f32, 0.0]);
        // The queries that waited went together to the worker that was free first.
        assert_eq!(answer.timings.batch_rows, if number < 2 { 1 } else { 3 });
    }
    assert_eq!(world.gate.entered.load(Ordering::SeqCst), 3);
}

/// Batches that each worker has run.
async fn runs(world: &World) -> Vec<u64> {
    let mut runs = Vec::new();
    for worker in &world.workers {
        let stats = worker.stats().await.unwrap();
        let infer = stats.actions.get(&ActionKind::Infer);
        runs.push(infer.map_or(0, |infer| infer.succeeded));
    }
    runs
}

/// Asks once. Returns the worker that has run the query.
async fn asked_on(world: &World) -> usize {
    let before = runs(world).await;
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    loop {
        let counted = runs(world).await;
        let more = |(now, before): (&u64, &u64)| now > before;
        if let Some(at) = counted.iter().zip(&before).position(more) {
            return at;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_go_first_to_workers_that_nothing_slows_down() {
    let world = World::with(Config::default(), 2).await;
    let variant = world.serve(Kind::default()).await;
    for (command, slowed) in [(Command::Interfere, 0), (Command::Recover, 1)] {
        let key = InstanceKey {
            variant: variant.id.clone(),
            worker: world.worker.info().worker,
        };
        let transition = Transition {
            key,
            application: variant.application.clone(),
            expected_version: None,
            command,
        };
        // Of two equal workers the first is taken. The news takes a moment, and the workers report what they see
        // themselves.
        let other = async {
            let mut in_a_row = 0;
            while in_a_row < 5 {
                world.metadata.transition(&transition, 0).await.ok();
                in_a_row = match asked_on(&world).await == slowed {
                    true => 0,
                    false => in_a_row + 1,
                };
            }
        };
        let chosen = tokio::time::timeout(PATIENCE, other).await;
        chosen.expect("the other worker is chosen");
    }
    // The other worker takes what does not fit on the first.
    world.gate.close();
    let entered = world.gate.entered.load(Ordering::SeqCst);
    let both = [1.0, 2.0].map(|number| world.send(query(&[number, 0.0])));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == entered + 2).await;
    world.gate.open();
    for handle in both {
        answer(handle).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_unloaded_from_one_worker_is_served_by_the_other() {
    let world = World::with(Config::default(), 2).await;
    let variant = world.serve(Kind::default()).await;
    world.gate.close();
    let running = [0.0, 1.0].map(|number| world.send(query(&[number, 0.0])));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 2).await;
    let waiting = world.send(query(&[2.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 1).await;
    let worker = std::sync::Arc::clone(&world.worker);
    let unload = tokio::spawn(async move { worker.unload(&variant.id).await });
    world.gate.open();
    for handle in running {
        answer(handle).await;
    }
    assert_eq!(output(&answer(waiting).await), [4.0, 0.0]);
    unload.await.unwrap().unwrap();
    assert!(world.dispatcher.is_loaded(&variant_route("m-a")));
    assert_eq!(
        output(&world.ask(query(&[3.0, 0.0])).await.unwrap()),
        [6.0, 0.0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_decides_when_a_batch_starts() {
    let pairs = Options {
        preferred_rows: vec![2],
        // Longer than any test.
        max_queue_delay: 3_600_000_000_000,
        ..Options::of(Policy::Timeout)
    };
    let world = World::with(pairs, 1).await;
    world.serve(Kind::default()).await;
    // The device is idle, and yet a lone query waits for a second: only the dynamic batcher does that.
    let first = world.send(query(&[1.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 1).await;
    let second = world.send(query(&[2.0, 0.0]));
    for (handle, doubled) in [(first, 2.0), (second, 4.0)] {
        let answer = answer(handle).await;
        assert_eq!(
            (output(&answer), answer.timings.batch_rows),
            (vec![doubled, 0.0], 2)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_answers() {
    for policy in Policy::ALL {
        // Timers of some machines ring a third of a millisecond late, which is wider than the windows of policies that
        // defer. These policies allow for it, as they do for a network.
        let late = Options {
            delay: Delay {
                control: 5_000_000,
                ..Delay::default()
            },
            ..Options::of(*policy)
        };
        let world = World::with(late, 2).await;
        world.serve(Kind::default()).await;
        for number in [1.0, 2.0, 3.0, 4.0] {
            let answer = patiently(&world, *policy, number).await;
            assert_eq!(output(&answer), [2.0 * number, 0.0], "{policy}");
        }
    }
}

/// An answer under a target. Policies that defer start batches at the last moment, which a
/// machine that is busy with other tests may miss, but not every time.
async fn patiently(world: &World, policy: Policy, number: f32) -> Answer {
    for _ in 0..20 {
        let mut query = query(&[number, 0.0]);
        query.targets = targets(Some(400.0), None);
        let answer = tokio::time::timeout(PATIENCE, world.ask(query)).await;
        match answer.unwrap_or_else(|_| panic!("{policy} gives no answer")) {
            Ok(answer) => return answer,
            Err(error) if error.code == Code::DeadlineExceeded => {}
            Err(error) => panic!("{policy}: {error}"),
        }
    }
    panic!("{policy} misses every deadline");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_batch_starts_in_a_window_of_no_width() {
    let world = World::with(Options::of(Policy::Symphony), 1).await;
    // Any number of rows takes as long as one, so the last moment to join is the last moment to start. A machine that
    // is busy with other tests may miss that moment, but not every time.
    world.serve(Kind::default()).await;
    for _ in 0..100 {
        let handles = [1.0, 2.0].map(|number| {
            let mut query = query(&[number, 0.0]);
            query.targets = targets(Some(60.0), None);
            world.send(query)
        });
        let [first, second] = handles;
        if let (Ok(first), Ok(second)) = (first.await.unwrap(), second.await.unwrap()) {
            let both = [first.timings, second.timings];
            // The device is idle, and yet the first query waited for the second.
            if both.iter().all(|it| it.batch_rows == 2) {
                return;
            }
            // The second came when the last moment of the first was over: each has waited for nobody.
            assert!(both.iter().all(|it| it.queue_us > 30_000.0), "{both:?}");
        }
    }
    panic!("no deferred batch was started in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_of_higher_priority_goes_first() {
    let urgent = Tenant {
        priority: 200,
        ..Tenant::default()
    };
    let config = Config {
        tenants: [(ApplicationId::new("urgent").unwrap(), urgent)].into(),
        ..Config::default()
    };
    let world = World::with(config, 1).await;
    world.serve(Kind::default()).await;
    let kind = Kind {
        name: "m-urgent",
        ..Kind::default()
    };
    world.serve_for("urgent", kind).await;
    world.gate.close();
    let running = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let mut usual = named("m-a", &[1.0, 0.0]);
    usual.targets = targets(Some(30_000.0), None);
    let usual = world.send(usual);
    wait_until(|| world.dispatcher.waiting() == 1).await;
    let urgent = world.send(named("m-urgent", &[2.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 2).await;
    world.gate.open();
    answer(running).await;
    let (usual, urgent) = (answer(usual).await, answer(urgent).await);
    assert_eq!(
        (usual.timings.batch_rows, urgent.timings.batch_rows),
        (1, 1)
    );
    let order = world.gate.order.lock().unwrap().clone();
    assert_eq!(
        order,
        [0.0, 2.0, 1.0],
        "the urgent one before the one with a deadline"
    );
}

/// Longer than any test takes, ms.
const HOUR_MS: f64 = 3_600_000.0;

/// With all of its slack available, a batch that could still grow is held on an idle device. Full batches go by
/// priority.
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_held_until_they_are_full_and_go_by_priority() {
    let mut config = Config::default();
    config.schedule.hold = 1.0;
    config.estimation = Estimation::Profile;
    // Runs are counted: none is a sample of company.
    config.agreement.share = 0.0;
    let urgent = Tenant {
        priority: 200,
        ..Tenant::default()
    };
    let application = ApplicationId::new("urgent").unwrap();
    config.tenants.insert(application, urgent);
    let world = World::with(config, 1).await;
    // The fixed cost of a batch makes it worthwhile to wait for a fuller one.
    let kind = |name| Kind {
        name,
        latency_ms: 500.0,
        ..Kind::default()
    };
    world.serve_for("app", kind("m-a")).await;
    world.serve_for("urgent", kind("m-urgent")).await;
    let mut usual = vec![first_held(&world, "m-a").await];
    let mut urgent = vec![first_held(&world, "m-urgent").await];
    let entered = || world.gate.entered.load(Ordering::SeqCst);
    let before = entered();
    world.gate.close();
    for number in [2.0, 3.0] {
        usual.push(world.send(patient("m-a", number)));
        urgent.push(world.send(patient("m-urgent", 10.0 + number)));
    }
    wait_until(|| world.dispatcher.waiting() == 6).await;
    assert_eq!(entered(), before, "nothing starts on the idle device");
    // Four rows are a full batch, which starts. The next ones fill up while it runs.
    usual.push(world.send(patient("m-a", 4.0)));
    wait_until(|| entered() == before + 1).await;
    usual.extend([21.0, 22.0, 23.0, 24.0].map(|number| world.send(patient("m-a", number))));
    wait_until(|| world.dispatcher.waiting() == 7).await;
    urgent.push(world.send(patient("m-urgent", 14.0)));
    wait_until(|| world.dispatcher.waiting() == 8).await;
    world.gate.open();
    for handle in usual.into_iter().chain(urgent) {
        assert_eq!(answer(handle).await.timings.batch_rows, 4);
    }
    let order = world.gate.order.lock().unwrap().clone();
    // After them a query that shared a batch may be run alone for comparison.
    let [first, second, third, ..] = order[before..] else {
        panic!("three batches: {order:?}");
    };
    assert!(first < 10.0 && third > 20.0, "{order:?}");
    assert!((10.0..20.0).contains(&second), "{order:?}");
}

/// A query that has time to wait.
fn patient(name: &str, number: f32) -> Query {
    let mut query = named(name, &[number, 0.0]);
    query.targets = targets(Some(HOUR_MS), None);
    query
}

/// Asks one query after the other until one is held: the rate of queries, and hence the worth of waiting, is known only
/// after some.
async fn first_held(world: &World, name: &str) -> JoinHandle<Result<Answer, QueryError>> {
    let number = if name == "m-urgent" { 11.0 } else { 1.0 };
    let waiting = world.dispatcher.waiting();
    let begun = std::time::Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "no query is held");
        let handle = world.send(patient(name, number));
        let is_held = || world.dispatcher.waiting() > waiting;
        wait_until(|| handle.is_finished() || is_held()).await;
        if is_held() {
            return handle;
        }
        answer(handle).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_below_the_run_time_is_refused_with_that_reason() {
    let world = World::new().await;
    let kind = Kind {
        latency_ms: 50.0,
        ..Kind::default()
    };
    world.serve(kind).await;
    let mut hurried = named("m-a", &[1.0, 0.0]);
    hurried.targets = targets(Some(20.0), None);
    let error = world.ask(hurried).await.unwrap_err();
    assert_eq!(error.code, Code::TargetInfeasible);
    assert!(error.message.contains("50.000"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_that_runs_slower_than_its_profile_is_not_promised_any_more() {
    let tight = |number| Query {
        targets: targets(Some(10.0), None),
        ..query(&[number, 0.0])
    };
    for (estimation, promised) in [(Estimation::Sextant, false), (Estimation::Profile, true)] {
        let config = Config {
            estimation,
            ..Config::default()
        };
        let world = World::with(config, 1).await;
        world.serve(Kind::default()).await;
        for _ in 0..12 {
            world.ask(query(&[SLOW, 0.0])).await.unwrap();
        }
        // The promised answer may still come late on a busy machine.
        let refused = world
            .ask(tight(SLOW))
            .await
            .is_err_and(|error| error.code == Code::Overloaded);
        assert_eq!(refused, !promised, "{estimation}");
    }
}

/// Variants of one model that run queries alone, on one thread and on two.
const NARROW: Kind = Kind {
    name: "m-t1",
    quality: 0.9,
    latency_ms: 8.0,
    load_ms: 1.0,
    cost: 1.0,
    memory: 100,
    artefact: b"fine",
    threads: 1,
    max_batch: 1,
};
const WIDE: Kind = Kind {
    name: "m-t2",
    latency_ms: 5.0,
    cost: 2.0,
    threads: 2,
    ..NARROW
};

fn by_load(cores: Option<u16>) -> Config {
    Config {
        parallelism: Some(Choice { cores }),
        ..Config::default()
    }
}

/// If two queries side by side were measured to take much longer than one after the other, every query gets both cores,
/// however many wait.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_measured_side_by_side_decides_the_threads() {
    let world = World::with_cores(by_load(None), 1, 2).await;
    world
        .serve_with("app", NARROW, |variant| {
            variant.profile.concurrent = vec![ConcurrentRun {
                running: 2,
                mean_ms: 60.0,
                scv: 0.0,
                samples: 20,
            }];
        })
        .await;
    world.serve(WIDE).await;
    let all: Vec<_> = (0..60)
        .map(|number| world.send(query(&[number as f32, 0.0])))
        .collect();
    for handle in all {
        let answer = answer(handle).await;
        assert_eq!(answer.variant.as_str(), "m-t2");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_granted_no_more_cores_than_were_said() {
    let world = World::with_cores(by_load(Some(1)), 1, 2).await;
    world.serve(NARROW).await;
    world.serve(WIDE).await;
    for number in 0..20 {
        let answer = world.ask(query(&[number as f32, 0.0])).await.unwrap();
        assert_eq!(answer.variant.as_str(), "m-t1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_threads_of_queries_that_run_alone_follow_the_policy_where_there_is_one() {
    for (config, expected) in [(Config::default(), "m-t1"), (by_load(None), "m-t2")] {
        let world = World::with_cores(config, 1, 2).await;
        world.serve(NARROW).await;
        world.serve(WIDE).await;
        // At low load both cores answer a query soonest.
        let first = world.ask(query(&[1.0, 2.0])).await.unwrap();
        assert_eq!(first.variant.as_str(), expected);
        let all: Vec<_> = (0..40)
            .map(|number| world.send(query(&[number as f32, 0.0])))
            .collect();
        for (number, handle) in all.into_iter().enumerate() {
            assert_eq!(output(&answer(handle).await), [2.0 * number as f32, 0.0]);
        }
        // A target that only the price of one core meets keeps its variant.
        let mut frugal = query(&[3.0, 4.0]);
        frugal.targets.max_cost_per_1k_usd = Some(1.5);
        let answer = world.ask(frugal).await.unwrap();
        assert_eq!(answer.variant.as_str(), "m-t1");
    }
}

/// The rows of the batches in which four queries of one row run that have waited for the only worker.
async fn batches_of_four(world: &World) -> Vec<u32> {
    let entered = world.gate.entered.load(Ordering::SeqCst);
    world.gate.close();
    let first = world.send(query(&[0.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == entered + 1).await;
    let rest = [1.0, 2.0, 3.0, 4.0].map(|number| world.send(query(&[number, 0.0])));
    wait_until(|| world.dispatcher.waiting() == 4).await;
    world.gate.open();
    answer(first).await;
    let mut rows = Vec::new();
    for handle in rest {
        rows.push(answer(handle).await.timings.batch_rows);
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_no_larger_than_a_plan_has_them_on_its_devices() {
    let of = DeviceType {
        name: DeviceTypeName::new("small").unwrap(),
        engines: vec![EngineName("doubling".to_owned())],
        slots: 1,
        memory_bytes: 1000,
        price_per_hour_usd: 0.1,
        start_ms: 0,
    };
    let world = World::with_types(Config::default(), vec![of.clone()]).await;
    let variant = world.serve(Kind::default()).await;
    assert_eq!(batches_of_four(&world).await, [4; 4]);
    let planned = |device_type: &str, max_rows| PlannedBatch {
        variant: variant.id.clone(),
        device_type: DeviceTypeName::new(device_type).unwrap(),
        max_rows,
    };
    // Other devices have limits of their own, and a limit ends with its plan.
    let plans = [
        (vec![planned("small", 2), planned("large", 1)], [2; 4]),
        (vec![planned("small", 1)], [1; 4]),
        (vec![planned("large", 1)], [4; 4]),
    ];
    for (number, (plan, expected)) in (1..).zip(plans) {
        let desired = DesiredState::new(number, Vec::new(), u64::MAX).with_batches(plan);
        world.metadata.set_desired(desired).await.unwrap();
        let told = async {
            while batches_of_four(&world).await != expected {
                tokio::task::yield_now().await;
            }
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        told.unwrap_or_else(|_| panic!("batches of {} rows", expected[0]));
    }
}
