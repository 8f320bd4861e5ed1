//! Pipelines that are measured as a whole, and pipelines that are variants of an application.

use serde_json::{Value, json};
use sextant_tests::{Api, Settings, TestCluster, digits, root, until};

/// Registers the example's cascade with the command line, which waits until the cascade is measured.
fn register(cluster: &TestCluster, more: &[&str]) -> Value {
    let file = root().join("examples/pipelines/cascade.yaml");
    let file = file.to_string_lossy().into_owned();
    let command = ["--json", "pipeline", "register", file.as_str()];
    let output = cluster.client(&[&command[..], more].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    serde_json::from_str(&text).expect("JSON")
}

fn figure(of: &Value, name: &str) -> f64 {
    let found = of[name].as_f64();
    found.unwrap_or_else(|| panic!("no `{name}` in {of}"))
}

/// Sends an image until it is answered; the models may still be loading.
async fn ask(api: &Api, application: &str, targets: Value) -> Value {
    let images = digits::Images::load("test");
    let query = json!({"application": application, "explain": true, "targets": targets, "inputs": images.input(0)});
    until("the query is answered", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

async fn shown(api: &Api) -> Value {
    api.get("/v1/pipelines/careful-digits").await.json(200)
}

#[tokio::test]
async fn an_accuracy_of_the_whole_is_measured_kept_and_honoured() {
    let mut cluster = digits::service(Settings::default()).await;
    let set = digits::file("validation.npz");
    let made = register(&cluster, &["--validation", &set.to_string_lossy()]);
    let figures = made["measured"]["figures"].clone();
    assert_eq!(made["measured"]["state"], "current", "{made}");
    let (lower, value) = (figure(&figures, "lower"), figure(&figures, "value"));
    assert!(
        0.8 < lower && lower < value && value < figure(&figures, "upper"),
        "{figures}"
    );
    assert!(
        figure(&figures, "p50_ms") <= figure(&figures, "p99_ms"),
        "{figures}"
    );
    assert!(figure(&figures, "cost_per_1k_usd") > 0.0, "{figures}");
    let api = cluster.api();
    let job = made["measured"]["job"].as_str().map(str::to_owned);
    assert_eq!(job, None, "the measurement has ended");
    let jobs = api.get("/v1/jobs?kind=measure").await.json(200);
    let job = &jobs["jobs"][0];
    assert_eq!(
        (&job["state"], &job["application"]),
        (&json!("succeeded"), &json!("careful-digits"))
    );
    assert_eq!(job["result"]["accuracy"]["value"], figures["value"]);

    targets_are_held_to(&api, &figures).await;

    cluster.kill();
    cluster.launch();
    let api = cluster.api();
    assert_eq!(
        shown(&api).await["measured"]["figures"],
        figures,
        "the figures are kept"
    );

    // Without a set, nothing is measured of the whole pipeline.
    let change = json!({"validation": null});
    let path = "/v1/pipelines/careful-digits";
    let changed = api.patch(path, &change).await.json(200);
    assert!(changed["measured"].is_null(), "{changed}");
    api.post("/v1/queries", &careful(&json!({"min_accuracy": 0.5})))
        .await
        .problem(400, "invalid_target");
}

/// A query to the cascade with these targets.
fn careful(targets: &Value) -> Value {
    let images = digits::Images::load("test");
    json!({"application": "careful-digits", "targets": targets, "inputs": images.input(0)})
}

/// The targets of queries to the cascade are compared with its measured figures.
async fn targets_are_held_to(api: &Api, figures: &Value) {
    let (lower, value) = (figure(figures, "lower"), figure(figures, "value"));
    let met = ask(
        api,
        "careful-digits",
        json!({"min_accuracy": lower - 0.001}),
    )
    .await;
    assert_eq!(met["targets_met"], true, "{met}");
    ask(
        api,
        "careful-digits",
        json!({"min_relative_accuracy": 1.0, "prefer": "accuracy"}),
    )
    .await;
    let problem = api
        .post("/v1/queries", &careful(&json!({"min_accuracy": 0.9999})))
        .await
        .problem(422, "target_infeasible");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains(&format!("{value:.4}")), "{detail}");
    assert!(
        detail.contains("0.9999") && detail.contains(&format!("{lower:.4}")),
        "{detail}"
    );
    let dear = json!({"max_cost_per_1k_usd": figure(figures, "cost_per_1k_usd") / 2.0});
    api.post("/v1/queries", &careful(&dear))
        .await
        .problem(422, "target_infeasible");
}

#[tokio::test]
async fn a_model_that_a_pipeline_follows_makes_its_figure_stale() {
    let cluster = digits::service(Settings::default()).await;
    let made = register(&cluster, &["--variant-of", "digits"]);
    assert_eq!(made["measured"]["state"], "current", "{made}");
    let api = cluster.api();
    // The expensive model is replaced, so the figures belong to another pipeline.
    assert!(api.delete("/v1/models/cnn-small").await.status.is_success());
    until("the cascade cannot run", || async {
        shown(&api).await["unusable"].is_string().then_some(())
    })
    .await;
    let listed = api.get("/v1/variants?application=digits").await.json(200);
    assert!(listed["composites"].is_null(), "{listed}");
    let upload = sextant_tests::Upload {
        application: "digits",
        name: "cnn-small",
        model: digits::bytes("mlp.onnx"),
        validation: digits::bytes("validation.npz"),
        validation_name: "validation.npz",
    };
    assert_eq!(api.register(upload).await["state"], "succeeded");
    let anew = until("the cascade is measured again", || async {
        let shown = shown(&api).await;
        (shown["measured"]["state"] == "current").then_some(shown)
    })
    .await;
    assert_eq!(
        anew["version"], made["version"],
        "the definition has not changed"
    );
    let jobs = api.get("/v1/jobs?kind=measure").await.json(200);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(2), "{jobs}");
}

/// A cascade of two models. The expensive one answers if the cheap one gives more rows than `rows`.
fn cascade(rows: u32) -> Value {
    json!({"name": "careful-digits", "validation": {"file": "sets/digits.npz"},
    "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [1, 64]}],
    "outputs": {"scores": ["slow.scores", "fast.scores"]}, "steps": [
        {"name": "fast", "model": "logistic"},
        {"name": "slow", "model": "cnn-small", "inputs": {"pixels": "pixels"},
            "when": format!("size(fast.scores) > {rows}")},
    ]})
}

#[tokio::test]
async fn one_that_is_made_again_is_measured_anew() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    let set = digits::bytes("validation.npz");
    api.put("/v1/artefacts/sets/digits.npz", set)
        .await
        .json(201);
    let path = "/v1/pipelines/careful-digits";
    let mut figures = Vec::new();
    for rows in [0, 99] {
        let made = api.post("/v1/pipelines", &cascade(rows)).await.json(201);
        assert_eq!(
            (&made["version"], &made["measured"]["state"]),
            (&json!(1), &json!("measuring"))
        );
        let measured = until("the cascade is measured", || async {
            let shown = shown(&api).await;
            (shown["measured"]["state"] == "current").then_some(shown)
        })
        .await;
        figures.push(measured["measured"]["figures"]["value"].clone());
        assert_eq!(api.delete(path).await.status, 204);
    }
    assert_ne!(figures[0], figures[1], "the cascades run the same models");
    // A cascade that is deleted while it is measured does not prevent the measurement of the next one.
    api.post("/v1/pipelines", &cascade(0)).await.json(201);
    assert_eq!(api.delete(path).await.status, 204);
    api.post("/v1/pipelines", &cascade(0)).await.json(201);
    until("the next cascade is measured", || async {
        (shown(&api).await["measured"]["state"] == "current").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cascade_answers_for_an_application_where_it_is_the_cheapest_that_is_good_enough() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    // Next to these two models, a cascade of both is useful.
    for model in ["mlp", "cnn-large"] {
        api.delete(&format!("/v1/models/{model}")).await;
    }
    let made = register(&cluster, &["--variant-of", "digits"]);
    let cascade = &made["measured"]["figures"];
    digits::warm(&api).await;
    let listed = api.get("/v1/variants?application=digits").await.json(200);
    let composite = &listed["composites"][0];
    assert_eq!(
        (
            &composite["name"],
            &composite["answers"],
            &composite["figures"]
        ),
        (&json!("careful-digits-v1"), &json!(true), cascade)
    );
    let least = figure(cascade, "lower");
    let answer = ask(&api, "digits", json!({"min_accuracy": least})).await;
    let candidates = answer["explanation"]["candidates"]
        .as_array()
        .expect("candidates");
    let own = candidates
        .iter()
        .find(|it| it["variant"] == "careful-digits-v1");
    let own = own.unwrap_or_else(|| panic!("the cascade is no candidate: {answer}"));
    assert_eq!(figure(own, "accuracy_bound"), least, "{own}");
    let dear = candidates
        .iter()
        .filter(|it| figure(it, "accuracy_bound") >= least && *it != own);
    let dear = dear
        .map(|it| figure(it, "cost_per_1k_usd"))
        .fold(f64::INFINITY, f64::min);
    let is_cheapest = figure(own, "cost_per_1k_usd") < dear;
    assert_eq!(
        answer["variant"] == "careful-digits-v1",
        is_cheapest,
        "{answer}"
    );
    assert_eq!(
        own["verdict"],
        if is_cheapest { "selected" } else { "dearer" }
    );
    assert!(is_cheapest, "the dear model alone costs {dear}: {own}");
    assert_eq!(
        (&answer["model"], &answer["outputs"][0]["name"]),
        (&json!("careful-digits"), &json!("scores"))
    );
    let steps = answer["explanation"]["steps"].as_array().expect("steps");
    assert!(steps.iter().any(|step| step["name"] == "fast"), "{answer}");
    // A cheap model that is accurate enough answers as before, and so does a model that is more accurate than the
    // cascade.
    let easy = ask(&api, "digits", json!({"min_accuracy": 0.5})).await;
    assert_eq!(easy["model"], "logistic", "{easy}");
    let all = easy["explanation"]["candidates"]
        .as_array()
        .expect("candidates");
    let own = all.iter().find(|it| it["variant"] == "careful-digits-v1");
    assert_eq!(
        own.map(|it| &it["verdict"]),
        Some(&json!("dearer")),
        "{easy}"
    );
    each_row_takes_its_own_branches(&api, least).await;
    it_goes_with_its_models(&api).await;
}

async fn each_row_takes_its_own_branches(api: &Api, least: f64) {
    let images = digits::Images::load("test");
    let pixels: Vec<f32> = (0..32).flat_map(|at| images.pixels(at).to_vec()).collect();
    let query = json!({"application": "digits", "explain": true, "targets": {"min_accuracy": least},
        "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [32, 64], "data": pixels}]});
    let answer = api.post("/v1/queries", &query).await.json(200);
    assert_eq!(answer["variant"], "careful-digits-v1", "{answer}");
    assert_eq!(answer["outputs"][0]["shape"], json!([32, 10]));
    let steps = answer["explanation"]["steps"].as_array().expect("steps");
    let rows = |name: &str| {
        let step = steps.iter().find(|step| step["name"] == name);
        step.and_then(|it| it["rows"].as_u64()).expect("rows")
    };
    assert_eq!(rows("fast"), 32);
    assert!((1..32).contains(&rows("slow")), "{answer}");
    let scores = answer["outputs"][0]["data"].as_array().expect("scores");
    let right = scores
        .chunks(10)
        .zip(&images.labels)
        .filter(|(scores, label)| digits::digit(&json!(scores)) as i64 == **label);
    assert!(right.count() >= 29, "{answer}");
}

async fn it_goes_with_its_models(api: &Api) {
    assert!(api.delete("/v1/models/cnn-small").await.status.is_success());
    until("the cascade is no variant any more", || async {
        let listed = api.get("/v1/variants?application=digits").await.json(200);
        listed["composites"].is_null().then_some(())
    })
    .await;
    let answer = ask(api, "digits", json!({"min_accuracy": 0.5})).await;
    assert_eq!(answer["model"], "logistic");
}

#[tokio::test]
async fn what_is_no_variant_of_an_application_is_refused() {
    let cluster = digits::service(Settings::default()).await;
    let api = cluster.api();
    let definition = |more: Value| {
        let mut definition = json!({"name": "other", "steps": [
            {"name": "fast", "model": "logistic"},
            {"name": "likely", "softmax": {}, "inputs": {"scores": "fast.scores"}},
        ]});
        for (key, value) in more.as_object().expect("an object") {
            definition[key] = value.clone();
        }
        definition
    };
    for (more, what) in [
        (json!({"variant_of": "digits"}), "`scores`"),
        (json!({"variant_of": "nothing"}), "`nothing`"),
        (json!({"validation": {}}), "`file`"),
        (
            json!({"validation": {"file": "sets/none.npz"}}),
            "sets/none.npz",
        ),
        (
            json!({"validation": {"file": "a", "metric": "best"}}),
            "`best`",
        ),
    ] {
        let refused = api.post("/v1/pipelines", &definition(more)).await;
        let problem = refused.problem(400, "invalid_pipeline");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(what), "{detail}");
    }
    // A set that does not fit the pipeline ends the job with a reason.
    api.put("/v1/artefacts/sets/odd.csv", "a,label\n1,2\n")
        .await;
    let odd = definition(json!({"validation": {"file": "sets/odd.csv"}}));
    let made = api.post("/v1/pipelines", &odd).await.json(201);
    let job = made["measured"]["job"].as_str().expect("a job");
    let job = api
        .get(&format!("/v1/jobs/{job}?wait_ms=30000"))
        .await
        .json(200);
    assert_eq!(
        (&job["state"], &job["error"]["code"]),
        (&json!("failed"), &json!("invalid_validation_set"))
    );
    assert!(api.delete("/v1/pipelines/other").await.status.is_success());
}
