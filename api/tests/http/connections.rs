//! Connections that say nothing, take nothing or send nothing any more.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use sextant_api::{Error, Limits, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::double::{Api, Recorder};

/// Longest wait for a state.
const DEADLINE: Duration = Duration::from_secs(60);

const QUERY: &str = r#"{"application":"digits","inputs":[]}"#;

struct Served {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
    api: Api,
}

async fn start(recorder: Arc<Recorder>, limits: Limits) -> Served {
    let api = Api::limited(recorder, limits).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, api.state.clone(), shutdown.clone()));
    Served {
        address,
        shutdown,
        serving,
        api,
    }
}

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

fn request(body: &str) -> String {
    let length = body.len();
    format!("POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Waits for something that must happen.
async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    let happened = tokio::time::timeout(DEADLINE, happens).await;
    happened.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// Waits for a state.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "{what} did not happen");
        tokio::task::yield_now().await;
    }
}

/// Sends a query and reads its answer.
async fn ask(client: &mut TcpStream) -> String {
    client
        .write_all(request(QUERY).as_bytes())
        .await
        .expect("sent");
    read_to(client, "}}").await
}

async fn read_to(client: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let mut piece = [0; 4096];
        let count = soon("an answer", client.read(&mut piece)).await;
        let count = count.expect("an answer");
        let so_far = String::from_utf8_lossy(&bytes);
        assert!(count > 0, "closed after {so_far}");
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// Waits until the server has closed the connection.
async fn closed(client: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = soon("the close", client.read_to_end(&mut rest)).await;
    let text = String::from_utf8_lossy(&rest);
    assert!(read.is_err() || !text.contains("HTTP/1.1 2"), "{text}");
}

// === impl Served ===

impl Served {
    async fn connect(&self) -> TcpStream {
        let connected = TcpStream::connect(self.address).await;
        connected.expect("a connection")
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let ended = soon("the end", self.serving).await;
        ended.expect("no panic").expect("a clean end");
    }
}

#[tokio::test]
async fn connections_that_say_nothing_shut_nobody_out() {
    let limits = Limits {
        max_connections: 8,
        ..patient()
    };
    let served = start(Recorder::answering(), limits).await;
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
    let served = start(Recorder::answering(), limits).await;
    let mut first = served.connect().await;
    let whole = request(QUERY).replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    let (most, rest) = whole.split_at(whole.len() - 10);
    first.write_all(most.as_bytes()).await.expect("sent");
    read_to(&mut first, "100 Continue\r\n\r\n").await;
    let mut second = served.connect().await;
    second
        .write_all(request(QUERY).as_bytes())
        .await
        .expect("sent");
    first.write_all(rest.as_bytes()).await.expect("sent");
    let answer = read_to(&mut first, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The first is idle now: it makes room.
    let answer = read_to(&mut second, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    closed(&mut first).await;
    served.stop().await;
}

#[tokio::test]
async fn a_head_has_its_time_and_an_idle_connection_another() {
    let soon_over = Duration::from_millis(50);
    let served = start(
        Recorder::answering(),
        Limits {
            head_timeout: soon_over,
            ..patient()
        },
    )
    .await;
    let mut silent = served.connect().await;
    closed(&mut silent).await;
    let mut slow = served.connect().await;
    let half = b"GET / HTTP/1.1\r\nHost:";
    slow.write_all(half).await.expect("sent");
    closed(&mut slow).await;
    served.stop().await;
    let served = start(
        Recorder::answering(),
        Limits {
            idle_timeout: soon_over,
            ..patient()
        },
    )
    .await;
    let mut idle = served.connect().await;
    ask(&mut idle).await;
    closed(&mut idle).await;
    served.stop().await;
}

#[tokio::test]
async fn a_client_that_has_closed_its_sending_side_gets_its_answer() {
    let served = start(Recorder::answering(), patient()).await;
    for path in ["/v1/queries", "/v2/models/digits/infer"] {
        let mut client = served.connect().await;
        let request = request(QUERY).replace("/v1/queries", path);
        client.write_all(request.as_bytes()).await.expect("sent");
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
    let served = start(recorder.clone(), patient()).await;
    for resets in [true, false] {
        let mut client = served.connect().await;
        client
            .write_all(request(QUERY).as_bytes())
            .await
            .expect("sent");
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
    let served = start(Recorder::answering(), limits).await;
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
        client.write_all(sent.as_bytes()).await.expect("sent");
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
    let served = start(Recorder::answering(), limits).await;
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
    let Served {
        shutdown, serving, ..
    } = served;
    shutdown.cancel();
    let ended = soon("the end", serving).await;
    ended.expect("no panic").expect("a clean end");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.ok();
    assert!(rest.len() < size, "{}", rest.len());
}
