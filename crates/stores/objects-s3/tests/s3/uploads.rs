use std::{io, task::Poll};

use futures::StreamExt;
use sextant_objects::{Error, ObjectStore, digest_of};
use sextant_test_servers::s3::Fault;

use super::support::{PART_BYTES, content, path, start, stream};

#[tokio::test]
async fn what_is_large_goes_in_parts_and_comes_back() {
    let (store, server) = start().await;
    for bytes in [PART_BYTES, 2 * PART_BYTES + 12_345] {
        let whole = content(bytes as u64, bytes);
        let put = store.put_blob_stream(stream(&whole)).await.unwrap();
        assert_eq!(put.digest, digest_of(&whole));
        assert_eq!(put.size_bytes, bytes as u64);
        assert_eq!(store.get_blob(&put.digest).await.unwrap(), whole);
        assert_eq!(store.put_blob(whole.clone()).await.unwrap(), put.digest);

        let name = path(&format!("in/{bytes}"));
        let size = store.put_stream(&name, stream(&whole)).await.unwrap();
        assert_eq!(size, bytes as u64);
        assert_eq!(store.get(&name).await.unwrap(), whole);
        let middle = 1_000..bytes as u64 - 1;
        let piece = store.get_range(&name, middle).await.unwrap();
        assert_eq!(piece, whole.slice(1_000..bytes - 1));
    }
    assert_eq!(server.open_uploads(), 0);
}

#[tokio::test]
async fn a_stream_is_asked_for_nothing_behind_its_end() {
    let (store, server) = start().await;
    let name = path("ends/once");
    let whole = content(5, PART_BYTES + 1);
    // This stream panics if it is polled after its end.
    let once = futures::stream::unfold(Some(stream(&whole)), |pieces| async move {
        let mut pieces = pieces?;
        let piece = pieces.next().await?;
        Some((piece, Some(pieces)))
    });
    let size = store.put_stream(&name, Box::pin(once)).await.unwrap();
    assert_eq!(size, whole.len() as u64);
    assert_eq!(store.get(&name).await.unwrap(), whole);
    assert_eq!(server.open_uploads(), 0);
}

#[tokio::test]
async fn a_stream_that_breaks_leaves_no_upload_behind() {
    let (store, server) = start().await;
    let name = path("broken");
    let whole = content(1, 2 * PART_BYTES);
    let end = futures::stream::iter([Err(io::Error::other("the client went away"))]);
    let put = store.put_stream(&name, Box::pin(stream(&whole).chain(end)));
    let put = put.await;
    assert!(matches!(put, Err(Error::Input { .. })), "{put:?}");
    assert_eq!(server.open_uploads(), 0);
    assert_eq!(store.stat(&name).await.unwrap(), None);
}

#[tokio::test]
async fn an_upload_given_up_is_aborted() {
    let (store, server) = start().await;
    let name = path("given/up");
    let whole = content(2, 2 * PART_BYTES);
    let (reached, waiting) = tokio::sync::oneshot::channel::<()>();
    let mut reached = Some(reached);
    let never = futures::stream::poll_fn(move |_| {
        drop(reached.take());
        Poll::Pending
    });
    {
        let put = store.put_stream(&name, Box::pin(stream(&whole).chain(never)));
        tokio::select! {
            put = put => panic!("the stream never ends, yet: {put:?}"),
            _ = waiting => {}
        }
    }
    assert!(server.open_uploads() > 0);
    while server.open_uploads() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.stat(&name).await.unwrap(), None);
}

#[tokio::test]
async fn a_completion_whose_answer_is_lost_was_one() {
    let (store, server) = start().await;
    let name = path("large");
    let whole = content(3, 2 * PART_BYTES + 1);
    let mut lost = false;
    server.faults().set(move |request| {
        let completes = request.method == "POST" && request.query.contains("uploadId=");
        (completes && !std::mem::replace(&mut lost, true)).then_some(Fault::LoseResponse)
    });
    let size = store.put_stream(&name, stream(&whole)).await.unwrap();
    assert_eq!(size, whole.len() as u64);
    assert_eq!(server.faults().injected(), 1);
    assert_eq!(store.get(&name).await.unwrap(), whole);
}

#[tokio::test]
async fn a_completion_that_never_succeeds_changes_nothing() {
    let (store, server) = start().await;
    let name = path("large");
    store.put(&name, "kept".into()).await.unwrap();
    server.faults().set(|request| {
        let completes = request.method == "POST" && request.query.contains("uploadId=");
        completes.then_some(Fault::SlowDown)
    });
    let whole = content(4, 2 * PART_BYTES);
    let put = store.put_stream(&name, stream(&whole)).await;
    assert!(matches!(put, Err(Error::Unavailable { .. })), "{put:?}");
    assert_eq!(store.get(&name).await.unwrap(), "kept");
    assert_eq!(server.open_uploads(), 0);
}
