//! Batches and loads start inside their windows, in order of the windows' starts.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_before_its_window() {
    let world = World::with(
        Kind::Cpu,
        Config {
            cores: 2,
            ..config()
        },
    )
    .await;
    world.loaded("m-a").await;
    let begin = Instant::now();
    let start = |number: u64| begin + Duration::from_millis(40 - 3 * number);
    let sent: Vec<_> = (0..10)
        .map(|number| world.infer("m-a", number as i64, (start(number), None)))
        .collect();
    for (number, outcome) in sent.into_iter().enumerate() {
        let started = outcome.ok().timings.started;
        assert!(started >= start(number as u64), "batch {number} is early");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_past_its_window_never_reaches_the_engine() {
    let world = World::new().await;
    world.loaded("m-a").await;
    let past = Instant::now();
    assert_eq!(
        world.infer("m-a", 1, (past, Some(past))).error(),
        InferError::TooLate
    );
    world.record.hold(Step::Exec, Some(2));
    let stalled = world.infer("m-a", 2, now());
    world.record.begun(Step::Exec, 2).await;
    let moment = Instant::now();
    let overdue = world.infer("m-a", 3, (moment, Some(moment)));
    let patient = world.infer("m-a", 4, (moment, Some(moment + PATIENCE)));
    world.record.release(Step::Exec);
    assert!(stalled.get().is_ok());
    assert_eq!(overdue.error(), InferError::TooLate);
    assert!(patient.get().is_ok(), "the delay is over");
    assert_eq!(world.record.keys(Step::Exec), [2, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_run_in_order_of_their_starts_then_of_arrival() {
    for kind in [Kind::Cpu, Kind::Dedicated, Kind::Staged] {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        world.record.hold(Step::Exec, Some(0));
        let first = world.infer("m-a", 0, now());
        world.record.begun(Step::Exec, 0).await;
        let base = Instant::now();
        let start = |key: i64| base + Duration::from_nanos(key as u64 / 2);
        let shuffled = [7, 2, 3, 9, 4, 5, 8, 6];
        let sent = shuffled.map(|key| world.infer("m-a", key, (start(key), None)));
        world.record.release(Step::Exec);
        first.ok();
        sent.into_iter().for_each(|outcome| drop(outcome.ok()));
        // 2 and 3 start together, as do 4 and 5, 6 and 7, 8 and 9: then the first sent is first.
        assert_eq!(world.record.keys(Step::Exec), [0, 2, 3, 4, 5, 7, 6, 9, 8]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_opens_sooner_overtakes_one_that_is_waited_for() {
    for kind in [Kind::Cpu, Kind::Staged] {
        let world = World::with(kind, config()).await;
        world.loaded("m-a").await;
        let later = world.infer("m-a", 1, ahead(9));
        let even_later = world.infer("m-a", 2, ahead(8));
        assert!(world.infer("m-a", 3, now()).get().is_ok());
        assert!(later.is_pending() && even_later.is_pending());
        assert_eq!(world.record.keys(Step::Exec), [3]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_beyond_the_horizon_are_refused() {
    let world = World::new().await;
    let variant = world.loaded("m-a").await;
    assert_eq!(
        world.infer("m-a", 1, ahead(60)).error(),
        InferError::TooEarly
    );
    let load = Load {
        earliest: Instant::now() + Duration::from_secs(60),
        ..Load::at_once(variant)
    };
    assert_eq!(world.loading(load).await.unwrap(), Err(WorkError::TooEarly));
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_begin_one_at_a_time_by_their_windows() {
    let world = World::new().await;
    world.record.hold(Step::Load, Some(1));
    let begin = Instant::now();
    let mut loads = Vec::new();
    // Each load is in the queue before the next is sent, because the first one is in the engine.
    for (number, start_ms) in [(1, 0), (4, 30), (2, 10), (3, 20)] {
        let name = format!("m-{number}");
        let variant = world.variant(&name, &name, 100).await;
        let load = Load {
            earliest: begin + Duration::from_millis(start_ms),
            ..Load::at_once(variant)
        };
        loads.push(world.loading(load));
        world.record.begun(Step::Load, 1).await;
    }
    let late = world.variant("m-5", "m-5", 100).await;
    let refused = world.loading(Load {
        latest: Some(begin),
        ..Load::at_once(Arc::clone(&late))
    });
    assert_eq!(refused.await.unwrap(), Err(WorkError::TooLate));
    assert_eq!(world.state(&late).await, None, "nothing was begun");
    // Waits until the artefacts are fetched, which no call of the engine shows.
    while begin.elapsed() < Duration::from_millis(50) {
        tokio::task::yield_now().await;
    }
    world.record.release(Step::Load);
    for load in loads {
        load.await.unwrap().unwrap();
    }
    let calls = world.record.calls(Step::Load);
    let disjoint = calls
        .windows(2)
        .all(|two| two[0].ended.unwrap() <= two[1].begun);
    assert!(disjoint, "two loads at a time");
    for call in calls {
        let start_ms = (call.key as u64 - 1) * 10;
        assert!(call.begun >= begin + Duration::from_millis(start_ms));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_waits_past_its_window_leaves_nothing_behind() {
    let world = World::new().await;
    world.record.hold(Step::Load, Some(1));
    let first = world.variant("m-1", "m-1", 100).await;
    let loading = world.loading(Load::at_once(first));
    world.record.begun(Step::Load, 1).await;
    let second = world.variant("m-2", "m-2", 100).await;
    // The load is taken up before.
    let latest = Instant::now() + Duration::from_secs(2);
    let overdue = world.loading(Load {
        latest: Some(latest),
        ..Load::at_once(Arc::clone(&second))
    });
    world.reaches(&second, InstanceState::Loading).await;
    // Longer than the fetching takes; that does not count as a late start.
    while Instant::now() <= latest + Duration::from_secs(3) {
        tokio::task::yield_now().await;
    }
    world.record.release(Step::Load);
    loading.await.unwrap().unwrap();
    assert_eq!(overdue.await.unwrap(), Err(WorkError::TooLate));
    assert_eq!(world.state(&second).await, Some(InstanceState::Inactive));
    assert_eq!(
        (world.used(), world.record.keys(Step::Load)),
        (100, vec![1])
    );
}
