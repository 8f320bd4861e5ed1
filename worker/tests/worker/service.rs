//! Leases, the shutdown, and what a worker reports of itself.

use sextant_metadata::{Command, Transition, View};
use sextant_rpc::ActionKind;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_lease_lapsed_announces_what_it_holds() {
    let mut world = World::new().await;
    let variant = world.loaded("m-a").await;
    assert_eq!(world.metadata.expire(u64::MAX).await.unwrap().len(), 1);
    assert_eq!(world.state(&variant).await, None);
    let (stop, running) = world.serve();
    world.reaches(&variant, InstanceState::Active).await;
    drop(stop);
    assert_eq!(running.await.unwrap(), End::Shutdown);
    assert_eq!(
        world.state(&variant).await,
        Some(InstanceState::Inactive),
        "drained at the end"
    );
    let refused = world.infer("m-a", 1, now()).error();
    assert_eq!(refused, InferError::ShuttingDown);
    let refused = world.load(&variant).await.unwrap_err();
    assert_eq!(refused, WorkError::ShuttingDown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_killed_and_starts_again_in_time_has_nothing_loaded() {
    let world = World::new().await;
    let variant = world.loaded("m-a").await;
    let engine = Double {
        device: Device::Cpu,
        staged: false,
        is_isolated: false,
        record: Arc::clone(&world.record),
    };
    let stores = (Arc::clone(&world.objects), Arc::clone(&world.metadata));
    let started = Worker::start(config(), vec![Arc::new(engine)], stores.0, stores.1);
    let (again, mut service) = started.unwrap();
    service.announce().await;
    assert_eq!(world.state(&variant).await, None);
    again
        .load(Load::at_once(Arc::clone(&variant)))
        .await
        .unwrap();
    assert_eq!(world.state(&variant).await, Some(InstanceState::Active));
    service.announce().await;
    assert_eq!(world.state(&variant).await, Some(InstanceState::Active));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shutdown_answers_what_waits_and_finishes_what_has_begun() {
    for kind in [Kind::Cpu, Kind::Dedicated, Kind::Staged] {
        let mut world = World::with(kind, config()).await;
        let variant = world.loaded("m-a").await;
        world.record.hold(Step::Exec, Some(1));
        let running = world.infer("m-a", 1, now());
        world.record.begun(Step::Exec, 1).await;
        let soon = (2..12).map(|key| world.infer("m-a", key, now()));
        let later = (12..22).map(|key| world.infer("m-a", key, ahead(5)));
        let waiting: Vec<_> = soon.chain(later).collect();
        let file = world.variant("m-b", "b", 100).await;
        let planned = world.loading(Load {
            earliest: Instant::now() + Duration::from_secs(5),
            ..Load::at_once(Arc::clone(&file))
        });
        world.reaches(&file, InstanceState::Loading).await;
        let (stop, stopping) = world.serve();
        drop(stop);
        for outcome in waiting {
            assert_eq!(outcome.error(), InferError::ShuttingDown);
        }
        assert_eq!(planned.await.unwrap(), Err(WorkError::ShuttingDown));
        assert!(running.is_pending());
        world.record.release(Step::Exec);
        running.ok();
        tokio::time::timeout(PATIENCE, stopping)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(world.used(), 0);
        for variant in [&variant, &file] {
            assert_eq!(world.state(variant).await, Some(InstanceState::Inactive));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_harms_nobody() {
    let world = World::new().await;
    world.loaded("m-a").await;
    world.worker.infer(Infer {
        variant: VariantId::new("m-a").unwrap(),
        parts: vec![sextant_rpc::Part::Inputs(row(1, 2))],
        earliest: Instant::now(),
        latest: None,
        expected: Duration::ZERO,
        offline_rows: 0,
        done: Box::new(|_| panic!("on purpose")),
    });
    world.infer("m-a", 2, now()).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_and_mispredictions_are_told_by_kind() {
    let world = World::new().await;
    let variant = world.variant("m-1", "m-1", 200).await;
    let load = |expected| Load {
        expected,
        ..Load::at_once(Arc::clone(&variant))
    };
    world
        .worker
        .load(load(Duration::from_nanos(1)))
        .await
        .unwrap();
    world
        .worker
        .load(load(Duration::from_nanos(1)))
        .await
        .unwrap();
    let large = world.variant("m-2", "m-2", 5000).await;
    world.load(&large).await.unwrap_err();
    let expecting = |expected| {
        let (sender, outcome) = mpsc::channel();
        world.worker.infer(Infer {
            variant: variant.id.clone(),
            parts: vec![sextant_rpc::Part::Inputs(row(1, 2))],
            earliest: Instant::now(),
            latest: None,
            expected,
            offline_rows: 0,
            done: Box::new(move |outcome| sender.send(outcome).unwrap()),
        });
        Outcome(outcome).ok();
    };
    (0..10).for_each(|_| expecting(Duration::from_nanos(1)));
    (0..5).for_each(|_| expecting(Duration::from_secs(3600)));
    expecting(Duration::ZERO);
    world.infer("m-x", 1, now()).error();
    world.infer("m-1", 1, ahead(100)).error();
    world.worker.unload(&variant.id).await.unwrap();

    let stats = world.worker.stats().await.unwrap().actions;
    let infer = &stats[&ActionKind::Infer];
    assert_eq!(infer.succeeded, 16);
    let failed: Vec<_> = infer
        .failed
        .iter()
        .map(|(code, count)| (*code, *count))
        .collect();
    assert_eq!(failed, [("not_loaded", 1), ("too_early", 1)]);
    assert_eq!(infer.under_predicted.count, 10);
    assert_eq!(infer.over_predicted.count, 5);
    assert!(infer.over_predicted.p50_us > 3.5e9, "{infer:?}");
    let under = infer.under_predicted;
    assert!(0.0 < under.p50_us && under.p50_us <= under.p99_us);
    assert!(under.p99_us <= under.p999_us && under.p999_us <= under.max_us);
    let loads = &stats[&ActionKind::Load];
    assert_eq!((loads.succeeded, loads.failed["no_memory"]), (2, 1));
    assert_eq!(
        loads.under_predicted.count, 1,
        "the second load did nothing"
    );
    assert_eq!(stats[&ActionKind::Unload].succeeded, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_tells_where_its_time_went() {
    let world = World::new().await;
    let variant = world.variant("m-1", "m-1", 200).await;
    let load = || world.worker.load(Load::at_once(Arc::clone(&variant)));
    let timings = load().await.unwrap();
    assert!(timings.fetch_us > 0.0 && timings.load_us > 0.0 && timings.queue_us >= 0.0);
    assert_eq!(load().await.unwrap(), sextant_rpc::LoadTimings::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_goes_on_when_nobody_waits_for_it() {
    let world = World::new().await;
    let variant = world.variant("m-1", "m-1", 200).await;
    world.record.hold(Step::Load, Some(1));
    let loading = world.loading(Load::at_once(Arc::clone(&variant)));
    world.record.begun(Step::Load, 1).await;
    loading.abort();
    assert!(loading.await.unwrap_err().is_cancelled());
    world.record.release(Step::Load);
    world.reaches(&variant, InstanceState::Active).await;
    world.infer("m-1", 1, now()).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_a_fleet_says_so_finishes_what_it_is_sent_and_is_gone() {
    let config = Config {
        endpoint: Some("127.0.0.1:7070".into()),
        drain: Duration::from_secs(30),
        period_ms: 10,
        ..config()
    };
    let mut world = World::with(Kind::Cpu, config).await;
    world.loaded("m-a").await;
    world.record.hold(Step::Exec, Some(1));
    let running = world.infer("m-a", 1, now());
    world.record.begun(Step::Exec, 1).await;
    let cursor = world.metadata.snapshot().await.unwrap().cursor;
    let (stop, stopping) = world.serve();
    drop(stop);
    let mut view = View::from(world.metadata.snapshot().await.unwrap());
    view.cursor = cursor;
    let lease = |view: &View| {
        let mut draining = view.workers.values().filter(|it| it.record.draining);
        draining.next().map(|worker| worker.lease_until_ms)
    };
    let mut leases = [None; 2];
    // The worker keeps its lease while it drains.
    while leases[0].is_none() || leases[0] == leases[1] {
        let changed = world.metadata.changed(view.cursor);
        let changed = tokio::time::timeout(PATIENCE, changed).await;
        changed.unwrap().unwrap();
        let changes = world.metadata.changes(view.cursor).await.unwrap();
        view.follow(&changes);
        leases = [leases[0].or(lease(&view)), lease(&view)];
    }
    // A dispatcher that has not heard of the leave yet is still served.
    let late = world.infer("m-a", 2, now());
    world.record.release(Step::Exec);
    running.ok();
    late.ok();
    tokio::time::timeout(PATIENCE, stopping)
        .await
        .unwrap()
        .unwrap();
    let left = world.metadata.snapshot().await.unwrap();
    assert_eq!((left.workers.len(), left.instances.len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_leave_finishes_what_it_has_and_is_gone() {
    let config = Config {
        drain: Duration::from_secs(30),
        period_ms: 10,
        ..config()
    };
    let mut world = World::with(Kind::Cpu, config).await;
    world.loaded("m-a").await;
    world.record.hold(Step::Exec, Some(1));
    let running = world.infer("m-a", 1, now());
    world.record.begun(Step::Exec, 1).await;
    let (stop, stopping) = world.serve();
    for _ in 0..2 {
        world.worker.leave().await.unwrap();
        assert!(world.worker.is_draining());
    }
    let told = async {
        let mut view = View::from(world.metadata.snapshot().await.unwrap());
        while !view.workers.values().any(|it| it.record.draining) {
            world.metadata.changed(view.cursor).await.unwrap();
            view.follow(&world.metadata.changes(view.cursor).await.unwrap());
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.expect("it says that it drains");
    assert!(!stopping.is_finished(), "a batch runs");
    world.record.release(Step::Exec);
    running.ok();
    let ended = tokio::time::timeout(PATIENCE, stopping).await;
    assert_eq!(ended.unwrap().unwrap(), End::Left);
    let left = world.metadata.snapshot().await.unwrap();
    assert_eq!((left.workers.len(), left.instances.len()), (0, 0));
    let late = world.infer("m-a", 2, now());
    assert_eq!(late.error(), InferError::ShuttingDown);
    drop(stop);
}

/// Writes to the record of an instance without the worker, like a command whose answer is lost.
async fn write(world: &World, variant: &Variant, commands: &[Command]) {
    for command in commands {
        let transition = Transition {
            key: InstanceKey::new(variant.id.clone(), WorkerId::new("w").unwrap()),
            application: variant.application.clone(),
            expected_version: None,
            command: command.clone(),
        };
        world.metadata.transition(&transition, 0).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_what_is_not_loaded_hinders_no_load() {
    for commands in [
        &[Command::Load][..],
        &[Command::Load, Command::Loaded],
        &[Command::Load, Command::Loaded, Command::Overload],
        &[Command::Load, Command::Loaded, Command::Drain],
    ] {
        let world = World::new().await;
        let variant = world.variant("m-a", "m-a", 200).await;
        write(&world, &variant, commands).await;
        world.load(&variant).await.unwrap();
        assert_eq!(world.state(&variant).await, Some(InstanceState::Active));
        world.infer("m-a", 1, now()).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_what_another_application_had_under_the_name_hinders_no_load() {
    for commands in [
        &[
            Command::Load,
            Command::Loaded,
            Command::Drain,
            Command::Unloaded,
        ][..],
        &[Command::Load],
        &[Command::Load, Command::Loaded],
        &[Command::Load, Command::Loaded, Command::Drain],
    ] {
        let world = World::new().await;
        let variant = world.variant("m-a", "m-a", 200).await;
        let mut before = (*variant).clone();
        before.application = ApplicationId::new("before").unwrap();
        write(&world, &before, commands).await;
        world.load(&variant).await.unwrap();
        let recorded = world.metadata.instances().await.unwrap();
        let recorded: Vec<_> = recorded
            .iter()
            .map(|it| (&it.application, it.state))
            .collect();
        assert_eq!(recorded, [(&variant.application, InstanceState::Active)]);
        world.infer("m-a", 1, now()).ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_file_under_a_name_is_loaded_in_place_of_the_first() {
    let world = World::new().await;
    let first = world.variant("m-a", "m-1", 200).await;
    world.load(&first).await.unwrap();
    let mut second = (*world.variant("m-a", "m-2", 200).await).clone();
    second.application = ApplicationId::new("other").unwrap();
    let second = Arc::new(second);
    for _ in 0..2 {
        world.load(&second).await.unwrap();
    }
    assert_eq!(world.record.keys(Step::Load), [1, 2]);
    let recorded = world.metadata.instances().await.unwrap();
    let recorded: Vec<_> = recorded
        .iter()
        .map(|it| (&it.application, it.state))
        .collect();
    assert_eq!(recorded, [(&second.application, InstanceState::Active)]);
    world.infer("m-a", 1, now()).ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_wrong_of_what_is_loaded_is_corrected() {
    let mut world = World::new().await;
    let variant = world.loaded("m-a").await;
    let reason = "on purpose".to_owned();
    write(&world, &variant, &[Command::Fail { reason }]).await;
    let (_stop, _service) = world.serve();
    let corrected = async {
        while world.state(&variant).await != Some(InstanceState::Active) {
            // The store refuses the report about a batch, and the worker notices the wrong record by that.
            world.infer("m-a", 1, now()).ok();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, corrected).await.unwrap();
    world.infer("m-a", 1, now()).ok();
}
