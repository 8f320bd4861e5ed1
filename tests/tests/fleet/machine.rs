//! Plans that take a machine into account: the work around an engine, and the devices of a pool.

use super::*;
use sextant_tests::Load;

const ROLES: &str = "api,dispatcher,autoscaler,variant-gen";

/// Reasons of the decisions about variants.
async fn reasons(api: &Api) -> Vec<String> {
    let body = api.get("/v1/scaling/decisions").await.json(200);
    let decisions = body["decisions"].as_array().expect("a list");
    let reasons = decisions.iter().filter_map(|it| it["reason"].as_str());
    reasons.map(str::to_owned).collect()
}

/// The figures in "R rows a second, of W that a worker could".
fn rates(reason: &str) -> Option<(f64, f64)> {
    let (rate, rest) = reason.split_once(" rows a second, of ")?;
    let (worker, _) = rest.split_once(" that a worker could")?;
    let figure = |text: &str| match text.strip_suffix(" million") {
        Some(millions) => Some(millions.parse::<f64>().ok()? * 1e6),
        None => text.parse().ok(),
    };
    Some((figure(rate.rsplit(' ').next()?)?, figure(worker)?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_model_is_planned_for_by_the_machine_and_the_reason_follows_the_load() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    let roles = format!("{ROLES},worker");
    fleet.spawn("api", &roles, &["variants.engines=ort", "worker.cores=2"]);
    let api = fleet.api();
    learn(&api).await;
    let first = until("a variant is planned for", async || {
        answers(&api).await;
        reasons(&api).await.iter().find_map(|it| rates(it))
    })
    .await;
    // At first the plan uses the assumed time of a query of one row: 105 us on one of two cores.
    assert!(first.1 <= 2.0 * 1e6 / 105.0, "{first:?}");
    let load = Load::start(api.clone(), 4, None).await;
    let later = until("the reason shows the present load", async || {
        let reasons = reasons(&api).await;
        let rates = reasons.iter().filter_map(|it| rates(it));
        rates
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|it| it.0 > 2.0 * first.0)
    })
    .await;
    load.stop().await;
    assert!(later.1 < 1e6, "{later:?}");
    let body = api.get("/v1/scaling/decisions").await.json(200);
    assert!(!body.to_string().contains("0.000000 USD"), "{body:#}");
}

/// Only the pool's workers have accelerators, so they make the variants for their engine themselves.
#[tokio::test(flavor = "multi_thread")]
async fn workers_of_a_pool_make_variants_for_their_devices_and_have_its_price() {
    let mut fleet = Fleet::over_stores(FleetSettings::default());
    let settings = [
        "variants.engines=ort",
        "worker.emulated.delays=false",
        "worker.emulated.types.gpu.speed=1",
        "prices.devices.gpu.hour_usd=2.5",
        "prices.devices.gpu.start_s=1",
        "autoscaler.pools.gpu.least=2",
        "autoscaler.pools.gpu.most=2",
        "autoscaler.pools.gpu.registers=true",
        "autoscaler.pools.gpu.end_s=20",
        "autoscaler.pools.gpu.settings=variants.engines=emulated",
    ];
    fleet.spawn("api", ROLES, &settings);
    let api = fleet.api();
    api.create_application("digits").await;
    let job = api.register(digits::upload("digits", "mlp", "mlp")).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let answer = answers(&api).await;
    let variant = answer["variant"].as_str().expect("its name").to_owned();
    let path = format!("/v1/variants/{variant}");
    let variant = api.get(&path).await.json(200);
    assert_eq!(variant["engine"], "emulated", "{variant:#}");
    let workers = api.get("/v1/workers").await.json(200);
    let workers = workers["workers"].as_array().expect("a list").clone();
    assert_eq!(workers.len(), 2, "{workers:#?}");
    for worker in &workers {
        let facts = &worker["device_type"];
        assert_eq!(facts["name"], "gpu", "{worker:#}");
        assert_eq!(facts["price_per_hour_usd"], 2.5, "{worker:#}");
    }
}
