//! Waits for states of a pool, each with the suite's deadline.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use super::{DEADLINE, Ground, Machine, MachineId, Pool, Provider};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(30);

/// Looks until there is a result.
pub(super) async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) async fn machines(provider: &dyn Provider, pool: &Pool) -> Vec<Machine> {
    let machines = provider.list(pool).await.expect("list");
    assert!(
        machines.is_sorted_by(|one, next| one.id < next.id),
        "sorted, each once: {machines:?}"
    );
    machines
}

pub(super) async fn ids(provider: &dyn Provider, pool: &Pool) -> Vec<MachineId> {
    let machines = machines(provider, pool).await;
    machines.into_iter().map(|machine| machine.id).collect()
}

/// Waits until none of these machines is listed.
pub(super) async fn until_gone(provider: &dyn Provider, pool: &Pool, gone: &[MachineId]) {
    until("they are gone", async || {
        let ids = ids(provider, pool).await;
        (!gone.iter().any(|id| ids.contains(id))).then_some(())
    })
    .await;
}

/// Grows the pool and waits until all of its machines have printed `up`.
pub(super) async fn until_up(
    ground: &dyn Ground,
    provider: &dyn Provider,
    pool: &Pool,
    count: u32,
) -> Vec<MachineId> {
    provider.grow(pool, count).await.expect("grow");
    let ids = until("all are listed", async || {
        let ids = ids(provider, pool).await;
        (ids.len() == count as usize).then_some(ids)
    })
    .await;
    for id in &ids {
        until("it is up", async || ground.is_up(id).await.then_some(())).await;
    }
    ids
}
