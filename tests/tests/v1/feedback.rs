//! `/v1/feedback` and `/v1/applications/{application}/feedback`.

use std::collections::BTreeSet;

use bytes::Bytes;
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::{Row, RowAccessor},
};
use reqwest::Method;
use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, digits, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

const DIGITS: &str = "/v1/applications/digits";
const OF_DIGITS: &str = "/v1/applications/digits/feedback";

/// A service whose application `digits` takes feedback.
async fn taking(settings: Value) -> TestCluster {
    let cluster = digits::service(Settings {
        set: vec!["storage.prune_feedback_every_s=1".to_owned()],
        ..Settings::default()
    });
    let cluster = cluster.await;
    let api = cluster.api();
    let set = api.patch(DIGITS, &json!({"feedback": settings})).await;
    set.json(200);
    cluster
}

/// The answer to images of the test set, with its token.
async fn ask(api: &Api, images: &[usize]) -> Value {
    let test = digits::Images::load("test");
    let pixels: Vec<f32> = images
        .iter()
        .flat_map(|at| test.pixels(*at))
        .copied()
        .collect();
    let input = json!([{
        "name": "pixels", "shape": [images.len(), digits::PIXELS], "datatype": "FP32", "data": pixels,
    }]);
    let query = json!({"application": "digits", "inputs": input});
    until("a query is answered", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

fn token(answer: &Value) -> String {
    let token = answer["feedback_token"].as_str();
    token.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The class that the answer gives each image.
fn predicted(answer: &Value) -> Vec<usize> {
    let scores = answer["outputs"][0]["data"].as_array().expect("scores");
    scores
        .chunks(10)
        .map(|row| digits::digit(&json!(row)))
        .collect()
}

async fn give(api: &Api, body: &Value) -> Answer {
    api.post("/v1/feedback", body).await
}

async fn lines(api: &Api) -> Vec<Value> {
    let text = api.get(OF_DIGITS).await.text();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_come_to_the_accuracy_that_they_tell_of() {
    let cluster = taking(json!({})).await;
    let api = cluster.api();
    let images: Vec<usize> = (0..40).collect();
    let answer = ask(&api, &images).await;
    let (said, token) = (predicted(&answer), token(&answer));
    // Every tenth label says that the answer was wrong.
    let label = |at: usize| {
        if at.is_multiple_of(10) {
            (said[at] + 1) % 10
        } else {
            said[at]
        }
    };
    let items = images
        .iter()
        .map(|at| json!({"token": token, "row": at, "label": label(*at)}));
    let items: Vec<Value> = items.collect();
    let taken = give(&api, &json!(items)).await.json(200);
    assert_eq!(taken["accepted"], 40, "{taken}");
    let model = answer["model"].as_str().expect("a name");
    let online = api.get(&format!("/v1/models/{model}")).await.json(200)["online"].clone();
    assert_eq!(online["online"]["rows"], 40, "{online}");
    assert_eq!(online["online"]["value"], 0.9, "{online}");
    let (lower, upper) = (&online["online"]["lower"], &online["online"]["upper"]);
    assert!(
        lower.as_f64() < Some(0.9) && upper.as_f64() > Some(0.9),
        "{online}"
    );
    let variant = answer["variant"].as_str().expect("a name");
    let variant = api.get(&format!("/v1/variants/{variant}")).await.json(200);
    assert_eq!(online["registered"]["value"], variant["accuracy"]["value"]);
    assert_eq!(online["variants"][0]["variant"], answer["variant"]);
    let application = api.get(DIGITS).await.json(200);
    assert_eq!(application["online"][0], online);
    let told = api.get("/v1/applications/digits/accuracy").await.json(200);
    assert_eq!(told["models"][0], online);
    assert_eq!(told["metric"], "top1");
    let metrics = api.get("/metrics").await.text();
    let kept = "sextant_feedback_total{application=\"digits\",outcome=\"kept\"} 40";
    assert!(metrics.contains(kept), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_again_counts_once_and_another_value_is_refused() {
    let mut cluster = taking(json!({})).await;
    let api = cluster.api();
    let answer = ask(&api, &[0]).await;
    let item =
        json!({"token": token(&answer), "label": predicted(&answer)[0], "subject": "user-7"});
    let taken = give(&api, &item).await.json(200);
    assert_eq!(
        (&taken["accepted"], &taken["repeated"]),
        (&json!(1), &json!(0))
    );
    let twice = give(&api, &json!([item, item])).await.json(200);
    assert_eq!(
        (&twice["accepted"], &twice["repeated"]),
        (&json!(2), &json!(2))
    );
    let other = json!({"token": token(&answer), "label": (predicted(&answer)[0] + 1) % 10});
    give(&api, &other).await.problem(409, "feedback_exists");
    let both = give(&api, &json!([item, other])).await.json(200);
    assert_eq!(both["refusals"][0]["index"], 1, "{both}");
    // Feedback survives the end of the process, and so do tokens.
    cluster.kill();
    cluster.launch();
    let api = cluster.api();
    let again = give(&api, &item).await.json(200);
    assert_eq!(again["repeated"], 1, "{again}");
    let kept = lines(&api).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(
        (&kept[0]["kind"], &kept[0]["score"]),
        (&json!("label"), &json!(1.0))
    );
    assert_eq!(kept[0]["subject"], "user-7");
    assert_eq!(kept[0]["variant"], answer["variant"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_item_by_item() {
    let cluster = taking(json!({})).await;
    let api = cluster.api();
    let (one, two) = (ask(&api, &[0]).await, ask(&api, &[0, 1]).await);
    let (one, two) = (token(&one), token(&two));
    let mut forged = one.clone().into_bytes();
    forged[20] = if forged[20] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).expect("a text");
    let bad = [
        json!({"token": forged, "label": 1}),
        json!({"token": "q-17", "label": 1}),
        json!({"token": "", "label": 1}),
        json!({"token": "x".repeat(10_000), "label": 1}),
        json!({"token": one, "label": 1, "reward": 1}),
        json!({"token": one}),
        json!({"token": one, "row": 1, "label": 1}),
        json!({"token": two, "label": 1}),
        json!({"token": one, "label": -1}),
        json!({"token": one, "label": 0.5}),
        json!({"token": one, "label": [1, 2]}),
        json!({"token": one, "label": "no-such-class"}),
        json!({"token": one, "reward": "good"}),
        json!({"token": one, "preferred_to": one}),
        json!({"token": one, "label": 1, "subject": ""}),
        json!({"token": one, "label": 1, "subject": "s".repeat(300)}),
    ];
    for item in &bad {
        give(&api, item).await.problem(400, "invalid_feedback");
    }
    for item in [
        json!({"token": 1, "label": 1}),
        json!({"token": one, "colour": 1}),
        json!(7),
    ] {
        give(&api, &item).await.problem(400, "invalid_request");
    }
    let mut mixed: Vec<Value> = bad.to_vec();
    mixed.insert(3, json!({"token": one, "label": 1}));
    mixed.push(json!({"token": two, "row": 1, "reward": true}));
    let taken = give(&api, &json!(mixed)).await.json(200);
    assert_eq!(
        (&taken["accepted"], &taken["refused"]),
        (&json!(2), &json!(bad.len()))
    );
    let refusals = taken["refusals"].as_array().expect("a list");
    assert_eq!(refusals[3]["index"], 4, "{taken}");
    assert!(
        refusals.iter().all(|it| it["code"] == "invalid_feedback"),
        "{taken}"
    );
    // An invalid line of JSON does not affect the other lines; NaN is not valid JSON.
    let text = format!(
        "{{\"token\":\"{one}\",\"label\":1}}\n{{\"token\":\"{two}\",\"row\":0,\"label\":NaN}}\n\n{{\"token\"\n\
         {{\"token\":\"{two}\",\"row\":0,\"label\":1e999}}\n{{\"token\":\"{two}\",\"row\":0,\"label\":2}}"
    );
    let send = |text: String| {
        let body = Some(text.into_bytes());
        api.send_bytes(Method::POST, "/v1/feedback", "application/x-ndjson", body)
    };
    let taken = send(text).await.json(200);
    let indices: Vec<&Value> = taken["refusals"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| &it["index"])
        .collect();
    assert_eq!(indices, [&json!(1), &json!(2), &json!(3)], "{taken}");
    assert_eq!(
        (&taken["accepted"], &taken["repeated"]),
        (&json!(2), &json!(1)),
        "{taken}"
    );
    api.post_raw("/v1/feedback", "[]")
        .await
        .problem(400, "invalid_request");
    api.post_raw("/v1/feedback", "[{\"token\": NaN}]")
        .await
        .problem(400, "invalid_request");
    let body = Some(vec![b'\n'; 10]);
    let empty = api.send_bytes(Method::POST, "/v1/feedback", "application/x-ndjson", body);
    empty.await.problem(400, "invalid_request");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_come_in_one_body_and_go_as_csv() {
    let cluster = taking(json!({"keep_days": 2, "reward": "lower"})).await;
    let api = cluster.api();
    let images: Vec<usize> = (0..32).collect();
    let mut text = String::new();
    for _ in 0..40 {
        let token = token(&ask(&api, &images).await);
        for row in &images {
            let item = json!({"token": token, "row": row, "reward": *row as f64 / 4.0});
            text.push_str(&item.to_string());
            text.push('\n');
        }
    }
    let body = Some(text.into_bytes());
    let sent = api
        .send_bytes(Method::POST, "/v1/feedback", "application/x-ndjson", body)
        .await;
    assert_eq!(sent.json(200)["accepted"], 40 * 32);
    let csv = api.get(&format!("{OF_DIGITS}?format=csv")).await.text();
    assert_eq!(csv.lines().count(), 40 * 32 + 1);
    assert!(
        csv.starts_with("query,row,kind,value,score,"),
        "{}",
        &csv[..100]
    );
    let rows = lines(&api).await;
    let keys = rows
        .iter()
        .map(|row| (row["query"].to_string(), row["row"].as_u64()));
    assert_eq!(keys.collect::<BTreeSet<_>>().len(), 40 * 32);
    let told = api.get("/v1/applications/digits/accuracy").await.json(200);
    assert_eq!(told["reward"], "lower");
    let reward = &told["models"][0]["reward"];
    assert_eq!(reward["rows"], 40 * 32, "{told}");
    assert_eq!(reward["value"], 31.0 / 8.0, "{told}");
    let parquet = api.get(&format!("{OF_DIGITS}?format=parquet")).await;
    let kind = &parquet.headers["content-type"];
    assert_eq!(kind, "application/vnd.apache.parquet");
    columns_are_lines(parquet.body, &rows);
    api.get(&format!("{OF_DIGITS}?format=orc"))
        .await
        .problem(400, "invalid_request");
    // Feedback beyond the limit is removed by itself, but still counts in the figures.
    let few = json!({"feedback": {"keep_days": 2, "reward": "lower", "max_bytes": 1 << 16}});
    api.patch(DIGITS, &few).await.json(200);
    let left = until("the oldest feedback is gone", || async {
        let left = lines(&api).await.len();
        (left < 40 * 32).then_some(left)
    });
    assert!(left.await > 0);
    let told = api.get("/v1/applications/digits/accuracy").await.json(200);
    assert_eq!(told["models"][0]["reward"]["rows"], 40 * 32, "{told}");
}

/// Checks that a Parquet file holds the same as the lines.
fn columns_are_lines(file: Vec<u8>, lines: &[Value]) {
    let file = SerializedFileReader::new(Bytes::from(file)).expect("a file");
    let rows = file.get_row_iter(None).expect("rows");
    let rows: Vec<Row> = rows.map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), lines.len());
    for (row, line) in rows.iter().zip(lines) {
        for (at, member) in [(0, "query"), (2, "kind"), (5, "model"), (12, "actor")] {
            assert_eq!(json!(row.get_string(at).expect("a text")), line[member]);
        }
        assert_eq!(json!(row.get_int(1).expect("a number")), line["row"]);
        assert_eq!(json!(row.get_double(4).expect("a score")), line["score"]);
        let given_ms = row.get_timestamp_millis(10).expect("a time");
        assert_eq!(json!(given_ms), line["given_ms"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_better_answer_counts_for_one_and_against_the_other() {
    let cluster = taking(json!({})).await;
    let api = cluster.api();
    let (one, other) = (ask(&api, &[3]).await, ask(&api, &[3]).await);
    let item = json!({"token": token(&one), "preferred_to": token(&other)});
    let taken = give(&api, &json!([item])).await.json(200);
    assert_eq!(taken["accepted"], 1, "{taken}");
    assert_eq!(give(&api, &item).await.json(200)["repeated"], 1);
    let back = json!({"token": token(&other), "preferred_to": token(&one)});
    give(&api, &back).await.problem(409, "feedback_exists");
    // A third answer cannot be preferred to an answer that already has feedback, and the refused item is not kept.
    let third = ask(&api, &[3]).await;
    let late = json!({"token": token(&third), "preferred_to": token(&other)});
    give(&api, &late).await.problem(409, "feedback_exists");
    let rows = lines(&api).await;
    let scores: Vec<&Value> = rows.iter().map(|row| &row["score"]).collect();
    assert_eq!(scores.len(), 2, "{rows:?}");
    let told = api.get("/v1/applications/digits/accuracy").await.json(200);
    let rows = told["models"].as_array().expect("a list").iter();
    let rows: u64 = rows.filter_map(|it| it["preferred"]["rows"].as_u64()).sum();
    assert_eq!(rows, 2, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feedback_is_erased_by_query_and_by_subject() {
    let cluster = taking(json!({})).await;
    let api = cluster.api();
    let mut tokens = Vec::new();
    for at in 0..3 {
        let answer = ask(&api, &[at]).await;
        let item =
            json!({"token": token(&answer), "label": 1, "subject": format!("user-{}", at % 2)});
        give(&api, &item).await.json(200);
        tokens.push(token(&answer));
    }
    let erase = |whose: String| {
        let api = api.clone();
        async move { api.delete(&format!("{OF_DIGITS}?{whose}")).await }
    };
    assert_eq!(
        erase("subject=user-0".to_owned()).await.json(200)["erased"],
        2
    );
    assert_eq!(
        erase(format!("query={}", tokens[1])).await.json(200)["erased"],
        1
    );
    assert_eq!(
        erase(format!("query={}", tokens[1])).await.json(200)["erased"],
        0
    );
    assert!(lines(&api).await.is_empty());
    erase(String::new()).await.problem(400, "invalid_request");
    erase("query=q-17".to_owned())
        .await
        .problem(400, "invalid_feedback");
    let told = api.get("/v1/applications/digits/accuracy").await.json(200);
    assert_eq!(
        told["models"][0]["online"]["rows"], 3,
        "counted feedback stays counted: {told}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_applications_that_take_feedback_give_tokens() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    let answer = ask(&api, &[0]).await;
    assert!(answer.get("feedback_token").is_none(), "{answer}");
    for settings in [
        json!({"keep_days": 0}),
        json!({"keep_days": 1000}),
        json!({"max_bytes": 1}),
        json!({"reward": "sideways"}),
        json!({"webhook": "ftp://x"}),
        json!({"colour": "red"}),
    ] {
        let body = json!({"feedback": settings});
        api.patch(DIGITS, &body)
            .await
            .problem(400, "invalid_request");
    }
    let set = api
        .patch(
            DIGITS,
            &json!({"feedback": {"webhook": "http://127.0.0.1:9/secret"}}),
        )
        .await;
    let set = set.json(200);
    assert_eq!(set["feedback"]["keep_days"], 30, "{set}");
    assert_eq!(set["feedback"]["webhook"], "http://127.0.0.1:9/..", "{set}");
    let token = token(&ask(&api, &[0]).await);
    api.patch(DIGITS, &json!({"feedback": null}))
        .await
        .json(200);
    let item = json!({"token": token, "label": 1});
    give(&api, &item).await.problem(400, "invalid_feedback");
    assert!(ask(&api, &[0]).await.get("feedback_token").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feedback_on_a_model_that_was_deleted_does_not_count_for_the_next_of_its_name() {
    let cluster = digits::with_mlp(&[]).await;
    let api = cluster.api();
    let set = api.patch(DIGITS, &json!({"feedback": {}})).await;
    set.json(200);
    let before = json!({"token": token(&ask(&api, &[0]).await), "label": 1});
    assert_eq!(api.delete("/v1/models/mlp").await.status, 204);
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    give(&api, &before).await.problem(409, "feedback_too_late");
    let after = json!({"token": token(&ask(&api, &[0]).await), "label": 1});
    let both = give(&api, &json!([before, after])).await.json(200);
    assert_eq!(both["accepted"], 1, "{both}");
    assert_eq!(both["refusals"][0]["code"], "feedback_too_late", "{both}");
    let model = api.get("/v1/models/mlp").await.json(200);
    assert_eq!(model["online"]["online"]["rows"], 1, "{model}");
}

/// The first message to a webhook.
async fn told(listener: &TcpListener) -> Value {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut piece).await.expect("a request");
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        if let Some(Ok(message)) = body.map(|body| serde_json::from_str(&body)) {
            let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).await.expect("it waits");
            return message;
        }
        assert!(read > 0, "the request broke off: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_worse_than_it_was_measured_is_told_to_be_trained_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let cluster = taking(json!({"webhook": format!("http://{address}/retrain")})).await;
    let api = cluster.api();
    let images: Vec<usize> = (0..120).collect();
    let answer = ask(&api, &images).await;
    let (said, token) = (predicted(&answer), token(&answer));
    let items = images
        .iter()
        .map(|at| json!({"token": token, "row": at, "label": (said[*at] + 1) % 10}));
    let items: Vec<Value> = items.collect();
    assert_eq!(give(&api, &json!(items)).await.json(200)["accepted"], 120);
    let message = told(&listener).await;
    assert_eq!(
        (&message["event"], &message["alarm"]),
        (&json!("retrain"), &json!("level"))
    );
    assert_eq!(
        (&message["model"], &message["rows"]),
        (&answer["model"], &json!(120))
    );
    assert!(
        message["seen"].as_f64() < message["limit"].as_f64(),
        "{message}"
    );
    until("the alarm shows when it was sent", || async {
        let told = api.get("/v1/applications/digits/accuracy").await.json(200);
        let alarm = told["models"][0]["alarms"][0].clone();
        assert_eq!(alarm["kind"], "level", "{told}");
        alarm["told_ms"].is_u64().then_some(())
    })
    .await;
    let shown = cluster.client(&["feedback", "accuracy", "digits"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("level"), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_which_an_item_is_refused_is_sent_with_an_error() {
    let cluster = taking(json!({})).await;
    let answer = ask(&cluster.api(), &[0]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("labels.jsonl");
    let good = json!({"token": token(&answer), "label": 7});
    let bad = json!({"token": "none of ours", "label": 7});
    let send = |items: &[&Value]| {
        let lines: Vec<String> = items.iter().map(|item| format!("{item}\n")).collect();
        std::fs::write(&file, lines.concat()).expect("written");
        let sent = cluster.client(&["feedback", "send", &file.to_string_lossy()]);
        let told = String::from_utf8_lossy(&sent.stdout).into_owned();
        (sent.status.code(), told)
    };
    let (code, told) = send(&[&good]);
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = send(&[&good, &bad]);
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("1 accepted") && told.contains("item 1"),
        "{told}"
    );
}
