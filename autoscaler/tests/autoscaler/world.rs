//! A store with variants and announced workers, and an autoscaler over it.

use std::{sync::Arc, time::Duration};

use sextant_autoscaler::{Config, Service};
use sextant_fleet::{Token, unsteady::UnsteadyStore};
use sextant_metadata::{DesiredState, MetadataStore, WorkerRecord};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DeviceType, DeviceTypeName, Digest, EngineName, Metric,
    ModelId, Optimization, Precision, Profile, Signature, Surroundings, Variant, VariantId,
    VariantSpec, WorkerId,
};

/// Longest wait for a state.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A heartbeat of a worker that has the engine of all variants here.
pub async fn beat(store: &UnsteadyStore, name: &str, memory_bytes: u64, draining: bool) {
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
    // The lease is longer than any test, from a time at which it never lapses.
    let beat = store.heartbeat(&worker, record, u64::MAX, 1);
    beat.await.unwrap();
}

pub async fn publish(store: &UnsteadyStore, variant: Variant) {
    store.publish_variant(Arc::new(variant)).await.unwrap();
}

pub async fn retire(store: &UnsteadyStore, name: &str) {
    let id = VariantId::new(name).unwrap();
    store.retire_variant(&id).await.unwrap();
}

/// A variant on the frontier that takes 100 bytes, of which 10 are weights of its own.
pub fn variant(name: &str) -> Variant {
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
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.9,
            lower: 0.9,
            upper: 1.0,
            records: 10,
            evaluation_batch: 1,
        },
        profile: Profile {
            load_ms: 1.0,
            first_load_ms: None,
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
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    }
}

/// Starts an autoscaler with a short period.
pub fn start(store: &Arc<UnsteadyStore>, token: Option<Token>) {
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

pub async fn recorded(store: &UnsteadyStore) -> Option<Arc<DesiredState>> {
    store.snapshot().await.unwrap().desired
}

/// Waits until exactly these variants are desired in the store, under `token`.
pub async fn wants(store: &UnsteadyStore, token: u64, names: &[&str]) {
    let begun = std::time::Instant::now();
    loop {
        let desired = recorded(store).await;
        let found = desired.as_ref().map(|desired| {
            let variants = desired.variants.iter();
            let found: Vec<&str> = variants.map(|it| it.variant.as_str()).collect();
            (desired.token, found)
        });
        if found.is_some_and(|found| found == (token, names.to_vec())) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{desired:?} and not {names:?}");
        tokio::task::yield_now().await;
    }
}

/// A type of devices that have the engine of all variants here.
pub fn device_type(name: &str, price_per_hour_usd: f64) -> Arc<DeviceType> {
    Arc::new(DeviceType {
        name: DeviceTypeName::new(name).unwrap(),
        engines: vec![EngineName("made-up".to_owned())],
        slots: 1,
        memory_bytes: 1000,
        price_per_hour_usd,
        start_ms: 1000,
    })
}

/// A heartbeat of a worker of this type.
pub async fn beat_of(store: &UnsteadyStore, name: &str, of: &Arc<DeviceType>, draining: bool) {
    let record = WorkerRecord {
        draining,
        ..record_of(of)
    };
    let worker = WorkerId::new(name).unwrap();
    store.heartbeat(&worker, record, u64::MAX, 1).await.unwrap();
}

/// A heartbeat of a worker of this type with these measured surroundings of its engines.
pub async fn beat_with(
    store: &UnsteadyStore,
    name: &str,
    of: &Arc<DeviceType>,
    surroundings: Option<Surroundings>,
) {
    let record = WorkerRecord {
        surroundings,
        ..record_of(of)
    };
    let worker = WorkerId::new(name).unwrap();
    store.heartbeat(&worker, record, u64::MAX, 1).await.unwrap();
}

fn record_of(of: &Arc<DeviceType>) -> WorkerRecord {
    WorkerRecord {
        device_type: Some(Arc::clone(of)),
        device: "cpu".into(),
        engines: of.engines.clone(),
        cores: of.slots,
        memory_bytes: of.memory_bytes,
        ..WorkerRecord::default()
    }
}

/// Waits until the desired state in the store is as it should be, and returns it.
pub async fn until(
    store: &UnsteadyStore,
    what: &str,
    is: impl Fn(&DesiredState) -> bool,
) -> Arc<DesiredState> {
    let begun = std::time::Instant::now();
    loop {
        let desired = recorded(store).await;
        if let Some(desired) = desired.clone().filter(|desired| is(desired)) {
            return desired;
        }
        assert!(begun.elapsed() < PATIENCE, "not {what}: {desired:#?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
