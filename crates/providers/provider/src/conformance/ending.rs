//! Which machines end, when, and in which lists they are.

use tokio::time::Instant;

use super::{
    DEADLINE, Ground, LONG_MS, Machine, MachineId, Pool, Provider, State, ids, machines, until,
    until_gone, until_up,
};

/// Long enough that the ending can be seen, short enough to wait for, ms.
const SHORT_MS: u64 = 4000;

async fn state(provider: &dyn Provider, pool: &Pool, id: &MachineId) -> Option<State> {
    let machines = machines(provider, pool).await;
    let found = machines.into_iter().find(|machine| machine.id == *id);
    found.map(|machine| machine.state)
}

/// The named machines end, and no others.
pub async fn end_is_the_end_of_those_named(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("named", LONG_MS));
    let started = until_up(ground, &*provider, &pool, 3).await;
    let named = [started[0].clone(), started[2].clone()];
    provider.end(&pool, &named).await.expect("end");
    for machine in machines(&*provider, &pool).await {
        let ends = named.contains(&machine.id);
        assert_eq!(machine.state == State::Ending, ends, "{machine:?}");
    }
    until_gone(&*provider, &pool, &named).await;
    assert_eq!(ids(&*provider, &pool).await, [started[1].clone()]);
    assert_eq!(
        state(&*provider, &pool, &started[1]).await,
        Some(State::Running)
    );
    provider.end(&pool, &started).await.expect("end");
}

/// A machine that ends does not count: another one is started in its place while it still ends.
pub async fn ended_machines_are_replaced(ground: &dyn Ground) {
    let pool = ground.pool("stubborn-replaced", SHORT_MS);
    let provider = ground.provider().await;
    let first = until_up(ground, &*provider, &pool, 1).await;
    provider.end(&pool, &first).await.expect("end");
    provider.grow(&pool, 1).await.expect("grow");
    let mut left: Vec<Machine> = machines(&*provider, &pool).await;
    left.retain(|machine| machine.state != State::Ending);
    let [second] = left.as_slice() else {
        panic!("one was to start: {left:?}");
    };
    assert_ne!(second.id, first[0]);
    let second = [second.id.clone()];
    provider.end(&pool, &second).await.expect("end");
    until_gone(&*provider, &pool, &[first, second.into()].concat()).await;
}

/// A machine that ends when it is asked to is gone long before its time limit.
pub async fn machine_that_heeds_ends_before_its_time(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("heeds", LONG_MS));
    let started = until_up(ground, &*provider, &pool, 1).await;
    provider.end(&pool, &started).await.expect("end");
    until_gone(&*provider, &pool, &started).await;
    assert_eq!(machines(&*provider, &pool).await, []);
}

/// A machine that does not end when it is asked to is listed as ending until its time limit, and is then ended. Asking
/// it again gives it no more time.
pub async fn machine_that_does_not_heed_is_ending_then_gone(ground: &dyn Ground) {
    let pool = ground.pool("stubborn", SHORT_MS);
    let provider = ground.provider().await;
    let started = until_up(ground, &*provider, &pool, 1).await;
    let told = Instant::now();
    provider.end(&pool, &started).await.expect("end");
    assert_eq!(
        state(&*provider, &pool, &started[0]).await,
        Some(State::Ending)
    );
    let endless = Pool {
        end_ms: LONG_MS,
        ..pool.clone()
    };
    provider.end(&endless, &started).await.expect("end");
    until("it is gone, and was ending until then", async || {
        let state = state(&*provider, &pool, &started[0]).await;
        assert!(matches!(state, None | Some(State::Ending)), "{state:?}");
        state.is_none().then_some(())
    })
    .await;
    // The provider's clock may differ slightly from this one.
    assert!(told.elapsed().as_millis() as u64 + 100 >= SHORT_MS);
    assert!(told.elapsed() < DEADLINE);
}

/// Ending a machine that does not exist, or that has ended, does nothing.
pub async fn ending_what_is_not_there_is_fine(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("absent", LONG_MS));
    let unknown = ["unknown", "", "../up", "a b", "ö"].map(|id| MachineId(id.to_owned()));
    provider.end(&pool, &unknown).await.expect("end");
    let started = until_up(ground, &*provider, &pool, 2).await;
    provider.end(&pool, &unknown).await.expect("end");
    assert_eq!(ids(&*provider, &pool).await, started);
    let first = [started[0].clone()];
    provider.end(&pool, &first).await.expect("end");
    until_gone(&*provider, &pool, &first).await;
    provider.end(&pool, &first).await.expect("end");
    assert_eq!(ids(&*provider, &pool).await, [started[1].clone()]);
    provider.end(&pool, &started).await.expect("end");
}

/// A machine that ends by itself leaves the list, and another one may take its place.
pub async fn crashed_machine_leaves_the_list(ground: &dyn Ground) {
    let (provider, pool) = (ground.provider().await, ground.pool("crash", LONG_MS));
    let started = until_up(ground, &*provider, &pool, 2).await;
    ground.crash(&started[0]).await;
    until_gone(&*provider, &pool, &started[..1]).await;
    assert_eq!(ids(&*provider, &pool).await, [started[1].clone()]);
    provider.grow(&pool, 2).await.expect("grow");
    let again = ids(&*provider, &pool).await;
    assert_eq!(again.len(), 2);
    assert!(!again.contains(&started[0]), "an id is given once");
    provider.end(&pool, &again).await.expect("end");
}

/// After a crash, a successor lists as ending what was told to end, and ends it.
pub async fn successor_ends_what_was_to_end(ground: &dyn Ground) {
    let pool = ground.pool("stubborn-successor", SHORT_MS);
    let provider = ground.provider().await;
    let started = until_up(ground, &*provider, &pool, 1).await;
    provider.end(&pool, &started).await.expect("end");
    drop(provider);
    let successor = ground.provider().await;
    assert_eq!(
        state(&*successor, &pool, &started[0]).await,
        Some(State::Ending)
    );
    until_gone(&*successor, &pool, &started).await;
}
