//! Measures how punctually workers start batches inside their windows, on emulated devices in real
//! time.
//!
//! `cargo run --release -p sextant-worker --example windows [DEVICES [BATCHES]]`. Prints one JSON
//! object per line. Each device gets batches of ResNet-50 (2.61 ms, Clockwork's table 1). Their
//! windows open every 4 ms and are 5 ms wide, and each batch is sent 5 ms ahead. The example
//! measures the start of EXEC less the window's opening, and how much longer EXEC took than the
//! device's own clock says.
#![expect(clippy::print_stdout, reason = "results go to standard output")]

use std::{
    error::Error,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_engine::{
    Engine,
    emulated::{EmulatedDevice, EmulatedEngine, EmulatedModel, NAME},
};
use sextant_metadata::{InProcessStore, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_rpc::{BatchTimings, Infer, InferOutcome, Load, Part, Work};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, Digest, EngineName, Metric, ModelId,
    NamedTensor, Optimization, Precision, Profile, Signature, Tensor, TensorSpec, Variant,
    VariantId, VariantSpec, WorkerId,
};
use sextant_worker::{Config, Worker};

const SEED: u64 = 1;

/// Run time of a batch of one row, ms.
const RUN_MS: f64 = 2.61;

/// Time between two openings.
const PERIOD: Duration = Duration::from_millis(4);

/// The width of a window, and the time before its opening at which a batch is sent.
const WINDOW: Duration = Duration::from_millis(5);

type Outcomes = mpsc::Receiver<(Instant, InferOutcome)>;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn Error>> {
    let number = |at: usize, otherwise: usize| match std::env::args().nth(at) {
        Some(text) => text.parse(),
        None => Ok(otherwise),
    };
    let (devices, batches) = (number(1, 1)?, number(2, 2_000)?);
    let folder = tempfile::tempdir()?;
    let objects: Arc<dyn ObjectStore> = Arc::new(LocalStore::open(folder.path(), None)?);
    let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
    let variant = variant(objects.put_blob(Bytes::from_static(b"nothing")).await?)?;
    let mut workers = Vec::new();
    for ordinal in 0..devices {
        let device = EmulatedDevice::v100(u32::try_from(ordinal)?, SEED);
        let engine: Arc<dyn Engine> = Arc::new(EmulatedEngine::new(|_| Ok(model())).on(device));
        let config = Config::new(WorkerId::new(format!("w{ordinal}"))?, 1, 1 << 30);
        let (objects, metadata) = (Arc::clone(&objects), Arc::clone(&metadata));
        let (worker, mut service) = Worker::start(config, vec![engine], objects, metadata)?;
        service.announce().await;
        worker.load(Load::at_once(Arc::clone(&variant))).await?;
        workers.push((worker, service));
    }
    let (sender, outcomes) = mpsc::channel();
    let handles = workers.iter().map(|(worker, _)| Arc::clone(worker));
    let sending: Vec<_> = handles
        .map(|worker| {
            let (sender, variant) = (sender.clone(), variant.id.clone());
            thread::spawn(move || send(&worker, &variant, batches, &sender))
        })
        .collect();
    drop(sender);
    for thread in sending {
        thread.join().map_err(|_| "a sender panicked")??;
    }
    report(devices, devices * batches, &outcomes)
}

/// Sends batches ahead of their windows.
fn send(
    worker: &Worker,
    variant: &VariantId,
    batches: usize,
    outcomes: &mpsc::Sender<(Instant, InferOutcome)>,
) -> Result<(), sextant_types::InvalidTensor> {
    let tensor = Tensor::from_elements(vec![1, 2], &[1.0f32, 2.0])?;
    let mut opens = Instant::now() + 2 * WINDOW;
    for _ in 0..batches {
        let ahead = opens - WINDOW;
        while let Some(left) = ahead.checked_duration_since(Instant::now()) {
            thread::park_timeout(left);
        }
        let (sender, earliest) = (outcomes.clone(), opens);
        worker.infer(Infer {
            variant: variant.clone(),
            parts: vec![Part::Inputs(vec![NamedTensor::new("x", tensor.clone())])],
            earliest,
            latest: Some(earliest + WINDOW),
            expected: Duration::from_secs_f64(RUN_MS / 1e3),
            offline_rows: 0,
            // The receiver outlives every batch.
            done: Box::new(move |outcome| drop(sender.send((earliest, outcome)))),
        });
        opens += PERIOD;
    }
    Ok(())
}

fn report(devices: usize, sent: usize, outcomes: &Outcomes) -> Result<(), Box<dyn Error>> {
    let (mut late_us, mut longer_us, mut refused) = (Vec::new(), Vec::new(), 0);
    for _ in 0..sent {
        match outcomes.recv()? {
            (earliest, Ok(result)) => {
                let timings = result.timings;
                late_us.push(late(earliest, &timings));
                longer_us.push(timings.exec_us - timings.device_us.unwrap_or(timings.exec_us));
            }
            (_, Err(_)) => refused += 1,
        }
    }
    for (name, mut values) in [("window_start_late", late_us), ("exec_longer", longer_us)] {
        values.sort_by(f64::total_cmp);
        for (quantile, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            let at = (values.len().saturating_sub(1) as f64 * share).round() as usize;
            let value = values.get(at).copied().unwrap_or(f64::NAN);
            line(devices, &format!("{name}_{quantile}_us"), value, "us");
        }
    }
    line(
        devices,
        "window_refused_share",
        f64::from(refused) / sent as f64,
        "ratio",
    );
    Ok(())
}

/// Negative if EXEC began before the window, which must not happen.
fn late(earliest: Instant, timings: &BatchTimings) -> f64 {
    let late = timings.started.saturating_duration_since(earliest);
    let early = earliest.saturating_duration_since(timings.started);
    (late.as_secs_f64() - early.as_secs_f64()) * 1e6
}

fn line(devices: usize, metric: &str, value: f64, unit: &str) {
    println!(
        "{{\"experiment\":\"worker\",\"cell\":\"{devices} devices\",\"metric\":\"{metric}\",\
         \"value\":{value},\"unit\":\"{unit}\"}}"
    );
}

fn signature() -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(2)],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}

fn model() -> EmulatedModel {
    EmulatedModel {
        signature: signature(),
        alpha_ms: 0.0,
        beta_ms: RUN_MS,
        load_ms: 8.33,
        weights_bytes: 102_300_000,
    }
}

fn variant(artefact: Digest) -> Result<Arc<Variant>, Box<dyn Error>> {
    Ok(Arc::new(Variant {
        id: VariantId::new("resnet50")?,
        application: ApplicationId::new("app")?,
        model: ModelId::new("m")?,
        spec: VariantSpec {
            engine: EngineName(NAME.to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 1,
        },
        artefact,
        signature: signature(),
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 1.0,
            lower: 1.0,
            upper: 1.0,
            records: 1,
            evaluation_batch: 1,
        },
        profile: Profile {
            load_ms: 8.33,
            first_load_ms: None,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: RUN_MS,
                p99_ms: RUN_MS,
                mean_ms: RUN_MS,
                samples: 10,
            }],
            alpha_ms: 0.0,
            beta_ms: RUN_MS,
            residual_ms: 0.0,
            saturation_rps: 1e3 / RUN_MS,
            peak_memory_bytes: 102_300_000,
            weights_bytes: 102_300_000,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 0.0,
        cost_per_1k_usd: 0.0,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    }))
}
