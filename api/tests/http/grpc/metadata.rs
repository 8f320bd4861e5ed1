//! Metadata that takes too much is refused with a code, and its connection goes on.

use axum::body::Body;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sextant_api::Limits;

use super::{INFER, OK, RESOURCE_EXHAUSTED, frame, query, read, request};
use crate::served::TestServer;

#[tokio::test]
async fn large_metadata_is_refused_with_a_code() {
    let served = TestServer::answering(Limits::default()).await;
    let stream = TokioIo::new(served.connect().await);
    let begun = http2::handshake(TokioExecutor::new(), stream).await;
    let (mut sender, connection) = begun.expect("a connection");
    let connection = tokio::spawn(connection);
    let path = format!("http://localhost{INFER}");
    let kilobyte = "m".repeat(1000);
    for (values, status) in [
        (10, OK),
        (17, RESOURCE_EXHAUSTED),
        (50, RESOURCE_EXHAUSTED),
        (1, OK),
    ] {
        let metadata = vec![("note", &*kilobyte); values];
        let call = request(&path, &metadata, frame(&query()));
        let response = sender.send_request(call).await.expect("an answer");
        let ended = read(response.map(Body::new)).await;
        match status {
            OK => assert_eq!(ended.status, OK, "{ended:?}"),
            status => {
                ended.is(status, "too_large");
                assert!(ended.message.contains("metadata"), "{ended:?}");
            }
        }
    }
    drop(sender);
    connection.await.expect("no panic").expect("a clean end");
    served.stop().await;
}
