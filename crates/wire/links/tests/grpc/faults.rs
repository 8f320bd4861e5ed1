//! Connections that break and peers that do not listen: every call still has one answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sextant_links::{
    front::Connector,
    grpc::{Caller, Limits},
    link::{Broken, Clock, Options, RemoteWorker},
    mailbox::{FromMailbox, ToMailbox},
};
use sextant_rpc::{Infer, InferError, Ticket, Work};
use sextant_types::{DataType, NamedTensor, Tensor};
use tokio::sync::mpsc;

use crate::{
    cable::Cable,
    double::{batch, part, there},
    process::{Process, RemoteProcess, config, connector, dispatcher, hello, reach},
};

/// Batches that the worker keeps, and the receivers of their answers.
struct WaitingBatches {
    answers: mpsc::UnboundedReceiver<InferError>,
    answered: Arc<AtomicUsize>,
    kept: Vec<Infer>,
}

async fn waiting(process: &mut Process, reached: &RemoteProcess, count: usize) -> WaitingBatches {
    process.double.keep.store(true, Ordering::Relaxed);
    let (sender, answers) = mpsc::unbounded_channel();
    let answered = Arc::<AtomicUsize>::default();
    for _ in 0..count {
        let (sender, answered) = (sender.clone(), Arc::clone(&answered));
        reached.worker.infer(batch(vec![part(1.0)], move |outcome| {
            answered.fetch_add(1, Ordering::Relaxed);
            sender
                .send(outcome.expect_err("nothing ran"))
                .expect("somebody counts");
        }));
    }
    let mut kept = Vec::new();
    for _ in 0..count {
        kept.push(process.kept.recv().await.expect("a batch"));
    }
    WaitingBatches {
        answers,
        answered,
        kept,
    }
}

impl WaitingBatches {
    /// Every batch is answered as lost, and the worker's own answers reach nobody.
    async fn all_lost(mut self) {
        let count = self.kept.len();
        for _ in 0..count {
            let error = self.answers.recv().await.expect("an answer");
            assert!(
                matches!(error, InferError::Disconnected { .. }),
                "{error:?}"
            );
        }
        for infer in self.kept.drain(..) {
            (infer.done)(Err(InferError::TooLate));
        }
        assert_eq!(self.answered.load(Ordering::Relaxed), count);
    }
}

#[tokio::test]
async fn a_cut_connection_answers_everything_once() {
    let mut process = Process::start(config()).await;
    let cable = Cable::to(&process.endpoint).await;
    let reached = reach(&dispatcher(), &cable.endpoint).await;
    let waiting = waiting(&mut process, &reached, 5).await;
    cable.cut();
    waiting.all_lost().await;
    assert_eq!(reached.connection.await.expect("no panic"), Err(Broken));
    process.stop().await;
}

#[tokio::test]
async fn the_end_of_a_process_answers_everything_once() {
    let mut process = Process::start(config()).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    let waiting = waiting(&mut process, &reached, 5).await;
    process.stop().await;
    waiting.all_lost().await;
    assert_eq!(reached.connection.await.expect("no panic"), Err(Broken));
}

#[tokio::test]
async fn a_silent_worker_is_lost() {
    let mut process = Process::start(config()).await;
    let cable = Cable::to(&process.endpoint).await;
    let link = dispatcher();
    let link = link.connect_worker(there(), &cable.endpoint);
    let options = Options {
        silence: Duration::from_millis(300),
        ..Options::default()
    };
    let link = link.await.expect("it is let in");
    let connected = RemoteWorker::connect(link, Clock::system(), options).await;
    let (worker, connection) = connected.expect("the link holds");
    let reached = RemoteProcess {
        worker,
        connection: tokio::spawn(connection.run(std::future::pending())),
    };
    let waiting = waiting(&mut process, &reached, 3).await;
    cable.hold();
    waiting.all_lost().await;
    assert_eq!(reached.connection.await.expect("no panic"), Err(Broken));
    process.stop().await;
}

fn inputs(query: u64, bytes: usize) -> ToMailbox {
    ToMailbox::Inputs {
        ticket: Ticket {
            holder: 1,
            query,
            attempt: 0,
        },
        rows: 1,
        inputs: vec![NamedTensor::new(
            "x",
            Tensor::from_bytes(DataType::Uint8, vec![bytes], vec![0; bytes].into())
                .expect("as many as it says"),
        )],
    }
}

#[tokio::test]
async fn a_peer_that_does_not_listen_breaks_the_link() {
    const MOST_BYTES: usize = 4 << 20;
    let process = Process::start(config()).await;
    let cable = Cable::to(&process.endpoint).await;
    let limits = Limits {
        queued_bytes: MOST_BYTES,
        ..Limits::default()
    };
    let front = connector(limits, hello(Caller::FrontEnd, None));
    let link = front.connect_mailbox(there(), &cable.endpoint).await;
    let link = link.expect("it is let in");
    cable.hold();
    let mut sent = 0usize;
    while link.send(inputs(sent as u64, 1 << 16)).is_ok() {
        sent += 1;
        // Only the queue, the protocol's windows and the system's buffers hold messages.
        assert!(sent << 16 < 256 << 20, "nothing bounds what waits");
        tokio::task::yield_now().await;
    }
    assert!(sent << 16 >= MOST_BYTES - (1 << 17));
    assert_eq!(link.receive().await, Err(Broken));
    assert_eq!(link.send(ToMailbox::Beat), Err(Broken));
    drop(link);

    cable.mend();
    let link = front.connect_mailbox(there(), &process.endpoint).await;
    let link = link.expect("it is let in again");
    link.send(ToMailbox::Beat).expect("the link holds");
    assert_eq!(link.receive().await, Ok(FromMailbox::Beat));
    process.stop().await;
}

#[tokio::test]
async fn receiving_may_be_given_up_without_losing_a_message() {
    const BEATS: usize = 2_000;
    let process = Process::start(config()).await;
    let front = connector(Limits::default(), hello(Caller::FrontEnd, None));
    let link = front.connect_mailbox(there(), &process.endpoint);
    let link = link.await.expect("it is let in");
    for _ in 0..BEATS {
        link.send(ToMailbox::Beat).expect("the link holds");
    }
    let (mut received, mut given_up) = (0, 0);
    while received < BEATS {
        tokio::select! {
            biased;
            message = link.receive() => {
                assert_eq!(message, Ok(FromMailbox::Beat));
                received += 1;
            }
            () = tokio::task::yield_now() => given_up += 1,
        }
    }
    assert!(given_up > 0, "something was waited for");
    process.stop().await;
}
