//! Engines that only some of the machines have.

use super::*;

/// The model's variants as the API lists them.
async fn variants(api: &Api) -> Vec<Value> {
    let body = api.get("/v1/models/mlp/variants").await.json(200);
    body["variants"].as_array().expect("a list").clone()
}

fn of_engine<'a>(variants: &'a [Value], engine: &str) -> Vec<&'a Value> {
    let of_engine = |it: &&Value| it["engine"] == engine;
    variants.iter().filter(of_engine).collect()
}

/// The measurements of a variant, without the members that a later variant changes.
fn measured(variant: &Value) -> Value {
    let mut measured = variant.clone();
    let fields = measured.as_object_mut().expect("an object");
    fields.retain(|name, _| ["name", "accuracy", "latency", "artefact"].contains(&name.as_str()));
    measured
}

#[tokio::test]
async fn a_device_that_only_another_machine_has_gets_variants_that_answer() {
    let settings = FleetSettings {
        set: vec!["variants.engines=rten".to_owned()],
        ..FleetSettings::default()
    };
    let mut fleet = Fleet::start(settings);
    let api = fleet.api();
    learn(&api).await;
    let before = variants(&api).await;
    assert_eq!(of_engine(&before, "rten").len(), before.len());
    let set = ["worker.devices=emulated:1", "variants.register=false"];
    fleet.spawn("device", "worker,variant-gen", &set);
    let after = until("the device has variants", || async {
        let after = variants(&api).await;
        (after.len() > before.len()).then_some(after)
    })
    .await;
    let added = of_engine(&after, "emulated");
    assert_eq!(before.len() + added.len(), after.len());
    let kept = of_engine(&after, "rten").into_iter().map(measured);
    let wanted: Vec<Value> = before.iter().map(measured).collect();
    assert_eq!(kept.collect::<Vec<_>>(), wanted);
    let jobs = api.get("/v1/jobs?kind=extend").await.json(200);
    let jobs = jobs["jobs"].as_array().expect("a list");
    let [job] = jobs.as_slice() else {
        panic!("{jobs:?}");
    };
    assert_eq!(job["spec"]["engine"], "emulated", "{job}");
    assert_eq!(job["attempts"], 1, "{job}");
    let model = api.get("/v1/models/mlp").await.json(200);
    assert_eq!(model["status"], "ready", "{model}");
    let inputs = digits::Images::load("test").input(0);
    let query = json!({"variant": added[0]["name"], "inputs": inputs});
    until("the device answers", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then_some(())
    })
    .await;
    // Other processes still register models.
    let job = api
        .register(digits::upload("digits", "cnn", "cnn-small"))
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
}
