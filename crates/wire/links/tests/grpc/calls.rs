//! Every call returns the worker's own answer.

use sextant_links::{
    grpc::Error,
    mailbox::{Mailbox, MailboxOptions},
};
use sextant_rpc::{InferError, Part, Work};
use sextant_types::{NamedTensor, Tensor};
use tonic::transport::Endpoint;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    double::{Double, infer, part, stats, there, variant_id, worker_id},
    process::{Process, config, dispatcher, reach},
};

#[tokio::test]
async fn a_worker_elsewhere_is_as_a_worker_here() {
    let process = Process::start(config()).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    let worker = &reached.worker;
    assert_eq!(worker.info(), process.double.info());
    assert_eq!(worker.usage(), process.double.usage());
    assert_eq!(worker.stats().await, Ok(stats()));
    assert_eq!(worker.unload(&variant_id("m")).await, Ok(()));
    assert_eq!(
        *process.double.unloaded.lock().expect("sound"),
        [variant_id("m")]
    );

    let strings = Tensor::from_strings(vec![2], ["a", "\u{e9}"]);
    let strings = strings.expect("two strings");
    let named = vec![NamedTensor::new("s", strings.clone())];
    let parts = vec![part(1.0), Part::Inputs(Vec::new()), Part::Inputs(named)];
    let result = infer(&**worker, parts).await.expect("a result");
    let floats = Tensor::from_elements(vec![1, 2], &[1.0f32, -1.0]).expect("two elements");
    assert_eq!(
        result.outputs,
        [
            Ok(vec![floats]),
            Err(InferError::failed("no inputs")),
            Ok(vec![strings])
        ]
    );
    assert_eq!(result.timings.device_us, Some(2.5));

    let refusal = InferError::WeightsChanged(variant_id("other"));
    *process.double.refuse.lock().expect("sound") = Some(refusal.clone());
    let refused = infer(&**worker, vec![part(1.0)]).await;
    assert_eq!(refused.expect_err("refused"), refusal);
    process.stop().await;
}

#[tokio::test]
async fn a_worker_elsewhere_is_told_to_leave() {
    let process = Process::start(config()).await;
    let reached = reach(&dispatcher(), &process.endpoint).await;
    assert!(!reached.worker.is_draining());
    for _ in 0..2 {
        assert_eq!(reached.worker.leave().await, Ok(()));
        assert!(reached.worker.is_draining() && process.double.is_draining());
    }
    process.stop().await;
}

#[tokio::test]
async fn workers_of_one_process_share_its_port() {
    let process = Process::start(config()).await;
    let (other, _kept) = Double::new("beside");
    let mailbox = Mailbox::new(other, MailboxOptions::default());
    process.roles.add_worker(mailbox);
    let connector = dispatcher();
    let reached = reach(&connector, &process.endpoint).await;
    assert_eq!(reached.worker.info().worker, worker_id("there"));
    let beside = worker_id("beside");
    let link = connector.connect_worker(&beside, &process.endpoint).await;
    assert!(link.is_ok());

    process.roles.remove_worker(&beside);
    match connector.connect_worker(&beside, &process.endpoint).await {
        Err(Error::Refused { reason, .. }) => assert!(reason.contains("`beside`"), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the worker is gone"),
    }
    process.stop().await;
}

#[tokio::test]
async fn probes_are_answered() {
    let process = Process::start(config()).await;
    let endpoint = format!("http://{}", process.endpoint);
    let channel = Endpoint::from_shared(endpoint).expect("an address");
    let channel = channel.connect().await.expect("it is reached");
    let mut probe = HealthClient::new(channel);
    let answer = probe.check(HealthCheckRequest::default());
    let status = answer.await.expect("an answer").into_inner().status();
    assert_eq!(status, ServingStatus::Serving);
    process.stop().await;
}

#[tokio::test]
async fn what_is_no_address_or_nobodys_is_said_so() {
    let connector = dispatcher();
    for text in ["", "nowhere", "a b:1", "host:port"] {
        let refused = connector.connect_worker(there(), text).await;
        let refused = refused.err().expect("not an address");
        assert!(matches!(refused, Error::Endpoint(_)), "{text}: {refused}");
    }
    // Nothing listens on port 1 of the loopback interface.
    let refused = connector.connect_worker(there(), "127.0.0.1:1").await;
    let refused = refused.err().expect("nobody is there");
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    assert!(refused.to_string().contains("refused"), "{refused}");
}
