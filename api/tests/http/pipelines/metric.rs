//! By what pipelines are measured.

use super::*;

#[tokio::test]
async fn its_metric_is_that_of_its_definition_where_it_is_measured() {
    let api = Api::new(echoing()).await;
    let put = api
        .call("PUT", "/v1/artefacts/set.csv", "image,label\n")
        .await;
    assert_eq!(put.status, 201);
    let mut measured = definition();
    measured["validation"] = json!({"file": "set.csv"});
    let made = api.call("POST", "/v1/pipelines", measured.to_string());
    assert_eq!(made.await.status, 201);
    let application = async |change: Value| {
        let path = "/v1/applications/photos";
        api.call("PATCH", path, change.to_string()).await
    };
    let pipeline = async |change: Value| {
        let path = "/v1/pipelines/photos";
        api.call("PATCH", path, change.to_string()).await
    };
    application(json!({"metric": "mae"}))
        .await
        .problem("in_use");
    let preset = json!({"presets": {"sure": {"min_accuracy": 0.9}}});
    assert_eq!(application(preset).await.status, 200);
    let by_error = json!({"validation": {"metric": "mae"}});
    let refused = pipeline(by_error).await.problem("invalid_target");
    assert_eq!(refused["field"], "presets.sure", "{refused}");
    assert_eq!(api.get("/v1/pipelines/photos").await.json()["version"], 1);
}

#[tokio::test]
async fn a_change_of_one_that_is_not_measured_leaves_its_metric_alone() {
    let api = with_pipeline().await;
    let metric = json!({"metric": "top1"}).to_string();
    let chosen = api.call("PATCH", "/v1/applications/photos", metric).await;
    assert_eq!(chosen.status, 200, "{}", chosen.json());
    let change = json!({"description": "of colours"}).to_string();
    let changed = api.call("PATCH", "/v1/pipelines/photos", change).await;
    assert_eq!(changed.status, 200, "{}", changed.json());
    let application = api.get("/v1/applications/photos").await.json();
    assert_eq!(application["metric"], "top1", "{application}");
}
