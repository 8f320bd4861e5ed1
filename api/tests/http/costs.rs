//! What device time costs.

use serde_json::json;
use sextant_metadata::{CostRow, Costs, Demand};

use crate::double::{Api, Recorder};

fn row(application: &str, variant: Option<&str>, usd: f64, queries: u64) -> CostRow {
    CostRow {
        application: application.parse().expect("a name"),
        variant: variant.map(|name| name.parse().expect("a name")),
        device_type: variant.map(|_| "cpu-8".parse().expect("a name")),
        usd,
        offline_usd: usd / 4.0,
        idle_usd: 1.0,
        device_seconds: usd * 10.0,
        queries,
        offline_queries: queries / 4,
    }
}

async fn tell(api: &Api, costs: Costs) {
    let demand = Demand {
        token: 1,
        window_ms: 1000,
        costs,
        ..Demand::default()
    };
    api.metadata.set_demand(demand).await.expect("taken");
}

#[tokio::test]
async fn costs_are_added_up_by_application() {
    let api = Api::new(Recorder::answering()).await;
    let problem = api.get("/v1/costs").await;
    assert_eq!(problem.status, 503);
    problem.problem("unavailable");
    let rows = vec![
        row("digits", Some("a"), 2.0, 1000),
        row("digits", Some("b"), 0.5, 4),
        row("speech", None, 0.0, 0),
    ];
    let costs = Costs {
        since_ms: 5,
        until_ms: 6,
        unattributed_usd: 0.25,
        rows,
    };
    tell(&api, costs).await;
    let reading = api.get("/v1/costs").await;
    assert_eq!(reading.status, 200);
    let body = reading.json();
    let variant = |name: &str, usd: f64, queries: u64| {
        json!({"application": "digits", "variant": name, "device_type": "cpu-8", "usd": usd,
            "offline_usd": usd / 4.0, "idle_usd": 1.0, "device_seconds": usd * 10.0,
            "queries": queries, "offline_queries": queries / 4})
    };
    let wanted = json!({"since_ms": 5, "until_ms": 6, "total_usd": 5.75, "idle_usd": 3.25,
        "unattributed_usd": 0.25,
        "applications": [
            {"application": "digits", "usd": 2.5, "offline_usd": 0.625, "idle_usd": 2.0,
                "queries": 1004, "offline_queries": 251, "usd_per_1000_queries": 2.5 / 1004.0 * 1000.0},
            {"application": "speech", "usd": 0.0, "offline_usd": 0.0, "idle_usd": 1.0,
                "queries": 0, "offline_queries": 0},
        ],
        "variants": [variant("a", 2.0, 1000), variant("b", 0.5, 4),
            {"application": "speech", "usd": 0.0, "offline_usd": 0.0, "idle_usd": 1.0,
                "device_seconds": 0.0, "queries": 0, "offline_queries": 0}]});
    assert_eq!(body, wanted);
}
