//! A real socket: connections, refusals while the client still sends, shutdown.

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;
use sextant_api::{Error, Limits, Metrics, Readiness, observe, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::double::{Api, Recorder};

struct Served {
    client: TcpStream,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
    api: Api,
}

async fn start(limits: Limits) -> Served {
    let api = Api::limited(Recorder::answering(), limits).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, api.state.clone(), shutdown.clone()));
    Served {
        client: TcpStream::connect(address).await.expect("a connection"),
        shutdown,
        serving,
        api,
    }
}

fn request(length: usize, body: &str) -> String {
    format!("POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
}

async fn send(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes()).await.expect("sent");
}

/// Reads until the text ends with `end`.
async fn read_to(client: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let mut piece = [0; 4096];
        let count = client.read(&mut piece).await.expect("an answer");
        assert!(
            count > 0,
            "closed after {}",
            String::from_utf8_lossy(&bytes)
        );
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(bytes).expect("UTF-8")
}

const QUERY: &str = r#"{"application":"digits","inputs":[]}"#;

#[tokio::test]
async fn a_connection_is_kept_and_a_shutdown_ends_it() {
    let mut served = start(Limits::default()).await;
    for _ in 0..2 {
        send(&mut served.client, &request(QUERY.len(), QUERY)).await;
        let answer = read_to(&mut served.client, "}}").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    served.shutdown.cancel();
    served
        .serving
        .await
        .expect("no panic")
        .expect("a clean end");
    let mut rest = Vec::new();
    served.client.read_to_end(&mut rest).await.expect("closed");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_end() {
    let mut served = start(Limits::default()).await;
    let (first, second) = QUERY.split_at(10);
    let head = request(QUERY.len(), "").replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    send(&mut served.client, &head).await;
    // The server asks for the body: the request is in flight.
    read_to(&mut served.client, "100 Continue\r\n\r\n").await;
    send(&mut served.client, first).await;
    served.shutdown.cancel();
    while served.api.get("/health/ready").await.status == 200 {
        tokio::task::yield_now().await;
    }
    send(&mut served.client, second).await;
    let answer = read_to(&mut served.client, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served
        .serving
        .await
        .expect("no panic")
        .expect("a clean end");
}

#[tokio::test]
async fn who_is_told_to_stop_is_not_ready_and_answers_on_until_the_delay_is_over() {
    let limits = Limits {
        shutdown_delay: Duration::from_secs(3600),
        ..Limits::default()
    };
    let mut served = start(limits).await;
    let address = served.client.peer_addr().expect("connected");
    send(&mut served.client, &request(QUERY.len(), QUERY)).await;
    let before = read_to(&mut served.client, "}}").await;
    assert!(!before.contains("connection: close"), "{before}");
    served.shutdown.cancel();
    while served.api.get("/health/ready").await.status == 200 {
        tokio::task::yield_now().await;
    }
    // On the connection that is there, and on a new one: each ends with its answer.
    let new = TcpStream::connect(address).await.expect("a connection");
    for mut client in [served.client, new] {
        send(&mut client, &request(QUERY.len(), QUERY)).await;
        let answer = read_to(&mut client, "}}").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("closed");
        assert!(rest.is_empty());
    }
    assert!(!served.serving.is_finished());
    served.serving.abort();
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let limits = Limits {
        drain_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let mut served = start(limits).await;
    let head = request(QUERY.len(), "").replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    send(&mut served.client, &head).await;
    read_to(&mut served.client, "100 Continue\r\n\r\n").await;
    served.shutdown.cancel();
    let ended = served.serving.await.expect("no panic");
    assert!(matches!(ended, Err(Error::Drain(_))), "{ended:?}");
    let mut rest = Vec::new();
    served.client.read_to_end(&mut rest).await.expect("cut off");
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_stream_ends_with_the_service() {
    let mut served = start(Limits::default()).await;
    let events = "GET /v1/scaling/events HTTP/1.1\r\nHost: x\r\n\r\n";
    send(&mut served.client, events).await;
    let head = read_to(&mut served.client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    served.shutdown.cancel();
    served
        .serving
        .await
        .expect("no panic")
        .expect("a clean end");
    let mut rest = Vec::new();
    served.client.read_to_end(&mut rest).await.expect("closed");
    assert_eq!(rest, b"0\r\n\r\n", "the end of the body");
}

#[tokio::test]
async fn a_client_that_sends_too_much_sees_the_refusal() {
    let limits = Limits {
        max_body_bytes: 1000,
        max_model_bytes: 1000,
        ..Limits::default()
    };
    let size = 8 << 20;
    let body = " ".repeat(size);
    let put = format!("PUT /v1/artefacts/a HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n");
    for head in [request(size, ""), put] {
        let mut served = start(limits.clone()).await;
        send(&mut served.client, &head).await;
        send(&mut served.client, &body).await;
        let answer = read_to(&mut served.client, "}").await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(answer.contains("\"code\":\"too_large\""), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up() {
    let limits = Limits {
        body_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let mut served = start(limits).await;
    send(&mut served.client, &request(100, "{")).await;
    let answer = read_to(&mut served.client, "}").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("did not arrive"), "{answer}");
}

#[tokio::test]
async fn a_process_without_a_front_end_shows_how_it_is_and_what_its_roles_count() {
    let mut metrics = Metrics::registry();
    let count = Counter::<u64>::default();
    metrics.register("role_things", "Things of a role", count.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shutdown = CancellationToken::new();
    let readiness: Readiness = Arc::new(|| Ok(()));
    let showing = tokio::spawn(observe(listener, readiness, metrics, shutdown.clone()));
    count.inc();
    let mut client = TcpStream::connect(address).await.expect("a connection");
    send(&mut client, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let shown = read_to(&mut client, "# EOF\n").await;
    for line in ["sextant_role_things_total 1", "sextant_ready 1"] {
        assert!(shown.lines().any(|it| it == line), "`{line}` in\n{shown}");
    }
    drop(client);
    shutdown.cancel();
    showing.await.expect("no panic").expect("a clean end");
}
