//! How many queries that share no batches run side by side.

use std::sync::atomic::Ordering;

use sextant_rpc::Query;

use super::{NARROW, WIDE, answer, by_load, named};
use crate::world::{PATIENCE, World, query, wait_until};

/// Sends two queries for the variant on one thread, one of which must wait for the other.
async fn run_one_by_one(world: &World) {
    let entered = world.gate.entered.load(Ordering::SeqCst);
    world.gate.close();
    let both = [1.0, 2.0].map(|number| world.send(named("m-t1", &[number, 0.0])));
    wait_until(|| world.gate.entered.load(Ordering::SeqCst) == entered + 1).await;
    wait_until(|| world.dispatcher.waiting() == 1).await;
    world.gate.open();
    for handle in both {
        answer(handle).await;
    }
}

/// Waits until answers state this cost for the variant on one thread.
async fn costs(world: &World, usd: f64) {
    let is_told = async {
        loop {
            let asked = Query {
                explain: true,
                ..named("m-t1", &[1.0, 0.0])
            };
            let explanation = world.ask(asked).await.unwrap().explanation.unwrap();
            let told = explanation.candidates[0].cost_per_1k_usd;
            if (told - usd).abs() < 1e-9 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, is_told)
        .await
        .expect("the cost is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_were_chosen_also_when_a_variant_is_published_again() {
    let world = World::with_cores(by_load(None), 1, 2).await;
    world.serve(NARROW).await;
    world.serve(WIDE).await;
    // At low load one query at a time must have both cores.
    world.ask(query(&[1.0, 0.0])).await.unwrap();
    run_one_by_one(&world).await;
    world
        .publish_with("app", NARROW, |variant| variant.cost_per_1k_usd = 0.5)
        .await;
    costs(&world, 0.5).await;
    run_one_by_one(&world).await;
}
