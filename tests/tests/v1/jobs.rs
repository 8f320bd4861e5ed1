//! `/v1/jobs`: files of records in, files of answers out.

use serde_json::{Value, json};
use sextant_tests::{Api, digits};

/// One record per line: the images of the test set, over and over.
fn records(count: usize) -> String {
    let images = digits::Images::load("test");
    (0..count)
        .map(|index| {
            let pixels = images.pixels(index % images.len());
            format!("{}\n", json!({"inputs": {"pixels": pixels}}))
        })
        .collect()
}

async fn answers(api: &Api, path: &str) -> Vec<Value> {
    let text = api.get(&format!("/v1/artefacts/{path}")).await.text();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

#[tokio::test]
async fn every_record_is_answered_in_its_place() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    api.put("/v1/artefacts/order/in.jsonl", records(300))
        .await
        .json(201);
    let body = json!({
        "application": "digits", "targets": {"min_accuracy": 0.9}, "chunk": 64,
        "input": "order/in.jsonl", "output": "order/out.jsonl"
    });
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    assert_eq!(job["progress"], json!({"done": 300, "total": 300}));
    let answers = answers(&api, "order/out.jsonl").await;
    assert_eq!(answers.len(), 300);
    let mut correct = 0;
    for (index, answer) in answers.iter().enumerate() {
        assert_eq!(answer["index"], index);
        correct +=
            i32::from(digits::digit(&answer["outputs"]["scores"]) as i64 == images.labels[index]);
    }
    assert!(
        correct >= 270,
        "{correct} of 300 images were read correctly"
    );
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_stop_the_others() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    let good = records(1);
    let short = json!({"inputs": {"pixels": [1, 2, 3]}});
    let input = format!("{good}this is no record\n{short}\n{good}");
    api.put("/v1/artefacts/mixed/in.jsonl", input)
        .await
        .json(201);
    let body = json!({"model": "logistic", "input": "mixed/in.jsonl", "output": "mixed/out.jsonl"});
    let queued = api.post("/v1/jobs", &body).await.json(202);
    let job = api.job_over(queued["id"].as_str().expect("an id")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let answers = answers(&api, "mixed/out.jsonl").await;
    assert_eq!(answers.len(), 4);
    assert!(answers[0]["outputs"].is_object() && answers[3]["outputs"].is_object());
    for index in [1, 2] {
        assert_eq!(
            answers[index]["error"]["code"], "invalid_record",
            "{}",
            answers[index]
        );
    }
    assert_eq!(answers[0]["outputs"], answers[3]["outputs"]);
}

#[tokio::test]
async fn the_same_job_twice_is_one() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    api.put("/v1/artefacts/same/in.jsonl", records(3))
        .await
        .json(201);
    let body = json!({
        "id": "same-job", "model": "logistic",
        "input": "same/in.jsonl", "output": "same/out.jsonl"
    });
    let first = api.post("/v1/jobs", &body).await.json(202);
    let second = api.post("/v1/jobs", &body).await.json(202);
    assert_eq!(first["created_ms"], second["created_ms"]);
    api.job_over("same-job").await;
    let listed = api.get("/v1/jobs?kind=offline&limit=1000").await.json(200);
    let jobs = listed["jobs"].as_array().expect("a list");
    assert_eq!(jobs.iter().filter(|job| job["id"] == "same-job").count(), 1);
    let over = api.delete("/v1/jobs/same-job").await.json(200);
    assert_eq!(over["state"], "succeeded");
}

#[tokio::test]
async fn jobs_that_cannot_run_are_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    api.put("/v1/artefacts/refused/in.jsonl", records(1))
        .await
        .json(201);
    let job = |name: &str, value: &str, input: &str, output: &str| json!({name: value, "input": input, "output": output});
    let (input, output) = ("refused/in.jsonl", "refused/out.jsonl");
    for (body, status, code) in [
        (
            job("application", "nobody", input, output),
            404,
            "application_not_found",
        ),
        (
            job("model", "nobody", input, output),
            404,
            "model_not_found",
        ),
        (
            job("variant", "nobody", input, output),
            404,
            "variant_not_found",
        ),
        (
            job("model", "mlp", "refused/none.jsonl", output),
            404,
            "artefact_not_found",
        ),
        (
            job("model", "mlp", "../in.jsonl", output),
            400,
            "invalid_path",
        ),
        (job("model", "mlp", input, "/etc/out"), 400, "invalid_path"),
        (job("model", "mlp", input, input), 400, "invalid_request"),
    ] {
        api.post("/v1/jobs", &body).await.problem(status, code);
    }
    let mut chunkless = job("model", "mlp", input, output);
    chunkless["chunk"] = json!(0);
    api.post("/v1/jobs", &chunkless)
        .await
        .problem(400, "invalid_request");
    api.get("/v1/jobs/nobody")
        .await
        .problem(404, "job_not_found");
    api.delete("/v1/jobs/nobody")
        .await
        .problem(404, "job_not_found");
    let mut impossible = job("application", "digits", input, output);
    impossible["targets"] = json!({"min_accuracy": 1.0});
    let answer = api.post("/v1/jobs", &impossible).await;
    let code = match answer.status.as_u16() {
        202 => {
            let id = answer.json(202)["id"].as_str().expect("an id").to_owned();
            api.job_over(&id).await["error"]["code"].clone()
        }
        _ => answer.json(422)["code"].clone(),
    };
    assert_eq!(code, "target_infeasible");
}
