//! Many messages, and large ones.

use std::sync::{Arc, Mutex};

use sextant_links::{
    front::Connector,
    grpc::{Caller, GrpcConfig, Limits},
    mailbox::{FromMailbox, ToMailbox},
};
use sextant_rpc::{Part, Ticket, Work};
use sextant_types::{DataType, NamedTensor, Tensor};
use tokio::sync::mpsc;

use crate::{
    double::{batch, infer, there},
    process::{FIRST, Process, config, connector, dispatcher, hello, reach},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_stay_in_order() {
    const CALLS: usize = 50_000;
    const IN_FLIGHT: usize = 1_000;
    let process = Process::start(config()).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    let order = Arc::new(Mutex::new(Vec::with_capacity(CALLS)));
    let (answered, mut answers) = mpsc::unbounded_channel();
    for number in 0..CALLS {
        if number >= IN_FLIGHT {
            answers.recv().await.expect("an answer");
        }
        let (order, answered) = (Arc::clone(&order), answered.clone());
        reached.worker.infer(batch(Vec::new(), move |outcome| {
            assert!(outcome.is_ok());
            order.lock().expect("sound").push(number);
            answered.send(()).expect("somebody counts");
        }));
    }
    for _ in 0..IN_FLIGHT {
        answers.recv().await.expect("an answer");
    }
    let order = std::mem::take(&mut *order.lock().expect("sound"));
    assert!(order.into_iter().eq(0..CALLS), "not answered in order");
    process.stop().await;
}

#[tokio::test]
async fn a_million_signs_of_life_pass() {
    const BEATS: usize = 1_000_000;
    let process = Process::start(config()).await;
    let front = connector(Limits::default(), hello(Caller::FrontEnd, None));
    let link = front.connect_mailbox(there(), &process.endpoint);
    let link = link.await.expect("it is let in");
    let (mut sent, mut received) = (0, 0);
    while received < BEATS {
        while sent < BEATS && sent - received < 10_000 {
            link.send(ToMailbox::Beat).expect("the link holds");
            sent += 1;
        }
        assert_eq!(
            link.receive().await.expect("the link holds"),
            FromMailbox::Beat
        );
        received += 1;
    }
    process.stop().await;
}

fn large(bytes: usize) -> Tensor {
    let elements: Vec<u8> = (0..bytes).map(|it| (it % 251) as u8).collect();
    Tensor::from_bytes(DataType::Uint8, vec![bytes], elements.into()).expect("it fits")
}

fn part(tensor: &Tensor) -> Part {
    Part::Inputs(vec![NamedTensor::new("x", tensor.clone())])
}

#[tokio::test]
async fn large_tensors_arrive_whole() {
    let process = Process::start(config()).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    let tensor = large(16 << 20);
    let result = infer(&*reached.worker, vec![part(&tensor)]).await;
    let outputs = &result.expect("a result").outputs;
    // Not compared by `assert_eq`, which would print 16 MiB.
    assert!(*outputs == [Ok(vec![tensor])], "changed on the way");
    process.stop().await;
}

#[tokio::test]
async fn what_is_too_large_is_answered_and_harms_nobody() {
    let limits = Limits {
        message_bytes: 1 << 20,
        ..Limits::default()
    };
    let process = Process::start(GrpcConfig { limits, ..config() }).await;
    let (large, small) = (large(2 << 20), large(8));

    // To the worker: the batch is refused with the reason.
    let strict = connector(limits, hello(Caller::Dispatcher, Some(FIRST)));
    let reached = reach(&strict, &process.endpoint).await;
    let result = infer(&*reached.worker, vec![part(&large)]).await;
    let refused = result.expect_err("it is too large").to_string();
    assert!(refused.contains("over the limit of 1048576"), "{refused}");
    let result = infer(&*reached.worker, vec![part(&small)]).await;
    assert_eq!(result.expect("a result").outputs, [Ok(vec![small])]);

    // From the worker: the outputs are missing, with the reason.
    let lenient = connector(Limits::default(), hello(Caller::Dispatcher, Some(FIRST)));
    let reached = reach(&lenient, &process.endpoint).await;
    let medium = self::large(3 << 19);
    let result = infer(&*reached.worker, vec![part(&medium)]).await;
    match &result.expect("a result").outputs[..] {
        [Err(reason)] => assert!(
            reason.to_string().contains("over the limit of 1048576"),
            "{reason}"
        ),
        _ => panic!("the outputs are too large"),
    }
    process.stop().await;
}

#[tokio::test]
async fn inputs_that_no_batch_asks_for_are_given_back() {
    let process = Process::start(config()).await;
    let front = connector(Limits::default(), hello(Caller::FrontEnd, None));
    let link = front.connect_mailbox(there(), &process.endpoint);
    let link = link.await.expect("it is let in");
    let ticket = Ticket {
        holder: 1,
        query: 2,
        attempt: 3,
    };
    let inputs = ToMailbox::Inputs {
        ticket,
        rows: 1,
        inputs: Vec::new(),
    };
    link.send(inputs).expect("the link holds");
    match link.receive().await.expect("the link holds") {
        FromMailbox::Outputs {
            ticket: of,
            outcome,
        } => {
            assert_eq!(of, ticket);
            assert!(outcome.is_err());
        }
        FromMailbox::Beat => panic!("nobody asked"),
    }
    process.stop().await;
}
