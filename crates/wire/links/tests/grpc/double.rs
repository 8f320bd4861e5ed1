//! A worker that returns its inputs, or keeps its batches.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sextant_rpc::{
    ActionKind, ActionStats, BatchResult, BatchTimings, Infer, InferError, InferOutcome, Load,
    LoadTimings, Pages, Part, VariantUsage, Work, WorkError, WorkerInfo, WorkerStats,
};
use sextant_types::{EngineName, NamedTensor, Tensor, VariantId, WorkerId};
use tokio::sync::mpsc;

pub struct Double {
    name: WorkerId,
    /// The error with which the next batches are refused.
    pub refuse: Mutex<Option<InferError>>,
    /// Whether batches are kept instead of answered.
    pub keep: AtomicBool,
    kept: mpsc::UnboundedSender<Infer>,
    pub unloaded: Mutex<Vec<VariantId>>,
    pub draining: AtomicBool,
}

impl Double {
    /// A worker, and the batches that it keeps.
    pub fn new(name: &str) -> (Arc<Self>, mpsc::UnboundedReceiver<Infer>) {
        let (kept, keeps) = mpsc::unbounded_channel();
        let double = Self {
            name: worker_id(name),
            refuse: Mutex::default(),
            keep: AtomicBool::new(false),
            kept,
            unloaded: Mutex::default(),
            draining: AtomicBool::new(false),
        };
        (Arc::new(double), keeps)
    }
}

#[async_trait]
impl Work for Double {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            worker: self.name.clone(),
            cores: 3,
            engines: vec![EngineName("emulated".to_owned())],
            pages: Pages {
                page_bytes: 16 << 20,
                total: 10,
                free: 7,
            },
            utilization: 0.25,
        }
    }

    fn usage(&self) -> Vec<VariantUsage> {
        vec![VariantUsage {
            variant: variant_id("m"),
            idle_ms: 40,
        }]
    }

    fn infer(&self, infer: Infer) {
        if self.keep.load(Ordering::Relaxed) {
            return self.kept.send(infer).expect("somebody takes it");
        }
        if let Some(error) = self.refuse.lock().expect("sound").clone() {
            return (infer.done)(Err(error));
        }
        let outputs = infer.parts.into_iter().map(|part| match part {
            Part::Inputs(inputs) if inputs.is_empty() => Err(InferError::failed("no inputs")),
            Part::Inputs(inputs) => Ok(inputs.into_iter().map(|it| it.tensor).collect()),
            Part::Held(_) => Err(InferError::failed("only a mailbox takes these")),
        });
        (infer.done)(Ok(BatchResult {
            outputs: outputs.collect(),
            timings: BatchTimings {
                started: Instant::now(),
                queue_us: 1.0,
                input_us: 2.0,
                exec_us: 3.0,
                output_us: 4.0,
                device_us: Some(2.5),
            },
        }));
    }

    async fn load(&self, load: Load) -> Result<LoadTimings, WorkError> {
        Err(WorkError::Failed {
            variant: load.variant.id.clone(),
            reason: "the double loads nothing".to_owned(),
        })
    }

    async fn unload(&self, variant: &VariantId) -> Result<(), WorkError> {
        self.unloaded.lock().expect("sound").push(variant.clone());
        Ok(())
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    async fn leave(&self) -> Result<(), WorkError> {
        self.draining.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn stats(&self) -> Result<WorkerStats, WorkError> {
        Ok(stats())
    }
}

pub fn stats() -> WorkerStats {
    let infer = ActionStats {
        succeeded: 7,
        failed: BTreeMap::from([("too_late", 2)]),
        ..ActionStats::default()
    };
    WorkerStats {
        actions: BTreeMap::from([(ActionKind::Infer, infer)]),
    }
}

pub fn worker_id(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

/// The worker of most processes.
pub fn there() -> &'static WorkerId {
    static THERE: LazyLock<WorkerId> = LazyLock::new(|| worker_id("there"));
    &THERE
}

pub fn variant_id(name: &str) -> VariantId {
    VariantId::new(name).expect("a name")
}

/// One query of two floats.
pub fn part(value: f32) -> Part {
    let tensor = Tensor::from_elements(vec![1, 2], &[value, -value]).expect("two elements");
    Part::Inputs(vec![NamedTensor::new("x", tensor)])
}

/// A batch that may start at any time.
pub fn batch(parts: Vec<Part>, done: impl FnOnce(InferOutcome) + Send + 'static) -> Infer {
    Infer {
        variant: variant_id("m"),
        parts,
        earliest: Instant::now(),
        latest: None,
        expected: Duration::from_millis(1),
        offline_rows: 0,
        done: Box::new(done),
    }
}

/// Sends a batch and waits for the result.
pub async fn infer(worker: &dyn Work, parts: Vec<Part>) -> InferOutcome {
    let (sender, outcome) = tokio::sync::oneshot::channel();
    worker.infer(batch(parts, move |outcome| {
        assert!(sender.send(outcome).is_ok(), "somebody waits");
    }));
    outcome.await.expect("exactly one answer")
}
