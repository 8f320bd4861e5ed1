//! Measures the worker's own cost per batch: an engine that does nothing, on a CPU device.
//!
//! `cargo run --release -p sextant-worker --example overhead [BATCHES]`

#![expect(clippy::print_stdout, reason = "the figures are its answer")]

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sextant_engine::{Capabilities, Engine, Error, LoadRequest, LoadedModel};
use sextant_metadata::{InProcessStore, MetadataStore};
use sextant_objects::{LocalStore, ObjectStore};
use sextant_rpc::{Infer, InferOutcome, Load, Part, Work};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, EngineName, Metric, ModelId, NamedTensor,
    Optimization, Precision, Profile, Signature, Tensor, TensorSpec, Variant, VariantId,
    VariantSpec, WorkerId,
};
use sextant_worker::{Config, Worker};

/// Batches that wait at the worker in the second measurement.
const IN_FLIGHT: usize = 64;

type Outcomes = mpsc::Receiver<(Instant, InferOutcome)>;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let batches = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => 200_000,
    };
    for cores in [1, 2] {
        let folder = tempfile::tempdir()?;
        let objects: Arc<dyn ObjectStore> = Arc::new(LocalStore::open(folder.path(), None)?);
        let metadata: Arc<dyn MetadataStore> = Arc::new(InProcessStore::new());
        let artefact = objects.put_blob(Bytes::from_static(b"nothing")).await?;
        let config = Config::new(WorkerId::new("overhead")?, cores, 1 << 30);
        let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(Nothing)];
        let (worker, mut service) = Worker::start(config, engines, objects, metadata)?;
        service.announce().await;
        let variant = variant(artefact)?;
        worker.load(Load::at_once(Arc::clone(&variant))).await?;
        let (sender, outcomes) = mpsc::channel();
        let bench = Bench {
            worker: &worker,
            variant: variant.id.clone(),
            sender,
        };
        println!("{cores} cores: {}", bench.lone(batches / 10, &outcomes)?);
        println!("{cores} cores: {}", bench.many(batches, &outcomes)?);
        println!("{cores} cores: {}", bench.ahead(1000, &outcomes)?);
    }
    Ok(())
}

struct Bench<'a> {
    worker: &'a Worker,
    variant: VariantId,
    sender: mpsc::Sender<(Instant, InferOutcome)>,
}

impl Bench<'_> {
    /// Sends a batch that starts `after` from now.
    fn submit(&self, after: Duration) -> Result<Instant, Box<dyn std::error::Error>> {
        let tensor = Tensor::from_elements(vec![1, 2], &[1.0f32, 2.0])?;
        let sender = self.sender.clone();
        let earliest = Instant::now() + after;
        self.worker.infer(Infer {
            variant: self.variant.clone(),
            parts: vec![Part::Inputs(vec![NamedTensor::new("x", tensor)])],
            earliest,
            latest: None,
            expected: Duration::from_micros(1),
            offline_rows: 0,
            // The receiver outlives every batch.
            done: Box::new(move |outcome| drop(sender.send((Instant::now(), outcome)))),
        });
        Ok(earliest)
    }

    /// One batch at a time on an idle device: the time from `infer` to `done`.
    fn lone(
        &self,
        batches: usize,
        outcomes: &Outcomes,
    ) -> Result<String, Box<dyn std::error::Error>> {
        let mut took = Vec::with_capacity(batches);
        for _ in 0..batches {
            let begun = self.submit(Duration::ZERO)?;
            let (ended, outcome) = outcomes.recv()?;
            outcome?;
            took.push(ended - begun);
        }
        Ok(format!("alone {}", quantiles(took)))
    }

    /// One batch at a time that starts two milliseconds ahead: how late it starts.
    fn ahead(
        &self,
        batches: usize,
        outcomes: &Outcomes,
    ) -> Result<String, Box<dyn std::error::Error>> {
        let mut late = Vec::with_capacity(batches);
        for _ in 0..batches {
            let earliest = self.submit(Duration::from_millis(2))?;
            late.push(outcomes.recv()?.1?.timings.started - earliest);
        }
        Ok(format!("late by {}", quantiles(late)))
    }

    /// Many at a time: the time that each adds.
    fn many(
        &self,
        batches: usize,
        outcomes: &Outcomes,
    ) -> Result<String, Box<dyn std::error::Error>> {
        let begun = Instant::now();
        for number in 0..batches + IN_FLIGHT {
            if number < batches {
                self.submit(Duration::ZERO)?;
            }
            if number >= IN_FLIGHT {
                outcomes.recv()?.1?;
            }
        }
        let each = begun.elapsed() / batches as u32;
        Ok(format!("one after the other {each:?} per batch"))
    }
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let quantile = |share: f64| times[(times.len().saturating_sub(1) as f64 * share) as usize];
    format!("p50 {:?}, p99 {:?}", quantile(0.5), quantile(0.99))
}

/// An engine that answers with its inputs.
struct Nothing;

struct Loaded(Signature);

impl Engine for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            precisions: vec![Precision::Fp32],
            optimizations: vec![Optimization::All],
            threads: false,
            data_types: vec![DataType::Fp32],
        }
    }

    fn load(&self, _: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        Ok(Arc::new(Loaded(signature())))
    }
}

impl LoadedModel for Loaded {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        Ok(inputs.iter().map(|input| input.tensor.clone()).collect())
    }

    fn weights_bytes(&self) -> u64 {
        0
    }
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

fn variant(artefact: sextant_types::Digest) -> Result<Arc<Variant>, Box<dyn std::error::Error>> {
    Ok(Arc::new(Variant {
        id: VariantId::new("nothing")?,
        application: ApplicationId::new("app")?,
        model: ModelId::new("m")?,
        spec: VariantSpec {
            engine: EngineName("nothing".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 8,
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
            load_ms: 0.0,
            first_load_ms: None,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: 0.001,
                p99_ms: 0.001,
                mean_ms: 0.001,
                samples: 10,
            }],
            alpha_ms: 0.0,
            beta_ms: 0.001,
            residual_ms: 0.0,
            saturation_rps: 1e6,
            peak_memory_bytes: 0,
            weights_bytes: 0,
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
