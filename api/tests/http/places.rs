//! Places of queries in flight, and who may have them.

use std::time::Instant;

use sextant_api::Limits;
use tokio::net::TcpStream;

use crate::{
    double::Recorder,
    served::{DEADLINE, TestServer, read_to, request, send},
};

/// A query of an application that nobody answers.
async fn ask(served: &TestServer, application: &str) -> TcpStream {
    let mut client = served.connect().await;
    let body = format!(r#"{{"application":"{application}","inputs":[]}}"#);
    send(&mut client, &request(body.len(), &body)).await;
    client
}

#[tokio::test]
async fn an_application_whose_queries_pile_up_leaves_places_to_others() {
    let recorder = Recorder::stalling();
    let limits = Limits {
        max_concurrent_queries: 10,
        ..Limits::default()
    };
    let served = TestServer::start(recorder.clone(), limits).await;
    for name in ["loud", "quiet"] {
        let body = format!(r#"{{"name":"{name}","metric":"top1"}}"#);
        let created = served.api.call("POST", "/v1/applications", body).await;
        assert_eq!(created.status, 201);
    }
    let waiting = async |count: usize| {
        let begun = Instant::now();
        while recorder.waiting() != count {
            let now = recorder.waiting();
            assert!(begun.elapsed() < DEADLINE, "{now} wait, not {count}");
            tokio::task::yield_now().await;
        }
    };
    let mut clients = Vec::new();
    for count in 1..=8 {
        clients.push(ask(&served, "loud").await);
        waiting(count).await;
    }
    let mut refused = ask(&served, "loud").await;
    let answer = read_to(&mut refused, "}").await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    assert!(answer.contains("kept for other applications"), "{answer}");
    for count in 9..=10 {
        clients.push(ask(&served, "quiet").await);
        waiting(count).await;
    }
    let mut refused = ask(&served, "quiet").await;
    let answer = read_to(&mut refused, "}").await;
    assert!(answer.contains("`10` queries are in flight"), "{answer}");
    // What leaves makes room again.
    clients.drain(..4);
    waiting(6).await;
    clients.push(ask(&served, "loud").await);
    waiting(7).await;
    served.shutdown.cancel();
}
