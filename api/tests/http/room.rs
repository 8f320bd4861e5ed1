//! What requests hold is counted before it is made: tensors, outputs, and answers that nobody takes.

use std::time::Instant;

use sextant_api::Limits;
use sextant_types::{NamedTensor, Tensor};
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::{
    double::{Api, Recorder, answer},
    served::{DEADLINE, QUERY, TestServer, send},
};

/// More than a socket takes of an answer that is not read.
const ANSWER_BYTES: usize = 24 << 20;

// === impl TestServer ===

impl TestServer {
    /// The head of the answer to a query whose client reads no more, and its connection.
    async fn ask_and_wait(&self) -> (String, TcpStream) {
        let mut client = self.connect().await;
        let length = QUERY.len();
        let head =
            format!("POST /v1/queries HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        send(&mut client, &format!("{head}{QUERY}")).await;
        let mut line = [0; 13];
        client.read_exact(&mut line).await.expect("an answer");
        (String::from_utf8_lossy(&line).into_owned(), client)
    }
}

/// Answers each query with one long text.
fn talkative() -> std::sync::Arc<Recorder> {
    let text = bytes::Bytes::from(vec![b'a'; ANSWER_BYTES]);
    Recorder::new(move |_| {
        let text = sextant_types::Texts::one(text.clone()).expect("short of 4 GiB");
        let tensor = Tensor::from_texts(vec![1], text).expect("one text");
        let mut answer = answer();
        answer.outputs = vec![NamedTensor::new("text", tensor)];
        Ok(answer)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_takes_are_counted_until_their_connections_end() {
    let limits = Limits {
        max_body_bytes: 1 << 20,
        max_body_bytes_in_flight: 4 * ANSWER_BYTES,
        ..Limits::default()
    };
    let served = TestServer::start(talkative(), limits).await;
    let begun = Instant::now();
    let mut kept = Vec::new();
    let refused = loop {
        let (line, client) = served.ask_and_wait().await;
        if !line.contains(" 200 ") {
            break (line, client);
        }
        kept.push(client);
        assert!(kept.len() < 4, "three quarters are for large ones");
        assert!(begun.elapsed() < DEADLINE);
    };
    assert!(refused.0.contains(" 429 "), "{}", refused.0);
    let mut problem = vec![0; 2048];
    let (_, mut client) = refused;
    let count = client.read(&mut problem).await.expect("the problem");
    let problem = String::from_utf8_lossy(&problem[..count]).to_lowercase();
    assert!(problem.contains("retry-after: 1"), "{problem}");
    assert!(!kept.is_empty());
    drop(kept);
    loop {
        let (line, _client) = served.ask_and_wait().await;
        if line.contains(" 200 ") {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "no room is given back: {line}");
    }
    served.shutdown.cancel();
}

/// A query of `digits` whose only input has these elements.
fn query(data_type: &str, shape: &str, data: &str) -> String {
    format!(
        r#"{{"application":"digits","inputs":[{{"name":"input","shape":{shape},"datatype":"{data_type}","data":{data}}}]}}"#
    )
}

#[tokio::test]
async fn what_a_body_becomes_is_counted_before_it_is_made() {
    let limits = Limits {
        max_body_bytes: 256 << 10,
        max_body_bytes_in_flight: 1 << 20,
        ..Limits::default()
    };
    let api = Api::limited(Recorder::answering(), limits).await;
    let count = 100_000;
    let zeros = format!("[{}0]", "0,".repeat(count - 1));
    let shape = format!("[1,{count}]");
    // Eight bytes an element and as many in the batch are more than the room has.
    let refused = api
        .call("POST", "/v1/queries", query("INT64", &shape, &zeros))
        .await;
    let detail = refused.problem("too_large")["detail"].to_string();
    assert!(
        detail.contains("limits.max_body_bytes_in_flight"),
        "{detail}"
    );
    let fits = api
        .call("POST", "/v1/queries", query("UINT8", &shape, &zeros))
        .await;
    assert_eq!(fits.status, 200);
    // The shape is believed no further than the text: elements beyond it are counted and not kept.
    let refused = api
        .call("POST", "/v1/queries", query("FP32", "[1,1]", &zeros))
        .await;
    let detail = refused.problem("invalid_tensor")["detail"].to_string();
    assert!(detail.contains("100000 are given"), "{detail}");
}

#[tokio::test]
async fn strings_for_numbers_are_refused_unread() {
    let api = Api::new(Recorder::answering()).await;
    let count = 50_000;
    // The last one is no string: nobody came so far.
    let texts = format!("[{}0]", "\"\",".repeat(count - 1));
    let body = query("BYTES", &format!("[1,{count}]"), &texts);
    let refused = api.call("POST", "/v1/queries", body).await;
    let detail = refused.problem("invalid_tensor")["detail"].to_string();
    assert!(detail.contains("never exchanged"), "{detail}");
}

#[tokio::test]
async fn inputs_are_as_many_as_a_model_may_have() {
    let api = Api::new(Recorder::answering()).await;
    let input = r#"{"name":"x","shape":[1],"datatype":"FP32","data":[0]},"#;
    for (path, name) in [
        ("/v1/queries", r#""application":"digits","#),
        ("/v2/models/mlp/infer", ""),
    ] {
        let inputs = input.repeat(5000);
        let body = format!("{{{name}\"inputs\":[{}]}}", inputs.trim_end_matches(','));
        let refused = api.call("POST", path, body).await;
        let detail = refused.problem("invalid_request")["detail"].to_string();
        assert!(detail.contains("at most 4096"), "{path}: {detail}");
    }
}
