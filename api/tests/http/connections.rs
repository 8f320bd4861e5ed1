//! Connections that say nothing, take nothing or send nothing any more.

use std::time::{Duration, Instant};

use sextant_api::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    double::Recorder,
    served::{
        ANSWER_END, CONTINUE, DEADLINE, QUERY, TestServer, ask, expecting, read_to, request, send,
        soon,
    },
};

/// Long enough to play no part.
fn patient() -> Limits {
    Limits {
        head_timeout: DEADLINE,
        idle_timeout: DEADLINE,
        transfer_grace: DEADLINE,
        drain_timeout: DEADLINE,
        ..Limits::default()
    }
}

/// A whole query.
fn query() -> String {
    request(QUERY.len(), QUERY)
}

/// Waits for a state.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "{what} did not happen");
        tokio::task::yield_now().await;
    }
}

/// Waits until the server has closed the connection.
async fn closed(client: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = soon("the close", client.read_to_end(&mut rest)).await;
    let text = String::from_utf8_lossy(&rest);
    assert!(read.is_err() || !text.contains("HTTP/1.1 2"), "{text}");
}

#[tokio::test]
async fn connections_that_say_nothing_shut_nobody_out() {
    let limits = Limits {
        max_connections: 8,
        ..patient()
    };
    let served = TestServer::answering(limits).await;
    let mut silent = Vec::new();
    for at in 0..30 {
        let mut client = served.connect().await;
        match at % 3 {
            // Nothing at all, half a head, or an answer and nothing since.
            0 => {}
            1 => client.write_all(b"GET / HT").await.expect("sent"),
            _ => drop(ask(&mut client).await),
        }
        silent.push(client);
    }
    let answer = ask(&mut served.connect().await).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The longest idle one went first.
    closed(&mut silent[0]).await;
    drop(silent);
    served.stop().await;
}

#[tokio::test]
async fn who_is_being_answered_is_not_cut_off_for_others() {
    let limits = Limits {
        max_connections: 1,
        ..patient()
    };
    let served = TestServer::answering(limits).await;
    let mut first = served.connect().await;
    let whole = expecting(&query());
    let (most, rest) = whole.split_at(whole.len() - 10);
    send(&mut first, most).await;
    read_to(&mut first, CONTINUE).await;
    let mut second = served.connect().await;
    send(&mut second, &query()).await;
    send(&mut first, rest).await;
    let answer = read_to(&mut first, ANSWER_END).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The first is idle now: it makes room.
    let answer = read_to(&mut second, ANSWER_END).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    closed(&mut first).await;
    served.stop().await;
}

#[tokio::test]
async fn a_head_has_its_time_and_an_idle_connection_another() {
    let soon_over = Duration::from_millis(50);
    let served = TestServer::answering(Limits {
        head_timeout: soon_over,
        ..patient()
    })
    .await;
    let mut silent = served.connect().await;
    closed(&mut silent).await;
    let mut slow = served.connect().await;
    let half = b"GET / HTTP/1.1\r\nHost:";
    slow.write_all(half).await.expect("sent");
    closed(&mut slow).await;
    served.stop().await;
    let served = TestServer::answering(Limits {
        idle_timeout: soon_over,
        ..patient()
    })
    .await;
    let mut idle = served.connect().await;
    ask(&mut idle).await;
    closed(&mut idle).await;
    served.stop().await;
}

#[tokio::test]
async fn a_client_that_has_closed_its_sending_side_gets_its_answer() {
    let served = TestServer::answering(patient()).await;
    for path in ["/v1/queries", "/v2/models/digits/infer"] {
        let mut client = served.connect().await;
        let request = query().replace("/v1/queries", path);
        send(&mut client, &request).await;
        client.shutdown().await.expect("closed for sending");
        let mut answer = String::new();
        let read = soon("the answer", client.read_to_string(&mut answer)).await;
        read.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(answer.ends_with("}"), "{path}: {answer}");
    }
    // All of a large answer, too, which does not fit into the buffers on the way.
    let size = 8 << 20;
    served
        .api
        .call("PUT", "/v1/artefacts/large", vec![7; size])
        .await;
    let mut client = served.connect().await;
    let get = b"GET /v1/artefacts/large HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(get).await.expect("sent");
    client.shutdown().await.expect("closed for sending");
    let mut answer = Vec::new();
    let read = soon("the answer", client.read_to_end(&mut answer)).await;
    assert!(read.expect("an answer") > size);
    served.stop().await;
}

#[tokio::test]
async fn the_query_of_a_client_that_has_gone_is_given_up() {
    let recorder = Recorder::stalling();
    let served = TestServer::start(recorder.clone(), patient()).await;
    for resets in [true, false] {
        let mut client = served.connect().await;
        send(&mut client, &query()).await;
        until("the query", || recorder.waiting() == 1).await;
        if resets {
            client.set_zero_linger().expect("an option");
        }
        drop(client);
        until("giving up", || recorder.waiting() == 0).await;
    }
    served.stop().await;
}

#[tokio::test]
async fn an_upload_that_brings_next_to_nothing_is_ended() {
    let limits = Limits {
        transfer_grace: Duration::from_millis(100),
        ..patient()
    };
    let served = TestServer::answering(limits).await;
    let form = "--edge\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nhalf a mo";
    for (head, beginning) in [
        ("PUT /v1/artefacts/a HTTP/1.1\r\nHost: x\r\n", "x"),
        (
            "POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=edge\r\n",
            form,
        ),
        (
            "POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=edge\r\n",
            "--ed",
        ),
    ] {
        let mut client = served.connect().await;
        let sent = format!("{head}Content-Length: 1000\r\n\r\n{beginning}");
        send(&mut client, &sent).await;
        let answer = read_to(&mut client, "}").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("\"code\":\"invalid_request\""), "{answer}");
        assert!(answer.contains("less than `1024` bytes"), "{answer}");
    }
    assert_eq!(served.api.get("/v1/artefacts/a").await.status, 404);
    served.stop().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_is_cut_off() {
    let limits = Limits {
        transfer_grace: Duration::from_millis(100),
        ..patient()
    };
    let served = TestServer::answering(limits).await;
    let size = 32 << 20;
    served
        .api
        .call("PUT", "/v1/artefacts/large", vec![7; size])
        .await;
    let mut client = served.connect().await;
    let get = b"GET /v1/artefacts/large HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(get).await.expect("sent");
    let mut first = [0; 12];
    client.read_exact(&mut first).await.expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    // The service waits for requests in flight, and this one does not hold it up.
    served.stop().await;
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.ok();
    assert!(rest.len() < size, "{}", rest.len());
}
