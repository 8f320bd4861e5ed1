//! Versions, kept answers and feedback, with front ends, dispatcher and stores in processes of their own.

use futures::future::join_all;
use sextant_tests::{Answer, Load};

use super::*;

/// Registers another file as the next version of `mlp`.
async fn next(api: &Api, file: &str) {
    let job = api.register(digits::upload("digits", "mlp", file)).await;
    assert_eq!(job["state"], "succeeded", "{job}");
}

async fn ask(api: &Api, image: usize) -> Value {
    let input = digits::Images::load("test").input(image);
    let query = json!({"application": "digits", "inputs": input});
    until("a query is answered", || async {
        let answer = api.post("/v1/queries", &query).await;
        answer.status.is_success().then(|| answer.json(200))
    })
    .await
}

/// Waits until a version answers the application.
async fn await_version(api: &Api, version: u64) {
    until("the version answers", || async {
        (ask(api, 0).await["version"] == version).then_some(())
    })
    .await;
}

async fn promote(api: &Api, version: u64, seen: u64) -> Answer {
    let path = format!("/v1/models/mlp/versions/{version}/promotion");
    api.post(&path, &json!({"current": seen})).await
}

/// The version that is current in the registry; there is exactly one.
async fn current(api: &Api) -> u64 {
    let versions = api.get("/v1/models/mlp/versions").await.json(200);
    let all = versions["versions"].as_array().expect("a list");
    let current = all.iter().filter(|it| it["stage"] == "current").count();
    assert_eq!(current, 1, "{versions}");
    versions["current"].as_u64().expect("a version")
}

/// The registry has the switch, but the processes that answer do not know it. The version from before goes on
/// answering, and the switch takes effect when the store is back.
#[tokio::test]
async fn a_switch_amid_which_redis_is_lost_comes_to_one_current_version() {
    let mut fleet = fleet().await;
    let api = fleet.api();
    next(&api, "logistic").await;
    for round in 0..4u64 {
        let seen = current(&api).await;
        let other = 3 - seen;
        let load = Load::start(fleet.api(), 2, None).await;
        load.answers(20).await;
        let switching = tokio::spawn({
            let api = fleet.api();
            async move { promote(&api, other, seen).await }
        });
        // The data is lost before, while or after the switch is shown; rounds with kept and with lost data alternate.
        tokio::time::sleep(Duration::from_millis(4 * round)).await;
        fleet.redis.kill();
        load.answers(20).await;
        match round % 2 {
            0 => fleet.redis.restart(),
            _ => fleet.redis.restart_empty(),
        }
        let answer = switching.await.expect("an answer");
        if !answer.status.is_success() {
            answer.problem(503, "unavailable");
        }
        let tally = load.stop().await;
        explained(&tally);
        assert!(tally.longest < LONGEST, "{tally:?}");
        await_version(&api, current(&api).await).await;
        if current(&api).await == seen {
            promote(&api, other, seen).await.json(200);
        }
        await_version(&api, other).await;
    }
}

/// A second front end, which keeps its inputs instead of sending them to the dispatcher.
fn keeping(fleet: &mut Fleet) -> Api {
    fleet.spawn("keeping", "api", &["fleet.inline_bytes=0"]);
    fleet.api_of("keeping")
}

/// Sends a query until the answer is one that was kept.
async fn ask_until_kept(api: &Api, image: usize) -> Value {
    until("the answer is kept", || async {
        let answer = ask(api, image).await;
        (answer["cached"] == true).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn of_equal_queries_that_come_to_a_front_end_at_once_one_runs() {
    let mut fleet = fleet().await;
    let api = keeping(&mut fleet);
    let body = json!({"resources": {"cache_bytes": 1 << 20}});
    api.patch("/v1/applications/digits", &body).await.json(200);
    // From here on, answers of the variant are kept without a comparison.
    let kept = ask_until_kept(&api, 0).await;
    let images = digits::Images::load("test");
    let ask = async |image: usize| {
        let query = json!({"variant": kept["variant"], "inputs": images.input(image)});
        api.post("/v1/queries", &query).await.json(200)
    };
    for image in 1..=4 {
        let answers = join_all((0..16).map(|_| ask(image))).await;
        let ran: Vec<&Value> = answers.iter().filter(|it| it["cached"] != true).collect();
        assert_eq!(ran.len(), 1, "{answers:?}");
        assert!(answers.iter().all(|it| it["outputs"] == ran[0]["outputs"]));
    }
}

#[tokio::test]
async fn front_ends_answer_by_what_they_have_kept_and_right_after_a_switch_by_the_other_version() {
    let mut fleet = fleet().await;
    let api = fleet.api();
    next(&api, "logistic").await;
    let body = json!({"resources": {"cache_bytes": 1 << 20}, "feedback": {}});
    api.patch("/v1/applications/digits", &body).await.json(200);
    // Small inputs go to the dispatcher, which keeps their answers. The other inputs and their answers stay in the
    // front end.
    let mut given = 0;
    for api in [api.clone(), keeping(&mut fleet)] {
        until("answers have tokens", || async {
            ask(&api, 9).await["feedback_token"]
                .is_string()
                .then_some(())
        })
        .await;
        let before = ask_until_kept(&api, 0).await;
        assert_eq!(before["version"], 1, "{before}");
        assert_eq!(before["cost_usd"], 0.0, "{before}");
        promote(&api, 2, 1).await.json(200);
        await_version(&api, 2).await;
        let after = ask(&api, 0).await;
        assert_eq!(after["version"], 2, "{after}");
        assert_ne!(after["outputs"], before["outputs"]);
        // Feedback matches both kinds of answers, whichever process kept them.
        let kept = ask_until_kept(&api, 0).await;
        for (answer, version) in [(&before, 1), (&after, 2), (&kept, 2)] {
            let label = digits::digit(&answer["outputs"][0]["data"]);
            let item = json!({"token": answer["feedback_token"], "label": label});
            let taken = fleet.api().post("/v1/feedback", &item).await.json(200);
            assert_eq!(
                (&taken["accepted"], &taken["unscored"]),
                (&json!(1), &json!(0)),
                "version {version}"
            );
        }
        let exported = api.get("/v1/applications/digits/feedback").await.text();
        let of = |version: &str| exported.matches(version).count();
        given += 1;
        assert_eq!(of("\"version\":1,"), given, "{exported}");
        assert_eq!(of("\"version\":2,"), 2 * given, "{exported}");
        promote(&api, 1, 2).await.json(200);
        await_version(&api, 1).await;
    }
    // Demand that needs no device is reported as such.
    until("demand that needed no device is shown", || async {
        ask_until_kept(&api, 0).await;
        let scaling = api.get("/v1/scaling").await.json(200);
        let classes = scaling["demand"]["classes"].as_array()?;
        let of = classes.iter().find(|it| it["application"] == "digits")?;
        (of["kept"].as_u64()? > 0).then_some(())
    })
    .await;
}
