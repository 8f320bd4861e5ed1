//! Every operator compared with ONNX Runtime, over a driver that computes on the host.

use std::{collections::BTreeSet, sync::Arc};

use sextant_engine::{Engine, Error, LoadRequest};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::recording::{Pretence, RecordingDriver},
    lower::OPERATORS,
    suite::{self, Case},
};
use sextant_engine_ort::OrtEngine;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_types::{DataType, Digest, Optimization, Precision};

const SEED: u64 = 20_260;

fn engine(convolution: bool) -> Arc<dyn Engine> {
    let config = Config {
        page_bytes: 64 << 10,
        pages: Some(16),
        workspace_bytes: 4 << 20,
        io_bytes: 1 << 20,
        scratch_bytes: 0,
        largest_batch: 4,
        host_bytes: 1 << 20,
    };
    let pretence = Pretence {
        convolution,
        ..Pretence::default()
    };
    let driver = Arc::new(RecordingDriver::new(pretence));
    let engine = CudaEngine::new(driver, config);
    Arc::new(engine.expect("the memory is there"))
}

fn reference() -> OrtEngine {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    OrtEngine::new(&library).expect("the library can be used")
}

fn check(engine: &dyn Engine) {
    agree(&suite::operators::all(engine, &reference(), SEED));
}

fn agree(comparisons: &[suite::Comparison]) {
    let bad: Vec<String> = comparisons
        .iter()
        .filter(|comparison| !comparison.passed())
        .map(|comparison| format!("{comparison:?}"))
        .collect();
    assert!(bad.is_empty(), "seed {SEED}:\n{}", bad.join("\n"));
}

#[test]
fn operators_agree() {
    check(&*engine(false));
}

#[test]
fn operators_agree_with_a_library_for_convolutions() {
    check(&*engine(true));
}

/// Two convolutions cannot take over the normalisation behind them, because their bias is known only with the batch.
#[test]
fn normalisations_that_no_convolution_takes_over_are_computed() {
    let mut model = ModelBuilder::new("normalised", 1);
    let image = [BATCH, Dim::Fixed(3), Dim::Fixed(6), Dim::Fixed(6)];
    model.input("x", DataType::Fp32, &image);
    let smaller = [BATCH, Dim::Fixed(3), Dim::Fixed(4), Dim::Fixed(4)];
    model.output("y", DataType::Fp32, &smaller);
    let axes = AttributeProto::ints("axes", &[0, 2, 3]);
    let axes = vec![axes, AttributeProto::int("keepdims", 0)];
    model.node_with("ReduceMean", &["x"], &["b"], axes);
    model.random("w", &[3, 3, 2, 2], 0.5);
    for vector in ["scale", "shift", "mean"] {
        model.random(vector, &[3], 0.5);
    }
    model.constant("variance", &[3], &[0.5f32, 0.75, 1.0]);
    for [input, sum, output] in [["x", "first", "between"], ["between", "second", "y"]] {
        model.node("Conv", &[input, "w", "b"], &[sum]);
        let vectors = [sum, "scale", "shift", "mean", "variance"];
        model.node("BatchNormalization", &vectors, &[output]);
    }
    let case = Case {
        operator: "BatchNormalization",
        detail: "behind convolutions with a bias of the batch".to_owned(),
        model: model.build(),
        // No size that is padded: the bias is that of all rows.
        dynamic: vec![4],
        seed: SEED,
    };
    let tolerance = suite::operators::tolerance;
    for convolution in [false, true] {
        let engine = engine(convolution);
        agree(&suite::compare(&*engine, &reference(), &case, tolerance));
    }
}

/// The convolution before it computes with constant statistics, which are not those of the batch.
#[test]
fn normalisation_by_the_statistics_of_the_batch_is_refused() {
    let mut model = ModelBuilder::new("training", 1);
    let image = [BATCH, Dim::Fixed(2), Dim::Fixed(4), Dim::Fixed(4)];
    model.input("x", DataType::Fp32, &image);
    model.output("y", DataType::Fp32, &image);
    model.random("w", &[2, 2, 1, 1], 1.0);
    model.constant("ones", &[2], &[1f32, 1.0]);
    model.node("Conv", &["x", "w"], &["sum"]);
    let of_batch = vec![AttributeProto::int("training_mode", 1)];
    let vectors = ["sum", "ones", "ones", "ones", "ones"];
    model.node_with("BatchNormalization", &vectors, &["y"], of_batch);
    let reason = refusal(&model);
    assert!(reason.contains("`BatchNormalization`"), "{reason}");
}

/// The reason why the engine does not run a model.
fn refusal(model: &ModelBuilder) -> String {
    let request = LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: model.build().into(),
        precision: Precision::Fp32,
        optimization: Optimization::All,
        threads: 1,
    };
    match engine(false).load(&request) {
        Err(Error::Unsupported(reason)) => reason,
        Err(other) => panic!("refused as `{other}`"),
        Ok(_) => panic!("accepted"),
    }
}

#[test]
fn fractional_powers_of_integers_are_refused() {
    let mut model = ModelBuilder::new("powers", 1);
    model.input("x", DataType::Int64, &[BATCH, Dim::Fixed(4)]);
    model.output("y", DataType::Int64, &[BATCH, Dim::Fixed(4)]);
    model.constant("half", &[], &[0.5f32]);
    model.node("Pow", &["x", "half"], &["y"]);
    let reason = refusal(&model);
    assert!(reason.contains("`Pow`"), "{reason}");
}

#[test]
fn every_operator_has_a_case() {
    let cases = suite::operators::cases(SEED);
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.operator).collect();
    let missing: Vec<&&str> = OPERATORS
        .iter()
        .filter(|it| !covered.contains(**it))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
