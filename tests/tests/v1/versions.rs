//! `/v1/models/{model}/versions`: the next version, shadows, canaries, switches and rollbacks.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sextant_tests::{Answer, Api, Settings, TestCluster, digits, until};

mod faults;
mod upgrade;

/// A service whose application `digits` has `model`, with `mlp` as its first version.
async fn service() -> TestCluster {
    service_with(Settings::default()).await
}

async fn service_with(settings: Settings) -> TestCluster {
    let cluster = TestCluster::start(settings);
    let api = cluster.api();
    api.create_application("digits").await;
    let job = api.register(digits::upload("digits", "model", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    cluster
}

/// Registers another file of the example as the next version.
async fn next(api: &Api, file: &str, fields: &[(&str, &str)]) -> Value {
    let upload = digits::upload("digits", "model", file);
    let accepted = api.upload_with(upload, fields).await.json(202);
    let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    accepted
}

async fn ask(api: &Api, what: (&str, &str), image: usize) -> Answer {
    let images = digits::Images::load("test");
    let query = json!({what.0: what.1, "inputs": images.input(image)});
    api.post("/v1/queries", &query).await
}

/// The version that answers.
async fn answers(api: &Api, what: (&str, &str)) -> u64 {
    let answer = ask(api, what, 0).await.json(200);
    answer["version"].as_u64().expect("a version")
}

/// Waits until a version answers.
async fn await_version(api: &Api, what: (&str, &str), version: u64) {
    until("a version answers", || async {
        (answers(api, what).await == version).then_some(())
    })
    .await;
}

async fn act(api: &Api, version: u32, act: &str, seen: u32) -> Answer {
    let path = format!("/v1/models/model/versions/{version}/{act}");
    api.post(&path, &json!({"current": seen})).await
}

async fn stages(api: &Api) -> Vec<String> {
    let versions = api.get("/v1/models/model/versions").await.json(200);
    let versions = versions["versions"].as_array().expect("a list").clone();
    let stage = |it: &Value| it["stage"].as_str().expect("a stage").to_owned();
    versions.iter().map(stage).collect()
}

/// The audit record of two verdicts; each verdict is recorded when it is carried out.
async fn judged(api: &Api) -> Value {
    let audit = api.get("/v1/audit?actor=judge").await.json(200);
    let entries = audit["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), 2, "{audit}");
    audit
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_registered_tried_promoted_and_rolled_back() {
    let cluster = service().await;
    let api = cluster.api();
    let before = ask(&api, ("model", "model"), 3).await.json(200);
    assert_eq!(
        (&before["model"], &before["version"]),
        (&json!("model"), &json!(1))
    );
    let second = next(&api, "logistic", &[]).await;
    assert_eq!(
        (&second["model"], &second["version"]),
        (&json!("model.v2"), &json!(2))
    );
    assert_eq!(stages(&api).await, ["current", "candidate"]);

    // Only queries that name the version get its answers.
    for (name, version) in [
        ("model", 1),
        ("model@1", 1),
        ("model@2", 2),
        ("digits:model", 1),
        ("digits:model@2", 2),
        ("model.v2", 2),
    ] {
        assert_eq!(answers(&api, ("model", name)).await, version, "{name}");
    }
    assert_eq!(answers(&api, ("application", "digits")).await, 1);
    for name in ["model@3", "others:model", "model.v3"] {
        let refused = ask(&api, ("model", name), 0).await;
        refused.problem(404, "model_not_found");
    }

    let changed = act(&api, 2, "promotion", 1).await.json(200);
    assert_eq!(changed["current"], 2, "{changed}");
    await_version(&api, ("model", "model"), 2).await;
    await_version(&api, ("application", "digits"), 2).await;
    assert_eq!(answers(&api, ("model", "model@1")).await, 1);

    // The other administrator has not seen the promotion.
    act(&api, 2, "rollback", 1)
        .await
        .problem(409, "version_conflict");
    let back = act(&api, 2, "rollback", 2).await.json(200);
    assert_eq!(back["current"], 1, "{back}");
    await_version(&api, ("model", "model"), 1).await;
    let after = ask(&api, ("model", "model"), 3).await.json(200);
    assert_eq!(after["variant"], before["variant"]);
    assert_eq!(after["outputs"], before["outputs"], "bit for bit");
    act(&api, 2, "rollback", 1)
        .await
        .problem(409, "version_conflict");
    act(&api, 1, "rollback", 1)
        .await
        .problem(409, "version_conflict");

    // The current version can only be deleted last.
    let kept = api.delete("/v1/models/model").await;
    kept.problem(409, "in_use");
    assert_eq!(api.delete("/v1/models/model@2").await.status, 204);
    assert_eq!(stages(&api).await, ["current"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_fails_while_versions_are_switched() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let clients = (0..3).map(|client| {
        let (api, stop) = (cluster.api(), std::sync::Arc::clone(&stop));
        tokio::spawn(async move {
            let mut seen = BTreeMap::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let answer = ask(&api, ("application", "digits"), client).await.json(200);
                let version = answer["version"].as_u64().expect("a version");
                let data = answer["outputs"][0]["data"].to_string();
                seen.entry((version, answer["variant"].to_string(), data))
                    .and_modify(|count| *count += 1)
                    .or_insert(1u64);
            }
            seen
        })
    });
    let clients: Vec<_> = clients.collect();
    for _ in 0..3 {
        act(&api, 2, "promotion", 1).await.json(200);
        await_version(&api, ("application", "digits"), 2).await;
        act(&api, 2, "rollback", 2).await.json(200);
        await_version(&api, ("application", "digits"), 1).await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for client in clients {
        let seen = client.await.expect("no query fails");
        let versions: std::collections::BTreeSet<u64> = seen.keys().map(|it| it.0).collect();
        assert_eq!(versions.len(), 2, "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_answers_its_share_and_keys_keep_their_version() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    let change = |body: Value| {
        let api = api.clone();
        async move { api.patch("/v1/models/model/versions/2", &body).await }
    };
    for (body, says) in [
        (json!({"stage": "canary"}), "needs `percent`"),
        (json!({"stage": "canary", "percent": 0}), "above 0"),
        (json!({"stage": "canary", "percent": 101}), "at most 100"),
        (
            json!({"stage": "candidate", "percent": 5}),
            "has no `percent`",
        ),
        (json!({"stage": "current"}), "promotion"),
    ] {
        let refused = change(body).await.problem(400, "invalid_request");
        assert!(
            refused["detail"].as_str().expect("why").contains(says),
            "{refused}"
        );
    }
    let on_current = api
        .patch("/v1/models/model/versions/1", &json!({"stage": "retired"}))
        .await;
    on_current.problem(409, "version_conflict");
    change(json!({"stage": "canary", "percent": 50}))
        .await
        .json(200);
    assert_eq!(stages(&api).await, ["current", "canary"]);
    let images = digits::Images::load("test");
    let sticky = |key: usize| {
        let query = json!({
            "application": "digits", "sticky": format!("user-{key}"), "inputs": images.input(0),
        });
        let api = api.clone();
        async move { api.post("/v1/queries", &query).await.json(200)["version"].clone() }
    };
    until("the canary is loaded", || async {
        let mut versions = std::collections::BTreeSet::new();
        for key in 0..20 {
            versions.insert(sticky(key).await.to_string());
        }
        (versions.len() == 2).then_some(())
    })
    .await;
    for key in 0..20 {
        let first = sticky(key).await;
        assert_eq!(sticky(key).await, first, "user-{key}");
    }
    let long = json!({
        "application": "digits", "sticky": "x".repeat(257), "inputs": images.input(0),
    });
    api.post("/v1/queries", &long)
        .await
        .problem(400, "invalid_request");
    let trials = until("the canary's answers are told", || async {
        let trials = api.get("/v1/models/model/trials").await.json(200);
        let trials = trials["trials"].as_array().expect("a list").clone();
        (trials.len() == 2).then_some(trials)
    })
    .await;
    assert!(trials.iter().all(|it| it["errors"] == 0), "{trials:?}");
    change(json!({"stage": "candidate"})).await.json(200);
    until("the current version answers alone", || async {
        for key in 0..20 {
            if sticky(key).await != 1 {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_is_compared_and_answers_nobody() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "cnn-small", &[]).await;
    api.patch("/v1/models/model/versions/2", &json!({"stage": "shadow"}))
        .await
        .json(200);
    let compared = until("the shadow is compared", || async {
        for image in 0..8 {
            let answer = ask(&api, ("application", "digits"), image).await.json(200);
            assert_eq!(answer["version"], 1);
        }
        let trials = api.get("/v1/models/model/trials").await.json(200);
        let trials = trials["trials"].as_array().expect("a list").clone();
        let shadow = trials.into_iter().find(|it| it["version"] == 2)?;
        (shadow["rows"].as_u64()? > 4).then_some(shadow)
    })
    .await;
    assert_eq!(compared["errors"], 0, "{compared}");
    assert!(compared["agreeing"].as_u64() > Some(0), "{compared}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_applications_have_models_of_one_name() {
    let cluster = service().await;
    let api = cluster.api();
    api.create_application("others").await;
    let job = api
        .register(digits::upload("others", "model", "logistic"))
        .await;
    assert_eq!(job["state"], "succeeded", "{job}");
    // The model that was registered first keeps the bare name.
    for (name, model) in [
        ("model", "model"),
        ("digits:model", "model"),
        ("others:model", "model.others"),
        ("others:model@1", "model.others"),
    ] {
        let answer = ask(&api, ("model", name), 0).await.json(200);
        assert_eq!(answer["model"], model, "{name}");
        let path = format!("/v1/models/{name}");
        assert_eq!(api.get(&path).await.json(200)["id"], model, "{path}");
        let path = format!("/v2/models/{name}");
        assert_eq!(
            api.get(&path).await.json(200)["versions"],
            json!(["1"]),
            "{path}"
        );
    }
    let own = api.get("/v1/models/others:model").await.json(200);
    assert_eq!(
        (&own["name"], &own["application"]),
        (&json!("model"), &json!("others"))
    );
    assert_eq!(api.delete("/v1/models/model").await.status, 204);
    until("the name belongs to the other model", || async {
        let answer = ask(&api, ("model", "model"), 0).await;
        (answer.status == 200 && answer.json(200)["model"] == "model.others").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_fails_leaves_the_current_one_alone() {
    let cluster = service().await;
    let api = cluster.api();
    let mut broken = digits::upload("digits", "model", "mlp");
    broken.model.truncate(2000);
    let accepted = api.upload(broken).await.json(202);
    assert_eq!(accepted["version"], 2);
    let job = api.job_over(accepted["job"].as_str().expect("a job")).await;
    assert_eq!(job["state"], "failed", "{job}");
    let versions = api.get("/v1/models/model/versions").await.json(200);
    assert_eq!(versions["current"], 1, "{versions}");
    assert_eq!(versions["versions"][1]["status"], "failed", "{versions}");
    assert_eq!(answers(&api, ("model", "model")).await, 1);
    for (path, body) in [
        ("/v1/models/model/versions/2/promotion", json!({})),
        ("/v1/models/model/versions/2/rollback", json!({})),
    ] {
        api.post(path, &body).await.problem(409, "version_conflict");
    }
    let absent = api
        .post("/v1/models/model/versions/9/promotion", &json!({}))
        .await;
    let told = absent.problem(404, "model_not_found")["detail"].to_string();
    assert!(told.contains("there are `1`, `2`"), "{told}");
    // The next registration replaces the failed version.
    let second = next(&api, "logistic", &[("stage", "current")]).await;
    assert_eq!(second["version"], 2, "{second}");
    await_version(&api, ("model", "model"), 2).await;
    let audit = api.get("/v1/audit?action=model.create").await.json(200);
    assert!(
        audit["entries"].as_array().is_some_and(|it| it.len() >= 3),
        "{audit}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_that_agrees_is_promoted_by_itself_and_one_that_does_not_goes() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    let rules = |least: f64| {
        json!({"stage": "shadow", "rules": {
            "min_agreement": least, "minimum": 20, "max_error_share": 0.5, "max_late_share": 0.5,
            "promote": true,
        }})
    };
    let path = "/v1/models/model/versions/2";
    let unusable = json!({"stage": "shadow", "rules": {"alpha": 0}});
    api.patch(path, &unusable)
        .await
        .problem(400, "invalid_request");
    let untried = json!({"stage": "candidate", "rules": {}});
    api.patch(path, &untried)
        .await
        .problem(400, "invalid_request");
    let await_verdict = |wanted: &'static str| {
        let api = api.clone();
        async move {
            until("the shadow is judged", || async {
                for image in 0..8 {
                    ask(&api, ("application", "digits"), image).await.json(200);
                }
                (stages(&api).await[1] == wanted).then_some(())
            })
            .await;
        }
    };
    // No measurement can show that the versions always agree.
    api.patch(path, &rules(1.0)).await.json(200);
    let images = digits::Images::load("test");
    let differs = until("an answer differs", || async {
        for image in 0..images.len() {
            ask(&api, ("application", "digits"), image).await.json(200);
            if stages(&api).await[1] == "retired" {
                return Some(());
            }
        }
        None
    });
    differs.await;
    api.patch(path, &rules(0.3)).await.json(200);
    await_verdict("current").await;
    assert_eq!(stages(&api).await, ["retired", "current"]);
    let audit = judged(&api).await;
    let entries = audit["entries"].as_array().expect("a list");
    assert_eq!(entries[0]["action"], "version.promote", "{audit}");
    assert_eq!(entries[0]["subject"], "digits:model@2", "{audit}");
    assert!(entries[0]["detail"]["inputs"].is_array(), "{audit}");
}

/// Sends queries and labels the answers until the second version has `stage`. Every label says that version `wrong` was
/// wrong.
async fn label_until(api: &Api, wrong: u64, stage: &str) {
    let images = digits::Images::load("test");
    until("the canary is judged", || async {
        for image in 0..12 {
            let query = json!({"application": "digits", "inputs": images.input(image)});
            let answer = api.post("/v1/queries", &query).await.json(200);
            let said = digits::digit(&answer["outputs"][0]["data"]);
            let label = match answer["version"] == wrong {
                true => (said + 1) % 10,
                false => said,
            };
            let item = json!({"token": answer["feedback_token"], "label": label});
            api.post("/v1/feedback", &item).await.json(200);
        }
        (stages(api).await[1] == stage).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feedback_decides_about_a_canary() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    let taking = json!({"feedback": {}});
    api.patch("/v1/applications/digits", &taking)
        .await
        .json(200);
    let tried = json!({"stage": "canary", "percent": 50, "rules": {
        "minimum": 20, "max_error_share": 0.9, "max_late_share": 0.9, "promote": true,
    }});
    let path = "/v1/models/model/versions/2";
    api.patch(path, &tried).await.json(200);
    label_until(&api, 2, "retired").await;
    api.patch(path, &tried).await.json(200);
    label_until(&api, 1, "current").await;
    let audit = judged(&api).await;
    let entries = audit["entries"].as_array().expect("a list");
    for (entry, action) in entries.iter().zip(["version.promote", "version.change"]) {
        assert_eq!(entry["action"], action, "{audit}");
        let inputs = entry["detail"]["inputs"].as_array().expect("a list");
        let of_feedback = inputs.iter().any(|it| it["what"] == "difference");
        assert!(of_feedback, "{audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_what_a_shadow_has_answered_too_decide_about_it() {
    let cluster = service().await;
    let api = cluster.api();
    next(&api, "logistic", &[]).await;
    let taking = json!({"feedback": {}});
    api.patch("/v1/applications/digits", &taking)
        .await
        .json(200);
    // Images for which the versions give different answers, with both answers.
    let images = digits::Images::load("test");
    let mut differing = Vec::new();
    for image in 0..images.len() {
        let said = |name: &'static str| {
            let api = api.clone();
            async move {
                let answer = ask(&api, ("model", name), image).await.json(200);
                digits::digit(&answer["outputs"][0]["data"])
            }
        };
        let (current, shadow) = (said("model@1").await, said("model@2").await);
        if current != shadow {
            differing.push((image, current, shadow));
        }
    }
    assert!(!differing.is_empty(), "the versions give different answers");
    let rules =
        json!({"minimum": 10, "max_error_share": 0.9, "max_late_share": 0.9, "promote": true});
    let tried = json!({"stage": "shadow", "rules": rules});
    let path = "/v1/models/model/versions/2";
    for (is_right, stage) in [(false, "retired"), (true, "current")] {
        api.patch(path, &tried).await.json(200);
        until("the shadow is judged", || async {
            for (image, current, shadow) in &differing {
                let answer = ask(&api, ("application", "digits"), *image).await.json(200);
                if is_right && answer["version"] == 2 {
                    // The version was promoted between the last look at the stages and this query.
                    assert_eq!(stages(&api).await, ["retired", "current"], "{answer}");
                    return Some(());
                }
                assert_eq!(answer["version"], 1, "{answer}");
                let label = if is_right { shadow } else { current };
                let item = json!({"token": answer["feedback_token"], "label": label});
                api.post("/v1/feedback", &item).await.json(200);
                if stages(&api).await[1] == stage {
                    return Some(());
                }
            }
            None
        })
        .await;
    }
    let audit = judged(&api).await;
    let entries = audit["entries"].as_array().expect("a list");
    for (entry, action) in entries.iter().zip(["version.promote", "version.change"]) {
        assert_eq!(entry["action"], action, "{audit}");
        let inputs = entry["detail"]["inputs"].as_array().expect("a list");
        let difference = inputs.iter().find(|it| it["what"] == "difference");
        let difference = difference.unwrap_or_else(|| panic!("{audit}"));
        assert!(difference["count"].as_u64() >= Some(10), "{audit}");
    }
}
