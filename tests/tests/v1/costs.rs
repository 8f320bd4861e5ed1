//! `/v1/costs`, and the cost of each query.

use serde_json::{Value, json};
use sextant_tests::{Api, digits, until};

/// Price of the only device, US dollars an hour.
const HOUR_USD: f64 = 36.0;

const QUERIES: usize = 32;

fn number(value: &Value, pointer: &str) -> f64 {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("`{pointer}` is missing in {value}"))
}

/// One query with the first `rows` images.
fn query(images: &digits::Images, rows: usize) -> Value {
    let pixels: Vec<f32> = (0..rows)
        .flat_map(|row| images.pixels(row).to_vec())
        .collect();
    let input = json!({"name": "pixels", "shape": [rows, digits::PIXELS], "datatype": "FP32",
        "data": pixels});
    json!({"application": "digits", "inputs": [input]})
}

/// The costs, once they include `queries` queries.
async fn costs(api: &Api, queries: usize) -> Value {
    until("the costs of all queries are shown", async || {
        let answer = api.get("/v1/costs").await;
        let body = answer.status.is_success().then(|| answer.json(200))?;
        let told = body.pointer("/applications/0/queries")?.as_u64()?;
        (told == queries as u64).then_some(body)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_pay_by_rows_and_add_up_to_what_their_application_cost() {
    let price = format!("prices.devices.slow.hour_usd={HOUR_USD}");
    let set = [
        "worker.devices=emulated:1@slow",
        &price,
        "variants.engines=emulated",
        "variants.max_batch=8",
    ];
    let cluster = digits::with_mlp(&set).await;
    let api = cluster.api();
    let images = digits::Images::load("test");
    let asked: Vec<_> = (0..QUERIES)
        .map(|number| {
            let rows = number % 3 + 1;
            let (api, query) = (api.clone(), query(&images, rows));
            tokio::spawn(async move {
                let answer = api.post("/v1/queries", &query).await.json(200);
                (rows, answer)
            })
        })
        .collect();
    let mut sum = 0.0;
    for asked in asked {
        let (rows, answer) = asked.await.expect("an answer");
        let usd = number(&answer, "/cost_usd");
        let share = rows as f64 / number(&answer, "/timings/batch_rows");
        let of_rows = |us: f64| us / 3.6e9 * HOUR_USD * share;
        let by_hand = of_rows(number(&answer, "/timings/compute_us"));
        // Times are shown in tenths of microseconds.
        assert!(
            usd > 0.0 && (usd - by_hand).abs() <= of_rows(0.1),
            "{answer}"
        );
        sum += usd;
    }
    let body = costs(&api, QUERIES).await;
    let of = &body["applications"][0];
    assert_eq!(of["application"], "digits", "{body}");
    let usd = number(of, "/usd");
    assert!((usd - sum).abs() <= 1e-9 * sum, "{usd} of {sum}: {body}");
    let by_thousand = number(of, "/usd_per_1000_queries");
    assert!((by_thousand * QUERIES as f64 / 1000.0 - usd).abs() <= 1e-9 * usd);
    let variants = body["variants"].as_array().expect("a list").iter();
    let used = variants.clone().map(|it| number(it, "/usd")).sum::<f64>();
    assert!((used - usd).abs() <= 1e-9 * usd, "{body}");
    for variant in variants {
        assert_eq!(variant["device_type"], "slow", "{body}");
        let by_time = number(variant, "/device_seconds") / 3600.0 * HOUR_USD;
        assert!(
            (number(variant, "/usd") - by_time).abs() <= 1e-9 * by_time,
            "{body}"
        );
    }
    let total = usd + number(&body, "/idle_usd");
    assert!(
        (number(&body, "/total_usd") - total).abs() <= 1e-9 * total,
        "{body}"
    );
    let later = until("the device has idled", async || {
        let later = api.get("/v1/costs").await.json(200);
        (number(&later, "/idle_usd") > number(&body, "/idle_usd")).then_some(later)
    });
    let later = later.await;
    assert_eq!(
        number(&later, "/applications/0/usd"),
        usd,
        "idle time counts for no application"
    );
    // A device costs at most its price.
    let milliseconds = number(&later, "/until_ms") - number(&later, "/since_ms");
    let most = milliseconds / 3.6e6 * HOUR_USD;
    assert!(number(&later, "/total_usd") <= most * 1.001, "{later}");
}
