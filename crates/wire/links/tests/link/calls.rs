//! Every call returns the worker's own answer.

use std::{sync::atomic::Ordering, time::Duration};

use sextant_links::link::{
    Done, FromWorker, Options, RemoteWorker, Report, Request, Stamp, State, ToWorker,
};
use sextant_rpc::{Infer, InferError, InferOutcome, Load, LoadTimings, Part, Work, WorkError};
use sextant_types::{DataType, NamedTensor, Tensor};
use tokio::sync::oneshot;

use crate::{
    double::{Double, id, part, stats, variant},
    transport::{HERE_NS, Near, World, cable, clock, connect},
};

/// Sends a batch that may start at once.
pub async fn infer(world: &World, parts: Vec<Vec<NamedTensor>>) -> InferOutcome {
    let (done, outcome) = oneshot::channel();
    world.worker.infer(Infer {
        variant: id("m-a"),
        parts: parts.into_iter().map(Part::Inputs).collect(),
        earliest: tokio::time::Instant::now().into_std(),
        latest: None,
        expected: Duration::from_millis(1),
        offline_rows: 0,
        done: Box::new(move |outcome| drop(done.send(outcome))),
    });
    outcome.await.expect("exactly one answer")
}

#[tokio::test(start_paused = true)]
async fn what_the_worker_has_is_known_at_once() {
    let world = connect(0, 1).await;
    assert_eq!(world.worker.info(), world.double.info());
    assert_eq!(world.worker.usage(), world.double.usage());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_says_so() {
    let world = connect(0, 1).await;
    assert!(!world.worker.is_draining());
    world.double.draining.store(true, Ordering::Relaxed);
    let looked = Options::default().beat * Options::default().beats_per_look;
    tokio::time::sleep(2 * looked).await;
    assert!(world.worker.is_draining());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_told_to_leave_drains_from_the_answer_on() {
    let world = connect(0, 1).await;
    let refusal = WorkError::Rejected("not now".to_owned());
    *world.double.refuse_work.lock().expect("sound") = Some(refusal.clone());
    assert_eq!(world.worker.leave().await, Err(refusal));
    assert!(!world.worker.is_draining());
    *world.double.refuse_work.lock().expect("sound") = None;
    for _ in 0..2 {
        assert_eq!(world.worker.leave().await, Ok(()));
        assert!(world.worker.is_draining() && world.double.is_draining());
    }
}

/// A worker that can read only signs of life and looks.
async fn another_version(link: Near<FromWorker, ToWorker>) {
    let mut clock = 0;
    while let Ok(message) = link.receive().await {
        clock += 1;
        let report = match message.request {
            Request::Beat => Report::Beat,
            Request::Look => Report::State(State {
                info: Double::default().info(),
                draining: false,
                usage: Vec::new(),
            }),
            Request::Leave { id } => Report::Ended {
                id,
                outcome: Ok(Done::Unknown),
            },
            _ => return,
        };
        let stamp = Stamp {
            sent_at_ns: clock,
            least_delta_ns: None,
        };
        if link.send(FromWorker { stamp, report }).is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_another_version_cannot_read_is_refused_and_the_link_holds() {
    let (client, server, _cable) = cable(1);
    tokio::spawn(another_version(server));
    let connected = RemoteWorker::connect(client, clock(HERE_NS), Options::default()).await;
    let (worker, connection) = connected.expect("the link holds");
    let connection = tokio::spawn(connection.run(std::future::pending()));
    let Err(WorkError::Rejected(reason)) = worker.leave().await else {
        panic!("it cannot read the order");
    };
    assert!(reason.contains("another version"), "{reason}");
    tokio::time::sleep(Options::default().silence / 2).await;
    assert!(!connection.is_finished() && !worker.is_draining());
}

#[tokio::test(start_paused = true)]
async fn batches_come_back_part_by_part() {
    let world = connect(0, 1).await;
    let strings = Tensor::from_strings(vec![2], ["a", "\u{e9}"]);
    let strings = strings.expect("two strings");
    let parts = vec![
        part(1.0),
        Vec::new(),
        vec![NamedTensor::new("s", strings.clone())],
    ];
    let result = infer(&world, parts).await.expect("a result");
    assert_eq!(result.outputs[0], Ok(vec![part(1.0)[0].tensor.clone()]));
    assert_eq!(result.outputs[1], Err(InferError::failed("no inputs")));
    assert_eq!(result.outputs[2], Ok(vec![strings.clone()]));
    assert_eq!(strings.data_type(), DataType::Bytes);
    let timings = result.timings;
    assert_eq!(
        [
            timings.queue_us,
            timings.input_us,
            timings.exec_us,
            timings.output_us
        ],
        [1.0, 2.0, 3.0, 4.0]
    );
    assert_eq!(timings.device_us, Some(2.5));
}

#[tokio::test(start_paused = true)]
async fn refusals_of_batches_keep_their_meaning() {
    let world = connect(0, 1).await;
    for error in [
        InferError::TooEarly,
        InferError::TooLate,
        InferError::NotLoaded(id("m-b")),
        InferError::NoMemory("no room".to_owned()),
        InferError::WeightsChanged(id("m-b")),
        InferError::BadShape("too wide".to_owned()),
        InferError::InputsMissing,
        InferError::failed("broke"),
        InferError::Lost {
            variant: id("m-b"),
            reason: "hung".to_owned(),
        },
        InferError::ShuttingDown,
    ] {
        *world.double.refuse_infer.lock().expect("sound") = Some(error.clone());
        let refused = infer(&world, vec![part(1.0)]).await;
        assert_eq!(refused.expect_err("refused"), error);
    }
}

#[tokio::test(start_paused = true)]
async fn loads_unloads_and_statistics_are_answered() {
    let world = connect(0, 1).await;
    let timings = world.worker.load(Load::at_once(variant("m-a"))).await;
    let wanted = LoadTimings {
        queue_us: 1.0,
        fetch_us: 2.0,
        load_us: 3.0,
    };
    assert_eq!(timings, Ok(wanted));
    assert_eq!(world.worker.unload(&id("m-a")).await, Ok(()));
    assert_eq!(*world.double.unloaded.lock().expect("sound"), [id("m-a")]);
    assert_eq!(world.worker.stats().await, Ok(stats()));
}

#[tokio::test(start_paused = true)]
async fn refusals_of_loads_keep_their_meaning() {
    let world = connect(0, 1).await;
    let (variant_id, reason) = (id("m-b"), "a reason".to_owned());
    for error in [
        WorkError::TooEarly,
        WorkError::TooLate,
        WorkError::Unknown {
            variant: variant_id.clone(),
            reason: reason.clone(),
        },
        WorkError::NoMemory {
            variant: variant_id.clone(),
            needed: 7,
            free: 3,
            page_bytes: 16 << 20,
        },
        WorkError::Failed {
            variant: variant_id,
            reason: reason.clone(),
        },
        WorkError::Rejected(reason),
        WorkError::ShuttingDown,
    ] {
        *world.double.refuse_work.lock().expect("sound") = Some(error.clone());
        let refused = world.worker.load(Load::at_once(variant("m-a"))).await;
        assert_eq!(refused, Err(error.clone()));
        assert_eq!(world.worker.unload(&id("m-a")).await, Err(error));
    }
    assert_eq!(world.worker.stats().await, Err(WorkError::ShuttingDown));
}
