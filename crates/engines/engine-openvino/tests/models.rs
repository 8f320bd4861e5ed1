//! What OpenVINO does beyond the conformance suite: 16-bit and 8-bit variants, and types that it only
//! converts.

use std::sync::Arc;

use bytes::Bytes;
use sextant_engine::{Engine, Error, LoadRequest, LoadedModel, conformance::random_inputs};
use sextant_engine_openvino::OpenvinoEngine;
use sextant_onnx::{
    Ranges,
    builder::{self, Dim, ModelBuilder},
    calibration_graph,
    proto::AttributeProto,
    quantize_static,
};
use sextant_types::{DataType, Digest, NamedTensor, Optimization, Precision, Tensor};

#[path = "../../engine/tests/support/sums.rs"]
mod sums;

fn engine() -> OpenvinoEngine {
    let library = OpenvinoEngine::find_library(None)
        .expect("OpenVINO's library is missing: run `cargo xtask provision`");
    OpenvinoEngine::new(&library).expect("the library can be used")
}

fn load_as(model: &Bytes, precision: Precision) -> Result<Arc<dyn LoadedModel>, Error> {
    load_with(model, precision, 1)
}

fn load_with(
    model: &Bytes,
    precision: Precision,
    threads: u16,
) -> Result<Arc<dyn LoadedModel>, Error> {
    engine().load(&LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: model.clone().into(),
        precision,
        optimization: Optimization::All,
        threads,
    })
}

fn load(model: &Bytes) -> Result<Arc<dyn LoadedModel>, Error> {
    load_as(model, Precision::Fp32)
}

/// Largest distance of two models' answers to the same inputs, as a share of the largest answer.
fn distance(a: &dyn LoadedModel, b: &dyn LoadedModel) -> f32 {
    let inputs = random_inputs(a.signature(), &[4], 9);
    let answer = |model: &dyn LoadedModel| -> Vec<f32> {
        let outputs = model.run(&inputs).expect("the batch runs");
        outputs[0].to_vec().expect("32-bit floats")
    };
    let (a, b) = (answer(a), answer(b));
    let scale = a.iter().fold(0f32, |scale, it| scale.max(it.abs()));
    let pairs = a.iter().zip(&b);
    pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs() / scale))
}

#[test]
fn shorter_floats_are_offered_where_the_processor_has_them() {
    let model = builder::conv_net(64, 10, 7);
    let whole = load(&model).expect("it loads");
    let offered = engine().capabilities().precisions;
    for precision in [Precision::Bf16, Precision::Fp16] {
        match load_as(&model, precision) {
            Ok(short) => {
                assert!(offered.contains(&precision), "{precision:?} is not offered");
                let far = distance(&*whole, &*short);
                assert!(far < 0.05, "{precision:?}: {far}");
            }
            Err(error) => {
                assert!(!offered.contains(&precision), "{precision:?}: {error}");
                assert!(matches!(error, Error::Unsupported(_)), "{error}");
            }
        }
    }
}

/// Tokens `[N, T]` with places for eight: the mean of a vector for each word and place.
fn encoder() -> Bytes {
    let mut model = ModelBuilder::new("encoder", 3);
    let any = [Dim::Dynamic("N"), Dim::Dynamic("T")];
    model
        .input("tokens", DataType::Int64, &any)
        .output(
            "scores",
            DataType::Fp32,
            &[Dim::Dynamic("N"), Dim::Fixed(64)],
        )
        .random("words", &[32, 64], 1.0)
        .random("places", &[1, 8, 64], 1.0)
        .random("weights", &[64, 64], 1.0)
        .constant("zero", &[1], &[0i64])
        .constant("one", &[1], &[1i64])
        .node("Shape", &["tokens"], &["shape"])
        .node("Gather", &["shape", "one"], &["length"])
        .node("Slice", &["places", "zero", "length", "one"], &["place"])
        .node("Gather", &["words", "tokens"], &["word"])
        .node("Add", &["word", "place"], &["x"])
        .node("MatMul", &["x", "weights"], &["y"])
        .node("Relu", &["y"], &["kept"])
        .node("MatMul", &["kept", "weights"], &["z"])
        .node("ReduceSum", &["z", "one"], &["sums"])
        .node("Squeeze", &["sums", "one"], &["scores"]);
    model.build()
}

#[test]
fn a_run_that_fails_gives_no_answer_of_another() {
    let file = encoder();
    let offered = engine().capabilities().precisions;
    for precision in [Precision::Fp32, Precision::Bf16] {
        for threads in [1, 2] {
            if !offered.contains(&precision) {
                continue;
            }
            let model = load_with(&file, precision, threads).expect("it loads");
            let tokens = |length: usize, first: i64| {
                let ids: Vec<i64> = (first..).take(length).map(|id| id % 32).collect();
                let tensor = Tensor::from_elements(vec![1, length], &ids).expect("a row");
                [NamedTensor::new("tokens", tensor)]
            };
            let answer = |length, first| {
                let outputs = model.run(&tokens(length, first))?;
                Ok::<_, Error>(outputs[0].to_vec::<f32>().expect("32-bit floats"))
            };
            let short = answer(8, 0).expect("eight have places");
            for length in [9, 64, 16, 1000] {
                let long = answer(length, 5);
                assert!(
                    long.is_err(),
                    "{precision:?}, {threads} threads, {length}: {long:?}"
                );
                assert_ne!(answer(7, 11).expect("seven have places"), short);
                assert_eq!(answer(8, 0).expect("eight have places"), short);
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_fail_though_others_did_fit() {
    let any = |dim| [Dim::Dynamic("N"), Dim::Dynamic(dim)];
    let mut sum = ModelBuilder::new("sum", 3);
    sum.input("a", DataType::Fp32, &any("T"))
        .input("b", DataType::Fp32, &any("U"))
        .output("sum", DataType::Fp32, &any("V"))
        .node("Add", &["a", "b"], &["sum"]);
    let model = load(&sum.build()).expect("it loads");
    let row = |name: &str, length: usize, value: f32| {
        let tensor = Tensor::from_elements(vec![1, length], &vec![value; length]);
        NamedTensor::new(name, tensor.expect("a row"))
    };
    let answer = |lengths: (usize, usize), value| {
        let outputs = model.run(&[row("a", lengths.0, value), row("b", lengths.1, 1.0)])?;
        Ok::<_, Error>(outputs[0].to_vec::<f32>().expect("32-bit floats"))
    };
    for value in [1.0, 2.0, 3.0] {
        for _ in 0..2 {
            let fit = answer((8, 8), value).expect("they fit");
            assert_eq!(fit, vec![value + 1.0; 8]);
        }
        for _ in 0..2 {
            let wrong = answer((8, 5), 7.0);
            assert!(wrong.is_err(), "{wrong:?}");
        }
    }
}

#[test]
fn statically_quantised_models_run() {
    let model = builder::mlp(&[64, 256, 256, 10], 5);
    let calibration = calibration_graph(&model).expect("it can be calibrated");
    let observer = load(&calibration.model).expect("it loads");
    let inputs = random_inputs(observer.signature(), &[16], 2);
    let observed = observer.run(&inputs).expect("the batch runs");
    let own = observed.len() - calibration.tensors.len();
    let mut ranges = Ranges::new();
    for (tensor, range) in calibration.tensors.iter().zip(&observed[own..]) {
        ranges.observe(tensor, &range.to_vec::<f32>().expect("32-bit floats"));
    }
    let small = quantize_static(&model, &ranges).expect("it can be quantised");
    let small = load_as(&small.model, Precision::Int8Static).expect("it loads");
    let far = distance(&*load(&model).expect("it loads"), &*small);
    assert!(far < 0.15, "{far}");
}

#[test]
fn integers_beyond_32_bits_are_refused() {
    let dims = [builder::BATCH, Dim::Fixed(2)];
    let model = load(&builder::identity(DataType::Int64, &dims)).expect("it loads");
    let inputs = |values: [i64; 2]| {
        let tensor = Tensor::from_elements(vec![1, 2], &values).expect("two values");
        [NamedTensor::new("input", tensor)]
    };
    let refused = model.run(&inputs([1, 1 << 40])).expect_err("too large");
    assert!(matches!(refused, Error::InvalidInput(_)), "{refused}");
    let edges = inputs([i64::from(i32::MIN), i64::from(i32::MAX)]);
    assert_eq!(model.run(&edges), Ok(vec![edges[0].tensor.clone()]));
}

#[test]
fn sums_that_may_not_fit_32_bits_are_refused_with_their_output() {
    sums::are_refused(load);
}

#[test]
fn types_that_would_lose_digits_are_refused() {
    for data_type in [DataType::Fp64, DataType::Uint64, DataType::Bytes] {
        let model = builder::identity(data_type, &[builder::BATCH, Dim::Fixed(2)]);
        match load(&model) {
            Err(Error::Unsupported(reason)) => assert!(reason.contains("input"), "{reason}"),
            Err(error) => panic!("{data_type}: {error}"),
            Ok(_) => panic!("{data_type} was loaded"),
        }
    }
}

/// OpenVINO reads sequences that begin with the batch as if they began with the time, and answers wrong.
#[test]
fn recurrent_operators_that_begin_with_the_batch_are_refused() {
    let gru = |layout: i64| {
        let mut builder = ModelBuilder::new("gru", 1);
        let x = [Dim::Fixed(3), Dim::Fixed(1), Dim::Fixed(2)];
        builder.input("x", DataType::Fp32, &x);
        // The shape of the output is the layout's.
        let (batch, steps) = if layout == 0 { (1, 3) } else { (3, 1) };
        let y = if layout == 0 {
            [steps, 1, batch, 6]
        } else {
            [batch, steps, 1, 6]
        };
        builder.output("y", DataType::Fp32, &y.map(Dim::Fixed));
        builder.constant("w", &[1, 18, 2], &[0.1f32; 36]);
        builder.constant("r", &[1, 18, 6], &[0.1f32; 108]);
        let attributes = vec![
            AttributeProto::int("hidden_size", 6),
            AttributeProto::int("layout", layout),
        ];
        builder.node_with("GRU", &["x", "w", "r"], &["y"], attributes);
        builder.build()
    };
    assert!(load(&gru(0)).is_ok());
    let error = load(&gru(1)).err().expect("refused");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("`GRU` with the attribute `layout`"),
        "{error}"
    );
}
