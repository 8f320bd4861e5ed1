//! Forms that have no end: each is refused with a limit by its name, and what it held is given back.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    http::Request,
};
use futures::{channel::mpsc, stream};
use sextant_api::Limits;

use crate::double::{Api, Reading, Recorder};

/// More pieces than any limit below allows: a form that is taken whole fails the test, and does not hang it.
const WITHOUT_END: usize = 1 << 17;

/// What stands between two parts, and before the first.
const EDGE: &str = "--edge\r\n";

async fn with_digits(limits: Limits) -> Api {
    let api = Api::limited(Recorder::answering(), limits).await;
    let body = r#"{"name":"digits","metric":"top1"}"#;
    assert_eq!(api.call("POST", "/v1/applications", body).await.status, 201);
    api
}

fn form(body: Body) -> Request<Body> {
    Request::post("/v1/models")
        .header("content-type", "multipart/form-data; boundary=edge")
        .body(body)
        .expect("a request")
}

/// Sends the pieces one after the other.
async fn send(api: &Api, pieces: impl Iterator<Item = String> + Send + 'static) -> Reading {
    let pieces = stream::iter(pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece))));
    api.send(form(Body::from_stream(pieces))).await
}

/// A field, or a file where it has a file's name.
fn part(name: &str, file: Option<&str>, content: &str) -> String {
    let file = file.map_or(String::new(), |file| format!("; filename=\"{file}\""));
    format!("{EDGE}Content-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n{content}\r\n")
}

/// A form with a part for each number.
async fn parts(api: &Api, of: impl Fn(usize) -> String + Send + 'static) -> Reading {
    send(api, (0..WITHOUT_END).map(of)).await
}

fn small() -> Limits {
    Limits {
        max_body_bytes: 256 << 10,
        max_body_bytes_in_flight: 1 << 20,
        ..Limits::default()
    }
}

#[tokio::test]
async fn fields_are_bounded_in_their_sum() {
    let api = with_digits(small()).await;
    let long = "o".repeat(4000);
    let outputs = parts(&api, move |_| part("output", None, &long)).await;
    let constants = parts(&api, |at| {
        part("constant", None, &format!("i{at}={}1", "1,".repeat(2000)))
    });
    let pads = parts(&api, |at| part("pad", None, &format!("i{at}=1")));
    let names = parts(&api, |at| part("input_name", None, &format!("i{at}=j{at}")));
    let classes = parts(&api, |_| part("classes", None, &"\n".repeat(100_000)));
    let named = "n".repeat(4000);
    let files = parts(&api, move |at| {
        part("data", Some(&format!("{at}{named}")), "x")
    });
    for refused in [
        outputs,
        constants.await,
        pads.await,
        names.await,
        classes.await,
        files.await,
    ] {
        assert_eq!(refused.status, 413);
        let problem = refused.problem("too_large");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("`limits.max_body_bytes`"), "{detail}");
    }
}

#[tokio::test]
async fn parts_are_bounded_in_their_number() {
    let api = with_digits(Limits::default()).await;
    let refused = parts(&api, |_| part("output", None, "y")).await;
    assert_eq!(refused.status, 413);
    let problem = refused.problem("too_large");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("`10000` parts"), "{detail}");
}

#[tokio::test]
async fn what_belongs_to_no_part_is_bounded() {
    let api = with_digits(small()).await;
    let head = format!("{EDGE}Content-Disposition: form-data; name=\"");
    let begins = [head, String::new(), part("output", None, "y") + EDGE];
    for begin in begins {
        let rest = (0..WITHOUT_END).map(|_| "n".repeat(4096));
        let refused = send(&api, std::iter::once(begin).chain(rest)).await;
        assert_eq!(refused.status, 413);
        let problem = refused.problem("too_large");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("belong to no part"), "{detail}");
    }
}

/// The one counts while it is sent, and no longer when its connection breaks.
#[tokio::test]
async fn fields_count_among_the_bytes_in_flight() {
    let api = with_digits(Limits {
        max_body_bytes: 200 << 10,
        max_body_bytes_in_flight: 400 << 10,
        ..Limits::default()
    })
    .await;
    let (pieces, body) = mpsc::unbounded::<std::io::Result<Bytes>>();
    for _ in 0..40 {
        let piece = part("output", None, &"o".repeat(4000));
        pieces.unbounded_send(Ok(piece.into())).expect("is read");
    }
    let large = || {
        let outputs = (0..40).map(|at| part("output", None, &format!("{at}{}", "o".repeat(4000))));
        send(&api, outputs.chain(["--edge--\r\n".to_owned()]))
    };
    let beside = async {
        let refused = loop {
            // The other has to be read first.
            let answer = large().await;
            if answer.status == 429 {
                break answer;
            }
        };
        refused.problem("overloaded");
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        pieces.unbounded_send(Err(broken)).expect("is read");
    };
    let (response, ()) = tokio::join!(api.open(form(Body::from_stream(body))), beside);
    assert_eq!(response.status(), 400);
    let problem = large().await.problem("invalid_request");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("no field `model`"), "{detail}");
}
