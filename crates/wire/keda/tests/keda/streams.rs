//! Streams of changes.

use std::sync::Arc;

use super::support::{Ground, in_time, next};

#[tokio::test]
async fn stream_says_first_what_holds() {
    let ground = Ground::with(&[("cpu-16", 0), ("cpu-8", 3)]).await;
    assert_eq!(next(&mut ground.stream("cpu-8").await).await, Some(true));
    assert_eq!(next(&mut ground.stream("cpu-16").await).await, Some(false));
}

#[tokio::test]
async fn changes_come_in_order() {
    let ground = Ground::with(&[("cpu-8", 0)]).await;
    let mut stream = ground.stream("cpu-8").await;
    assert_eq!(next(&mut stream).await, Some(false));
    for desired in [1, 0, 3, 5, 0, 0xffff, 0] {
        ground.want(&[("cpu-8", desired)]);
        assert_eq!(next(&mut stream).await, Some(desired > 0), "{desired}");
    }
}

/// A change of other pools is not sent; the next message is that of the change after it.
#[tokio::test]
async fn other_pools_are_not_told() {
    let ground = Ground::with(&[("cpu-16", 1), ("cpu-8", 0)]).await;
    let mut stream = ground.stream("cpu-8").await;
    assert_eq!(next(&mut stream).await, Some(false));
    for other in [0, 4, 2] {
        ground.want(&[("cpu-16", other), ("cpu-8", 0)]);
        // This is answered only after the stream could see the same change.
        let mut probe = ground.stream("cpu-16").await;
        assert_eq!(next(&mut probe).await, Some(other > 0));
    }
    ground.want(&[("cpu-8", 1)]);
    assert_eq!(next(&mut stream).await, Some(true));
}

#[tokio::test]
async fn slow_client_sees_the_last_state() {
    let ground = Ground::with(&[("cpu-8", 1)]).await;
    let mut stream = ground.stream("cpu-8").await;
    for desired in 2..1000 {
        ground.want(&[("cpu-8", desired)]);
    }
    ground.want(&[("cpu-8", 0)]);
    let mut messages = 1;
    while next(&mut stream).await == Some(true) {
        messages += 1;
    }
    assert!(messages <= 1000, "{messages}");
}

/// No process leads for a while: the stream waits instead of ending.
#[tokio::test]
async fn stream_outlasts_its_pool() {
    let ground = Ground::with(&[("cpu-8", 2)]).await;
    let mut stream = ground.stream("cpu-8").await;
    assert_eq!(next(&mut stream).await, Some(true));
    ground.want(&[]);
    ground.want(&[("cpu-16", 1)]);
    ground.want(&[("cpu-8", 0)]);
    assert_eq!(next(&mut stream).await, Some(false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_see_the_same() {
    let ground = Ground::with(&[("cpu-16", 0), ("cpu-8", 0)]).await;
    let mut streams = Vec::new();
    for at in 0..64 {
        let pool = ["cpu-8", "cpu-16"][at % 2];
        let mut stream = ground.stream(pool).await;
        assert_eq!(next(&mut stream).await, Some(false));
        streams.push((pool, stream));
    }
    ground.want(&[("cpu-16", 0), ("cpu-8", 5)]);
    ground.want(&[("cpu-16", 1), ("cpu-8", 5)]);
    for (pool, stream) in &mut streams {
        assert_eq!(next(stream).await, Some(true), "{pool}");
    }
}

/// The server drops the state of a client that goes away, even without notice.
#[tokio::test]
async fn client_that_goes_away_leaves_nothing() {
    let ground = Ground::with(&[("cpu-8", 0)]).await;
    let mut stays = ground.stream("cpu-8").await;
    assert_eq!(next(&mut stays).await, Some(false));
    let before = ground.desired.receiver_count();
    let mut leaves = ground.stream("cpu-8").await;
    assert_eq!(next(&mut leaves).await, Some(false));
    assert!(ground.desired.receiver_count() > before);
    drop(leaves);
    in_time(async {
        while ground.desired.receiver_count() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ground.want(&[("cpu-8", 1)]);
    assert_eq!(next(&mut stays).await, Some(true));
}

/// No more changes will come: KEDA must call again instead of waiting.
#[tokio::test]
async fn stream_ends_with_its_source() {
    let Ground {
        desired,
        endpoint,
        stop,
        served,
    } = Ground::with(&[("cpu-8", 2)]).await;
    let ground = Ground {
        desired: tokio::sync::watch::Sender::new(Arc::default()),
        endpoint,
        stop,
        served,
    };
    let mut stream = ground.stream("cpu-8").await;
    assert_eq!(next(&mut stream).await, Some(true));
    drop(desired);
    assert_eq!(next(&mut stream).await, None);
}
