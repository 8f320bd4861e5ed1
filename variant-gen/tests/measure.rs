//! Measuring engines whose behaviour is known.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use sextant_engine::{
    Capabilities, Engine, Error, LoadRequest, LoadedModel,
    emulated::{EmulatedEngine, EmulatedModel},
};
use sextant_types::{
    Accuracy, DataType, Digest, EngineName, Metric, NamedTensor, Optimization, OutputAxis, Padding,
    Precision, Signature, Tensor, TensorSpec,
};
use sextant_variant_gen::{
    configuration::Configuration,
    measure::{Cancel, Effort, MeasureError, Measurement, Rival, Subject, measure, rivals},
    validation::{Expected, Limits, Scored, ValidationSet, read},
};

/// The first output, whose columns have no names.
static FIRST: Scored = Scored {
    output: 0,
    classes: Vec::new(),
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
    let expected = Expected {
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
            model: Bytes::new(),
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

/// A batch of one takes 15 ms at least, one of eight 85 ms.
fn slow() -> EmulatedEngine {
    emulated(10.0, 5.0)
}

fn rival() -> Rival {
    Rival {
        name: "quick".to_owned(),
        engine: EngineName("other".to_owned()),
        precision: Precision::Fp32,
        threads: 1,
        load_ms: 0.0,
        alone_ms: 1.0,
        rows_per_s: 1000.0,
    }
}

fn race(rivals: &[Rival], effort: Effort) -> Result<Measurement, MeasureError> {
    let (engine, signature, validation) = (slow(), signature(), validation());
    let subject = Subject {
        rivals,
        ..subject(&engine, &signature, &validation, Metric::Top1)
    };
    measure(&subject, &effort, &Cancel::default())
}

#[test]
fn what_a_rival_outruns_is_left_out() {
    let effort = quick();
    let pruned = race(&[rival()], effort);
    let Err(MeasureError::Pruned(reason)) = pruned else {
        panic!("{pruned:?}");
    };
    assert!(reason.contains("slower than `quick`"), "{reason}");
    let others = [
        // It takes more threads, is less exact, or loads for longer.
        Rival {
            threads: 2,
            ..rival()
        },
        Rival {
            precision: Precision::Fp16,
            ..rival()
        },
        Rival {
            load_ms: 60_000.0,
            ..rival()
        },
    ];
    for other in others {
        race(&[other], effort).expect("measures");
    }
}

/// A batch of one takes 15 ms, so a rival of 14 ms is no clearly faster.
#[test]
fn a_near_copy_is_left_out_where_it_is_no_faster() {
    let near = Rival {
        alone_ms: 14.0,
        rows_per_s: 100.0,
        ..rival()
    };
    race(std::slice::from_ref(&near), quick()).expect("measures");
    let copy = Rival {
        engine: EngineName("emulated".to_owned()),
        ..near
    };
    let pruned = race(std::slice::from_ref(&copy), quick());
    assert!(matches!(pruned, Err(MeasureError::Pruned(_))), "{pruned:?}");
    let with_fewer_threads = Rival { threads: 0, ..copy };
    race(&[with_fewer_threads], quick()).expect("measures");
}

/// Counts loads.
struct Counted {
    engine: EmulatedEngine,
    loads: AtomicU32,
}

impl Engine for Counted {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn load(&self, request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.engine.load(request)
    }

    fn resident_weights_bytes(&self) -> u64 {
        self.engine.resident_weights_bytes()
    }
}

#[test]
fn only_what_is_measured_in_full_is_loaded_again() {
    let (signature, validation) = (signature(), validation());
    let loads = |rivals: &[Rival]| {
        let engine = Counted {
            engine: slow(),
            loads: AtomicU32::new(0),
        };
        let subject = Subject {
            rivals,
            ..subject(&engine, &signature, &validation, Metric::Top1)
        };
        let effort = Effort {
            loads: 3,
            ..quick()
        };
        let measured = measure(&subject, &effort, &Cancel::default());
        (measured.is_ok(), engine.loads.load(Ordering::Relaxed))
    };
    assert_eq!(loads(&[rival()]), (false, 1));
    assert_eq!(loads(&[]), (true, 3));
}

#[test]
fn an_accuracy_that_is_known_is_not_measured_again_unless_each_is_wanted() {
    let (signature, validation) = (signature(), validation());
    let engine = emulated(0.0, 0.0);
    let known = run(&engine, quick()).expect("measures").accuracy;
    let told = Accuracy {
        value: 0.25,
        ..known
    };
    let measured = |effort: Effort| {
        let subject = Subject {
            accuracy: Some(told),
            ..subject(&engine, &signature, &validation, Metric::Top1)
        };
        let measured = measure(&subject, &effort, &Cancel::default());
        measured.expect("measures").accuracy
    };
    assert_eq!(measured(quick()), told);
    let each = Effort {
        scores_each: Effort::thorough().scores_each,
        ..quick()
    };
    assert_eq!(measured(each), known);
}

#[test]
fn quick_models_are_measured_whatever_is_quicker() {
    let effort = Effort {
        pruned_above: Duration::from_secs(600),
        ..quick()
    };
    race(&[rival()], effort).expect("measures");
    let thorough = Effort {
        pruned_above: Effort::thorough().pruned_above,
        ..quick()
    };
    race(&[rival()], thorough).expect("measures");
}

#[test]
fn only_what_is_as_accurate_as_the_uploaded_file_is_a_rival() {
    let configuration = |precision| Configuration {
        engine: EngineName("emulated".to_owned()),
        precision,
        optimization: Optimization::All,
        threads: 1,
    };
    let with_accuracy = |value: f64| {
        let mut measured = run(&emulated(0.0, 0.0), quick()).expect("measures");
        measured.accuracy.value = value;
        measured.accuracy.lower = value - 0.1;
        measured
    };
    let whole = (configuration(Precision::Fp32), with_accuracy(0.9));
    let near = (configuration(Precision::Bf16), with_accuracy(0.85));
    let far = (configuration(Precision::Int8Static), with_accuracy(0.5));
    let all = [&whole, &near, &far].map(|(configuration, measured)| (configuration, measured));
    let names: Vec<String> = rivals(&all).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["emulated-fp32-all-t1", "emulated-bf16-all-t1"]);
    // Without single precision nobody knows how accurate the file is.
    assert!(rivals(&all[1..]).is_empty());
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

/// One run takes as long as there are tokens, and one at a time; longer texts than its limit fail.
struct Texts {
    limit: usize,
    heeds_mask: bool,
    /// The length that takes a while longer when it is run for the first time.
    prepares: Option<usize>,
}

/// What preparing takes: more than a slow run.
const PREPARING: Duration = Duration::from_millis(300);

struct TextModel {
    limit: usize,
    heeds_mask: bool,
    signature: Signature,
    /// What is still to be prepared.
    core: Mutex<Option<usize>>,
}

fn texts() -> Signature {
    let spec = |name: &str, data_type, shape: &[Option<u64>]| TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: shape.to_vec(),
    };
    Signature {
        inputs: vec![
            spec("tokens", DataType::Fp32, &[None, None]),
            spec("mask", DataType::Fp32, &[None, None]),
        ],
        outputs: vec![
            spec("sum", DataType::Fp32, &[None, Some(1)]),
            spec("each", DataType::Fp32, &[None, None]),
        ],
        batched: true,
    }
}

impl Engine for Texts {
    fn name(&self) -> &'static str {
        "texts"
    }

    fn capabilities(&self) -> Capabilities {
        emulated(0.0, 0.0).capabilities()
    }

    fn load(&self, _request: &LoadRequest) -> Result<Arc<dyn LoadedModel>, Error> {
        Ok(Arc::new(TextModel {
            limit: self.limit,
            heeds_mask: self.heeds_mask,
            signature: texts(),
            core: Mutex::new(self.prepares),
        }))
    }

    fn resident_weights_bytes(&self) -> u64 {
        0
    }
}

impl LoadedModel for TextModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<Tensor>, Error> {
        let shape = inputs[0].tensor.shape().to_vec();
        let (rows, tokens) = (shape[0], shape[1]);
        if tokens > self.limit {
            return Err(Error::Failed("too many tokens".to_owned()));
        }
        let values = |at: usize| inputs[at].tensor.to_vec::<f32>().expect("floats");
        let (given, mask) = (values(0), values(1));
        let share = |at: usize| if self.heeds_mask { mask[at] } else { 1.0 };
        let each: Vec<f32> = (0..given.len()).map(|at| given[at] + 1.0).collect();
        let parts = (0..given.len()).map(|at| (given[at] + 1.0) * share(at));
        let parts: Vec<f32> = parts.collect();
        let sums: Vec<f32> = parts.chunks(tokens).map(|row| row.iter().sum()).collect();
        let mut held = self.core.lock().expect("nobody panics with it");
        if held.take_if(|length| *length == tokens).is_some() {
            work(PREPARING);
        }
        work(Duration::from_micros(50 * (rows * tokens) as u64));
        drop(held);
        let tensor = |shape: Vec<usize>, values: &[f32]| {
            Tensor::from_elements(shape, values).map_err(|e| Error::Failed(e.to_string()))
        };
        Ok(vec![tensor(vec![rows, 1], &sums)?, tensor(shape, &each)?])
    }

    fn weights_bytes(&self) -> u64 {
        0
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "emulated work is the passing of time itself"
)]
fn work(time: Duration) {
    std::thread::sleep(time);
}

fn run_texts(
    engine: &Texts,
    padding: Option<&Padding>,
    effort: Effort,
) -> Result<Measurement, MeasureError> {
    let signature = texts();
    let line = "{\"inputs\": {\"tokens\": [1, 2, 3, 4, 5, 6], \"mask\": [1, 1, 1, 1, 1, 1]}, \
                \"label\": [27]}\n";
    let expected = Expected {
        signature: &signature,
        metric: Metric::MeanAbsoluteError,
        scored: &FIRST,
        limits: Limits::default(),
    };
    let validation = read(&Bytes::from(line.repeat(4)), expected).expect("reads");
    let subject = Subject {
        padding,
        ..subject(engine, &signature, &validation, Metric::MeanAbsoluteError)
    };
    measure(&subject, &effort, &Cancel::default())
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
fn what_a_length_needs_once_is_not_its_time() {
    let engine = Texts {
        limit: 90,
        heeds_mask: true,
        prepares: Some(12),
    };
    let measured = run_texts(&engine, None, quick()).expect("measures");
    let mut shapes = measured.sizes.shapes.iter();
    let twelve = shapes.find(|shape| shape.dims[0] == 12).expect("twelve");
    let rows: Vec<u32> = twelve.batches.iter().map(|point| point.batch).collect();
    assert_eq!(rows, [1, 2, 4]);
    // Of the two runs of one row only the first prepared.
    assert!(twelve.batches[0].p50_ms < PREPARING.as_secs_f64() * 1e3);
}

#[test]
fn a_model_of_any_length_is_measured_at_several_up_to_what_it_takes() {
    let engine = Texts {
        limit: 90,
        heeds_mask: true,
        prepares: None,
    };
    let measured = run_texts(&engine, None, quick()).expect("measures");
    assert_eq!(measured.sizes.dims, [6, 6]);
    assert_eq!(
        (measured.sizes.longest, &measured.padding),
        (Some(90), &None)
    );
    let lengths: Vec<u64> = measured
        .sizes
        .shapes
        .iter()
        .map(|shape| shape.dims[0])
        .collect();
    assert_eq!(lengths, [1, 3, 12, 24, 48]);
    for shape in &measured.sizes.shapes {
        let rows: Vec<u32> = shape.batches.iter().map(|point| point.batch).collect();
        assert_eq!(rows, [1, 2, 4]);
        // The engine sleeps for at least so long.
        assert!(shape.batches[2].p50_ms >= 0.2 * shape.dims[0] as f64);
    }
    let one = measured.profile(1);
    assert!(
        one.sizes
            .shapes
            .iter()
            .all(|shape| shape.batches.len() == 1)
    );
    assert!(one.concurrent.is_empty());
}

#[test]
fn slow_batches_of_other_sizes_that_gain_nothing_are_estimated() {
    let engine = Texts {
        limit: 90,
        heeds_mask: true,
        prepares: None,
    };
    let effort = Effort {
        // Two rows of 24 tokens take 2.4 ms at least.
        slow: Duration::from_millis(2),
        slow_shape_runs: 1,
        least_gain: 1000.0,
        ..quick()
    };
    let measured = run_texts(&engine, None, effort).expect("measures");
    let samples = |tokens: u64| {
        let mut shapes = measured.sizes.shapes.iter();
        let shape = shapes
            .find(|shape| shape.dims[0] == tokens)
            .expect("a size");
        let batches = shape.batches.iter().map(|it| (it.batch, it.samples > 0));
        batches.collect::<Vec<_>>()
    };
    assert_eq!(samples(24), [(1, true), (2, true), (4, false)]);
    assert_eq!(samples(48), [(1, true), (2, true), (4, false)]);
    let mut shapes = measured.sizes.shapes.iter();
    let longest = shapes.find(|shape| shape.dims[0] == 48).expect("a size");
    let [_, two, four] = longest.batches[..] else {
        panic!("{longest:?}");
    };
    // At least in proportion to the rows.
    assert!(four.p50_ms >= 2.0 * two.p50_ms);
}

#[test]
fn a_padding_is_proved_and_the_outputs_that_follow_the_length_are_found() {
    let padding = Padding {
        mask: "mask".to_owned(),
        ..Padding::default()
    };
    let heeds = |heeds_mask| Texts {
        limit: 90,
        heeds_mask,
        prepares: None,
    };
    let measured = run_texts(&heeds(true), Some(&padding), quick()).expect("measures");
    let found = measured.padding.expect("it is padded");
    let axis = OutputAxis { output: 1, axis: 1 };
    assert_eq!((found.mask.as_str(), found.cropped), ("mask", vec![axis]));
    let refused = run_texts(&heeds(false), Some(&padding), quick());
    assert!(
        matches!(refused, Err(MeasureError::Padding { percent }) if percent > 1.0),
        "{refused:?}"
    );
}

#[test]
fn lone_queries_are_measured_side_by_side_where_somebody_chooses_by_it() {
    let engine = Texts {
        limit: 90,
        heeds_mask: true,
        prepares: None,
    };
    let effort = Effort {
        concurrent_cores: 3,
        ..quick()
    };
    let measured = run_texts(&engine, None, effort).expect("measures");
    let lone = measured.profile(1);
    let running: Vec<u16> = lone.concurrent.iter().map(|of| of.running).collect();
    assert_eq!(running, [2, 3]);
    // They take turns, each of at least 0.3 ms.
    for of in &lone.concurrent {
        assert!(of.mean_ms >= 0.3, "{of:?}");
        assert!(of.samples >= u32::from(of.running));
    }
    assert!(measured.profile(4).concurrent.is_empty());
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
