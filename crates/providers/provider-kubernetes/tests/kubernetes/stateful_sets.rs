//! What Kubernetes does with the pods of a StatefulSet: names are reused, and the last pods end.

use sextant_provider::{MachineId, Provider, State};
use sextant_provider_kubernetes::Kind;

use super::support::{Cluster, list, pool, staying, until};

const KIND: Kind = Kind::StatefulSet;

#[tokio::test]
async fn only_the_last_ones_without_a_gap_end() {
    let cluster = Cluster::with(KIND, 4).await;
    let provider = cluster.provider(KIND);
    let all = staying(&provider).await;
    let first = [all[0].clone(), all[1].clone()];
    provider.end(&pool(), &first).await.expect("end");
    assert_eq!(cluster.replicas(), 4);
    assert_eq!(staying(&provider).await, all);

    let with_a_gap = [all[3].clone(), all[1].clone()];
    provider.end(&pool(), &with_a_gap).await.expect("end");
    assert_eq!(cluster.replicas(), 3);
    assert_eq!(staying(&provider).await, all[..3]);

    provider.end(&pool(), &all).await.expect("end");
    assert_eq!(cluster.replicas(), 0);
    until("all are gone", async || {
        list(&provider).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn name_that_comes_back_has_another_id() {
    let cluster = Cluster::with(KIND, 1).await;
    let provider = cluster.provider(KIND);
    let before = list(&provider).await.swap_remove(0);
    assert!(before.id.0.starts_with("workers-0/"), "{before:?}");
    cluster.world().pods.remove("workers-0");
    let after = until("it is back", async || {
        list(&provider).await.into_iter().next()
    })
    .await;
    assert_ne!(after.id, before.id);
    assert_eq!(after.worker, before.worker);
    assert_eq!(after.worker.expect("its name").as_str(), "workers-0");
    provider.end(&pool(), &[before.id]).await.expect("end");
    assert_eq!(cluster.replicas(), 1, "the one that was named has ended");
}

/// Kubernetes is slow: pods above the replicas already count as ending.
#[tokio::test]
async fn pods_above_the_replicas_are_ending() {
    let cluster = Cluster::with(KIND, 3).await;
    let provider = cluster.provider(KIND);
    cluster.world().stalled = true;
    cluster.world().scale(1);
    let states: Vec<State> = list(&provider).await.iter().map(|it| it.state).collect();
    assert_eq!(states, [State::Running, State::Ending, State::Ending]);
}

/// A drained pod returns: the pods below it are not the last ones.
#[tokio::test]
async fn pod_that_leaves_by_itself_is_a_gap() {
    let cluster = Cluster::with(KIND, 2).await;
    let provider = cluster.provider(KIND);
    let all = staying(&provider).await;
    cluster.world().stalled = true;
    let drained = std::time::Instant::now();
    cluster
        .world()
        .pods
        .get_mut("workers-1")
        .expect("it")
        .deleted = Some(drained);
    let named: Vec<MachineId> = all.clone();
    provider.end(&pool(), &named).await.expect("end");
    assert_eq!(cluster.replicas(), 2);
}
