//! Measuring engines whose behaviour is known.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use sextant_engine::{
    Capabilities, Engine, Error, Interrupt, LoadRequest, LoadedModel,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_types::{
    Accuracy, DataType, Digest, EngineName, Metric, NamedTensor, Optimization, OutputAxis, Padding,
    Precision, Signature, Tensor, TensorSpec,
};
use sextant_variant_gen::{
    configuration::Configuration,
    measure::{Cancel, Effort, MeasureError, Measurement, Rival, Subject, measure, rivals},
    validation::{Limits, ScoringTarget, SetRequirements, ValidationSet, read},
};

mod lengths;
mod loads;
mod races;

/// The first output, whose columns have no names.
static FIRST: ScoringTarget = ScoringTarget {
    output: 0,
    classes: Vec::new(),
    own: Vec::new(),
};

fn signature() -> Signature {
    let spec = |name: &str, size| TensorSpec {
        name: name.to_owned(),
        data_type: DataType::Fp32,
        shape: vec![None, Some(size)],
    };
    Signature {
        inputs: vec![spec("x", 2)],
        outputs: vec![spec("y", 3)],
        batched: true,
    }
}

fn validation() -> ValidationSet {
    let lines = "{\"inputs\": {\"x\": [1, 2]}, \"label\": 0}\n".repeat(5);
    let expected = SetRequirements {
        signature: &signature(),
        metric: Metric::Top1,
        scored: &FIRST,
        limits: Limits::default(),
    };
    read(&Bytes::from(lines), expected).expect("reads")
}

/// What is measured of a model without a file.
fn subject<'a>(
    engine: &'a dyn Engine,
    signature: &'a Signature,
    validation: &'a ValidationSet,
    metric: Metric,
) -> Subject<'a> {
    Subject {
        engine,
        request: LoadRequest {
            artefact: Digest::from_bytes([0; 32]),
            model: Bytes::new().into(),
            precision: Precision::Fp32,
            optimization: Optimization::All,
            threads: 1,
        },
        signature,
        validation,
        metric,
        padding: None,
        rivals: &[],
        judge: None,
        accuracy: None,
        uploaded: None,
        is_half: false,
        in_own_process: false,
    }
}

fn run(engine: &dyn Engine, effort: Effort) -> Result<Measurement, MeasureError> {
    let (signature, validation) = (signature(), validation());
    let subject = subject(engine, &signature, &validation, Metric::Top1);
    measure(&subject, &effort, &Cancel::default())
}

fn emulated(alpha_ms: f64, beta_ms: f64) -> EmulatedEngine {
    EmulatedEngine::new(move |_| {
        Ok(EmulatedModel {
            signature: signature(),
            alpha_ms,
            beta_ms,
            load_ms: 4.0,
            weights_bytes: 3 << 20,
        })
    })
}

/// Sleeping takes at least as long as asked for; how much longer is up to the machine.
#[test]
fn a_profile_tells_what_the_engine_does() {
    let effort = Effort {
        budget: Duration::from_millis(20),
        runs: 5,
        ..Effort::default()
    };
    let measured = run(&emulated(0.25, 1.0), effort).expect("measures");
    assert!(measured.load_ms >= 4.0);
    assert_eq!(measured.stopped, None);
    let batches: Vec<u32> = measured.points.iter().map(|it| it.latency.batch).collect();
    assert_eq!(batches, [1, 2, 4, 8, 16, 32, 64]);
    for point in &measured.points {
        let latency = point.latency;
        assert!(
            latency.p50_ms >= 1.0 + 0.25 * f64::from(latency.batch),
            "{latency:?}"
        );
        assert!(latency.p99_ms >= latency.p50_ms && latency.samples >= 5);
        assert!(point.peak_memory_bytes >= 3 << 20);
    }
    let profile = measured.profile(64);
    assert!(profile.saturation_rps <= 64.0 / 17.0 * 1000.0);
    assert_eq!(profile.weights_bytes, 3 << 20);
}

#[test]
fn a_batch_that_takes_too_long_ends_the_sweep() {
    let effort = Effort {
        slowest: Duration::from_millis(50),
        slow: Duration::from_millis(20),
        slow_runs: 1,
        budget: Duration::ZERO,
        runs: 1,
        loads: 1,
        ..Effort::default()
    };
    let measured = run(&emulated(15.0, 0.0), effort).expect("measures");
    assert!(measured.max_batch() <= 2, "{measured:?}");
    let reason = measured.stopped.expect("a reason");
    assert!(reason.contains("takes"), "{reason}");
    let alone = run(&emulated(60.0, 0.0), effort).expect("measures");
    assert_eq!(alone.max_batch(), 1);
    assert_eq!(alone.points[0].latency.samples, 1);
}

fn quick() -> Effort {
    Effort {
        budget: Duration::ZERO,
        runs: 1,
        loads: 1,
        largest_batch: 4,
        shape_budget: Duration::ZERO,
        shape_runs: 1,
        ..Effort::default()
    }
}

#[test]
fn slow_batches_that_gain_nothing_end_the_sweep() {
    let effort = Effort {
        slow: Duration::from_millis(5),
        slow_runs: 3,
        least_gain: 4.0,
        largest_batch: 16,
        ..quick()
    };
    let measured = run(&emulated(10.0, 0.0), effort).expect("measures");
    assert_eq!(measured.max_batch(), 4);
    let reason = measured.stopped.expect("a reason");
    assert!(reason.contains("no more rows per second"), "{reason}");
    let patient = Effort {
        least_gain: 0.0,
        ..effort
    };
    let measured = run(&emulated(10.0, 0.0), patient).expect("measures");
    assert_eq!((measured.max_batch(), measured.stopped), (16, None));
}

/// Fails on batches above a size, as for want of memory.
struct Small(u64);

impl Engine for Small {
    fn name(&self) -> &'static str {
        "small"
    }

    fn capabilities(&self) -> Capabilities {
        emulated(0.0, 0.0).capabilities()
    }

    fn load(&self, _request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        Ok(Arc::new(SmallModel(self.0, signature())))
    }

    fn resident_weights_bytes(&self) -> u64 {
        0
    }
}

struct SmallModel(u64, Signature);

impl LoadedModel for SmallModel {
    fn signature(&self) -> &Signature {
        &self.1
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let rows = inputs[0].tensor.rows();
        if rows as u64 > self.0 {
            return Err(Error::Failed("no memory".to_owned()));
        }
        let scores = [1f32, 0.0, 0.0].repeat(rows);
        let output = Tensor::from_elements(vec![rows, 3], &scores);
        output
            .map(|it| vec![it])
            .map_err(|e| Error::Failed(e.to_string()))
    }

    fn weights_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_batch_that_fails_ends_the_sweep_unless_it_is_the_first() {
    let effort = Effort {
        budget: Duration::ZERO,
        runs: 1,
        ..Effort::default()
    };
    let measured = run(&Small(8), effort).expect("measures");
    assert_eq!(measured.max_batch(), 8);
    assert!(measured.stopped.expect("a reason").contains("no memory"));
    assert_eq!(measured.accuracy.value, 1.0);
    let failed = run(&Small(0), effort);
    assert!(
        matches!(failed, Err(MeasureError::Run { batch: 1, .. })),
        "{failed:?}"
    );
}

#[test]
fn a_cancelled_measurement_stops() {
    let (signature, validation) = (signature(), validation());
    let engine = Small(64);
    let subject = subject(&engine, &signature, &validation, Metric::Top1);
    let cancel = Cancel::default();
    cancel.cancel();
    let result = measure(&subject, &Effort::default(), &cancel);
    assert_eq!(result, Err(MeasureError::Cancelled));
}

/// An engine that waits for room until its load is ended.
struct FullEngine(mpsc::Sender<()>);

/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

impl Engine for FullEngine {
    fn name(&self) -> &'static str {
        "full"
    }

    fn capabilities(&self) -> Capabilities {
        Small(1).capabilities()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.load_interruptible(request, &Interrupt::default())
    }

    fn load_interruptible(
        &self,
        _: &LoadRequest,
        interrupt: &Interrupt,
    ) -> Result<Arc<dyn LoadedModel>, Error> {
        let (end, ended) = mpsc::channel();
        let end = move || {
            // Nobody waits for it where the test is over.
            end.send(()).ok();
        };
        interrupt.over(end, || {
            self.0.send(()).expect("the test waits for it");
            ended.recv_timeout(PATIENCE).expect("it is told to end");
        });
        Err(Error::Interrupted)
    }
}

#[test]
fn a_load_under_way_ends_with_the_measurement() {
    let (signature, validation) = (signature(), validation());
    let (begins, begun) = mpsc::channel();
    let engine = FullEngine(begins);
    let subject = subject(&engine, &signature, &validation, Metric::Top1);
    let cancel = Cancel::default();
    let cancelled = cancel.clone();
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            begun.recv_timeout(PATIENCE).expect("it begins to load");
            cancelled.cancel();
        });
        measure(&subject, &Effort::default(), &cancel)
    });
    assert_eq!(result, Err(MeasureError::Cancelled));
}
