//! Which machines are started, and in which lists they are.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Arc, Ground, LONG_MS, State, ids, machines, until, until_up};

/// An hour, ms: the largest difference of clocks.
const HOUR_MS: u64 = 3_600_000;

/// A pool for which no machines were ordered has none, and ends none.
pub async fn nothing_is_there_at_first(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("none", LONG_MS));
    assert_eq!(machines(&*provider, &pool).await, []);
    provider.grow(&pool, 0).await.expect("grow");
    provider.end(&pool, &[]).await.expect("end");
    assert_eq!(machines(&*provider, &pool).await, []);
}

/// The requested number of machines is listed at once, each with an id of its own; then they run.
pub async fn grown_pool_lists_each_machine_once(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("grown", LONG_MS));
    provider.grow(&pool, 3).await.expect("grow");
    let started = ids(&*provider, &pool).await;
    assert_eq!(started.len(), 3, "{started:?}");
    until("all run", async || {
        let machines = machines(&*provider, &pool).await;
        let running = machines.iter().all(|it| it.state == State::Running);
        running.then_some(())
    })
    .await;
    assert_eq!(ids(&*provider, &pool).await, started);
    let mut workers: Vec<_> = machines(&*provider, &pool).await;
    workers.retain(|machine| machine.worker.is_some());
    for (index, machine) in workers.iter().enumerate() {
        let own = machine.worker.as_ref().expect("kept for its worker");
        let owners = workers.iter().filter(|other| other.runs(own)).count();
        assert_eq!(owners, 1, "the worker of machine {index}: {workers:?}");
    }
    provider.end(&pool, &started).await.expect("end");
}

/// Growing to the present number, or to less, does nothing.
pub async fn growing_to_no_more_changes_nothing(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("no-more", LONG_MS));
    let started = until_up(ground, &*provider, &pool, 2).await;
    for count in [2, 1, 0] {
        provider.grow(&pool, count).await.expect("grow");
        assert_eq!(ids(&*provider, &pool).await, started, "to {count}");
    }
    provider.grow(&pool, 3).await.expect("grow");
    let more = ids(&*provider, &pool).await;
    assert_eq!(more.len(), 3);
    assert!(started.iter().all(|id| more.contains(id)));
    provider.end(&pool, &more).await.expect("end");
}

/// The start time of a machine is about the present time, or 0.
pub async fn since_is_recent_or_unknown(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("since", LONG_MS));
    let started = until_up(ground, &*provider, &pool, 1).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.expect("a clock past 1970").as_millis() as u64;
    for machine in machines(&*provider, &pool).await {
        let since = machine.since_ms;
        assert!(since == 0 || since.abs_diff(now_ms) < HOUR_MS, "{since}");
    }
    provider.end(&pool, &started).await.expect("end");
}

/// Concurrent calls together start as many as the largest request.
pub async fn concurrent_grows_start_no_more_than_asked(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("concurrent", LONG_MS));
    let calls: Vec<_> = [3, 2, 3, 1, 3]
        .map(|count| {
            let (provider, pool) = (Arc::clone(&provider), pool.clone());
            tokio::spawn(async move { provider.grow(&pool, count).await })
        })
        .into();
    for call in calls {
        call.await.expect("the call ran").expect("grow");
    }
    let started = ids(&*provider, &pool).await;
    assert_eq!(started.len(), 3, "{started:?}");
    provider.end(&pool, &started).await.expect("end");
}

/// Machines that a dropped call has begun to start are listed, and count.
pub async fn given_up_grow_is_not_lost(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("given-up", LONG_MS));
    let call = {
        let (provider, pool) = (Arc::clone(&provider), pool.clone());
        tokio::spawn(async move { provider.grow(&pool, 2).await })
    };
    tokio::task::yield_now().await;
    call.abort();
    call.await.ok();
    let started = until_up(ground, &*provider, &pool, 2).await;
    provider.end(&pool, &started).await.expect("end");
}

/// After a crash, a successor finds the machines and starts none of them again.
pub async fn successor_finds_what_was_started(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("successor", LONG_MS));
    let started = until_up(ground, &*provider, &pool, 2).await;
    let before = machines(&*provider, &pool).await;
    drop(provider);
    let successor = ground.provider().await;
    assert_eq!(machines(&*successor, &pool).await, before);
    successor.grow(&pool, 2).await.expect("grow");
    assert_eq!(ids(&*successor, &pool).await, started);
    successor.grow(&pool, 3).await.expect("grow");
    let more = ids(&*successor, &pool).await;
    assert_eq!(more.len(), 3, "{more:?}");
    successor.end(&pool, &more).await.expect("end");
}

/// Machines of one pool are not listed, counted or ended with another pool, however similar their names are.
pub async fn pools_do_not_see_each_other(ground: &dyn Ground) {
    let provider = ground.provider().await;
    let (one, other) = (ground.pool("pool", LONG_MS), ground.pool("pool-1", LONG_MS));
    let ones = until_up(ground, &*provider, &one, 2).await;
    assert_eq!(ids(&*provider, &other).await, []);
    let others = until_up(ground, &*provider, &other, 1).await;
    assert!(!ones.contains(&others[0]));
    provider.end(&other, &ones).await.expect("end");
    provider.grow(&one, 2).await.expect("grow");
    let unchanged = machines(&*provider, &one).await;
    assert!(unchanged.iter().all(|it| it.state == State::Running));
    assert_eq!(ids(&*provider, &one).await, ones);
    provider.end(&one, &ones).await.expect("end");
    provider.end(&other, &others).await.expect("end");
}
