//! Fixtures of the properties.

use std::sync::Arc;

use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, Digest, EngineName, Metric, ModelId,
    Optimization, Precision, Profile, Signature, TensorSpec, Variant, VariantId, VariantSpec,
    WorkerId,
};

use super::Store;
use crate::{Candidate, Command, Error, Instance, InstanceKey, Lease, Transition, WorkerRecord};

pub(super) fn application(name: &str) -> ApplicationId {
    ApplicationId::new(name).expect("a valid name")
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a valid name")
}

pub(super) fn key(variant: &str, on: &str) -> InstanceKey {
    InstanceKey::new(VariantId::new(variant).expect("a valid name"), worker(on))
}

pub(super) fn record(utilization: f64) -> WorkerRecord {
    WorkerRecord {
        endpoint: None,
        device: "cpu".into(),
        engines: vec![EngineName("emulated".to_owned())],
        draining: false,
        cores: 2,
        memory_bytes: 1 << 30,
        memory_used_bytes: 1 << 20,
        utilization,
        ..WorkerRecord::default()
    }
}

pub(super) fn candidate(role: &str, holder: &str) -> Candidate {
    Candidate {
        role: role.into(),
        holder: holder.into(),
        endpoint: format!("{holder}.example:7070").into(),
    }
}

/// A heartbeat with a lease of ten seconds.
pub(super) async fn beat(store: &Store, name: &str, now_ms: u64) -> Lease {
    let worker = worker(name);
    let beat = store.heartbeat(&worker, record(0.5), 10_000, now_ms);
    beat.await.expect("heartbeat")
}

pub(super) async fn step(
    store: &Store,
    variant: &str,
    on: &str,
    expected_version: Option<u64>,
    command: Command,
) -> Result<Instance, Error> {
    let transition = Transition {
        key: key(variant, on),
        application: application("app"),
        expected_version,
        command,
    };
    store.transition(&transition, 0).await
}

/// A plausible variant of application `app` for tests. `cost` makes two variants of one name
/// differ.
pub fn sample_variant(name: &str, cost: f64) -> Arc<Variant> {
    let tensor = |name: &str, width| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(width)],
    };
    Arc::new(Variant {
        id: VariantId::new(name).expect("a valid name"),
        application: application("app"),
        model: ModelId::new("model").expect("a valid name"),
        spec: VariantSpec {
            engine: EngineName("emulated".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 8,
        },
        artefact: Digest::from_bytes([7; 32]),
        signature: Signature {
            inputs: vec![tensor("x", 64)],
            outputs: vec![tensor("y", 10)],
            batched: true,
        },
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.95,
            lower: 0.92,
            upper: 0.97,
            records: 360,
            evaluation_batch: 32,
        },
        profile: Profile {
            load_ms: 12.0,
            first_load_ms: None,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: 0.1,
                p99_ms: 0.2,
                mean_ms: 0.11,
                samples: 100,
            }],
            alpha_ms: 0.01,
            beta_ms: 0.09,
            residual_ms: 0.001,
            saturation_rps: 50_000.0,
            peak_memory_bytes: 1 << 20,
            weights_bytes: 1 << 18,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.036,
        cost_per_1k_usd: cost,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    })
}

/// Reproducible choices (splitmix64): enough to vary a test, and no further dependency.
pub(super) struct Choices {
    pub(super) seed: u64,
    state: u64,
}

impl Choices {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn maybe(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn pick(&mut self, names: &[&'static str]) -> &'static str {
        names[self.below(names.len() as u64) as usize]
    }

    pub(super) fn variant(&mut self, name: &str) -> Arc<Variant> {
        sample_variant(name, self.below(3) as f64)
    }

    pub(super) fn command(&mut self) -> Command {
        let reason = || "chosen by the test".to_owned();
        match self.below(11) {
            0 => Command::Load,
            1 => Command::Loaded,
            2 => Command::LoadFailed { reason: reason() },
            3 => Command::Overload,
            4 => Command::Interfere,
            5 => Command::Recover,
            6 => Command::Drain,
            7 => Command::Unloaded,
            8 => Command::Fail { reason: reason() },
            9 => Command::Expire,
            _ => Command::Report {
                load: self.below(13) as f64 / 10.0,
            },
        }
    }
}
