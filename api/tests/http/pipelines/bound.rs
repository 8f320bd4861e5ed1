//! What a key that is bound to a pipeline may do to it.

use super::*;

/// The key of a new pipeline `photos`, whose labels and set are files of the store.
async fn with_files() -> (Api, String) {
    let api = Api::with(echoing(), Settings::keys()).await;
    for path in ["labels.txt", "other-team/customers.csv"] {
        let path = format!("/v1/artefacts/{path}");
        let put = api.keyed(ADMIN, "PUT", &path, "red\ngreen\nblue\n");
        assert_eq!(put.await.status, 201);
    }
    let made = api.keyed(
        ADMIN,
        "POST",
        "/v1/pipelines",
        labelled("labels.txt").to_string(),
    );
    let made = made.await;
    assert_eq!(made.status, 201, "{}", made.json());
    let body = json!({"name": "k", "scopes": ["register"], "application": "photos"});
    let key = api.keyed(ADMIN, "POST", "/v1/keys", body.to_string());
    let secret = key.await.json()["secret"]
        .as_str()
        .expect("a key")
        .to_owned();
    (api, secret)
}

/// Gives labels to scores, and asks nothing.
fn labelled(file: &str) -> Value {
    json!({
        "name": "photos",
        "steps": [{"name": "l", "top_k": {"labels_file": file, "k": 1}, "inputs": {"scores": "s"}}],
        "outputs": {"x": "l.labels"},
    })
}

fn says(problem: &Value, text: &str) -> bool {
    let detail = problem["detail"].as_str();
    detail.is_some_and(|detail| detail.contains(text))
}

#[tokio::test]
async fn a_bound_key_names_no_files_but_those_that_its_pipeline_has() {
    let (api, own) = with_files().await;
    let path = "/v1/pipelines/photos";
    let customers = labelled("other-team/customers.csv");
    for (method, body) in [
        ("PUT", customers.clone()),
        ("PATCH", json!({"steps": customers["steps"]})),
        (
            "PATCH",
            json!({"validation": {"file": "other-team/customers.csv"}}),
        ),
    ] {
        let refused = api.keyed(&own, method, path, body.to_string()).await;
        let problem = refused.problem("forbidden");
        assert!(says(&problem, "`other-team/customers.csv`"), "{problem}");
    }
    let put = api.keyed(
        ADMIN,
        "PUT",
        "/v1/artefacts/labels.txt",
        "one\ntwo\nthree\n",
    );
    assert!(put.await.status.is_success());
    let before = api.keyed(&own, "GET", path, "").await.json();
    let change = json!({"description": "mine"}).to_string();
    let changed = api.keyed(&own, "PATCH", path, change).await;
    assert_eq!(changed.status, 200, "{}", changed.json());
    let after = changed.json();
    assert_eq!(
        after["files"], before["files"],
        "as the pipeline keeps them"
    );
    assert_eq!(after["version"], 2);
}

/// What is wrong with a definition may tell of the inputs and outputs of what its steps ask.
#[tokio::test]
async fn a_bound_key_learns_nothing_of_another_application_by_definitions_that_are_wrong() {
    let (api, own) = with_files().await;
    let digits = json!({"name": "digits", "metric": "top1"}).to_string();
    let created = api.keyed(ADMIN, "POST", "/v1/applications", digits).await;
    assert_eq!(created.status, 201);
    api.put_model().await;
    for (what, name) in [
        ("application", "digits"),
        ("application", "nobody"),
        ("model", "mlp"),
    ] {
        let mut step = json!({"name": "s", "inputs": {"wrong": "x"}});
        step[what] = json!(name);
        let wrong = json!({"name": "photos", "steps": [step], "outputs": {"y": "s.wrong"}});
        for method in ["PUT", "PATCH"] {
            let path = "/v1/pipelines/photos";
            let refused = api.keyed(&own, method, path, wrong.to_string()).await;
            let problem = refused.problem("forbidden");
            assert!(!says(&problem, name), "{problem}");
        }
    }
}

#[tokio::test]
async fn a_pipeline_with_resources_is_deleted_by_an_administrator_alone() {
    let (api, own) = with_files().await;
    let resources = json!({"resources": {"budget_per_hour_usd": 1.0}}).to_string();
    let set = api.keyed(ADMIN, "PATCH", "/v1/applications/photos", resources);
    assert_eq!(set.await.status, 200);
    let path = "/v1/pipelines/photos";
    api.keyed(&own, "DELETE", path, "")
        .await
        .problem("forbidden");
    assert_eq!(api.keyed(ADMIN, "DELETE", path, "").await.status, 204);
}
