//! Bodies that do not end: they take no places, and no more memory than is set aside for them.

use std::time::Instant;

use sextant_api::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::served::{CONTINUE, DEADLINE, QUERY, TestServer, read_to, send};

/// A body of this size is no small one: it may have three quarters of the room.
const LARGE_BYTES: usize = 1000;

// === impl TestServer ===

impl TestServer {
    /// A request that the server has begun to read; all but the last byte of its body is sent.
    async fn unfinished(&self, path: &str, length: usize) -> TcpStream {
        let mut client = self.connect().await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        );
        send(&mut client, &head).await;
        assert_eq!(read_to(&mut client, CONTINUE).await, CONTINUE);
        send(&mut client, &" ".repeat(length - 1)).await;
        client
    }

    /// The answer to a query of so many bytes, as it came.
    async fn ask(&self, bytes: usize) -> String {
        let mut client = self.connect().await;
        let padding = " ".repeat(bytes.saturating_sub(QUERY.len()));
        let length = padding.len() + QUERY.len();
        let request = format!(
            "POST /v1/queries HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{padding}{QUERY}"
        );
        send(&mut client, &request).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    /// Asks until the answer has this status.
    async fn ask_until(&self, bytes: usize, status: &str) -> String {
        let begun = Instant::now();
        loop {
            let answer = self.ask(bytes).await;
            if answer.starts_with(&format!("HTTP/1.1 {status}")) {
                return answer;
            }
            assert!(begun.elapsed() < DEADLINE, "no {status}, but {answer}");
        }
    }
}

#[tokio::test]
async fn a_query_takes_its_place_when_its_body_is_there() {
    let limits = Limits {
        max_concurrent_queries: 2,
        ..Limits::default()
    };
    let served = TestServer::answering(limits).await;
    let mut waiting = Vec::new();
    for path in ["/v1/queries", "/v2/models/mlp/infer"] {
        for _ in 0..4 {
            waiting.push(served.unfinished(path, 100).await);
        }
    }
    for _ in 0..4 {
        let answer = served.ask(0).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    drop(waiting);
    served.shutdown.cancel();
}

#[tokio::test]
async fn bytes_of_bodies_are_counted_as_they_arrive() {
    let limits = Limits {
        max_body_bytes: LARGE_BYTES,
        max_body_bytes_in_flight: 4 * LARGE_BYTES,
        ..Limits::default()
    };
    let served = TestServer::answering(limits).await;
    // Declared and not sent: nothing is counted.
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut client = served.connect().await;
        let head = format!(
            "POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGE_BYTES}\r\n\r\n"
        );
        send(&mut client, &head).await;
        waiting.push(client);
    }
    let answer = served.ask(LARGE_BYTES).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for _ in 0..3 {
        waiting.push(served.unfinished("/v1/queries", LARGE_BYTES).await);
    }
    let refused = served.ask_until(LARGE_BYTES, "429").await;
    assert!(refused.contains("\"code\":\"overloaded\""), "{refused}");
    assert!(
        refused.to_lowercase().contains("retry-after: 1"),
        "{refused}"
    );
    drop(waiting);
    served.ask_until(LARGE_BYTES, "200").await;
    served.shutdown.cancel();
}

#[tokio::test]
async fn large_bodies_leave_room_for_small_ones() {
    let limits = Limits {
        max_body_bytes: 100 << 10,
        max_body_bytes_in_flight: 400 << 10,
        ..Limits::default()
    };
    let served = TestServer::answering(limits).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(served.unfinished("/v1/queries", 100 << 10).await);
    }
    served.ask_until(1000, "429").await;
    let small = served.ask(100).await;
    assert!(small.starts_with("HTTP/1.1 200"), "{small}");
    drop(waiting);
    served.shutdown.cancel();
}

/// The server's first frame on an HTTP/2 connection.
async fn settings(client: &mut TcpStream) -> Vec<(u16, u32)> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    client.write_all(preface).await.expect("sent");
    let mut head = [0; 9];
    client.read_exact(&mut head).await.expect("a frame");
    let [high, middle, low, kind, ..] = head;
    assert_eq!(kind, 4, "settings come first");
    let length = u32::from_be_bytes([0, high, middle, low]);
    let mut settings = vec![0; usize::try_from(length).expect("fits")];
    client.read_exact(&mut settings).await.expect("a frame");
    let (settings, _) = settings.as_chunks::<6>();
    let read = |&[a, b, c, d, e, f]: &[u8; 6]| {
        (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
    };
    settings.iter().map(read).collect()
}

#[tokio::test]
async fn an_http2_connection_carries_128_requests_at_once() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let served = TestServer::answering(Limits::default()).await;
    let settings = settings(&mut served.connect().await).await;
    assert!(
        settings.contains(&(MAX_CONCURRENT_STREAMS, 128)),
        "{settings:?}"
    );
    assert_eq!(served.api.get("/health/ready").await.status, 200);
    served.shutdown.cancel();
}
