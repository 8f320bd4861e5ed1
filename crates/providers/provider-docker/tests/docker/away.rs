//! An engine that does not answer, or another program in its place. None of these tests needs an
//! engine.

use std::path::Path;

use sextant_provider::{Error, MachineId, Provider};
use sextant_provider_docker::{Containers, Settings};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
};

use super::support::{pool, settings};

/// Asserts that each call fails because the engine is away, and that the error names its socket.
async fn assert_away(settings: Settings, words: &str) {
    let (provider, pool) = (Containers::new(settings), pool("cpu", 1));
    let named = [MachineId("cpu-1".to_owned())];
    let lists = provider.list(&pool).await.map(drop);
    let grows = provider.grow(&pool, 1).await;
    for result in [lists, grows, provider.end(&pool, &named).await] {
        let error = result.expect_err("there is no engine");
        assert!(matches!(error, Error::Away { .. }), "{error:?}");
        assert_eq!(error.code(), "provider_away");
        let text = error.to_string();
        assert!(
            text.contains("docker.sock`: ") && text.contains(words),
            "{text}"
        );
    }
}

/// Settings for a socket in this folder, and its listener.
fn listened(folder: &Path) -> (Settings, UnixListener) {
    let socket = folder.join("docker.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    (settings(&socket, "test"), listener)
}

#[tokio::test]
async fn missing_socket_is_away() {
    let folder = TempDir::new().expect("a folder");
    let settings = settings(&folder.path().join("docker.sock"), "test");
    assert_away(settings, "there is no such socket").await;
}

#[tokio::test]
async fn socket_that_nobody_listens_on_is_away() {
    let folder = TempDir::new().expect("a folder");
    let (settings, listener) = listened(folder.path());
    drop(listener);
    assert_away(settings, "refused").await;
}

#[tokio::test]
async fn engine_that_hangs_up_is_away() {
    let folder = TempDir::new().expect("a folder");
    let (settings, listener) = listened(folder.path());
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    assert_away(settings, "").await;
}

#[tokio::test]
async fn engine_that_does_not_answer_is_away() {
    let folder = TempDir::new().expect("a folder");
    let (mut settings, listener) = listened(folder.path());
    settings.timeout_ms = 200;
    let silent = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    assert_away(settings, "no answer within 200 ms").await;
    silent.abort();
}

/// Once the engine is back, it is called again.
#[tokio::test]
async fn engine_that_comes_back_is_asked_again() {
    let folder = TempDir::new().expect("a folder");
    let (settings, listener) = listened(folder.path());
    std::fs::remove_file(folder.path().join("docker.sock")).expect("removed");
    drop(listener);
    let (provider, pool) = (Containers::new(settings), pool("cpu", 1));
    provider.list(&pool).await.expect_err("there is no engine");
    let (_, listener) = listened(folder.path());
    tokio::spawn(answer(
        listener,
        "200 OK",
        "{\"ApiVersion\":\"1.41\"}",
        "[]",
    ));
    assert_eq!(provider.list(&pool).await.expect("list"), []);
}

#[tokio::test]
async fn answers_that_no_engine_gives_are_refused() {
    for (status, body, words) in [
        ("200 OK", "no JSON", "containers: "),
        (
            "500 Internal Server Error",
            "{\"message\":\"the disk is full\"}",
            "status 500, the disk is full",
        ),
    ] {
        let folder = TempDir::new().expect("a folder");
        let (settings, listener) = listened(folder.path());
        tokio::spawn(answer(listener, status, body, body));
        let provider = Containers::new(settings);
        let error = provider.list(&pool("cpu", 1)).await.expect_err("no engine");
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Answers requests for the version with one body, and all others with another.
async fn answer(
    listener: UnixListener,
    status: &'static str,
    version: &'static str,
    other: &'static str,
) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = vec![0; 16_384];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]);
            let body = if request.contains("/version ") {
                version
            } else {
                other
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.ok();
            stream.write_all(body.as_bytes()).await.ok();
        });
    }
}
