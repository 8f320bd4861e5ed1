//! Device types with prices of their own, in one process.

use serde_json::{Value, json};
use sextant_tests::{Api, TestCluster, digits, until};

/// A service with a cheap slow device and an expensive fast one.
async fn two_types() -> TestCluster {
    let set = [
        "worker.devices=emulated:1@slow,emulated:1@fast",
        "worker.emulated.types.fast.speed=20",
        "prices.devices.slow.hour_usd=0.5",
        "prices.devices.fast.hour_usd=50",
        "prices.devices.fast.start_s=7",
        "variants.engines=emulated",
        "variants.max_batch=4",
    ];
    digits::with_mlp(&set).await
}

/// The model's variants that no other variant dominates.
async fn frontier(api: &Api) -> Vec<Value> {
    let body = api.get("/v1/models/mlp/variants").await.json(200);
    let variants = body["variants"].as_array().expect("a list").clone();
    let free = variants
        .into_iter()
        .filter(|it| it["dominated_by"].is_null());
    free.collect()
}

/// The profiles of a variant on both types, the fast one first, once both were measured.
async fn measured(variant: &Value) -> Option<[Value; 2]> {
    let profiles = variant["profiles"].as_array()?;
    let [fast, slow] = profiles.as_slice() else {
        panic!("one profile for each type: {variant}");
    };
    assert_eq!(
        (&fast["device_type"], &slow["device_type"]),
        (&json!("fast"), &json!("slow"))
    );
    assert_eq!(
        slow["estimated"], false,
        "it was registered there: {variant}"
    );
    let both = || [fast.clone(), slow.clone()];
    (fast["estimated"] == false).then(both)
}

#[tokio::test]
async fn a_variant_is_priced_and_measured_on_each_type_of_device() {
    let cluster = two_types().await;
    let api = cluster.api();
    let body = api.get("/v1/workers").await.json(200);
    assert_eq!(body["warnings"], json!([]), "{body}");
    let types = body["workers"].as_array().expect("a list").iter();
    let types = types.map(|worker| {
        let of = &worker["device_type"];
        json!([
            of["name"],
            of["slots"],
            of["price_per_hour_usd"],
            of["start_ms"]
        ])
    });
    let wanted = [
        json!(["slow", 1, 0.5, 60_000]),
        json!(["fast", 1, 50.0, 7000]),
    ];
    assert_eq!(types.collect::<Vec<_>>(), wanted);

    let first = &frontier(&api).await[0];
    assert_eq!(first["measured_on"], "slow", "{first}");
    assert_eq!(first["cost_per_hour_usd"], 0.5, "{first}");
    let name = first["name"].as_str().expect("a name");
    let path = format!("/v1/variants/{name}");
    let [fast, slow] = until("the variant is measured on the fast device", async || {
        measured(&api.get(&path).await.json(200)).await
    })
    .await;
    assert_eq!(
        (&fast["cost_per_hour_usd"], &slow["cost_per_hour_usd"]),
        (&json!(50.0), &json!(0.5))
    );
    for profile in [&fast, &slow] {
        let number = |key: &str| profile[key].as_f64().expect("a number");
        let by_hand = number("cost_per_hour_usd") / 3.6 / number("saturation_rps");
        let told = number("cost_per_1k_usd");
        assert!((told - by_hand).abs() <= 1e-9 * by_hand, "{profile}");
    }
}

#[tokio::test]
async fn a_query_sees_the_price_of_each_type_and_stays_below_its_own() {
    let cluster = two_types().await;
    let api = cluster.api();
    let query = |targets: Value| {
        json!({"application": "digits", "inputs": digits::Images::load("test").input(0),
            "targets": targets})
    };
    // The variant is loaded on both devices, so there is a candidate for each.
    let costs = until("both devices have the variant", async || {
        let answer = api
            .post("/v1/queries?explain=true", &query(json!({})))
            .await;
        let answer = answer.json(200);
        let chosen = answer["variant"].clone();
        let candidates = answer
            .pointer("/explanation/candidates")?
            .as_array()?
            .clone();
        let of_chosen = candidates.iter().filter(|it| it["variant"] == chosen);
        let costs: Vec<f64> = of_chosen
            .filter_map(|it| it["cost_per_1k_usd"].as_f64())
            .collect();
        (costs.len() == 2).then_some(costs)
    })
    .await;
    assert!(costs[0] != costs[1], "{costs:?}");
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let refused = query(json!({"max_cost_per_1k_usd": least / 1e6}));
    let problem = api.post("/v1/queries", &refused).await;
    problem.problem(422, "target_infeasible");
}
