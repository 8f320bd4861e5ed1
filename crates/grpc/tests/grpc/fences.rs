//! Who may give orders.

use sextant_grpc::{Caller, ConnectorConfig, Error, Fence, GrpcConnector, Hello, Limits};
use sextant_rpc::{InferError, Work, front::Connector, link::Broken};
use tokio::sync::watch;

use crate::{
    double::{infer, part, stats, there},
    process::{FLEET, Process, config, connector, hello, reach},
};

fn calling(caller: Caller, token: Option<u64>) -> GrpcConnector {
    connector(Limits::default(), hello(caller, token))
}

#[tokio::test]
async fn a_leader_that_has_been_succeeded_gives_no_orders() {
    let process = Process::start(config()).await;
    let first = reach(&calling(Caller::Dispatcher, Some(7)), &process.endpoint).await;
    assert!(infer(&*first.worker, vec![part(1.0)]).await.is_ok());

    let second = reach(&calling(Caller::Dispatcher, Some(8)), &process.endpoint).await;
    assert!(infer(&*second.worker, vec![part(1.0)]).await.is_ok());
    let refused = infer(&*first.worker, vec![part(1.0)]).await;
    assert!(
        matches!(
            refused,
            Err(InferError::Disconnected { .. } | InferError::ShuttingDown)
        ),
        "the worker obeys {refused:?}"
    );
    assert_eq!(first.connection.await.expect("no panic"), Err(Broken));
    // Nor is it let in again.
    let late = calling(Caller::Dispatcher, Some(7));
    let late = late.connect_worker(there(), &process.endpoint);
    match late.await {
        Err(Error::Refused { reason, .. }) => assert!(reason.contains("leads with 8"), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a stale leader was let in"),
    }
    assert!(infer(&*second.worker, vec![part(1.0)]).await.is_ok());
    process.stop().await;
}

#[tokio::test]
async fn who_stands_by_may_look_and_takes_over_on_the_same_link() {
    let process = Process::start(config()).await;
    let token = watch::Sender::new(None);
    let standby = connector(
        Limits::default(),
        Hello {
            fleet: FLEET.into(),
            caller: Caller::Dispatcher,
            fence: Fence::following(token.subscribe()),
        },
    );
    let reached = reach(&standby, &process.endpoint).await;
    assert_eq!(reached.worker.info(), process.double.info());
    assert_eq!(reached.worker.stats().await, Ok(stats()));
    token.send_replace(Some(4));
    assert!(infer(&*reached.worker, vec![part(1.0)]).await.is_ok());
    // Having stood down it is not obeyed any more.
    token.send_replace(None);
    assert!(infer(&*reached.worker, vec![part(1.0)]).await.is_err());
    assert_eq!(reached.connection.await.expect("no panic"), Err(Broken));
    process.stop().await;
}

#[tokio::test]
async fn a_front_end_gives_no_orders() {
    let process = Process::start(config()).await;
    let front = reach(&calling(Caller::FrontEnd, Some(9)), &process.endpoint).await;
    assert_eq!(front.worker.stats().await, Ok(stats()));
    assert!(infer(&*front.worker, vec![part(1.0)]).await.is_err());
    process.stop().await;
}

#[tokio::test]
async fn another_fleet_is_refused() {
    let process = Process::start(config()).await;
    let stranger = GrpcConnector::new(ConnectorConfig::new(Hello {
        fleet: "other".into(),
        ..hello(Caller::FrontEnd, None)
    }));
    let stranger = stranger.expect("no certificates are to be read");
    let refused = stranger.connect_mailbox(there(), &process.endpoint).await;
    let reason = refused.err().expect("another fleet").to_string();
    assert!(reason.contains("`other`"), "{reason}");
    // No dispatcher runs there.
    let front = calling(Caller::FrontEnd, None);
    let refused = front.connect_dispatcher(&process.endpoint).await;
    let reason = refused.err().expect("no dispatcher").to_string();
    assert!(reason.contains("no dispatcher"), "{reason}");
    process.stop().await;
}
