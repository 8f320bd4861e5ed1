//! `/v1/workers`, `/v1/instances`, `/v1/variants`: what runs where, and what was measured of it.

use serde_json::{Value, json};
use sextant_metadata::WorkerRecord;
use sextant_types::{Variant, WorkerId};

use crate::{
    double::{Api, Recorder},
    resources::{upload, with_digits},
};

fn processor() -> WorkerRecord {
    WorkerRecord {
        device: "cpu".into(),
        cores: 2,
        memory_bytes: 1 << 30,
        memory_used_bytes: 5,
        utilization: 0.25,
        ..WorkerRecord::default()
    }
}

/// A worker of this name is there.
async fn beat(api: &Api, name: &str, record: WorkerRecord) -> WorkerId {
    let worker: WorkerId = name.parse().expect("a name");
    let told = api.metadata.heartbeat(&worker, record, u64::MAX / 2, 1);
    told.await.expect("a lease");
    worker
}

#[tokio::test]
async fn workers_and_instances_come_from_the_metadata_store() {
    let api = Api::new(Recorder::answering()).await;
    beat(&api, "worker-0", processor()).await;
    let workers = api.get("/v1/workers").await.json();
    assert_eq!(workers["workers"][0]["name"], "worker-0");
    assert_eq!(workers["workers"][0]["utilization"], 0.25);
    assert_eq!(
        api.get("/v1/instances").await.json(),
        json!({"instances": []})
    );
}

#[tokio::test]
async fn device_types_are_shown_and_contradictions_are_coded() {
    use sextant_types::{DeviceType, EngineName};
    let api = Api::new(Recorder::answering()).await;
    for (since_ms, (worker, price_per_hour_usd)) in (1..).zip([("first", 2.5), ("second", 3.5)]) {
        let device_type = DeviceType {
            name: "gpu".parse().expect("a name"),
            engines: vec![EngineName("cuda".to_owned())],
            slots: 1,
            memory_bytes: 1 << 34,
            price_per_hour_usd,
            start_ms: 90_000,
        };
        let record = WorkerRecord {
            device_type: Some(device_type.into()),
            since_ms,
            ..WorkerRecord::default()
        };
        beat(&api, worker, record).await;
    }
    let body = api.get("/v1/workers").await.json();
    let wanted = json!({"name": "gpu", "engines": ["cuda"], "slots": 1,
        "memory_bytes": 1u64 << 34, "price_per_hour_usd": 2.5, "start_ms": 90_000});
    assert_eq!(body["workers"][0]["device_type"], wanted);
    let warnings = body["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 1, "{body}");
    assert_eq!(warnings[0]["code"], "device_type_conflict");
    assert_eq!(warnings[0]["worker"], "second");
}

#[tokio::test]
async fn variants_show_what_was_measured_and_where_they_run() {
    use sextant_metadata::{Command, InstanceKey, Transition};
    let api = with_digits().await;
    upload(&api, "mlp", b"onnx").await;
    let variant = crate::double::variant();
    api.registry
        .put_variants(std::slice::from_ref(&variant))
        .await
        .expect("stored");
    api.metadata
        .publish_variant(variant.clone().into())
        .await
        .expect("published");
    let worker = beat(&api, "worker-0", processor()).await;
    let load = Transition {
        key: InstanceKey::new(variant.id.clone(), worker),
        application: variant.application.clone(),
        expected_version: None,
        command: Command::Load,
    };
    api.metadata.transition(&load, 2).await.expect("loading");

    let name = variant.id.as_str();
    let json = api.get(&format!("/v1/variants/{name}")).await.json();
    assert_eq!(json["name"], name);
    assert_eq!(json["precision"], "int8s");
    let accuracy = json!({"metric": "top1", "value": 0.95, "lower": 0.92, "upper": 0.97,
        "records": 360, "evaluation_batch": 32, "kind": "accuracy"});
    assert_eq!(json["accuracy"], accuracy);
    assert_eq!(json["latency"][1]["batch"], 8);
    assert_eq!(
        (&json["alpha_ms"], &json["beta_ms"]),
        (&json!(0.1), &json!(0.4))
    );
    assert_eq!(json["dominated_by"], "mlp-rten-fp32-all-t1-b8");
    assert_eq!(json["instances"][0]["state"], "loading");
    assert_eq!(json["instances"][0]["worker"], "worker-0");
    for path in [
        "/v1/models/mlp/variants",
        "/v1/applications/digits/variants",
    ] {
        assert_eq!(api.get(path).await.json(), json!({"variants": [json]}));
    }
    assert_eq!(api.get("/v1/models/mlp").await.json()["variants"], 1);
    let index = api.call("POST", "/v2/repository/index", "").await.json();
    let entries = index.as_array().expect("a list").iter();
    let entries: Vec<_> = entries.map(|it| (&it["name"], &it["state"])).collect();
    let named = |at: usize| entries[at].0.as_str().expect("a name");
    assert_eq!((named(0), named(1)), ("digits", "mlp"), "{index}");
    assert_eq!(entries[2], (&json["name"], &json!("UNAVAILABLE")));
    let text = String::from_utf8(api.get("/metrics").await.bytes).expect("UTF-8");
    assert!(
        text.contains("sextant_instances{state=\"loading\"} 1"),
        "{text}"
    );
    api.get("/v1/variants/none")
        .await
        .problem("variant_not_found");

    let job = api.get("/v1/models/mlp").await.json()["job"].clone();
    let job = format!("/v1/jobs/{}", job.as_str().expect("a job"));
    api.call("DELETE", &job, "").await;
    assert_eq!(api.call("DELETE", "/v1/models/mlp", "").await.status, 204);
    assert!(api.metadata.variants().await.expect("read").is_empty());
}

/// Variants of everything come in pages also where nobody asks for pages; those of one application come whole.
#[tokio::test]
async fn variants_of_all_applications_come_in_pages() {
    let api = with_digits().await;
    upload(&api, "mlp", b"onnx").await;
    let of_number = |number: usize| Variant {
        id: format!("mlp-ort-{number:03}").parse().expect("a name"),
        dominated_by: None,
        ..crate::double::variant()
    };
    let all: Vec<_> = (0..101).map(of_number).collect();
    api.registry.put_variants(&all).await.expect("stored");
    let count = |page: &Value| page["variants"].as_array().expect("a list").len();
    let first = api.get("/v1/variants").await.json();
    assert_eq!(count(&first), 100);
    let next = first["next"].as_str().expect("there is another");
    let path = format!("/v1/variants?after={}", next.replace(' ', "%20"));
    let second = api.get(&path).await.json();
    assert_eq!(count(&second), 1);
    assert_eq!(second["variants"][0]["name"], "mlp-ort-100");
    assert!(second.get("next").is_none(), "{second}");
    let whole = api.get("/v1/applications/digits/variants").await.json();
    assert_eq!(count(&whole), 101);
    let asked = api.get("/v1/variants?limit=101").await.json();
    assert_eq!(count(&asked), 101);
}

#[tokio::test]
async fn an_accuracy_target_must_suit_the_metric() {
    let api = Api::new(Recorder::answering()).await;
    let regression = r#"{"name":"prices","metric":"mae","default_targets":{"max_error":2}}"#;
    let created = api
        .call("POST", "/v1/applications", regression)
        .await
        .json();
    assert_eq!(created["default_targets"], json!({"max_error": 2.0}));
    let query =
        |target: &str| format!(r#"{{"application":"prices","targets":{{{target}}},"inputs":[]}}"#);
    assert_eq!(
        api.call("POST", "/v1/queries", query("\"max_error\":1"))
            .await
            .status,
        200
    );
    let reading = api
        .call("POST", "/v1/queries", query("\"min_accuracy\":0.9"))
        .await;
    reading.problem("invalid_target");
}

#[tokio::test]
async fn a_worker_tells_how_punctual_it_is() {
    let api = Api::new(Recorder::answering()).await;
    let stats = api.get("/v1/workers/idle/stats").await.json();
    assert_eq!(stats["device"], "emulated:0");
    assert_eq!(stats["engines"], json!(["emulated"]));
    let pages = json!({"page_bytes": 16 << 20, "total": 1376, "free": 1369});
    assert_eq!(stats["pages"], pages);
    let infer = &stats["actions"]["infer"];
    assert_eq!(infer["succeeded"], 1000);
    assert_eq!(infer["failed"], json!({"too_late": 3}));
    assert_eq!(infer["under_predicted"]["p99_us"], 55.0);
    assert_eq!(infer["over_predicted"]["count"], 0);
    let unknown = api.get("/v1/workers/nobody/stats").await;
    assert_eq!(unknown.status, 404);
    unknown.problem("worker_not_found");
    let malformed = api.get("/v1/workers/No%20Name/stats").await;
    malformed.problem("invalid_name");
}
