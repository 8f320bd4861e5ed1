//! `PATCH /v1/applications/{application}`: a budget, the queries that it refuses, and how long it holds.

use serde_json::{Value, json};
use sextant_tests::{Answer, Api, TestCluster, digits, until};

const DIGITS: &str = "/v1/applications/digits";

/// US dollars an hour: a minute of it pays for a few queries of the device below.
const SMALL: f64 = 0.01;

/// A service whose only device costs 36 dollars an hour.
async fn dear() -> TestCluster {
    let set = [
        "worker.devices=emulated:1@dear",
        "prices.devices.dear.hour_usd=36",
        "variants.engines=emulated",
        "variants.max_batch=8",
    ];
    digits::with_mlp(&set).await
}

async fn ask(api: &Api) -> Answer {
    let input = digits::Images::load("test").input(0);
    let query = json!({"application": "digits", "inputs": input});
    api.post("/v1/queries", &query).await
}

async fn set_budget(api: &Api, usd: Value) -> Value {
    let body = json!({"resources": {"budget_per_hour_usd": usd}});
    api.patch(DIGITS, &body).await.json(200)
}

/// Sends queries until one is refused with this code. Returns the refusal and the costs of the answers before it, US
/// dollars.
async fn ask_until(api: &Api, code: &str) -> (Answer, Vec<f64>) {
    let mut costs = Vec::new();
    loop {
        // Each look sends one query; the service may not know the budget yet and may have loaded nothing.
        let answer = until("a query is answered or refused for the budget", || async {
            let answer = ask(api).await;
            let is_over = answer.status.is_success() || answer.text().contains(code);
            is_over.then_some(answer)
        })
        .await;
        if !answer.status.is_success() {
            return (answer, costs);
        }
        let cost = answer.json(200)["cost_usd"].as_f64();
        costs.push(cost.expect("an answer has a cost"));
        assert!(costs.len() < 100_000, "the budget never refuses");
    }
}

/// Checks the refusal of a query that can be paid for later: it says when.
fn says_when(refused: &Answer) {
    let problem = refused.problem(429, "budget_exhausted");
    let wait_ms = problem["retry_after_ms"].as_u64().expect("a time");
    let header = refused.headers["retry-after"].to_str().expect("a number");
    let seconds: u64 = header.parse().expect("a number");
    assert_eq!(seconds, wait_ms.div_ceil(1000).max(1), "{problem}");
    assert!(
        problem["detail"].to_string().contains("digits"),
        "{problem}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_refuses_what_it_cannot_pay_until_it_is_raised() {
    let cluster = dear().await;
    let api = cluster.api();
    let set = set_budget(&api, json!(SMALL)).await;
    assert_eq!(set["resources"]["budget_per_hour_usd"], SMALL);
    let (refused, costs) = ask_until(&api, "budget_exhausted").await;
    says_when(&refused);
    assert!(!costs.is_empty(), "a full bucket pays for some queries");
    // A raised budget pays at once. Queries that name the model or use best effort are charged, too.
    set_budget(&api, json!(1000.0)).await;
    until("the raised budget pays", || async {
        ask(&api).await.status.is_success().then_some(())
    })
    .await;
    let input = digits::Images::load("test").input(0);
    set_budget(&api, json!(0.0)).await;
    let named = json!({"model": "mlp", "inputs": input});
    let refused = until("no query is paid for any more", || async {
        let answer = api.post("/v1/queries", &named).await;
        (!answer.status.is_success()).then_some(answer)
    })
    .await;
    let problem = refused.problem(429, "budget_exhausted");
    assert!(problem.get("retry_after_ms").is_none(), "never: {problem}");
    let best_effort =
        json!({"application": "digits", "inputs": input, "on_infeasible": "best_effort"});
    api.post("/v1/queries", &best_effort)
        .await
        .problem(429, "budget_exhausted");
    let set = set_budget(&api, Value::Null).await;
    assert!(set.get("resources").is_none(), "{set}");
    until("queries are answered without a budget", || async {
        ask(&api).await.status.is_success().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_outlives_the_service() {
    let mut cluster = dear().await;
    set_budget(&cluster.api(), json!(0.0)).await;
    ask_until(&cluster.api(), "budget_exhausted").await;
    cluster.kill();
    cluster.launch();
    let api = cluster.api();
    let read = api.get(DIGITS).await.json(200);
    assert_eq!(read["resources"], json!({"budget_per_hour_usd": 0.0}));
    let (refused, answered) = ask_until(&api, "budget_exhausted").await;
    refused.problem(429, "budget_exhausted");
    assert_eq!(answered, [0.0; 0], "none was answered meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_costs_nothing_is_answered_under_any_budget() {
    let cluster = digits::with_mlp(&[
        "variants.engines=emulated",
        "worker.devices=emulated:1@free",
        "prices.devices.free.hour_usd=0",
    ])
    .await;
    let api = cluster.api();
    set_budget(&api, json!(0.0)).await;
    for _ in 0..20 {
        let answer = until("a free query is answered", || async {
            let answer = ask(&api).await;
            let refused = answer.text().contains("budget_exhausted");
            assert!(!refused, "{}", answer.text());
            answer.status.is_success().then_some(answer)
        });
        assert_eq!(answer.await.json(200)["cost_usd"], 0.0);
    }
}

#[tokio::test]
async fn what_no_application_can_be_given_is_refused() {
    let cluster = digits::shared().await;
    let api = cluster.api();
    for resources in [
        json!({"budget_per_hour_usd": -0.01}),
        json!({"least_workers": 3, "most_workers": 2}),
        json!({"most_workers": 4_000_000_000_u32}),
        json!({"priority": -1}),
        json!({"weight": 0}),
        json!({"colour": "red"}),
    ] {
        let body = json!({ "resources": resources });
        let refused = api.patch(DIGITS, &body).await;
        refused.problem(400, "invalid_request");
    }
    let body = json!({"resources": {"weight": 2.0}});
    api.patch("/v1/applications/nobody", &body)
        .await
        .problem(404, "application_not_found");
    let read = api.get(DIGITS).await.json(200);
    assert!(read.get("resources").is_none(), "{read}");
}

#[tokio::test]
async fn the_command_line_sets_and_shows_what_an_application_may_use() {
    let cluster = digits::shared().await;
    cluster.api().create_application("by-hand").await;
    let set = [
        "application",
        "set",
        "by-hand",
        "--budget-per-hour",
        "2.5",
        "--priority",
        "7",
    ];
    let said = cluster.client(&set);
    assert!(said.status.success(), "{said:?}");
    let read = cluster
        .api()
        .get("/v1/applications/by-hand")
        .await
        .json(200);
    let expected = json!({"budget_per_hour_usd": 2.5, "priority": 7});
    assert_eq!(read["resources"], expected);
    let back = ["application", "set", "by-hand", "--budget-per-hour", "none"];
    assert!(cluster.client(&back).status.success());
    let shown = cluster.client(&["application", "get", "by-hand"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.contains("priority: 7") && !text.contains("budget"),
        "{text}"
    );
}
