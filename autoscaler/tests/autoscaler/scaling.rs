//! How many workers are desired, why, and what providers do with it.

use std::collections::BTreeMap;

use sextant_autoscaler::{Config, PoolConfig, Service};
use sextant_fleet::Token;
use sextant_metadata::{
    Action, ApplicationDemand, Command, Demand, InstanceKey, Pool, Subject, Transition,
};
use sextant_types::{
    ApplicationId, BatchLatency, DeviceType, DeviceTypeName, TargetClass, Targets, Variant,
};

pub(super) use super::shelf::Shelf;
use super::{world::*, *};

/// A pool of devices that answer 1,000 queries a second each (a variant takes 1 ms).
pub(super) fn pool(shelf: &Arc<Shelf>, of: &Arc<DeviceType>, least: u32, most: u32) -> Config {
    let pool = PoolConfig {
        least,
        most,
        end_ms: 1000,
        facts: Some(Arc::clone(of)),
        provider: Arc::clone(shelf) as _,
    };
    Config {
        period_ms: 10,
        hold_ms: 300,
        pools: BTreeMap::from([(of.name.clone(), pool)]),
        ..Config::default()
    }
}

pub(super) fn run(store: &Arc<UnsteadyStore>, config: Config) -> tokio::task::JoinHandle<()> {
    let service = Service::new(config, Arc::clone(store) as _);
    tokio::spawn(service.run(std::future::pending()))
}

/// Runs an autoscaler with the clock of its machines.
pub(super) fn run_timed(
    (store, shelf): (&Arc<UnsteadyStore>, &Arc<Shelf>),
    config: Config,
) -> tokio::task::JoinHandle<()> {
    run_led((store, shelf), config, sextant_fleet::always())
}

/// The same, but only while there is a token.
pub(super) fn run_led(
    (store, shelf): (&Arc<UnsteadyStore>, &Arc<Shelf>),
    config: Config,
    token: Token,
) -> tokio::task::JoinHandle<()> {
    let shelf = Arc::clone(shelf);
    let service = Service::new(config, Arc::clone(store) as _).led_by(token);
    let service = service.timed_by(Arc::new(move || shelf.now_ms()));
    tokio::spawn(service.run(std::future::pending()))
}

/// Sets a demand of `rps` queries a second, of one row each.
pub(super) async fn ask(store: &UnsteadyStore, rps: u64, targets: Targets) {
    ask_rows(store, (rps, rps, 0), targets).await;
}

/// Sets a demand of queries a second with the number of all their rows that need a device, and the number of queries
/// with cached answers.
async fn ask_rows(
    store: &UnsteadyStore,
    (rps, input_rows, kept): (u64, u64, u64),
    targets: Targets,
) {
    let row = ApplicationDemand {
        application: ApplicationId::new("app").unwrap(),
        class: TargetClass::of(&targets),
        variant: None,
        offered: rps,
        input_rows,
        sized_rows: 0.0,
        latency_ms: targets.latency_ms.map(|ms| (ms, ms)),
        answered: rps,
        late: 0,
        kept,
        refused: BTreeMap::new(),
        queueing_ms: 0,
        step: None,
    };
    let demand = Demand {
        window_ms: 1000,
        applications: vec![row],
        ..Demand::default()
    };
    store.set_demand(demand).await.unwrap();
}

pub(super) fn wants(desired: &DesiredState, name: &str) -> Option<u32> {
    let name = DeviceTypeName::new(name).unwrap();
    desired.pool(&name).map(|pool: &Pool| pool.desired)
}

/// Waits until the condition holds.
pub(super) async fn until_true(what: &str, is: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "not {what}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// Records that the variant serves on a worker.
pub(super) async fn serve(store: &UnsteadyStore, variant: &str, worker: &str) {
    let key = InstanceKey {
        variant: VariantId::new(variant).unwrap(),
        worker: WorkerId::new(worker).unwrap(),
    };
    for command in [Command::Load, Command::Loaded] {
        let transition = Transition {
            key: key.clone(),
            application: ApplicationId::new("app").unwrap(),
            expected_version: None,
            command,
        };
        store.transition(&transition, 1).await.unwrap();
    }
}

#[tokio::test]
async fn workers_come_with_the_load_and_leave_with_it_and_each_change_says_why() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    run(&store, pool(&shelf, &of, 1, 8));
    let first = until(&store, "the least", |it| wants(it, "small") == Some(1)).await;
    let decision = first.decisions.last().unwrap();
    assert_eq!((decision.from, decision.to), (0, 1), "{decision:?}");
    let why_not = &decision.alternatives[0].why_not;
    assert_eq!(&**why_not, "is fewer than the 1 that there must be");
    until_true("one machine", || shelf.count() == 1).await;
    beat_of(&store, "m0", &of, false).await;
    ask(&store, 2500, Targets::default()).await;
    let more = until(&store, "more", |it| wants(it, "small") > Some(2)).await;
    let decision = more.decisions.iter().find(|it| it.to > 2).unwrap();
    assert_eq!(decision.action, Action::AddWorkers);
    assert_eq!(decision.subject, Subject::Pool(of.name.clone()));
    let input = &decision.inputs[0];
    assert_eq!(input.application.as_str(), "app");
    assert!(
        input.offered_rps > 2000.0 && input.planned_rps >= input.offered_rps,
        "{input:?}"
    );
    assert!(decision.reason.contains("rows a second"), "{decision:?}");
    let as_it_was = &decision.alternatives[0];
    assert!(as_it_was.why_not.contains("unanswered"), "{as_it_was:?}");
    let desired = wants(&more, "small").unwrap() as usize;
    until_true("as many machines", || shelf.count() >= desired).await;
    for number in 1..shelf.count() {
        beat_of(&store, &format!("m{number}"), &of, false).await;
    }
    // Nothing comes any more. After a minute without queries the rate is zero; the demand reports it as one long
    // window.
    let nothing = Demand {
        window_ms: 70_000,
        ..Demand::default()
    };
    store.set_demand(nothing).await.unwrap();
    let fewer = until(&store, "the least again", |it| {
        wants(it, "small") == Some(1)
    })
    .await;
    let decision = fewer.decisions.last().unwrap();
    assert_eq!(decision.action, Action::RemoveWorkers, "{decision:?}");
    until_true("one machine again", || shelf.count() == 1).await;
}

/// A query of eight rows is as much work as eight queries of one row, and a query with a cached answer is no work.
#[tokio::test]
async fn workers_are_planned_for_rows() {
    let mut planned = Vec::new();
    for load in [(2000, 2000, 0), (250, 2000, 0), (4000, 2000, 2000)] {
        let store = Arc::new(UnsteadyStore::new(256));
        let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
        publish(&store, variant("m-a")).await;
        ask_rows(&store, load, Targets::default()).await;
        run(&store, pool(&shelf, &of, 1, 20));
        let desired = until(&store, "more workers", |it| {
            it.pools.first().is_some_and(|pool| pool.desired > 1)
        });
        planned.push(desired.await.pools[0].desired);
    }
    assert!(planned.iter().all(|it| *it == planned[0]), "{planned:?}");
}

#[tokio::test]
async fn a_variant_that_no_query_is_answered_by_is_not_planned_with() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    // Every variant takes a millisecond where it was registered and ten on these devices. Only a variant that is loaded
    // for queries is ever measured here.
    let mut best = variant("m-a");
    let measured = best.profile.slowed(10.0).into_owned();
    best.profiles = BTreeMap::from([(of.name.clone(), measured)]);
    let dominated = Variant {
        dominated_by: Some(best.id.clone()),
        ..variant("m-b")
    };
    publish(&store, best).await;
    publish(&store, dominated).await;
    run(&store, pool(&shelf, &of, 1, 8));
    until_true("one machine", || shelf.count() == 1).await;
    beat_of(&store, "m0", &of, false).await;
    ask(&store, 250, Targets::default()).await;
    let more = until(&store, "workers", |it| wants(it, "small") > Some(2)).await;
    let planned = |it: &DesiredState, name: &str| {
        let mut all = it.variants.iter();
        all.any(|of| of.variant.as_str() == name && of.needed > 0)
    };
    assert!(planned(&more, "m-a") && !planned(&more, "m-b"), "{more:?}");
    // Without the other variant it is the one that answers.
    retire(&store, "m-a").await;
    until(&store, "the other", |it| planned(it, "m-b")).await;
}

/// Targets of one class may leave time for a batch of 30 ms or not. A variant that was not measured on a type is
/// assumed to run twice as long.
#[tokio::test]
async fn workers_are_planned_for_the_targets_that_were_asked_for() {
    let mut planned = Vec::new();
    for latency_ms in [34.0, 62.0] {
        let store = Arc::new(UnsteadyStore::new(256));
        let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
        let mut batched = variant("m-a");
        batched.spec.max_batch = 2;
        let batches = [(1, 10.0), (2, 15.0)].map(|(batch, ms)| BatchLatency {
            batch,
            p50_ms: ms,
            p99_ms: ms,
            mean_ms: ms,
            samples: 1,
        });
        batched.profile.batches = batches.to_vec();
        publish(&store, batched).await;
        let targets = Targets {
            latency_ms: Some(latency_ms),
            ..Targets::default()
        };
        ask(&store, 400, targets).await;
        run(&store, pool(&shelf, &of, 1, 40));
        let desired = until(&store, "more workers", |it| {
            it.pools.first().is_some_and(|pool| pool.desired > 1)
        });
        planned.push(desired.await.pools[0].desired);
    }
    assert!(planned[0] > planned[1], "{planned:?}");
}

#[tokio::test]
async fn a_worker_on_which_a_desired_variant_depends_does_not_leave() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    let config = Config {
        hold_ms: 0,
        ..pool(&shelf, &of, 2, 2)
    };
    let first = run(&store, config.clone());
    until_true("two machines", || shelf.count() == 2).await;
    for worker in ["m0", "m1"] {
        beat_of(&store, worker, &of, false).await;
    }
    serve(&store, "m-a", "m1").await;
    until(&store, "the variant warm", |it| !it.variants.is_empty()).await;
    first.abort();
    drop(first.await);
    let mut config = config;
    for pool in config.pools.values_mut() {
        (pool.least, pool.most) = (1, 1);
    }
    run(&store, config);
    until_true("one machine", || shelf.count() == 1).await;
    assert_eq!(shelf.ended(), ["m0"], "the variant is on the other one");
}

#[tokio::test]
async fn a_worker_that_has_something_alone_is_emptied_before_it_leaves() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    for name in ["m-a", "m-b"] {
        publish(&store, variant(name)).await;
    }
    let config = Config {
        hold_ms: 0,
        ..pool(&shelf, &of, 2, 2)
    };
    let first = run(&store, config.clone());
    until_true("two machines", || shelf.count() == 2).await;
    for (name, worker) in [("m-a", "m0"), ("m-b", "m1")] {
        beat_of(&store, worker, &of, false).await;
        serve(&store, name, worker).await;
    }
    until(&store, "both variants warm", |it| it.variants.len() == 2).await;
    first.abort();
    drop(first.await);
    let mut config = config;
    for pool in config.pools.values_mut() {
        (pool.least, pool.most) = (1, 1);
    }
    run(&store, config);
    let desired = until(&store, "to be emptied", |it| it.emptying.len() == 1).await;
    assert_eq!(shelf.count(), 2, "it has something alone");
    let leaves = desired.emptying[0].as_str();
    let (alone, stays) = match leaves {
        "m0" => ("m-a", "m1"),
        _ => ("m-b", "m0"),
    };
    serve(&store, alone, stays).await;
    until_true("one machine", || shelf.count() == 1).await;
    assert_eq!(shelf.ended(), [leaves]);
    until(&store, "nobody to be emptied", |it| it.emptying.is_empty()).await;
}

/// The load falls, and the plan for the larger load is held.
#[tokio::test]
async fn a_reason_says_of_how_many_workers_the_load_has_no_need() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    let config = Config {
        hold_ms: 3_600_000,
        ..pool(&shelf, &of, 0, 20)
    };
    run(&store, config);
    ask(&store, 9000, Targets::default()).await;
    let before = until(&store, "workers", |it| wants(it, "small") > Some(9)).await;
    ask(&store, 500, Targets::default()).await;
    let says = |it: &DesiredState| {
        let pools = it.decisions.iter();
        let mut pools = pools.filter(|it| it.subject == Subject::Pool(of.name.clone()));
        pools.any(|it| it.reason.contains(" more stay that were planned"))
    };
    let after = until(&store, "the others explained", says).await;
    assert_eq!(wants(&after, "small"), wants(&before, "small"));
}

#[tokio::test]
async fn who_takes_over_goes_on_with_what_was_decided() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    let config = Config {
        hold_ms: 3_600_000,
        ..pool(&shelf, &of, 0, 8)
    };
    let first = run(&store, config.clone());
    beat_of(&store, "other", &device_type("other", 1.0), false).await;
    ask(&store, 3500, Targets::default()).await;
    let before = until(&store, "workers", |it| wants(it, "small") > Some(3)).await;
    first.abort();
    drop(first.await);
    // Nothing is asked for now, but the number is held as if it had just been planned.
    store
        .set_demand(Demand {
            window_ms: 70_000,
            ..Demand::default()
        })
        .await
        .unwrap();
    publish(&store, variant("m-b")).await;
    run(&store, config);
    let after = until(&store, "the second", |it| it.variants.len() == 2).await;
    assert_eq!(wants(&after, "small"), wants(&before, "small"));
    assert!(after.decisions.starts_with(&before.decisions), "{after:#?}");
    let machines = shelf.count();
    assert!(
        machines <= wants(&after, "small").unwrap() as usize,
        "{machines} were started"
    );
}

#[tokio::test]
async fn a_provider_that_fails_is_said_to_and_asked_again() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    shelf.fail(true);
    run(&store, pool(&shelf, &of, 1, 8));
    let trouble = |it: &DesiredState| it.pools.first().and_then(|pool| pool.trouble.clone());
    let told = until(&store, "the trouble told", |it| trouble(it).is_some()).await;
    let text = trouble(&told).unwrap();
    assert!(
        text.contains("provider_away") && text.contains("the door is locked"),
        "{text}"
    );
    shelf.fail(false);
    until_true("a machine", || shelf.count() == 1).await;
    until(&store, "no trouble", |it| trouble(it).is_none()).await;
}

#[tokio::test]
async fn what_no_variant_can_answer_starts_nothing() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    run(&store, pool(&shelf, &of, 0, 8));
    let impossible = Targets {
        min_quality: Some(0.99),
        ..Targets::default()
    };
    ask(&store, 5000, impossible).await;
    until(&store, "the pool", |it| wants(it, "small") == Some(0)).await;
    let too_quick = Targets {
        latency_ms: Some(0.01),
        ..Targets::default()
    };
    ask(&store, 6000, too_quick).await;
    // A possible target of the same size shows that the record was read.
    let possible = Targets {
        latency_ms: Some(100.0),
        ..Targets::default()
    };
    ask(&store, 900, possible).await;
    let desired = until(&store, "workers for that", |it| {
        wants(it, "small") > Some(0)
    })
    .await;
    assert!(wants(&desired, "small") < Some(5), "{desired:#?}");
}

#[tokio::test]
async fn a_budget_of_nothing_starts_nothing_and_bounds_hold() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    let config = Config {
        budget_per_hour_usd: Some(1.0),
        ..pool(&shelf, &of, 0, 8)
    };
    run(&store, config);
    ask(&store, 50_000, Targets::default()).await;
    // Two workers at half a dollar.
    let desired = until(&store, "what the budget has", |it| {
        wants(it, "small") > Some(0)
    })
    .await;
    assert_eq!(wants(&desired, "small"), Some(2), "{desired:#?}");
}

#[tokio::test]
async fn a_worker_stays_for_a_first_query_that_may_not_wait_for_a_start() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    let of = Arc::new(DeviceType {
        start_ms: 30_000,
        ..(*of).clone()
    });
    publish(&store, variant("m-a")).await;
    let within = |cold_start_s| Config {
        cold_start_s: Some(cold_start_s),
        ..pool(&shelf, &of, 0, 8)
    };
    // Nobody has asked yet: a start takes 30 s.
    let service = run(&store, within(10.0));
    let kept = until(&store, "a worker that stays", |it| {
        wants(it, "small") == Some(1)
    })
    .await;
    let reason = &kept.decisions.last().unwrap().reason;
    assert!(reason.contains("the first query may wait"), "{reason}");
    service.abort();

    // A start is soon enough: the last worker ends.
    run(&store, within(60.0));
    until(&store, "no worker", |it| wants(it, "small") == Some(0)).await;
}
