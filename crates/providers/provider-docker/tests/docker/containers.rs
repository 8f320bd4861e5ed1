//! What a container is created from, and what remains of it.

use std::{collections::BTreeMap, slice};

use bollard::{models::ContainerCreateBody, query_parameters::CreateContainerOptionsBuilder};
use sextant_provider::{Provider, State, conformance::Ground};
use sextant_provider_docker::Containers;

use super::{
    image::IMAGE,
    support::{Fleet, LONG_MS, pool, template, until},
};

#[tokio::test]
async fn names_and_pools_are_filled_in() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let mut settings = fleet.settings();
    let gpu = pool("gpu-1", LONG_MS);
    let script = "echo \"$0 $1 $WORKER\"; ls /sys/class/net; echo up; sleep 120";
    let mut special = template(script);
    special.environment = BTreeMap::from([("WORKER".to_owned(), "is-{name}".to_owned())]);
    special.labels = BTreeMap::from([
        ("team".to_owned(), "of-{pool}".to_owned()),
        ("sextant.pool".to_owned(), "another".to_owned()),
    ]);
    settings.pools = BTreeMap::from([(gpu.device_type.clone(), special)]);
    let provider = Containers::new(settings);
    let machine = fleet.up(&provider, &gpu, 1).await.remove(0);
    let name = machine.id.0.as_str();
    assert!(name.starts_with("gpu-1-"), "{name}");
    assert_eq!(machine.worker.as_ref().map(|it| it.as_str()), Some(name));
    let log = fleet.log(&machine.id).await;
    assert_eq!(log, format!("gpu-1 {name} is-{name}\nlo\nup\n"));
    let labels = fleet.containers().await.remove(0).labels.expect("labels");
    let label = |key: &str| labels.get(key).map(String::as_str);
    assert_eq!(label("team"), Some("of-gpu-1"));
    assert_eq!(label("sextant.pool"), Some("gpu-1"));
    assert_eq!(label("sextant.machine"), Some(name));
    assert_eq!(label("sextant.fleet"), Some(fleet.name.as_str()));
}

#[tokio::test]
async fn fleets_do_not_see_each_other() {
    let (Some(one), Some(other)) = (Fleet::new().await, Fleet::new().await) else {
        return;
    };
    let pool = pool("shared", LONG_MS);
    let ones = one.up(&one.open(), &pool, 1).await;
    let others = other.open();
    assert_eq!(others.list(&pool).await.expect("list"), []);
    let named = [ones[0].id.clone()];
    others.end(&pool, &named).await.expect("end");
    assert_eq!(one.open().list(&pool).await.expect("list"), ones);
}

#[tokio::test]
async fn ended_containers_are_removed() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let (provider, pool) = (fleet.open(), pool("removed", LONG_MS));
    let machines = fleet.up(&provider, &pool, 2).await;
    fleet.crash(&machines[0].id).await;
    provider
        .end(&pool, slice::from_ref(&machines[1].id))
        .await
        .expect("end");
    until("they are removed", async || {
        provider.list(&pool).await.expect("list");
        fleet.containers().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn container_that_somebody_removes_leaves_the_list() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let (provider, pool) = (fleet.open(), pool("taken", LONG_MS));
    let machine = fleet.up(&provider, &pool, 1).await.remove(0);
    let options = bollard::query_parameters::RemoveContainerOptionsBuilder::new().force(true);
    let removed = fleet
        .client
        .remove_container(&machine.id.0, Some(options.build()));
    removed.await.expect("removed");
    assert_eq!(provider.list(&pool).await.expect("list"), []);
    provider.end(&pool, &[machine.id]).await.expect("end");
}

/// A crash between creating a container and starting it.
#[tokio::test]
async fn container_that_was_not_started_counts_and_is_started() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let (provider, pool) = (fleet.open(), pool("made", LONG_MS));
    let name = format!("made-{}", uuid::Uuid::new_v4());
    let labels = [
        ("sextant.fleet", fleet.name.as_str()),
        ("sextant.pool", "made"),
        ("sextant.machine", name.as_str()),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let body = ContainerCreateBody {
        image: Some(IMAGE.to_owned()),
        cmd: Some(template("echo up; sleep 120").command),
        labels: Some(labels.into()),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    let made = fleet.client.create_container(Some(options), body).await;
    made.expect("made");
    let listed = provider.list(&pool).await.expect("list");
    assert_eq!((listed.len(), listed[0].state), (1, State::Starting));
    let started = fleet.up(&provider, &pool, 1).await;
    assert_eq!(
        (started[0].id.0.as_str(), started[0].state),
        (name.as_str(), State::Running)
    );
}

/// A crash between marking a container and asking it to end.
#[tokio::test]
async fn container_that_was_not_asked_to_end_is_asked() {
    let Some(fleet) = Fleet::new().await else {
        return;
    };
    let (provider, pool) = (fleet.open(), pool("asked", LONG_MS));
    let machine = fleet.up(&provider, &pool, 1).await.remove(0);
    // In the year 2100: only a container that is asked ends before.
    let name = format!("{}.ending-4102444800000", machine.id.0);
    let options = bollard::query_parameters::RenameContainerOptionsBuilder::new().name(&name);
    let renamed = fleet
        .client
        .rename_container(&machine.id.0, options.build());
    renamed.await.expect("renamed");
    let listed = provider.list(&pool).await.expect("list");
    assert_eq!(
        (&listed[0].id, listed[0].state),
        (&machine.id, State::Ending)
    );
    until("it has ended", async || {
        provider.list(&pool).await.expect("list").is_empty()
    })
    .await;
}
