//! An autoscaler over workers that come and go, and over a store that is shared with others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use sextant_autoscaler::{Config, Service};
use sextant_fleet::{Token, unsteady::UnsteadyStore};
use sextant_metadata::{Count, MetadataStore, Wanted, WorkerRecord};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, Digest, EngineName, Metric, ModelId, Optimization,
    Precision, Profile, Signature, Variant, VariantId, VariantSpec, WorkerId,
};
use tokio::sync::watch;

/// Longest wait for a state that must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A heartbeat of a worker that has the engine of all variants here.
async fn beat(store: &UnsteadyStore, name: &str, memory_bytes: u64, draining: bool) {
    let record = WorkerRecord {
        endpoint: None,
        device: "cpu".into(),
        engines: vec![EngineName("made-up".to_owned())],
        draining,
        cores: 1,
        memory_bytes,
        memory_used_bytes: 0,
        utilization: 0.0,
        ..WorkerRecord::default()
    };
    let worker = WorkerId::new(name).unwrap();
    // Longer than any test, from a time that never lapses.
    let beat = store.heartbeat(&worker, record, u64::MAX, 1);
    beat.await.unwrap();
}

async fn publish(store: &UnsteadyStore, variant: Variant) {
    store.publish_variant(Arc::new(variant)).await.unwrap();
}

async fn retire(store: &UnsteadyStore, name: &str) {
    let id = VariantId::new(name).unwrap();
    store.retire_variant(&id).await.unwrap();
}

/// A variant on the frontier that takes 100 bytes, 10 of them weights that no other has.
fn variant(name: &str) -> Variant {
    let digit = name.bytes().last().unwrap();
    Variant {
        id: VariantId::new(name).unwrap(),
        application: ApplicationId::new("app").unwrap(),
        model: ModelId::new("m").unwrap(),
        spec: VariantSpec {
            engine: EngineName("made-up".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 1,
        },
        artefact: Digest::from_bytes([digit; 32]),
        signature: Signature {
            inputs: Vec::new(),
            outputs: Vec::new(),
            batched: true,
        },
        padding: None,
        accuracy: Accuracy {
            metric: Metric::Top1,
            value: 0.9,
            lower: 0.9,
            upper: 1.0,
            records: 10,
            evaluation_batch: 1,
        },
        profile: Profile {
            load_ms: 1.0,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: 1.0,
                p99_ms: 1.0,
                mean_ms: 1.0,
                samples: 1,
            }],
            alpha_ms: 0.0,
            beta_ms: 1.0,
            residual_ms: 0.0,
            saturation_rps: 1000.0,
            peak_memory_bytes: 100,
            weights_bytes: 10,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.1,
        cost_per_1k_usd: 1.0,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
    }
}

/// Starts an autoscaler that looks often.
fn start(store: &Arc<UnsteadyStore>, token: Option<Token>) {
    let config = Config {
        period_ms: 20,
        ..Config::default()
    };
    let mut service = Service::new(config, Arc::clone(store) as _);
    if let Some(token) = token {
        service = service.led_by(token);
    }
    tokio::spawn(service.run(std::future::pending()));
}

async fn recorded(store: &UnsteadyStore) -> Option<Arc<Wanted>> {
    store.snapshot().await.unwrap().wanted
}

/// Waits until the store says that exactly these are wanted, under `token`.
async fn wants(store: &UnsteadyStore, token: u64, names: &[&str]) {
    let begun = std::time::Instant::now();
    loop {
        let wanted = recorded(store).await;
        let found = wanted.as_ref().map(|wanted| {
            let variants = wanted.variants.iter();
            let found: Vec<&str> = variants.map(|it| it.variant.as_str()).collect();
            (wanted.token, found)
        });
        if found.is_some_and(|found| found == (token, names.to_vec())) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{wanted:?} and not {names:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_wanted_follows_what_is_published_and_the_workers_that_stay() {
    let store = Arc::new(UnsteadyStore::new(256));
    for name in ["m-b", "m-a"] {
        publish(&store, variant(name)).await;
    }
    start(&store, None);
    wants(&store, 0, &[]).await;
    beat(&store, "draining", 1000, true).await;
    beat(&store, "here", 400, false).await;
    wants(&store, 0, &["m-a", "m-b"]).await;
    let wanted = recorded(&store).await.unwrap();
    assert_eq!(wanted.idle_unload_ms, 600_000);
    let everywhere =
        |it: &sextant_metadata::WantedVariant| it.workers == Count::Everywhere && !it.pinned;
    assert!(wanted.variants.iter().all(everywhere), "{wanted:?}");
    // Half of the smallest worker's memory has room for one.
    beat(&store, "small", 399, false).await;
    wants(&store, 0, &["m-a"]).await;
    beat(&store, "small", 399, true).await;
    wants(&store, 0, &["m-a", "m-b"]).await;
    retire(&store, "m-a").await;
    wants(&store, 0, &["m-b"]).await;
}

#[tokio::test]
async fn weights_that_variants_share_count_once_and_each_model_has_one_variant() {
    let store = Arc::new(UnsteadyStore::new(256));
    // 50 bytes of weights, and 10 for each of two variants.
    for name in ["m-1", "m-2"] {
        let mut sharing = variant(name);
        sharing.artefact = Digest::from_bytes([0; 32]);
        sharing.profile.weights_bytes = 50;
        sharing.profile.peak_memory_bytes = 60;
        publish(&store, sharing).await;
    }
    // Another model of the application that is worse, and cheapest with its second variant.
    for (name, cost_per_1k_usd) in [("n-1", 5.0), ("n-2", 4.0), ("n-3", 6.0)] {
        let mut worse = variant(name);
        worse.model = ModelId::new("n").unwrap();
        worse.dominated_by = Some(VariantId::new("m-1").unwrap());
        worse.cost_per_1k_usd = cost_per_1k_usd;
        publish(&store, worse).await;
    }
    beat(&store, "w", 340, false).await;
    start(&store, None);
    wants(&store, 0, &["m-1", "m-2", "n-2"]).await;
    beat(&store, "w", 338, false).await;
    wants(&store, 0, &["m-1", "m-2"]).await;
}

#[tokio::test]
async fn only_who_has_the_token_says_what_is_wanted() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    beat(&store, "w", 1000, false).await;
    let tokens = [watch::Sender::new(None), watch::Sender::new(None)];
    let [first, second] = [&tokens[0], &tokens[1]].map(watch::Sender::subscribe);
    start(&store, Some(first));
    start(&store, Some(second));
    tokens[1].send_replace(Some(1));
    wants(&store, 1, &["m-a"]).await;
    tokens[1].send_replace(None);
    tokens[0].send_replace(Some(2));
    publish(&store, variant("m-b")).await;
    wants(&store, 2, &["m-a", "m-b"]).await;
    // Who believes to lead and does not is refused.
    tokens[1].send_replace(Some(1));
    retire(&store, "m-a").await;
    wants(&store, 2, &["m-b"]).await;
}

/// Nothing but the leadership has changed: those before are shut out all the same.
#[tokio::test]
async fn who_leads_anew_shuts_out_those_before() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    beat(&store, "w", 1000, false).await;
    let token = watch::Sender::new(Some(5));
    start(&store, Some(token.subscribe()));
    wants(&store, 5, &["m-a"]).await;
    token.send_replace(Some(9));
    let wanted = recorded(&store).await.unwrap();
    let begun = std::time::Instant::now();
    // What is there already may be written again by everyone who is not shut out.
    while store.set_wanted(Wanted::clone(&wanted)).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "a former leader is let in");
        tokio::task::yield_now().await;
    }
    assert_eq!(recorded(&store).await.unwrap().token, 5);
}

#[tokio::test]
async fn a_store_that_forgets_is_told_again_and_one_that_was_away_when_it_is_back() {
    let store = Arc::new(UnsteadyStore::new(256));
    publish(&store, variant("m-a")).await;
    beat(&store, "w", 1000, false).await;
    start(&store, None);
    wants(&store, 0, &["m-a"]).await;
    store.lose_everything();
    // Before anyone has published the variant or announced the worker again.
    wants(&store, 0, &["m-a"]).await;
    store.set_away(true);
    store.lose_everything();
    store.set_away(false);
    for name in ["m-a", "m-b"] {
        publish(&store, variant(name)).await;
    }
    beat(&store, "w", 1000, false).await;
    wants(&store, 0, &["m-a", "m-b"]).await;
}
