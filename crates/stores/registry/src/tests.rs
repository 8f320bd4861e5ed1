//! The registry with real files and a real server.

use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, Digest, EngineName, JobId, Metric, ModelId,
    Optimization, Precision, Profile, Signature, Targets, TensorSpec, Variant, VariantId,
    VariantSpec,
};

use crate::{Application, Error, JobKind, NewJob, NewModel, Registration, Registry};

use place::{Place, on_both};

mod audit;
mod catalogue;
mod dialects;
mod extensions;
mod feedback;
mod jobs;
mod keys;
mod pipelines;
mod place;
mod profiles;
mod schema;
#[cfg(feature = "postgres")]
mod server;
mod statements;
mod storage;
mod versions;

fn app() -> ApplicationId {
    ApplicationId::new("digits").unwrap()
}

/// Removes [`application`] without a check.
async fn delete_application(registry: &Registry) -> Result<(), Error> {
    let app = app();
    let deleted = registry.delete_application(&app, |_| Ok::<_, ()>(()));
    deleted.await.map(Result::unwrap)
}

fn model_id(name: &str) -> ModelId {
    ModelId::new(name).unwrap()
}

fn application() -> Application {
    Application {
        id: app(),
        metric: Metric::TopK(5),
        description: "handwritten `digits`; it's \"quoted\" \u{1f9ed}".to_owned(),
        default_targets: Targets {
            latency_ms: Some(0.1 + 0.2),
            min_quality: None,
            min_relative_accuracy: Some(0.99),
            min_agreement: None,
            max_cost_per_1k_usd: Some(1e-7),
            prefer: Some(sextant_types::Prefer::Accuracy),
        },
        signature: None,
        resources: Default::default(),
        presets: Default::default(),
        feedback: None,
    }
}

fn new_model(name: &str) -> NewModel {
    NewModel {
        name: model_id(name),
        version: None,
        current: false,
        application: app(),
        digest: Digest::from_bytes([1; 32]),
        validation: Digest::from_bytes([2; 32]),
        size_bytes: 4096,
        padding: None,
        outputs: Vec::new(),
        constants: Default::default(),
        names: Default::default(),
        data: Vec::new(),
        classes: Vec::new(),
        unlabelled: false,
        registered_by: None,
    }
}

fn register_job(name: &str) -> NewJob {
    let spec = serde_json::json!({ "model": name, "application": "digits" });
    NewJob::new(JobKind::Register, app(), spec).for_model(model_id(name))
}

async fn create_model(
    registry: &Registry,
    model: &NewModel,
    now_ms: u64,
) -> Result<Registration, Error> {
    let job = register_job(model.name.as_str());
    registry.register_model(model, &job, now_ms).await
}

/// Rows of each kind that names blobs: a model with its set, a variant, a pipeline.
pub(crate) async fn fill(registry: &Registry) {
    registry.create_application(&application()).await.unwrap();
    create_model(registry, &new_model("m"), 1).await.unwrap();
    registry.put_variants(&[variant("m", 8)]).await.unwrap();
    let pipeline = Application {
        id: ApplicationId::new("pipeline").unwrap(),
        ..application()
    };
    let new = crate::NewPipeline {
        definition: serde_json::json!({"name": "pipeline"}),
        files: [("tokens.json".to_owned(), Digest::from_bytes([4; 32]))].into(),
    };
    registry.create_pipeline(&pipeline, &new, 1).await.unwrap();
}

/// Ends the running registrations.
async fn finish_registrations(registry: &Registry) {
    while let Some(job) = registry
        .claim(JobKind::Register, "me", 100, 2)
        .await
        .unwrap()
    {
        let nothing = serde_json::Value::Null;
        let finished = registry.finish_with(&job.id, "me", &[], &nothing, 3).await;
        finished.unwrap();
    }
}

fn offline_job() -> NewJob {
    NewJob::new(JobKind::Offline, app(), serde_json::json!({ "chunk": 256 }))
}

async fn queued(registry: &Registry, now_ms: u64) -> JobId {
    registry
        .create_job(&offline_job(), now_ms)
        .await
        .unwrap()
        .id
}

fn signature(width: u64) -> Signature {
    let tensor = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(width)],
    };
    Signature {
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y")],
        batched: true,
    }
}

fn variant(model: &str, max_batch: u16) -> Variant {
    let spec = VariantSpec {
        engine: EngineName("ort".to_owned()),
        precision: Precision::Int8Static,
        optimization: Optimization::All,
        threads: 1,
        max_batch,
    };
    Variant {
        id: VariantId::new(format!("{model}-{}", spec.name())).unwrap(),
        application: app(),
        model: model_id(model),
        spec,
        artefact: Digest::from_bytes([3; 32]),
        signature: signature(64),
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::TopK(5),
            value: 341.0 / 360.0,
            lower: 0.1 + 0.2,
            upper: f64::from_bits(0.97f64.to_bits() + 1),
            records: 360,
            evaluation_batch: 32,
        },
        profile: Profile {
            load_ms: 1.0 / 3.0,
            first_load_ms: Some(500.0 / 3.0),
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: f64::MIN_POSITIVE,
                p99_ms: 0.123_456_789_012_345_68,
                mean_ms: 2.0f64.powi(-40),
                samples: 100,
            }],
            alpha_ms: 1e-17,
            beta_ms: 0.09,
            residual_ms: 0.0,
            saturation_rps: 123_456.789,
            peak_memory_bytes: 1 << 40,
            weights_bytes: 1 << 18,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.036,
        cost_per_1k_usd: 1e-9,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    }
}

/// The name of the error's variant, for short assertions.
fn told<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.expect_err("it was to be refused");
    let debug = format!("{error:?}");
    let end = debug.find([' ', '(']).unwrap_or(debug.len());
    debug[..end].to_owned()
}
