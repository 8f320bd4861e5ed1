//! Queries whose inputs and outputs travel through the dispatcher.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sextant_links::front::FrontOptions;
use sextant_rpc::Dispatch;
use sextant_types::NamedTensor;
use tokio::time::{Instant, sleep};

use super::fleet::{Fleet, query};
use crate::double::{id, part};

async fn fleet() -> Fleet {
    Fleet::start(&["w-1", "w-2"], 7, FrontOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_small_query_is_answered_by_the_dispatcher() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    let begun = Instant::now();
    let answer = fleet.ask(3.0, Some(500.0)).await.expect("an answer");
    assert_eq!(answer.variant, id("m-a"));
    assert_eq!(
        answer.outputs,
        [NamedTensor::new("y", part(3.0)[0].tensor.clone())]
    );
    assert!(answer.targets_met);
    // The time until the answer is measured by the front end.
    let took_us = begun.elapsed().as_secs_f64() * 1e6;
    assert!((answer.timings.total_us - took_us).abs() < 2_000.0);
    assert_eq!(placer.answered.load(Ordering::Relaxed), 1);
    assert!(placer.asked.lock().expect("sound").is_empty());
    assert_eq!(fleet.front.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_answers_what_the_last_had() {
    let fleet = fleet().await;
    let first = fleet.lead("d-1", 1).await;
    fleet.led().await;
    first.stuck.store(true, Ordering::Relaxed);
    let (answer, second) = tokio::join!(fleet.ask(2.0, Some(5_000.0)), async {
        while first.answered.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        fleet.net.set_reachable("d-1", false);
        fleet.lead("d-2", 2).await
    });
    let answer = answer.expect("an answer");
    assert_eq!(answer.outputs[0].tensor, part(2.0)[0].tensor);
    assert_eq!(second.answered.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_dispatcher_refuses_that_leads_no_more_is_asked_at_the_next() {
    let fleet = fleet().await;
    let first = fleet.lead("d-1", 1).await;
    fleet.led().await;
    first.leads.store(false, Ordering::Relaxed);
    let (answer, second) = tokio::join!(fleet.ask(2.0, Some(5_000.0)), async {
        sleep(Duration::from_millis(100)).await;
        fleet.lead("d-2", 2).await
    });
    answer.expect("an answer");
    assert_eq!(first.answered.load(Ordering::Relaxed), 0);
    assert_eq!(second.answered.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_is_given_up_is_dropped_by_the_dispatcher() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    placer.stuck.store(true, Ordering::Relaxed);
    let front = Arc::clone(&fleet.front);
    let asking = tokio::spawn(async move { front.query(query(part(1.0), None)).await });
    while placer.answered.load(Ordering::Relaxed) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    asking.abort();
    while placer.given_up.load(Ordering::Relaxed) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(fleet.front.waiting(), 0);
}
