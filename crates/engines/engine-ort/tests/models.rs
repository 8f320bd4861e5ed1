//! What ONNX Runtime does beyond the conformance suite: 8-bit models, shared convolutions,
//! strings that C cannot carry, files that point elsewhere.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use bytes::Bytes;
use sextant_engine::{
    Engine, Error, LoadRequest, LoadedModel,
    conformance::{assert_close, random_inputs},
};
use sextant_engine_ort::OrtEngine;
use sextant_onnx::{
    Ranges,
    builder::{self, Dim, ModelBuilder},
    calibration_graph,
    proto::{AttributeProto, attribute_type},
    quantize::quantize_weights_only,
    quantize_dynamic, quantize_static,
};
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Tensor};

fn engine() -> OrtEngine {
    let library = OrtEngine::find_library(None)
        .expect("ONNX Runtime's library is missing: run `cargo xtask provision`");
    OrtEngine::new(&library).expect("the library can be used")
}

fn load(
    engine: &OrtEngine,
    model: &Bytes,
    optimization: Optimization,
    threads: u16,
) -> Result<Arc<dyn LoadedModel>, Error> {
    engine.load(&LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: model.clone().into(),
        precision: Precision::Fp32,
        optimization,
        threads,
    })
}

fn run(engine: &OrtEngine, model: &Bytes, inputs: &[NamedTensor]) -> Vec<Tensor> {
    let model = load(engine, model, Optimization::All, 1).expect("the model loads");
    model.run(inputs).expect("the batch runs")
}

/// 2.7 MB of weights, nearly all in convolutions.
fn convolutions() -> Bytes {
    builder::conv_net(192, 10, 3)
}

/// Largest difference between outputs, as a share of the largest value.
fn deviation(given: &[Tensor], wanted: &[Tensor]) -> f32 {
    let given: Vec<f32> = given[0].to_vec().expect("32-bit floats");
    let wanted: Vec<f32> = wanted[0].to_vec().expect("32-bit floats");
    let scale = wanted.iter().fold(0f32, |scale, it| scale.max(it.abs()));
    let difference = given.iter().zip(&wanted).map(|(a, b)| (a - b).abs());
    difference.fold(0f32, f32::max) / scale
}

#[test]
fn convolutions_laid_out_again_are_shared_and_right() {
    let (engine, model) = (engine(), convolutions());
    let plain = load(&engine, &model, Optimization::Basic, 1).expect("the model loads");
    let inputs = random_inputs(plain.signature(), &[6], 1);
    let wanted = plain.run(&inputs).expect("the batch runs");
    let one = engine.resident_weights_bytes();
    let all: Vec<_> = [1, 2, 3]
        .map(|threads| load(&engine, &model, Optimization::All, threads).expect("it loads"))
        .into();
    let two = engine.resident_weights_bytes();
    assert!(two < one * 2 + one / 10, "{one} -> {two} bytes");
    for model in &all {
        let answer = model.run(&inputs).expect("the batch runs");
        assert_close(&answer, &wanted, "all against basic");
    }
}

/// Two branches with weights of their own, by the sum of the input's elements, behind a layer of 1 MiB.
fn branches() -> Bytes {
    let branch = |name: &str, seed| {
        let weights = format!("w_{name}");
        let mut branch = ModelBuilder::new(name, seed);
        branch
            .output(name, DataType::Fp32, &[builder::BATCH, Dim::Fixed(16)])
            .random(&weights, &[512, 16], 0.1)
            .node("MatMul", &["hidden", &weights], &[name]);
        AttributeProto {
            name: Some(format!("{name}_branch")),
            r#type: Some(attribute_type::GRAPH),
            g: branch.model().graph.map(Box::new),
            ..AttributeProto::default()
        }
    };
    let mut model = ModelBuilder::new("branches", 3);
    model
        .input("input", DataType::Fp32, &[builder::BATCH, Dim::Fixed(512)])
        .output("output", DataType::Fp32, &[builder::BATCH, Dim::Fixed(16)])
        .random("w", &[512, 512], 0.1)
        .constant("zero", &[], &[0f32])
        .node("MatMul", &["input", "w"], &["hidden"])
        .node("ReduceSum", &["input"], &["sums"])
        .node("Squeeze", &["sums"], &["sum"])
        .node("Greater", &["sum", "zero"], &["positive"])
        .node_with(
            "If",
            &["positive"],
            &["output"],
            vec![branch("then", 4), branch("else", 5)],
        );
    model.build()
}

#[test]
fn weights_of_branches_stay_with_them() {
    let (engine, model) = (engine(), branches());
    let plain = load(&engine, &model, Optimization::Basic, 1).expect("the model loads");
    assert!(
        engine.resident_weights_bytes() < 3 << 19,
        "the file is not kept"
    );
    let all = load(&engine, &model, Optimization::All, 2).expect("the model loads");
    let ones = |sign: f32| {
        let tensor = Tensor::from_elements(vec![3, 512], &[sign; 3 * 512]);
        [NamedTensor::new("input", tensor.expect("three rows"))]
    };
    let [then, or_else] = [1.0, -1.0].map(|sign| plain.run(&ones(sign)).expect("the batch runs"));
    assert!(deviation(&then, &or_else) > 0.1, "each branch has its own");
    for (sign, wanted) in [(1.0, then), (-1.0, or_else)] {
        let answer = all.run(&ones(sign)).expect("the batch runs");
        assert_close(&answer, &wanted, "all against basic");
    }
}

#[test]
fn dynamically_quantised_models_run() {
    let model = builder::mlp(&[256, 1024, 1024, 10], 5);
    let small = quantize_dynamic(&model).expect("it can be quantised").model;
    let engine = engine();
    let handle = load(&engine, &model, Optimization::All, 1).expect("the model loads");
    let inputs = random_inputs(handle.signature(), &[4], 9);
    let wanted = handle.run(&inputs).expect("the batch runs");
    drop(handle);
    for optimization in [Optimization::Basic, Optimization::All] {
        let handle = load(&engine, &small, optimization, 1).expect("the model loads");
        assert!(handle.signature().batched);
        let answer = handle.run(&inputs).expect("the batch runs");
        let deviation = deviation(&answer, &wanted);
        assert!(deviation < 0.1, "{optimization:?}: off by {deviation}");
    }
}

#[test]
fn statically_quantised_models_run() {
    let (engine, model) = (engine(), convolutions());
    let calibration = calibration_graph(&model).expect("it can be calibrated");
    let observer = load(&engine, &calibration.model, Optimization::Basic, 1).expect("it loads");
    let inputs = random_inputs(observer.signature(), &[16], 2);
    let mut ranges = Ranges::new();
    let observed = observer.run(&inputs).expect("the batch runs");
    let own = observed.len() - calibration.tensors.len();
    for (tensor, range) in calibration.tensors.iter().zip(&observed[own..]) {
        ranges.observe(tensor, &range.to_vec::<f32>().expect("32-bit floats"));
    }
    drop(observer);
    let small = quantize_static(&model, &ranges).expect("it can be quantised");
    let wanted = run(&engine, &model, &inputs);
    let answer = run(&engine, &small.model, &inputs);
    let deviation = deviation(&answer, &wanted);
    assert!(deviation < 0.15, "off by {deviation}");
}

#[test]
fn strings_that_cannot_pass_are_refused() {
    let engine = engine();
    let model = builder::identity(DataType::Bytes, &[builder::BATCH, Dim::Fixed(1)]);
    let handle = load(&engine, &model, Optimization::All, 1).expect("the model loads");
    for string in [&b"a\0b"[..], &b"\xff\xfe"[..]] {
        let tensor = Tensor::from_strings(vec![1, 1], vec![Bytes::from_static(string)]);
        let inputs = [NamedTensor::new("input", tensor.expect("one string"))];
        let refused = handle.run(&inputs).expect_err("not a C string in UTF-8");
        assert!(matches!(refused, Error::InvalidInput(_)), "{refused}");
    }
    let tensor = Tensor::from_strings(vec![1, 1], vec![Bytes::new()]).expect("one string");
    let inputs = [NamedTensor::new("input", tensor.clone())];
    assert_eq!(handle.run(&inputs), Ok(vec![tensor]));
}

#[test]
fn booleans_beyond_one_are_refused() {
    let engine = engine();
    let model = builder::identity(DataType::Bool, &[builder::BATCH, Dim::Fixed(2)]);
    let handle = load(&engine, &model, Optimization::All, 1).expect("the model loads");
    let tensor = Tensor::from_bytes(DataType::Bool, vec![1, 2], Bytes::from_static(&[1, 2]));
    let inputs = [NamedTensor::new("input", tensor.expect("two bytes"))];
    let refused = handle.run(&inputs).expect_err("2 is not a boolean");
    assert!(matches!(refused, Error::InvalidInput(_)), "{refused}");
}

#[test]
fn empty_batches_do_no_harm() {
    let engine = engine();
    let model = builder::mlp(&[8, 4], 1);
    let handle = load(&engine, &model, Optimization::All, 1).expect("the model loads");
    let empty = random_inputs(handle.signature(), &[0], 1);
    if let Ok(outputs) = handle.run(&empty) {
        assert_eq!(outputs[0].shape(), [0, 4]);
    }
    let good = random_inputs(handle.signature(), &[1], 1);
    assert!(handle.run(&good).is_ok());
}

#[test]
fn files_that_point_elsewhere_are_refused() {
    let split = sextant_onnx::split_weights(&builder::mlp(&[64, 64, 4], 1), 128);
    let skeleton = split.expect("it can be taken apart").skeleton;
    let refused = load(&engine(), &skeleton, Optimization::All, 1);
    let Err(Error::InvalidModel(reason)) = refused else {
        panic!("a file without its weights is accepted");
    };
    assert!(reason.contains(sextant_onnx::SHARED_LOCATION), "{reason}");
}

#[test]
fn contended_handles_answer_everyone() {
    let (engine, model) = (engine(), convolutions());
    let handle = load(&engine, &model, Optimization::All, 1).expect("the model loads");
    let inputs = random_inputs(handle.signature(), &[2], 1);
    let wanted = handle.run(&inputs).expect("the batch runs");
    let start = Barrier::new(6);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..20 {
                    let answer = handle.run(&inputs).expect("the batch runs");
                    assert_close(&answer, &wanted, "among six threads");
                }
            });
        }
    });
    drop(handle);
}

#[test]
fn a_missing_library_is_told() {
    let nowhere = std::path::Path::new("/nonexistent/libonnxruntime.so");
    assert_eq!(OrtEngine::find_library(Some(nowhere)), None);
}

/// Scores of texts by two tables of words, of which one is multiplied with as well.
fn tables(words: usize) -> Bytes {
    let mut model = ModelBuilder::new("tables", 6);
    let ids = [Dim::Dynamic("batch"), Dim::Fixed(5)];
    let one = [Dim::Dynamic("batch"), Dim::Fixed(words as u64)];
    model
        .input("text", DataType::Int64, &ids)
        .input("title", DataType::Int64, &ids)
        .output("scores", DataType::Fp32, &one)
        .random("table", &[words, 64], 2.0)
        .random("tied", &[words, 64], 1.0)
        .node("Gather", &["table", "text"], &["of_text"])
        .node("Gather", &["table", "title"], &["of_title"])
        .node("Gather", &["tied", "text"], &["of_tied"])
        .node("Add", &["of_text", "of_title"], &["both"])
        .node("Add", &["both", "of_tied"], &["all"])
        .constant("axes", &[1], &[1i64])
        .constant("flat", &[2], &[-1i64, 64])
        .node("ReduceSum", &["all", "axes"], &["sum"])
        .node("Reshape", &["sum", "flat"], &["rows"])
        .node("Transpose", &["tied"], &["turned"])
        .node("MatMul", &["rows", "turned"], &["scores"]);
    model.build()
}

#[test]
fn tables_of_words_are_kept_in_eight_bits() {
    let (engine, words) = (engine(), 20_000);
    let model = tables(words);
    let ids = |seed: i64| {
        let ids: Vec<i64> = (0..15)
            .map(|at| (at * 7919 + seed) % words as i64)
            .collect();
        Tensor::from_elements(vec![3, 5], &ids).expect("a tensor")
    };
    let inputs = [
        NamedTensor::new("text", ids(3)),
        NamedTensor::new("title", ids(11)),
    ];
    let wanted = run(&engine, &model, &inputs);
    for bits in [8, 4] {
        let small = quantize_weights_only(&model, bits).expect("it has a large table");
        // One of two tables is a quarter of what it was; the other is needed as it is.
        let share = small.model.len() as f64 / model.len() as f64;
        assert!((0.6..0.65).contains(&share), "{share}");
        assert_eq!(small.nodes.len(), 2, "{:?}", small.nodes);
        let engine = self::engine();
        let given = run(&engine, &small.model, &inputs);
        let away = deviation(&given, &wanted);
        assert!(away > 0.0 && away < 0.01, "{away}");
    }
}
