//! What is desired beside what is there, decisions, and how they come as events.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, BodyDataStream},
    http::Request,
};
use futures::StreamExt;
use serde_json::{Value, json};
use sextant_metadata::{
    Action, Alternative, ApplicationDemand, Command, Count, Cutback, Decision, Demand,
    DesiredState, DesiredVariant, Input, InstanceKey, Limit, Pool, Subject, Transition,
    WorkerRecord,
};
use sextant_types::{Code, DeviceType, EngineName, TargetClass, Targets};
use tokio::time::timeout;

use crate::double::{ADMIN, Api, Recorder, Settings, variant};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn api() -> Api {
    Api::new(Recorder::answering()).await
}

fn device_type(name: &str, price_per_hour_usd: f64) -> Arc<DeviceType> {
    Arc::new(DeviceType {
        name: name.parse().expect("a name"),
        engines: vec![EngineName("ort".to_owned())],
        slots: 8,
        memory_bytes: 1 << 34,
        price_per_hour_usd,
        start_ms: 60_000,
    })
}

async fn heartbeat(api: &Api, name: &str, device_type: &Arc<DeviceType>, draining: bool) {
    let record = WorkerRecord {
        device_type: Some(Arc::clone(device_type)),
        draining,
        ..WorkerRecord::default()
    };
    let name = name.parse().expect("a name");
    let told = api.metadata.heartbeat(&name, record, 60_000, 1).await;
    told.expect("told");
}

async fn step(api: &Api, worker: &str, command: Command) {
    let transition = Transition {
        key: InstanceKey::new(variant().id, worker.parse().expect("a name")),
        application: variant().application,
        expected_version: None,
        command,
    };
    let stepped = api.metadata.transition(&transition, 2).await;
    stepped.expect("a step that the machine knows");
}

fn pool(name: &str, desired: u32) -> Pool {
    Pool {
        device_type: name.parse().expect("a name"),
        desired,
        least: 1,
        most: 8,
        provider: Some("process".into()),
        facts: None,
        trouble: None,
    }
}

fn decision(number: u64, subject: Subject) -> Decision {
    Decision {
        number,
        at_ms: 1000 * number,
        subject,
        action: Action::AddWorkers,
        from: 1,
        to: 2,
        reason: "there is more to do".into(),
        inputs: Vec::new(),
        alternatives: Vec::new(),
    }
}

/// Decisions with these numbers: odd ones of a pool, even ones of a variant.
fn decisions(numbers: impl IntoIterator<Item = u64>) -> Vec<Decision> {
    let subject = |number| match number % 2 {
        1 => Subject::Pool("cpu-8".parse().expect("a name")),
        _ => Subject::Variant(variant().id),
    };
    let numbers = numbers.into_iter();
    numbers
        .map(|number| decision(number, subject(number)))
        .collect()
}

async fn want(api: &Api, pools: Vec<Pool>, decisions: Vec<Decision>) {
    let variants = vec![DesiredVariant {
        variant: variant().id,
        workers: Count::Workers(3),
        pinned: true,
        needed: 2,
    }];
    let expected = DesiredState::new(4, variants, 0).with_scaling(pools, decisions);
    api.metadata.set_desired(expected).await.expect("taken");
}

async fn read(api: &Api, path: &str) -> Value {
    let reading = api.get(path).await;
    let json = reading.json();
    assert_eq!(reading.status, 200, "{json}");
    json
}

/// `/v1/scaling` without the former names of fields, each of which says what its present name says.
async fn scaling(api: &Api) -> Value {
    let mut body = read(api, "/v1/scaling").await;
    take_former_names(&mut body);
    body
}

fn take_former_names(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (former, name) in [("wanted", "desired"), ("wanted_token", "desired_token")] {
                assert_eq!(fields.remove(former).as_ref(), fields.get(name));
            }
            fields.values_mut().for_each(take_former_names);
        }
        Value::Array(items) => items.iter_mut().for_each(take_former_names),
        _ => {}
    }
}

#[tokio::test]
async fn before_an_autoscaler_has_spoken_nothing_is_desired() {
    let api = api().await;
    let expected = json!({"desired_token": null, "pools": [], "variants": [], "demand": null,
        "cost_per_hour_usd": {"desired": null, "actual": 0.0}, "held_back": []});
    assert_eq!(scaling(&api).await, expected);
    heartbeat(&api, "a", &device_type("cpu-8", 0.5), false).await;
    step(&api, "a", Command::Load).await;
    let pool = json!({"device_type": "cpu-8", "desired": null, "least": null, "most": null, "up": 1,
        "leaving": 0, "draining": 0, "price_per_hour_usd": 0.5, "start_s": 60.0});
    let loading = json!({"variant": variant().id.to_string(), "application": "digits",
        "needed": null, "desired": null, "ready": 0, "loading": 1, "failed": 0, "pinned": null});
    let expected = json!({"desired_token": null, "pools": [pool], "variants": [loading],
        "demand": null, "cost_per_hour_usd": {"desired": null, "actual": 0.5},
        "held_back": []});
    assert_eq!(scaling(&api).await, expected);
    let none = read(&api, "/v1/scaling/decisions").await;
    assert_eq!(none, json!({"decisions": []}));
}

#[tokio::test]
async fn desired_stands_beside_what_is_there() {
    let api = api().await;
    let cpu = device_type("cpu-8", 0.5);
    heartbeat(&api, "a", &cpu, false).await;
    heartbeat(&api, "b", &cpu, true).await;
    step(&api, "a", Command::Load).await;
    step(&api, "a", Command::Loaded).await;
    want(&api, vec![pool("cpu-8", 3)], Vec::new()).await;
    let body = scaling(&api).await;
    let pool = json!({"device_type": "cpu-8", "desired": 3, "least": 1, "most": 8, "up": 1,
        "leaving": 0, "draining": 1, "provider": "process", "price_per_hour_usd": 0.5, "start_s": 60.0});
    assert_eq!(body["pools"], json!([pool]));
    let ready = json!({"variant": variant().id.to_string(), "application": "digits",
        "needed": 2, "desired": 3, "ready": 1, "loading": 0, "failed": 0, "pinned": true});
    assert_eq!(body["variants"], json!([ready]));
    assert_eq!(body["desired_token"], 4);
    let cost = json!({"desired": 1.5, "actual": 1.0});
    assert_eq!(body["cost_per_hour_usd"], cost);
}

#[tokio::test]
async fn who_is_held_back_is_named_with_the_reason() {
    let api = api().await;
    let limits = [Limit::Budget, Limit::MostWorkers, Limit::Others];
    let held_back = limits.map(|limit| Cutback {
        application: "digits".parse().expect("a name"),
        limit,
        reason: "as it is".into(),
    });
    let expected = DesiredState {
        token: 4,
        held_back: held_back.to_vec(),
        ..DesiredState::default()
    };
    api.metadata.set_desired(expected).await.expect("taken");
    let rows = ["budget", "most_workers", "others"]
        .map(|limit| json!({"application": "digits", "limit": limit, "reason": "as it is"}));
    let body = scaling(&api).await;
    assert_eq!(body["held_back"], json!(rows));
}

#[tokio::test]
async fn a_pool_that_has_no_worker_is_known_by_its_facts() {
    let api = api().await;
    heartbeat(&api, "a", &device_type("cpu-8", 0.5), false).await;
    let troubled = Pool {
        facts: Some(device_type("gpu", 3.0)),
        trouble: Some("`up` failed: raise the quota".into()),
        ..pool("gpu", 2)
    };
    let unknown = pool("tpu", 0);
    want(&api, vec![troubled, unknown.clone()], Vec::new()).await;
    let body = scaling(&api).await;
    let pools = json!([
        {"device_type": "cpu-8", "desired": null, "least": null, "most": null, "up": 1,
            "leaving": 0, "draining": 0, "price_per_hour_usd": 0.5, "start_s": 60.0},
        {"device_type": "gpu", "desired": 2, "least": 1, "most": 8, "up": 0, "leaving": 0, "draining": 0,
            "provider": "process", "price_per_hour_usd": 3.0, "start_s": 60.0,
            "trouble": "`up` failed: raise the quota"},
        {"device_type": "tpu", "desired": 0, "least": 1, "most": 8, "up": 0, "leaving": 0, "draining": 0,
            "provider": "process"},
    ]);
    assert_eq!(body["pools"], pools);
    let cost = json!({"desired": 6.0, "actual": 0.5});
    assert_eq!(body["cost_per_hour_usd"], cost);
    let expected = Pool {
        desired: 1,
        ..unknown
    };
    want(&api, vec![expected], Vec::new()).await;
    let body = scaling(&api).await;
    let cost = json!({"desired": null, "actual": 0.5});
    assert_eq!(body["cost_per_hour_usd"], cost, "its price is not known");
}

#[tokio::test]
async fn what_is_asked_for_is_added_up_by_application_and_class() {
    let api = api().await;
    let class = |latency_ms, min_quality| {
        TargetClass::of(&Targets {
            latency_ms,
            min_quality,
            ..Targets::default()
        })
    };
    let row = |application: &str, class, offered, refused: &[(Code, u64)]| ApplicationDemand {
        application: application.parse().expect("a name"),
        class,
        variant: None,
        offered,
        input_rows: offered,
        sized_rows: 0.0,
        latency_ms: None,
        answered: offered / 2,
        late: 1,
        kept: 1,
        refused: refused.iter().copied().collect(),
        queueing_ms: 0,
        step: None,
    };
    let (fast, any) = (class(Some(20.0), Some(0.95)), class(None, None));
    let with_variant = ApplicationDemand {
        variant: Some(variant().id),
        ..row("digits", fast, 300, &[(Code::Overloaded, 3)])
    };
    let demand = Demand {
        token: 1,
        window_ms: 2000,
        applications: vec![
            row(
                "digits",
                fast,
                100,
                &[(Code::Overloaded, 2), (Code::Warming, 1)],
            ),
            with_variant,
            row("digits", any, 10, &[]),
            row("prices", class(None, Some(-0.25)), 4, &[]),
        ],
        ..Demand::default()
    };
    api.metadata.set_demand(demand).await.expect("taken");
    let body = read(&api, "/v1/scaling").await;
    let classes = json!([
        {"application": "digits", "offered_rps": 5.0, "answered": 5, "kept": 1, "late": 1,
            "refused": {}},
        {"application": "digits", "latency_ms": 16.0, "min_accuracy": 0.95, "offered_rps": 200.0,
            "answered": 200, "kept": 2, "late": 2, "refused": {"overloaded": 5, "warming": 1}},
        {"application": "prices", "max_error": 0.25, "offered_rps": 2.0, "answered": 2, "kept": 1, "late": 1,
            "refused": {}},
    ]);
    assert_eq!(
        body["demand"],
        json!({"window_ms": 2000, "classes": classes})
    );
}

fn numbers(answer: &Value) -> Vec<u64> {
    let list = answer["decisions"].as_array().expect("a list");
    let number = |decision: &Value| decision["number"].as_u64().expect("a number");
    list.iter().map(number).collect()
}

#[tokio::test]
async fn decisions_come_in_pages_newest_first() {
    let api = api().await;
    want(&api, Vec::new(), decisions(1..=80)).await;
    let all = numbers(&read(&api, "/v1/scaling/decisions").await);
    assert_eq!(all, (17..=80).rev().collect::<Vec<_>>(), "the last 64");
    let mut paged = Vec::new();
    let mut before = u64::MAX;
    loop {
        let path = format!("/v1/scaling/decisions?limit=30&before={before}");
        let page = numbers(&read(&api, &path).await);
        let Some(last) = page.last() else { break };
        before = *last;
        paged.push(page);
    }
    let sizes: Vec<usize> = paged.iter().map(Vec::len).collect();
    assert_eq!((sizes, paged.concat()), (vec![30, 30, 4], all));
    let of_pool = "/v1/scaling/decisions?subject=cpu-8&limit=2";
    assert_eq!(numbers(&read(&api, of_pool).await), [79, 77]);
    let of_variant = format!("/v1/scaling/decisions?subject={}&before=21", variant().id);
    assert_eq!(numbers(&read(&api, &of_variant).await), [20, 18]);
    let of_nobody = read(&api, "/v1/scaling/decisions?subject=nobody").await;
    assert_eq!(numbers(&of_nobody), [0; 0]);
}

#[tokio::test]
async fn a_decision_tells_what_it_rests_on() {
    let api = api().await;
    let class = TargetClass {
        latency_log2_ms: Some(4),
        min_quality_hundredths: Some(95),
        min_agreement_hundredths: None,
        prefer: Default::default(),
    };
    let made = Decision {
        inputs: vec![Input {
            application: "digits".parse().expect("a name"),
            class,
            offered_rps: 100.0,
            planned_rps: 150.0,
        }],
        alternatives: vec![
            Alternative {
                what: "1 worker of gpu".into(),
                cost_per_hour_usd: Some(3.5),
                why_not: "it costs more".into(),
            },
            Alternative {
                what: "9 workers of cpu-8".into(),
                cost_per_hour_usd: None,
                why_not: "there may be 8 at most".into(),
            },
        ],
        ..decision(7, Subject::Pool("cpu-8".parse().expect("a name")))
    };
    want(&api, Vec::new(), vec![made]).await;
    let told = json!({"number": 7, "at_ms": 7000, "subject": {"kind": "pool", "name": "cpu-8"},
        "action": "add_workers", "from": 1, "to": 2, "reason": "there is more to do",
        "inputs": [{"application": "digits", "latency_ms": 16.0, "min_accuracy": 0.95,
            "offered_rps": 100.0, "planned_rps": 150.0}],
        "alternatives": [
            {"what": "1 worker of gpu", "cost_per_hour_usd": 3.5, "why_not": "it costs more"},
            {"what": "9 workers of cpu-8", "why_not": "there may be 8 at most"}]});
    let listed = read(&api, "/v1/scaling/decisions").await;
    assert_eq!(listed, json!({"decisions": [told]}));
    let mut stream = stream(&api, Some("0")).await;
    assert_eq!(next(&mut stream).await, (7, told));
}

#[tokio::test]
async fn bad_parameters_are_refused() {
    let api = api().await;
    for (query, code, field) in [
        ("limit=0", "invalid_request", Some("limit")),
        ("limit=65", "invalid_request", Some("limit")),
        ("limit=-1", "invalid_request", None),
        ("before=soon", "invalid_request", None),
        ("after=3", "invalid_request", None),
        ("subject=No%20Name", "invalid_name", Some("subject")),
    ] {
        let refused = api.get(&format!("/v1/scaling/decisions?{query}")).await;
        assert_eq!(refused.status, 400, "{query}");
        let problem = refused.problem(code);
        assert_eq!(problem["field"].as_str(), field, "{problem}");
    }
    let request = Request::get("/v1/scaling/events").header("last-event-id", "the last");
    let refused = api.send(request.body(Body::empty()).expect("a request"));
    let refused = refused.await;
    assert_eq!(refused.status, 400);
    let problem = refused.problem("invalid_request");
    assert!(problem["detail"].to_string().contains("`the last`"));
}

/// An open stream, and what of it belongs to no whole event yet.
struct EventStream {
    body: BodyDataStream,
    rest: String,
}

async fn stream(api: &Api, known: Option<&str>) -> EventStream {
    let mut request = Request::get("/v1/scaling/events");
    if let Some(known) = known {
        request = request.header("last-event-id", known);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = api.open(request).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    EventStream {
        body: response.into_body().into_data_stream(),
        rest: String::new(),
    }
}

/// Id and data of the next event; `None` at the end.
async fn next_or_end(stream: &mut EventStream) -> Option<(u64, Value)> {
    loop {
        if let Some((event, rest)) = stream.rest.split_once("\n\n") {
            let (event, rest) = (event.to_owned(), rest.to_owned());
            stream.rest = rest;
            if event.starts_with(':') {
                continue;
            }
            let member = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            assert_eq!(member("event: "), Some("decision"), "{event}");
            let id = member("id: ").and_then(|id| id.parse().ok());
            let data = member("data: ").and_then(|data| serde_json::from_str(data).ok());
            return Some((id.expect("a number"), data.expect("JSON")));
        }
        let piece = timeout(PATIENCE, stream.body.next()).await;
        let piece = piece.expect("an event in time")?.expect("a piece");
        stream.rest += std::str::from_utf8(&piece).expect("UTF-8");
    }
}

async fn next(stream: &mut EventStream) -> (u64, Value) {
    next_or_end(stream).await.expect("an event")
}

#[tokio::test]
async fn decisions_come_as_events_when_they_are_made() {
    let api = api().await;
    let mut early = stream(&api, None).await;
    want(&api, Vec::new(), decisions(1..=2)).await;
    for number in 1..=2 {
        let (id, data) = next(&mut early).await;
        assert_eq!((id, data["number"].as_u64()), (number, Some(number)));
    }
    let mut late = stream(&api, None).await;
    let mut resumed = stream(&api, Some("1")).await;
    want(&api, vec![pool("cpu-8", 1)], decisions(1..=3)).await;
    assert_eq!(next(&mut early).await.0, 3);
    assert_eq!(next(&mut late).await.0, 3, "what was made before is known");
    assert_eq!(next(&mut resumed).await.0, 2);
    assert_eq!(next(&mut resumed).await.0, 3);
    drop((early, late, resumed));
    let mut again = stream(&api, Some("2")).await;
    assert_eq!(next(&mut again).await.0, 3);
}

#[tokio::test]
async fn a_stream_goes_on_with_what_is_kept() {
    let api = api().await;
    want(&api, Vec::new(), decisions(1..=80)).await;
    let mut behind = stream(&api, Some("3")).await;
    assert_eq!(next(&mut behind).await.0, 17, "the oldest that is kept");
    let mut lost = stream(&api, Some("1000")).await;
    assert_eq!(next(&mut lost).await.0, 17, "of a store that is gone");
    let mut open = stream(&api, None).await;
    want(&api, Vec::new(), decisions(1..=2)).await;
    assert_eq!(next(&mut open).await.0, 1, "numbers begin again");
    assert_eq!(next(&mut open).await.0, 2);
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_service() {
    let api = api().await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(stream(&api, None).await);
    }
    let refused = api.get("/v1/scaling/events").await;
    assert_eq!(refused.status, 429);
    refused.problem("overloaded");
    streams.pop();
    streams.push(stream(&api, None).await);
    api.state.drain();
    for stream in &mut streams {
        assert_eq!(next_or_end(stream).await, None);
    }
}

#[tokio::test]
async fn keys_open_what_they_are_good_for() {
    let api = Api::with(Recorder::answering(), Settings::keys()).await;
    let application = json!({"name": "digits", "metric": "top1"}).to_string();
    let created = api
        .keyed(ADMIN, "POST", "/v1/applications", application)
        .await;
    assert_eq!(created.status, 201);
    let key = async |application: Option<&str>| {
        let key = json!({"name": "a key", "scopes": ["query"], "application": application});
        let created = api.keyed(ADMIN, "POST", "/v1/keys", key.to_string()).await;
        let secret = created.json()["secret"].as_str().map(str::to_owned);
        (created.json()["key"]["id"].clone(), secret.expect("a key"))
    };
    let ((id, any), (_, bound)) = (key(None).await, key(Some("digits")).await);
    for path in ["/v1/scaling", "/v1/scaling/decisions", "/v1/scaling/events"] {
        api.get(path).await.problem("unauthenticated");
        let refused = api.keyed(&bound, "GET", path, "").await;
        assert_eq!(refused.status, 403, "{path}");
        refused.problem("forbidden");
    }
    let open = Request::get("/v1/scaling/events").header("x-api-key", &any);
    let open = open.body(Body::empty()).expect("a request");
    let mut stream = EventStream {
        body: api.open(open).await.into_body().into_data_stream(),
        rest: String::new(),
    };
    want(&api, Vec::new(), decisions(1..=1)).await;
    assert_eq!(next(&mut stream).await.0, 1);
    let path = format!("/v1/keys/{}", id.as_str().expect("an id"));
    let revoked = api.keyed(ADMIN, "DELETE", &path, "").await;
    assert!(revoked.status.is_success(), "{}", revoked.status);
    api.state.refresh().await.expect("read");
    want(&api, Vec::new(), decisions(1..=2)).await;
    assert_eq!(next_or_end(&mut stream).await, None, "the key is revoked");
}
