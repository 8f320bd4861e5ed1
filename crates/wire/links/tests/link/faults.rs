//! Links that break and peers that misbehave: every call still has one answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sextant_links::link::{Batch, Broken, Report, Request, Stamp, ToWorker, Window, serve_worker};
use sextant_rpc::{Infer, InferError, Load, Part, Work, WorkError};
use tokio::sync::mpsc;

use crate::{
    calls::infer,
    double::{Double, id, part, variant},
    transport::{World, cable, clock, connect},
};

/// Sends `count` batches that the worker keeps, and waits until it has them.
async fn waiting(
    world: &World,
    count: usize,
) -> (mpsc::UnboundedReceiver<InferError>, Arc<AtomicUsize>) {
    *world.double.keep.lock().expect("sound") = true;
    let (sender, answers) = mpsc::unbounded_channel();
    let answered = Arc::<AtomicUsize>::default();
    for _ in 0..count {
        let (sender, answered) = (sender.clone(), Arc::clone(&answered));
        world.worker.infer(Infer {
            variant: id("m-a"),
            parts: vec![Part::Inputs(part(1.0))],
            earliest: tokio::time::Instant::now().into_std(),
            latest: None,
            expected: Duration::ZERO,
            offline_rows: 0,
            done: Box::new(move |outcome| {
                answered.fetch_add(1, Ordering::Relaxed);
                drop(sender.send(outcome.expect_err("nothing ran")));
            }),
        });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.double.kept.lock().expect("sound").len(), count);
    (answers, answered)
}

fn is_lost(error: &InferError) -> bool {
    matches!(error, InferError::Disconnected { reason, .. } if reason.contains("`there`"))
}

#[tokio::test(start_paused = true)]
async fn a_cut_link_answers_everything_once() {
    let mut world = connect(0, 1).await;
    let (mut answers, answered) = waiting(&world, 5).await;
    let load = world.worker.load(Load::at_once(variant("m-a")));
    world.cable.cut();
    assert!(matches!(load.await, Err(WorkError::Failed { .. })));
    for _ in 0..5 {
        assert!(is_lost(&answers.recv().await.expect("an answer")));
    }
    let ended = (&mut world.connection).await.expect("no panic");
    assert_eq!(ended, Err(Broken));
    // Later batches were never sent.
    let refused = infer(&world, vec![part(1.0)]).await.expect_err("refused");
    assert_eq!(refused, InferError::ShuttingDown);
    assert!(
        world
            .worker
            .load(Load::at_once(variant("m-a")))
            .await
            .is_err()
    );
    assert!(world.worker.unload(&id("m-a")).await.is_err());
    assert!(world.worker.stats().await.is_err());
    // The worker's own answers reach nobody any more.
    for kept in world.double.kept.lock().expect("sound").drain(..) {
        (kept.done)(Err(InferError::TooLate));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(answered.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn a_silent_worker_is_lost() {
    let world = connect(0, 2).await;
    let (mut answers, _) = waiting(&world, 1).await;
    world.cable.stall();
    assert!(is_lost(&answers.recv().await.expect("an answer")));
    let ended = world.connection.await.expect("no panic");
    assert_eq!(ended, Err(Broken));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_answers_everything() {
    let world = connect(0, 3).await;
    let (mut answers, _) = waiting(&world, 3).await;
    world.connection.abort();
    for _ in 0..3 {
        assert!(is_lost(&answers.recv().await.expect("an answer")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_harms_no_other() {
    let world = connect(0, 4).await;
    world.worker.infer(Infer {
        variant: id("m-a"),
        parts: vec![Part::Inputs(part(1.0))],
        earliest: tokio::time::Instant::now().into_std(),
        latest: None,
        expected: Duration::ZERO,
        offline_rows: 0,
        done: Box::new(|_| panic!("the handler is broken")),
    });
    assert!(infer(&world, vec![part(2.0)]).await.is_ok());
}

fn batch() -> Request {
    Request::Infer {
        id: 9,
        batch: Ok(Batch {
            variant: id("m-a"),
            parts: Vec::new(),
            offline_rows: 0,
            window: Window {
                earliest_ns: 0,
                latest_ns: Some(u64::MAX),
                expected_ns: 1,
            },
        }),
    }
}

/// The serving half's answer to one request; with `compared`, the clocks are compared first.
async fn answer(request: Request, compared: bool) -> Report {
    let (client, server, _cable) = cable(5);
    let double = Arc::<Double>::default();
    let there = clock(5);
    tokio::spawn(serve_worker(double, server, there, std::future::pending()));
    let stamp = Stamp {
        sent_at_ns: 5,
        least_delta_ns: compared.then_some(0),
    };
    client.send(ToWorker { stamp, request }).expect("sent");
    client.receive().await.expect("an answer").report
}

#[tokio::test(start_paused = true)]
async fn what_the_transport_could_not_carry_is_refused() {
    let error = InferError::BadShape("too large".to_owned());
    let batch = Err(error.clone());
    match answer(Request::Infer { id: 9, batch }, true).await {
        Report::Inferred { id: 9, outcome } => assert_eq!(outcome, Err(error)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_before_the_clocks_are_compared() {
    match answer(batch(), false).await {
        Report::Inferred {
            outcome: Err(error),
            ..
        } => assert!(error.to_string().contains("clocks"), "{error:?}"),
        other => panic!("{other:?}"),
    }
    let refused = |report| {
        matches!(
            report,
            Report::Inferred {
                outcome: Err(_),
                ..
            }
        )
    };
    assert!(!refused(answer(batch(), true).await));
}
