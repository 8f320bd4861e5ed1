//! One query or a few, in every way that they can travel.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sextant_fleet::unsteady::UnsteadyStore;
use sextant_links::{
    front::{FrontEnd, FrontOptions},
    link::Clock,
};
use sextant_metadata::{Command, InstanceKey, MetadataStore, Transition};
use sextant_rpc::{Dispatch, InferError, QueryError};
use sextant_types::{Code, ModelId, NamedTensor, Route, Tensor};
use tokio::time::{Instant, sleep};

use super::fleet::{Fleet, query, worker};
use crate::double::{id, part, variant};

/// All inputs stay with the front end.
fn kept() -> FrontOptions {
    FrontOptions {
        inline_bytes: 0,
        ..FrontOptions::default()
    }
}

/// A fleet whose inputs stay with the front end, and one whose inputs go with the query.
async fn both_ways() -> [Fleet; 2] {
    let inline = Fleet::start(&["w-1", "w-2"], 1, FrontOptions::default());
    [fleet().await, inline.await]
}

async fn fleet() -> Fleet {
    Fleet::start(&["w-1", "w-2"], 1, kept()).await
}

#[tokio::test(start_paused = true)]
async fn a_query_is_answered_as_in_one_process() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    let arrived = Instant::now();
    let answer = fleet.ask(3.0, Some(500.0)).await.expect("an answer");
    assert_eq!(answer.variant, id("m-a"));
    assert_eq!(
        answer.outputs,
        [NamedTensor::new("y", part(3.0)[0].tensor.clone())]
    );
    assert!(answer.targets_met && answer.explanation.is_some());
    assert!(answer.timings.batch_rows >= 1);
    assert_eq!(answer.timings.compute_us, 2.0 + 3.0 + 4.0);
    // By hand: a row of the batch's 9 us, of which a second costs half a dollar.
    let of_batch = 9e-6 * 0.5 / f64::from(answer.timings.batch_rows);
    assert!((answer.cost_usd - of_batch).abs() < 1e-15);
    let took_us = arrived.elapsed().as_secs_f64() * 1e6;
    assert!((answer.timings.total_us - took_us).abs() < 2_000.0);
    assert!(answer.timings.queue_us < answer.timings.total_us);
    assert_eq!(fleet.front.waiting(), 0);
    let asked = placer.asked.lock().expect("sound");
    // Converted from one clock to the other.
    let off = asked[0]
        .arrived
        .saturating_duration_since(arrived.into_std());
    assert!(off < Duration::from_millis(15), "{off:?} off");
    assert_eq!(asked[0].rows, 1);
}

#[tokio::test(start_paused = true)]
async fn late_answers_are_answers_that_miss_the_target() {
    for fleet in both_ways().await {
        fleet.lead("d-1", 1).await;
        fleet.led().await;
        let answer = fleet.ask(3.0, Some(0.001)).await.expect("an answer");
        assert!(!answer.targets_met);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_refused_without_asking() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    let code = |error: Result<_, QueryError>| error.map(drop).expect_err("refused").code;
    let mut wrong = part(1.0);
    wrong[0].tensor = Tensor::from_elements(vec![1, 3], &[1.0f32; 3]).expect("three");
    let wrong = fleet.front.query(query(wrong, None)).await;
    assert_eq!(code(wrong), Code::InvalidTensor);
    assert_eq!(code(fleet.ask(1.0, Some(-1.0)).await), Code::InvalidTarget);
    let mut nowhere = query(part(1.0), None);
    nowhere.route = Route::Model(ModelId::new("other").expect("a name"));
    assert_eq!(code(fleet.front.query(nowhere).await), Code::ModelNotFound);
    assert!(placer.asked.lock().expect("sound").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_can_be_known_without_the_dispatcher_is_known() {
    let fleet = fleet().await;
    let route = query(part(1.0), None).route;
    let signature = fleet.front.signature(&route).expect("known");
    assert_eq!(signature.outputs[0].name, "y");
    assert!(fleet.front.is_ready(&route));
    assert!(!fleet.front.is_ready(&Route::Variant(id("m-b"))));
    fleet.lead("d-1", 1).await;
    fleet.led().await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(fleet.front.utilization(), 0.25);
}

#[tokio::test(start_paused = true)]
async fn the_dispatchers_refusals_arrive_whole() {
    for fleet in both_ways().await {
        let placer = fleet.lead("d-1", 1).await;
        fleet.led().await;
        let mut error = QueryError::new(Code::Overloaded, "too busy");
        error.retry_after_ms = Some(17);
        *placer.refuse.lock().expect("sound") = Some(error.clone());
        assert_eq!(fleet.ask(1.0, None).await.expect_err("refused"), error);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_query_waits_until_its_deadline() {
    let fleet = fleet().await;
    let begun = Instant::now();
    let refused = fleet.ask(1.0, Some(300.0)).await.expect_err("refused");
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.retry_after_ms.is_some());
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(400));
    let refused = fleet.ask(1.0, None).await.expect_err("refused");
    assert_eq!(refused.code, Code::Unavailable);
    // A dispatcher that comes in time takes the waiting query.
    let (answer, _placer) = tokio::join!(fleet.ask(2.0, Some(5_000.0)), async {
        sleep(Duration::from_millis(1_000)).await;
        fleet.lead("d-1", 1).await
    });
    assert!(answer.is_ok());
}

#[tokio::test(start_paused = true)]
async fn few_queries_wait_for_a_leader() {
    let options = FrontOptions {
        max_waiting: 2,
        ..FrontOptions::default()
    };
    let fleet = Fleet::start(&["w-1"], 1, options).await;
    let (first, second, third) = tokio::join!(
        fleet.ask(1.0, Some(100.0)),
        fleet.ask(2.0, Some(100.0)),
        async {
            let begun = Instant::now();
            let refused = fleet.ask(3.0, Some(100.0)).await;
            assert_eq!(begun.elapsed(), Duration::ZERO);
            refused
        }
    );
    for refused in [first, second, third] {
        assert_eq!(refused.expect_err("refused").code, Code::Unavailable);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_is_asked_what_the_old_one_had_not_placed() {
    let fleet = fleet().await;
    let old = fleet.lead("d-1", 1).await;
    fleet.led().await;
    old.stuck.store(true, Ordering::Relaxed);
    let (answer, new) = tokio::join!(fleet.ask(2.0, Some(5_000.0)), async {
        sleep(Duration::from_millis(200)).await;
        assert_eq!(old.asked.lock().expect("sound").len(), 1);
        fleet.net.cut("d-1");
        fleet.lead("d-2", 2).await
    });
    assert!(answer.is_ok());
    let (old, new) = (
        old.asked.lock().expect("sound"),
        new.asked.lock().expect("sound"),
    );
    assert!(new[0].ticket.attempt > old[0].ticket.attempt);
    assert_eq!(new[0].ticket.query, old[0].ticket.query);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_lead_is_not_believed() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    placer.leads.store(false, Ordering::Relaxed);
    let (answer, ()) = tokio::join!(fleet.ask(2.0, Some(5_000.0)), async {
        sleep(Duration::from_millis(500)).await;
        assert!(fleet.front.leader().is_none());
        assert!(placer.asked.lock().expect("sound").is_empty());
        placer.leads.store(true, Ordering::Relaxed);
    });
    assert!(answer.is_ok());
    assert_eq!(placer.asked.lock().expect("sound").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_gave_back_is_asked_again_when_the_dispatcher_is_lost_too() {
    let fleet = Fleet::start(&["w-1"], 6, kept()).await;
    fleet.lead("d-1", 6).await;
    fleet.led().await;
    let double = Arc::clone(&fleet.doubles[&worker("w-1")]);
    *double.refuse_infer.lock().expect("sound") = Some(InferError::ShuttingDown);
    let begun = Instant::now();
    let (answer, _new) = tokio::join!(fleet.ask(2.0, None), async {
        while double.windows.lock().expect("sound").is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        // The front end knows of the loss, and the dispatcher has not placed the query again.
        sleep(Duration::from_millis(12)).await;
        assert_eq!(double.windows.lock().expect("sound").len(), 1);
        fleet.net.set_reachable("d-1", false);
        *double.refuse_infer.lock().expect("sound") = None;
        fleet.lead("d-2", 7).await
    });
    assert!(answer.is_ok());
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_that_says_that_it_does_not_lead_is_none() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    placer.leads.store(false, Ordering::Relaxed);
    sleep(Duration::from_millis(500)).await;
    assert!(fleet.front.leader().is_none());
    placer.leads.store(true, Ordering::Relaxed);
    fleet.led().await;
}

#[tokio::test(start_paused = true)]
async fn a_metadata_store_that_takes_its_time_is_followed() {
    let store = Arc::new(UnsteadyStore::new(64));
    store.set_slow(Duration::from_millis(200));
    let front = FrontEnd::new(FrontOptions::default(), Clock::system());
    let connector = Arc::<super::fleet::Net>::default();
    let running = Arc::clone(&front).run(connector, store.clone(), std::future::pending());
    let following = async {
        let route = query(part(1.0), None).route;
        assert!(front.signature(&route).is_err());
        store.publish_variant(variant("m-a")).await.expect("stored");
        while front.signature(&route).is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let known = tokio::time::timeout(Duration::from_secs(5), following);
    tokio::select! {
        () = running => unreachable!("it never ends"),
        known = known => known.expect("the variant is seen"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_gives_the_query_up() {
    let fleet = fleet().await;
    let placer = fleet.lead("d-1", 1).await;
    fleet.led().await;
    placer.stuck.store(true, Ordering::Relaxed);
    let asking = tokio::time::timeout(Duration::from_millis(50), fleet.ask(1.0, None));
    assert!(asking.await.is_err());
    assert_eq!(fleet.front.waiting(), 0);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(placer.given_up.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_zombies_late_answer_is_ignored() {
    let fleet = Fleet::start(&["w-1"], 3, kept()).await;
    let placer = fleet.lead("d-1", 3).await;
    fleet.led().await;
    let double = Arc::clone(&fleet.doubles[&worker("w-1")]);
    *double.keep.lock().expect("sound") = true;
    let (answer, ()) = tokio::join!(fleet.ask(2.0, None), async {
        while double.kept.lock().expect("sound").is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        // The dispatcher takes the worker for lost and changes to another link.
        fleet.net.connect_workers(&placer).await;
        while double.kept.lock().expect("sound").len() < 2 {
            sleep(Duration::from_millis(1)).await;
        }
        let kept = std::mem::take(&mut *double.kept.lock().expect("sound"));
        for (batch, value) in kept.into_iter().zip([9.0, 2.0]) {
            let outputs = vec![part(value)[0].tensor.clone()];
            (batch.done)(Ok(super::mailbox::result(vec![Ok(outputs)])));
            sleep(Duration::from_millis(50)).await;
        }
    });
    let answer = answer.expect("an answer");
    assert_eq!(answer.outputs[0].tensor, part(2.0)[0].tensor);
}

#[tokio::test(start_paused = true)]
async fn outputs_that_were_lost_are_computed_again() {
    let fleet = Fleet::start(&["w-1"], 4, kept()).await;
    let placer = fleet.lead("d-1", 4).await;
    fleet.led().await;
    let double = Arc::clone(&fleet.doubles[&worker("w-1")]);
    *double.keep.lock().expect("sound") = true;
    let (answer, ()) = tokio::join!(fleet.ask(2.0, None), async {
        while double.kept.lock().expect("sound").is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        fleet.net.cut("w-1");
        *double.keep.lock().expect("sound") = false;
        let kept = double.kept.lock().expect("sound").pop().expect("kept");
        (kept.done)(Ok(super::mailbox::result(vec![Ok(vec![
            part(2.0)[0].tensor.clone(),
        ])])));
    });
    assert!(answer.is_ok());
    assert_eq!(placer.asked.lock().expect("sound").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_out_of_reach_ends_in_a_refusal() {
    let fleet = Fleet::start(&["w-1"], 5, kept()).await;
    fleet.net.set_reachable("w-1", false);
    fleet.lead("d-1", 5).await;
    fleet.led().await;
    let refused = fleet.ask(2.0, Some(2_000.0)).await.expect_err("refused");
    assert_eq!(refused.code, Code::Unavailable);
    fleet.net.set_reachable("w-1", true);
    sleep(Duration::from_secs(3)).await;
    assert!(fleet.ask(2.0, Some(2_000.0)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_loaded_is_ready_until_no_worker_can_load_it() {
    let fleet = fleet().await;
    let cold = variant("m-b");
    let route = Route::Variant(cold.id.clone());
    let published = fleet.store.publish_variant(Arc::clone(&cold)).await;
    published.expect("stored");
    while fleet.front.signature(&route).is_err() {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(fleet.front.is_ready(&route));
    for worker in fleet.doubles.keys() {
        let reason = "broken on purpose".to_owned();
        for command in [Command::Load, Command::LoadFailed { reason }] {
            let transition = Transition {
                key: InstanceKey::new(cold.id.clone(), worker.clone()),
                application: cold.application.clone(),
                expected_version: None,
                command,
            };
            let taken = fleet.store.transition(&transition, 0).await;
            taken.expect("stored");
        }
    }
    while fleet.front.is_ready(&route) {
        sleep(Duration::from_millis(1)).await;
    }
    // Other variants of its application are served.
    let all = query(part(1.0), None).route;
    assert!(fleet.front.is_ready(&all));
}
