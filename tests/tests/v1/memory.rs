//! `/v1/queries`: large queries take a bounded multiple of their bodies and never end the service.

use futures::future::join_all;
use serde_json::json;
use sextant_tests::texts::{BODY_BYTES, Texts, empty_strings, service, within, without_engine};

/// The most that requests may hold, a quarter of the default, because the bodies are a quarter of the default.
const ROOM_BYTES: u64 = 256 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_strings_take_four_times_their_body_beside_the_engine() {
    let cluster = without_engine().await;
    let api = cluster.api();
    let body = empty_strings("texts", BODY_BYTES);
    let answer = within(&cluster, BODY_BYTES, api.post_raw("/v1/queries", body)).await;
    answer.json(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_ask_for_much_are_answered_or_told_to_wait() {
    let room = format!("limits.max_body_bytes_in_flight={ROOM_BYTES}");
    let cluster = service(&["variants.engines=ort", &room], "echo", Texts::Echo).await;
    let before = cluster.resident_bytes();
    cluster.forget_peak();
    let api = cluster.api();
    let body = empty_strings("echo", BODY_BYTES / 4);
    let asked = (0..11).map(|_| api.post_raw("/v1/queries", body.clone()));
    let mut answered = 0;
    for answer in join_all(asked).await {
        match answer.status.as_u16() {
            200 => answered += 1,
            _ => {
                answer.problem(429, "overloaded");
                assert!(answer.headers.contains_key("retry-after"));
            }
        }
    }
    assert!(answered > 0);
    let taken = cluster.peak_bytes().saturating_sub(before);
    // Each query takes nearly all of the room for large queries, one after the other. The allocator gives back the
    // memory of a query when the thread that freed it has time for that. On a busy machine this memory still counts
    // beside the next query.
    let most = 2 * ROOM_BYTES;
    assert!(taken <= most, "`{taken}` bytes of `{most}`");
    // Texts come back unchanged, and there is room again.
    let texts = json!(["", "a", "é😀", "\"quoted\" \\ and\nbroken", " "]);
    let query = json!({"application": "echo", "inputs": [
        {"name": "x", "shape": [1, 5], "datatype": "BYTES", "data": texts},
    ]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["outputs"][0]["data"], texts);
    let query = json!({"application": "echo", "inputs": [
        {"name": "x", "shape": [1, 1], "datatype": "BYTES", "data": ["zero\u{0}byte"]},
    ]});
    let refused = api.post("/v1/queries", &query).await;
    refused.problem(400, "invalid_tensor");
}
