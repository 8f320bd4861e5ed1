//! Workers that somebody has taken out.

use super::{
    scaling::{Shelf, pool, run_timed, serve, until_true, wants},
    world::*,
    *,
};

async fn take_out(store: &UnsteadyStore, name: &str) {
    let worker = WorkerId::new(name).unwrap();
    let marked = store.mark_leaving(&worker).await.unwrap();
    assert!(marked.unwrap().leaving);
}

fn emptied(desired: &DesiredState) -> Vec<&str> {
    desired.emptying.iter().map(WorkerId::as_str).collect()
}

#[tokio::test]
async fn a_worker_that_was_taken_out_is_replaced_first_and_its_machine_ends_once_it_drains() {
    let store = Arc::new(UnsteadyStore::new(256));
    let (shelf, of) = (Arc::new(Shelf::default()), device_type("small", 0.5));
    publish(&store, variant("m-a")).await;
    run_timed((&store, &shelf), pool(&shelf, &of, 1, 1));
    until_true("one machine", || shelf.count() == 1).await;
    beat_of(&store, "m0", &of, false).await;
    serve(&store, "m-a", "m0").await;
    // The autoscaler must have seen the worker, or it would take the machine for lost.
    until(&store, "the variant warm", |it| !it.variants.is_empty()).await;
    // After this time a machine whose absent worker counts would be taken for lost.
    shelf.pass(300_000);
    take_out(&store, "m0").await;
    until_true("a machine in its place", || shelf.count() == 2).await;
    let desired = until(&store, "it to be emptied", |it| !it.emptying.is_empty()).await;
    assert_eq!(
        (emptied(&desired), wants(&desired, "small")),
        (vec!["m0"], Some(1))
    );
    assert_eq!(desired.variants.len(), 1, "what it has is still desired");
    beat_of(&store, "m1", &of, false).await;
    serve(&store, "m-a", "m1").await;
    // The second type shows that the autoscaler has looked since.
    beat_of(&store, "other", &device_type("other", 1.0), false).await;
    let looked = until(&store, "a look", |it| wants(it, "other").is_some()).await;
    assert_eq!(emptied(&looked), ["m0"], "it stays until it drains");
    assert_eq!(shelf.ended(), Vec::<String>::new());
    beat_of(&store, "m0", &of, true).await;
    until_true("its machine to end", || shelf.ended() == ["m0"]).await;
    until(&store, "nobody to be emptied", |it| it.emptying.is_empty()).await;
    assert_eq!(shelf.count(), 1);
}

#[tokio::test]
async fn what_a_lone_worker_that_was_taken_out_has_is_still_desired() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    start(&store, None);
    let of = device_type("small", 0.5);
    beat_of(&store, "only", &of, false).await;
    serve(&store, "m-a", "only").await;
    until(&store, "the variant warm", |it| !it.variants.is_empty()).await;
    take_out(&store, "only").await;
    let desired = until(&store, "it to be emptied", |it| !it.emptying.is_empty()).await;
    assert_eq!(emptied(&desired), ["only"]);
    assert_eq!(desired.variants.len(), 1);
    beat_of(&store, "only", &of, true).await;
    until(&store, "nobody to be emptied", |it| it.emptying.is_empty()).await;
}
