//! A worker that records its calls and answers as a test requires.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_rpc::{
    ActionKind, ActionStats, BatchResult, BatchTimings, Infer, InferError, Load, LoadTimings,
    Mispredictions, Pages, Part, VariantUsage, Work, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{
    Accuracy, ApplicationId, BatchLatency, DataType, Digest, EngineName, Metric, ModelId,
    NamedTensor, Optimization, Precision, Profile, Signature, Tensor, TensorSpec, Variant,
    VariantId, VariantSpec, WorkerId,
};

/// The window of a batch or load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    pub earliest: Instant,
    pub latest: Option<Instant>,
    pub expected: Duration,
}

#[derive(Default)]
pub struct Double {
    pub windows: Mutex<Vec<Window>>,
    /// The error with which the next batches and loads are refused.
    pub refuse_infer: Mutex<Option<InferError>>,
    pub refuse_work: Mutex<Option<WorkError>>,
    /// Whether batches are kept instead of answered.
    pub keep: Mutex<bool>,
    pub kept: Mutex<Vec<Infer>>,
    pub unloaded: Mutex<Vec<VariantId>>,
    pub draining: AtomicBool,
}

impl Double {
    fn refusal(&self) -> Result<(), WorkError> {
        self.refuse_work
            .lock()
            .expect("sound")
            .clone()
            .map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Work for Double {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            worker: WorkerId::new("there").expect("a name"),
            cores: 3,
            engines: vec![
                EngineName("ort".to_owned()),
                EngineName("emulated".to_owned()),
            ],
            pages: Pages {
                page_bytes: 16 << 20,
                total: 1376,
                free: 1000,
            },
            utilization: 0.25,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        vec![VariantUsage {
            variant: id("m-a"),
            idle_ms: 40,
        }]
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn infer(&self, infer: Infer) {
        self.windows.lock().expect("sound").push(Window {
            earliest: infer.earliest,
            latest: infer.latest,
            expected: infer.expected,
        });
        if *self.keep.lock().expect("sound") {
            return self.kept.lock().expect("sound").push(infer);
        }
        if let Some(error) = self.refuse_infer.lock().expect("sound").clone() {
            return (infer.done)(Err(error));
        }
        let outputs = infer.parts.iter().map(|part| match part {
            Part::Inputs(inputs) => match inputs.first() {
                Some(input) => Ok(vec![input.tensor.clone()]),
                None => Err(InferError::failed("no inputs")),
            },
            // The front end has the outputs.
            Part::Held(_) => Ok(Vec::new()),
        });
        (infer.done)(Ok(BatchResult {
            outputs: outputs.collect(),
            timings: BatchTimings {
                started: infer.earliest,
                queue_us: 1.0,
                input_us: 2.0,
                exec_us: 3.0,
                output_us: 4.0,
                device_us: Some(2.5),
            },
        }));
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        self.windows.lock().expect("sound").push(Window {
            earliest: load.earliest,
            latest: load.latest,
            expected: load.expected,
        });
        self.refusal()?;
        assert_eq!(load.variant, variant("m-a"), "the variant arrives whole");
        Ok(LoadTimings {
            queue_us: 1.0,
            fetch_us: 2.0,
            load_us: 3.0,
        })
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        self.refusal()?;
        self.unloaded.lock().expect("sound").push(variant.clone());
        Ok(())
    }

    async fn leave(&self) -> Result<(), WorkError> {
        self.refusal()?;
        self.draining.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        self.refusal()?;
        Ok(stats())
    }
}

/// Statistics with a value in every field.
pub fn stats() -> WorkerStats {
    let errors = |count| Mispredictions {
        count,
        p50_us: 1.0,
        p99_us: 2.0,
        p999_us: 3.0,
        max_us: 4.0,
    };
    let action = |succeeded| ActionStats {
        succeeded,
        failed: BTreeMap::from([("too_late", 2), ("weights_changed", 1)]),
        under_predicted: errors(1),
        over_predicted: errors(2),
        late_completion: errors(3),
    };
    WorkerStats {
        actions: BTreeMap::from([
            (ActionKind::Infer, action(10)),
            (ActionKind::Load, action(20)),
            (ActionKind::Unload, action(30)),
        ]),
    }
}

pub fn id(name: &str) -> VariantId {
    VariantId::new(name).expect("a name")
}

/// One query of two floats.
pub fn part(value: f32) -> Vec<NamedTensor> {
    let tensor = Tensor::from_elements(vec![1, 2], &[value, -value]).expect("two elements");
    vec![NamedTensor::new("x", tensor)]
}

pub fn variant(name: &str) -> Arc<Variant> {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(2)],
    };
    Arc::new(Variant {
        id: id(name),
        application: ApplicationId::new("a").expect("a name"),
        model: ModelId::new("m").expect("a name"),
        spec: VariantSpec {
            engine: EngineName("ort".to_owned()),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
            max_batch: 8,
        },
        artefact: Digest::from_bytes([7; 32]),
        signature: Signature {
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            batched: true,
        },
        padding: None,
        accuracy: Accuracy {
            kind: sextant_types::AccuracyKind::Accuracy,
            metric: Metric::Top1,
            value: 0.5,
            lower: 0.25,
            upper: 0.75,
            records: 100,
            evaluation_batch: 32,
        },
        profile: Profile {
            load_ms: 4.0,
            first_load_ms: None,
            batches: vec![BatchLatency {
                batch: 1,
                p50_ms: 1.0,
                p99_ms: 2.0,
                mean_ms: 1.5,
                samples: 10,
            }],
            alpha_ms: 0.5,
            beta_ms: 0.5,
            residual_ms: 0.0,
            saturation_rps: 1000.0,
            peak_memory_bytes: 2000,
            weights_bytes: 1000,
            sizes: Default::default(),
            concurrent: Vec::new(),
        },
        cost_per_hour_usd: 1.0,
        cost_per_1k_usd: 0.5,
        measured_on: None,
        profiles: Default::default(),
        dominated_by: None,
        apart: None,
        resources: Default::default(),
        release: Default::default(),
        foreign: false,
    })
}
