//! A real socket: connections, refusals while the client still sends, shutdown.

use std::{sync::Arc, time::Duration};

use prometheus_client::metrics::counter::Counter;
use sextant_api::{Error, Limits, Metrics, Readiness, observe};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::served::{
    ANSWER_END, CONTINUE, QUERY, TestServer, ask, expecting, read_to, request, rest, send,
};

/// A front end and a client of it.
async fn start(limits: Limits) -> (TestServer, TcpStream) {
    let served = TestServer::answering(limits).await;
    let client = served.connect().await;
    (served, client)
}

#[tokio::test]
async fn a_connection_is_kept_and_a_shutdown_ends_it() {
    let (served, mut client) = start(Limits::default()).await;
    for _ in 0..2 {
        let answer = ask(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    served.stop().await;
    assert!(rest(&mut client).await.is_empty());
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_end() {
    let (served, mut client) = start(Limits::default()).await;
    let (first, second) = QUERY.split_at(10);
    let head = expecting(&request(QUERY.len(), ""));
    send(&mut client, &head).await;
    // The server asks for the body: the request is in flight.
    read_to(&mut client, CONTINUE).await;
    send(&mut client, first).await;
    served.shutdown.cancel();
    served.until_unready().await;
    send(&mut client, second).await;
    let answer = read_to(&mut client, ANSWER_END).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served.stop().await;
}

#[tokio::test]
async fn who_is_told_to_stop_is_not_ready_and_answers_on_until_the_delay_is_over() {
    let limits = Limits {
        shutdown_delay: Duration::from_secs(3600),
        ..Limits::default()
    };
    let (served, mut client) = start(limits).await;
    let before = ask(&mut client).await;
    assert!(!before.contains("connection: close"), "{before}");
    served.shutdown.cancel();
    served.until_unready().await;
    // On the connection that is there, and on a new one: each ends with its answer.
    let new = served.connect().await;
    for mut client in [client, new] {
        let answer = ask(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(rest(&mut client).await.is_empty());
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
    let (served, mut client) = start(limits).await;
    let head = expecting(&request(QUERY.len(), ""));
    send(&mut client, &head).await;
    read_to(&mut client, CONTINUE).await;
    served.shutdown.cancel();
    let ended = served.serving.await.expect("no panic");
    assert!(matches!(ended, Err(Error::Drain(_))), "{ended:?}");
    assert!(rest(&mut client).await.is_empty());
}

#[tokio::test]
async fn a_stream_ends_with_the_service() {
    let (served, mut client) = start(Limits::default()).await;
    let events = "GET /v1/scaling/events HTTP/1.1\r\nHost: x\r\n\r\n";
    send(&mut client, events).await;
    let head = read_to(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    served.stop().await;
    assert_eq!(rest(&mut client).await, b"0\r\n\r\n", "the end of the body");
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
        let (_served, mut client) = start(limits.clone()).await;
        send(&mut client, &head).await;
        send(&mut client, &body).await;
        let answer = read_to(&mut client, "}").await;
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
    let (_served, mut client) = start(limits).await;
    send(&mut client, &request(100, "{")).await;
    let answer = read_to(&mut client, "}").await;
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
    send(
        &mut client,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n",
    )
    .await;
    let shown = read_to(&mut client, "# EOF\n").await;
    for line in ["sextant_role_things_total 1", "sextant_ready 1"] {
        assert!(shown.lines().any(|it| it == line), "`{line}` in\n{shown}");
    }
    drop(client);
    shutdown.cancel();
    showing.await.expect("no panic").expect("a clean end");
}
