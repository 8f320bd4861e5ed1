//! Variants that are no longer published while workers have them loaded.

use std::sync::atomic::Ordering;

use sextant_dispatcher::Config;
use sextant_rpc::{Dispatch, WorkerClient};
use sextant_types::{Route, VariantId};

use crate::world::{Kind, World, output, query, wait_until};

/// Retires a variant, and waits until the dispatcher knows it.
async fn retire(world: &World, variant: &VariantId) {
    assert!(world.metadata.retire_variant(variant).await.unwrap());
    let route = Route::Variant(variant.clone());
    wait_until(|| world.dispatcher.signature(&route).is_err()).await;
}

/// Waits until no worker has anything loaded.
async fn nothing_is_loaded(world: &World) {
    let is_empty = |worker: &WorkerClient| worker.info().pages.used_bytes() == 0;
    wait_until(|| world.workers.iter().all(is_empty)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_waits_is_answered_before_a_retired_variant_goes() {
    let world = World::new().await;
    let variant = world.serve(Kind::default()).await;
    world.gate.close();
    let running = world.send(query(&[1.0, 0.0]));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == 1).await;
    let waiting = world.send(query(&[2.0, 0.0]));
    wait_until(|| world.dispatcher.waiting() == 1).await;
    retire(&world, &variant.id).await;
    world.gate.open();
    for (number, sent) in (1u8..).zip([running, waiting]) {
        let answer = sent.await.unwrap().unwrap();
        assert_eq!(output(&answer), [2.0 * f32::from(number), 0.0]);
    }
    nothing_is_loaded(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_retired_while_a_dispatcher_stood_by_goes_when_it_leads() {
    let world = World::with(Config::default(), 2).await;
    let variant = world.serve(Kind::default()).await;
    world.dispatcher.set_leading(false);
    retire(&world, &variant.id).await;
    world.dispatcher.set_leading(true);
    nothing_is_loaded(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_retired_before_a_dispatcher_came_goes_from_every_worker() {
    let world = World::with(Config::default(), 2).await;
    let variant = world.serve(Kind::default()).await;
    world.dispatcher.set_leading(false);
    retire(&world, &variant.id).await;
    let _leader = world.another(world.workers.clone());
    nothing_is_loaded(&world).await;
}
