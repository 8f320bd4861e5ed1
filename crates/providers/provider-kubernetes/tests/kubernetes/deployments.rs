//! What Kubernetes does with the pods of a Deployment, and how the provider reacts.

use http::Method;
use sextant_provider::{MachineId, Provider, State};
use sextant_provider_kubernetes::{DELETION_COST, ENDING, Kind};

use super::support::{Cluster, Fake, FaultKind, list, pool, staying, until};

#[tokio::test]
async fn pod_that_ends_by_itself_is_replaced_under_another_name() {
    let cluster = Cluster::with(Kind::Deployment, 2).await;
    let provider = cluster.provider(Kind::Deployment);
    let before = staying(&provider).await;
    cluster.world().pods.remove(&before[0].0);
    let after = until("there are two again", async || {
        let after = staying(&provider).await;
        (after.len() == 2).then_some(after)
    })
    .await;
    assert!(!after.contains(&before[0]) && after.contains(&before[1]));
    provider.grow(&pool(), 2).await.expect("grow");
    assert_eq!(staying(&provider).await, after);
}

#[tokio::test]
async fn pod_says_what_it_is_about() {
    let cluster = Cluster::with(Kind::Deployment, 0).await;
    let provider = cluster.provider(Kind::Deployment);
    let slow = |world: &mut super::support::World| {
        let workload = world.workloads.get_mut("workers").expect("it is there");
        workload.ready_ms = 3_600_000;
    };
    slow(&mut cluster.world());
    provider.grow(&pool(), 1).await.expect("grow");
    let machines = list(&provider).await;
    assert_eq!(machines.len(), 1);
    assert_eq!(machines[0].state, State::Starting);
    let worker = machines[0].worker.as_ref().expect("its name");
    assert_eq!(worker.as_str(), machines[0].id.0);
    let name = &machines[0].id.0;
    cluster.world().pods.get_mut(name).expect("it").failed = true;
    let others = list(&provider).await;
    assert!(
        others.iter().all(|machine| machine.id != machines[0].id),
        "a pod that has failed"
    );
}

/// It counts as ordered, so that no other one is ordered in its place, and it ends before running pods.
#[tokio::test]
async fn pod_that_no_node_has_room_for_is_starting_until_it_is_ended() {
    let cluster = Cluster::with(Kind::Deployment, 1).await;
    let provider = cluster.provider(Kind::Deployment);
    let runs = staying(&provider).await;
    provider.grow(&pool(), 2).await.expect("grow");
    let machines = list(&provider).await;
    let pending = machines.iter().find(|machine| machine.id != runs[0]);
    let pending = pending.expect("another pod").id.clone();
    let told = |cluster: &Cluster| {
        let mut world = cluster.world();
        let pod = world.pods.get_mut(&pending.0).expect("it is there");
        pod.unschedulable = true;
    };
    told(&cluster);
    let machines = list(&provider).await;
    let seen = machines.iter().find(|machine| machine.id == pending);
    let seen = seen.expect("it is listed");
    assert_eq!(seen.state, State::Starting);
    assert!(seen.since_ms > 0, "since when it waits");
    provider.grow(&pool(), 2).await.expect("grow");
    assert_eq!(cluster.replicas(), 2);

    let ended = provider.end(&pool(), std::slice::from_ref(&pending)).await;
    ended.expect("end");
    assert_eq!(cluster.replicas(), 1);
    until("it is gone", async || {
        (list(&provider).await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(staying(&provider).await, runs);
}

#[tokio::test]
async fn chosen_pod_is_marked() {
    let cluster = Cluster::with(Kind::Deployment, 3).await;
    let provider = cluster.provider(Kind::Deployment);
    let chosen = staying(&provider).await.swap_remove(1);
    cluster.inject(
        &Method::PATCH,
        "/scale",
        1,
        FaultKind::Status(500, "played"),
    );
    let ended = provider.end(&pool(), std::slice::from_ref(&chosen)).await;
    ended.expect_err("the replicas were not written");
    let pod = cluster.world().pods[&chosen.0].clone();
    assert_eq!(pod.annotations[DELETION_COST], "-1000");
    assert_eq!(pod.annotations[ENDING], "true");
}

/// A crash between the mark and the write of the replicas: the next list continues.
#[tokio::test]
async fn what_was_only_marked_ends() {
    let cluster = Cluster::with(Kind::Deployment, 3).await;
    let provider = cluster.provider(Kind::Deployment);
    let all = staying(&provider).await;
    cluster.inject(
        &Method::PATCH,
        "/scale",
        1,
        FaultKind::Status(500, "played"),
    );
    let ended = provider.end(&pool(), &all[..1]).await;
    ended.expect_err("the replicas were not written");
    assert_eq!(cluster.replicas(), 3);

    let successor = cluster.provider(Kind::Deployment);
    let machines = list(&successor).await;
    let told = machines.iter().find(|machine| machine.id == all[0]);
    assert_eq!(told.map(|machine| machine.state), Some(State::Ending));
    until("it is gone", async || {
        (list(&successor).await.len() == 2).then_some(())
    })
    .await;
    assert_eq!(staying(&successor).await, all[1..]);
    assert_eq!(cluster.replicas(), 2);
}

/// A pod that is told twice, or told while Kubernetes is slow, is subtracted once.
#[tokio::test]
async fn pod_is_taken_off_once() {
    let cluster = Cluster::with(Kind::Deployment, 3).await;
    let provider = cluster.hasty(Kind::Deployment);
    let all = staying(&provider).await;
    cluster.world().stalled = true;
    for _ in 0..3 {
        provider.end(&pool(), &all[..1]).await.expect("end");
        assert_eq!(cluster.replicas(), 2);
        assert_eq!(staying(&provider).await, all[1..]);
    }
    provider.end(&pool(), &all[..2]).await.expect("end");
    assert_eq!(cluster.replicas(), 1);
    cluster.world().stalled = false;
    until("two are gone", async || {
        (list(&provider).await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(staying(&provider).await, all[2..]);
}

/// Kubernetes is slow to create pods: they are not ordered again.
#[tokio::test]
async fn pods_that_are_late_are_ordered_once() {
    let cluster = Cluster::with(Kind::Deployment, 1).await;
    let provider = cluster.hasty(Kind::Deployment);
    cluster.world().stalled = true;
    for _ in 0..3 {
        provider.grow(&pool(), 4).await.expect("grow");
        assert_eq!(cluster.replicas(), 4);
        assert_eq!(staying(&provider).await.len(), 1);
    }
    cluster.world().stalled = false;
    until("four are there", async || {
        (staying(&provider).await.len() == 4).then_some(())
    })
    .await;
}

/// More replicas would keep a pod that was told to end and that Kubernetes has not ended yet.
#[tokio::test]
async fn more_are_ordered_once_those_told_have_begun_to_end() {
    let cluster = Cluster::with(Kind::Deployment, 2).await;
    let all = staying(&cluster.provider(Kind::Deployment)).await;
    cluster.world().stalled = true;
    let hasty = cluster.hasty(Kind::Deployment);
    hasty.end(&pool(), &all[..1]).await.expect("end");
    let provider = cluster.provider(Kind::Deployment);
    let calls = cluster.world().calls.len();
    let grown = tokio::spawn(async move {
        provider.grow(&pool(), 2).await.expect("grow");
        staying(&provider).await
    });
    until("it looks again and again", async || {
        (cluster.world().calls.len() > calls + 12).then_some(())
    })
    .await;
    assert_eq!(cluster.replicas(), 1);
    cluster.world().stalled = false;
    let after = grown.await.expect("no panic");
    assert_eq!(after.len(), 2);
    assert!(!after.contains(&all[0]) && after.contains(&all[1]));
}

/// Pods that are not ready go before the chosen ones. The chosen pod ends all the same, and the pod that went in its
/// place is replaced.
#[tokio::test]
async fn chosen_pod_ends_though_another_goes_first() {
    let cluster = Cluster::with(Kind::Deployment, 1).await;
    let provider = cluster.provider(Kind::Deployment);
    let chosen = staying(&provider).await;
    let ready_ms = |to| {
        let mut world = cluster.world();
        let workload = world.workloads.get_mut("workers").expect("it is there");
        workload.ready_ms = to;
    };
    ready_ms(3_600_000);
    provider.grow(&pool(), 2).await.expect("grow");
    ready_ms(30);
    provider.end(&pool(), &chosen).await.expect("end");
    until(
        "it is gone, and one runs in place of the other",
        async || {
            provider.grow(&pool(), 1).await.expect("grow");
            let machines = list(&provider).await;
            let runs = |state| state == State::Running;
            (machines.len() == 1 && machines[0].id != chosen[0] && runs(machines[0].state))
                .then_some(())
        },
    )
    .await;
    assert_eq!(cluster.replicas(), 1);
}

/// Matching labels alone do not make a pod the workload's.
#[tokio::test]
async fn pods_of_others_are_none_of_ours() {
    let cluster = Cluster::with(Kind::Deployment, 1).await;
    let provider = cluster.provider(Kind::Deployment);
    let own = staying(&provider).await;
    let owners = [
        ("ReplicaSet", "other-5d8c"),
        ("Job", "workers-1"),
        ("StatefulSet", "workers"),
    ];
    for (at, owner) in owners.into_iter().enumerate() {
        let name = format!("stranger-{at}");
        let stranger = Fake::new(name.clone(), 1000 + at as u64, "workers", owner);
        cluster.world().pods.insert(name, stranger);
    }
    assert_eq!(staying(&provider).await, own);
    let named = MachineId("stranger-0".to_owned());
    provider.end(&pool(), &[named]).await.expect("end");
    assert_eq!(cluster.replicas(), 1);
    assert!(cluster.world().pods["stranger-0"].annotations.is_empty());
}

/// These calls are exactly what the Role in the documentation permits.
#[tokio::test]
async fn four_calls_are_enough() {
    let cluster = Cluster::with(Kind::Deployment, 2).await;
    let provider = cluster.provider(Kind::Deployment);
    let all = staying(&provider).await;
    provider.end(&pool(), &all[..1]).await.expect("end");
    provider.grow(&pool(), 3).await.expect("grow");
    let scale = "/apis/apps/v1/namespaces/fleet/deployments/workers/scale";
    let pods = "/api/v1/namespaces/fleet/pods";
    let pod = format!("{pods}/{}", all[0].0);
    let allowed = [
        (Method::GET, scale),
        (Method::PATCH, scale),
        (Method::GET, pods),
        (Method::PATCH, &*pod),
    ];
    for (method, path) in &cluster.world().calls {
        let known = |it: &(Method, &str)| it.0 == *method && it.1 == path;
        assert!(allowed.iter().any(known), "{method} {path}");
    }
}
