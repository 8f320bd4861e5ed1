//! Which callers may give orders.

use sextant_links::{
    front::Connector,
    grpc::{Caller, ConnectorConfig, Error, Fence, GrpcConnector, Hello, Limits, Protocol},
    link::Broken,
};
use sextant_rpc::{InferError, Work};
use tokio::sync::watch;

use crate::{
    double::{infer, part, stats, there},
    process::{FIRST, FLEET, Process, config, connector, hello, reach},
};

fn calling(caller: Caller, token: Option<u64>) -> GrpcConnector {
    connector(Limits::default(), hello(caller, token))
}

/// A dispatcher that does not lead, and a sender for its token.
fn standing_by() -> (watch::Sender<Option<u64>>, GrpcConnector) {
    let token = watch::Sender::new(None);
    let hello = Hello {
        protocol: Protocol::OWN,
        fleet: FLEET.into(),
        caller: Caller::Dispatcher,
        fence: Fence::following(token.subscribe()),
    };
    (token, connector(Limits::default(), hello))
}

#[tokio::test]
async fn a_leader_that_has_been_succeeded_gives_no_orders() {
    let process = Process::start(config()).await;
    let first = reach(&calling(Caller::Dispatcher, Some(FIRST)), &process.endpoint).await;
    assert!(infer(&*first.worker, vec![part(1.0)]).await.is_ok());

    let token = process.elect("second").await;
    let second = reach(&calling(Caller::Dispatcher, Some(token)), &process.endpoint).await;
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
    // It is not accepted again either.
    let reason = refusal(&process, FIRST).await;
    assert!(reason.contains(&format!("leads with {token}")), "{reason}");
    assert!(infer(&*second.worker, vec![part(1.0)]).await.is_ok());
    process.stop().await;
}

/// The reason why a dispatcher with this token is refused.
async fn refusal(process: &Process, token: u64) -> String {
    let stranger = calling(Caller::Dispatcher, Some(token));
    let refused = stranger.connect_worker(there(), &process.endpoint).await;
    match refused.map(|_| ()) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("token {token}: {other:?}"),
    }
}

#[tokio::test]
async fn a_token_that_the_store_does_not_know_harms_nobody() {
    let process = Process::start(config()).await;
    let leader = reach(&calling(Caller::Dispatcher, Some(FIRST)), &process.endpoint).await;
    for token in [u64::MAX, FIRST + 1, u64::MAX - 1, u64::MAX] {
        let reason = refusal(&process, token).await;
        assert!(reason.contains("lead"), "{reason}");
        assert!(infer(&*leader.worker, vec![part(1.0)]).await.is_ok());
    }
    // A token that is named on an existing link is refused as well.
    let (token, standby) = standing_by();
    let standby = reach(&standby, &process.endpoint).await;
    token.send_replace(Some(u64::MAX));
    assert!(infer(&*standby.worker, vec![part(1.0)]).await.is_err());
    assert_eq!(standby.connection.await.expect("no panic"), Err(Broken));
    assert!(infer(&*leader.worker, vec![part(1.0)]).await.is_ok());
    let again = calling(Caller::Dispatcher, Some(FIRST));
    let again = reach(&again, &process.endpoint).await;
    assert!(infer(&*again.worker, vec![part(1.0)]).await.is_ok());
    process.stop().await;
}

#[tokio::test]
async fn who_stands_by_may_look_and_takes_over_on_the_same_link() {
    let process = Process::start(config()).await;
    let (token, standby) = standing_by();
    let reached = reach(&standby, &process.endpoint).await;
    assert_eq!(reached.worker.info(), process.double.info());
    assert_eq!(reached.worker.stats().await, Ok(stats()));
    token.send_replace(Some(process.elect("second").await));
    assert!(infer(&*reached.worker, vec![part(1.0)]).await.is_ok());
    // A dispatcher that has resigned is not obeyed any more.
    token.send_replace(None);
    assert!(infer(&*reached.worker, vec![part(1.0)]).await.is_err());
    assert_eq!(reached.connection.await.expect("no panic"), Err(Broken));
    process.stop().await;
}

#[tokio::test]
async fn a_front_end_gives_no_orders() {
    let process = Process::start(config()).await;
    let front = reach(&calling(Caller::FrontEnd, Some(FIRST)), &process.endpoint).await;
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
    // No dispatcher runs in that process.
    let front = calling(Caller::FrontEnd, None);
    let refused = front.connect_dispatcher(&process.endpoint).await;
    let reason = refused.err().expect("no dispatcher").to_string();
    assert!(reason.contains("no dispatcher"), "{reason}");
    process.stop().await;
}
