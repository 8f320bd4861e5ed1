//! A model of any length: sizes, padding, lone queries side by side.

use super::*;

/// One run takes as long as there are tokens, and one at a time; longer texts than its limit fail.
struct Texts {
    limit: usize,
    heeds_mask: bool,
    /// The rows and the length that take a while longer when they are run for the first time.
    prepares: Option<(usize, usize)>,
}

/// What preparing takes: more than a slow run.
const PREPARING: Duration = Duration::from_millis(300);

struct TextModel {
    limit: usize,
    heeds_mask: bool,
    signature: Signature,
    /// What is still to be prepared.
    core: Mutex<Option<(usize, usize)>>,
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
        if held.take_if(|size| *size == (rows, tokens)).is_some() {
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
    let expected = SetRequirements {
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

#[test]
fn what_a_length_needs_once_is_not_its_time() {
    // One batch is quick and two are slow, of which one run is enough where it takes what was expected.
    let effort = Effort {
        slow: Duration::from_millis(2),
        slow_shape_runs: 1,
        ..quick()
    };
    for (at, size) in [(0, (1, 12)), (0, (1, 48)), (1, (2, 48))] {
        let engine = Texts {
            limit: 90,
            heeds_mask: true,
            prepares: Some(size),
        };
        let measured = run_texts(&engine, None, effort).expect("measures");
        let mut shapes = measured.sizes.shapes.iter();
        let shape = shapes.find(|shape| shape.dims[0] == size.1 as u64);
        let batches = &shape.expect("the length").batches;
        let rows: Vec<u32> = batches.iter().map(|point| point.batch).collect();
        assert_eq!(rows, [1, 2, 4]);
        // Of its runs only the first prepared.
        assert!(
            batches[at].p50_ms < PREPARING.as_secs_f64() * 1e3,
            "{size:?}"
        );
    }
}

#[test]
fn slow_batches_of_a_length_are_not_run_after_one_that_gained_nothing() {
    let engine = Texts {
        limit: 90,
        heeds_mask: true,
        prepares: None,
    };
    // The time of a batch grows with its rows: two of 48 tokens take 5 ms, four take 10.
    for (least_gain, is_run) in [(1.5, false), (0.0, true)] {
        let effort = Effort {
            slow: Duration::from_millis(7),
            least_gain,
            ..quick()
        };
        let is_as_wanted = || {
            let measured = run_texts(&engine, None, effort).expect("measures");
            let shapes = &measured.sizes.shapes;
            let of = |length: u64| shapes.iter().find(|shape| shape.dims[0] == length);
            let longest = &of(48).expect("the length").batches;
            assert_eq!(longest[2].batch, 4);
            assert!(longest[2].p50_ms >= 9.0, "{longest:?}");
            let shorter = &of(12).expect("the length").batches;
            assert!(shorter.iter().all(|point| point.samples > 0));
            (longest[2].samples > 0) == is_run
        };
        // Where the machine stands still in the one run of a row, two rows seem to gain.
        assert!((0..5).any(|_| is_as_wanted()), "{least_gain}");
    }
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
