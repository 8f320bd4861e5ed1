//! Which models become attention, which do not, and what attention answers.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sextant_engine::{Engine, LoadRequest, conformance::random_inputs};
use sextant_engine_cuda::{
    Config, CudaEngine,
    driver::{
        Abilities,
        recording::{Pretence, RecordingDriver},
    },
    lower::{Graph, Target, Weights, lower},
    suite::{
        Case,
        networks::{Encoder, encoder},
        operators,
    },
};
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_types::{DataType, Digest, Optimization, Precision};

/// The number of each operation at a precision, for inputs whose open dimensions have the given sizes.
fn operations(file: &Bytes, dynamic: &[u64], precision: Precision) -> BTreeMap<String, usize> {
    let info = sextant_onnx::inspect(file).expect("a good file");
    let ports = |specs: &[sextant_types::TensorSpec]| {
        let port = |spec: &sextant_types::TensorSpec| (spec.name.clone(), spec.data_type);
        specs.iter().map(port).collect()
    };
    let signature = &info.signature;
    let graph = Graph::read(file, ports(&signature.inputs), ports(&signature.outputs));
    let graph = graph.expect("every operator is known");
    let shapes = signature.inputs.iter().map(|spec| {
        let mut open = dynamic.iter();
        let size = |size: &Option<u64>| size.or_else(|| open.next().copied()).expect("a size");
        spec.shape.iter().map(size).collect()
    });
    let shapes: Vec<Vec<u64>> = shapes.collect();
    let abilities = Abilities {
        convolution: false,
        attention: true,
    };
    let target = Target::new(precision, abilities, 16 << 20).expect("a precision of floats");
    let draft = lower(&graph, &shapes, &target, &mut Weights::default()).expect("it is lowered");
    let mut counts = BTreeMap::new();
    for operation in &draft.operations {
        *counts.entry(operation.name().to_owned()).or_default() += 1;
    }
    counts
}

fn count(counts: &BTreeMap<String, usize>, name: &str) -> usize {
    counts.get(name).copied().unwrap_or_default()
}

#[test]
fn attention_of_the_suite_is_one_operation() {
    let cases = operators::cases(5);
    let of_attention = |case: &&Case| case.detail.starts_with("attention");
    let cases: Vec<&Case> = cases.iter().filter(of_attention).collect();
    assert!(cases.len() > 10);
    for case in cases {
        let dynamic: Vec<u64> = case.dynamic.iter().map(|size| *size as u64).collect();
        let known = !case.detail.contains("depth: 12 ");
        for (precision, fused) in [
            (Precision::Fp16, known),
            (Precision::Bf16, known),
            (Precision::Fp32, false),
        ] {
            let counts = operations(&case.model, &dynamic, precision);
            let what = format!("{} at {precision:?}: {counts:?}", case.detail);
            assert_eq!(count(&counts, "Attention"), usize::from(fused), "{what}");
            assert_eq!(count(&counts, "Softmax"), usize::from(!fused), "{what}");
        }
    }
}

/// The results of three products of one input are split and transposed by one copy each.
#[test]
fn parts_of_a_product_are_moved_once() {
    let cases = operators::cases(5);
    let joined = |case: &&Case| case.detail.contains("keys Twice, Products, mask None");
    let case = cases.iter().find(joined).expect("it is there");
    let counts = operations(&case.model, &[3], Precision::Fp32);
    assert_eq!(count(&counts, "Gemm"), 1 + 2, "{counts:?}");
    assert_eq!(count(&counts, "Copy"), 3 + 1, "{counts:?}");
    let counts = operations(&case.model, &[3], Precision::Fp16);
    assert_eq!(count(&counts, "Gemm"), 1, "{counts:?}");
    // One copy converts to 16-bit floats, one converts back.
    assert_eq!(count(&counts, "Copy"), 2, "{counts:?}");
}

#[test]
fn an_encoder_has_one_operation_for_each_layer() {
    let file = encoder(&Encoder::SMALL, 4);
    let layers = Encoder::SMALL.layers;
    for (rows, length) in [(1, 1), (1, 6), (3, 1), (3, 64)] {
        let counts = operations(&file, &[rows, length], Precision::Fp16);
        let what = format!("{rows} x {length}: {counts:?}");
        assert_eq!(count(&counts, "Attention"), layers, "{what}");
        assert_eq!(count(&counts, "Softmax"), 0, "{what}");
        // One product for queries, keys and values, three others, and one for the pool.
        assert_eq!(count(&counts, "Gemm"), layers * 4 + 1, "{what}");
        let counts = operations(&file, &[rows, length], Precision::Fp32);
        assert_eq!(count(&counts, "Softmax"), layers, "{rows} x {length}");
    }
}

/// Changes a model before its nodes are added.
type Change = fn(&mut Plain);

/// Attention of `q`, `k` and `v` `[batch, heads, length, 16]`, with everything that can vary.
struct Plain {
    model: ModelBuilder,
    axis: i64,
    /// An operator with its inputs that is inserted behind a value. Its output replaces the value.
    between: Option<(&'static str, &'static str, &'static [&'static str])>,
    outputs: Vec<&'static str>,
}

fn plain(change: Change) -> Bytes {
    let mut plain = Plain {
        model: ModelBuilder::new("attention", 1),
        axis: -1,
        between: None,
        outputs: vec!["y"],
    };
    change(&mut plain);
    let dims = [BATCH, Dim::Fixed(2), Dim::Fixed(8), Dim::Fixed(16)];
    for name in ["q", "k", "v"] {
        plain.model.input(name, DataType::Fp32, &dims);
    }
    let open = ["batch", "d1", "d2", "d3"].map(Dim::Dynamic);
    for name in plain.outputs.clone() {
        plain.model.output(name, DataType::Fp32, &open);
    }
    let signs: Vec<f32> = (0..64)
        .map(|at| if at % 3 == 0 { -2.0 } else { 2.0 })
        .collect();
    let model = &mut plain.model;
    model.constant("signs", &[1, 1, 8, 8], &signs);
    model.constant("small", &[], &[-1f32]);
    model.node("Greater", &["signs", "small"], &["kept"]);
    let order = vec![AttributeProto::ints("perm", &[0, 1, 3, 2])];
    plain.model.node_with("Transpose", &["k"], &["kt"], order);
    plain.model.node("MatMul", &["q", "kt"], &["scores"]);
    let scores = plain.after("scores");
    let axis = vec![AttributeProto::int("axis", plain.axis)];
    let model = &mut plain.model;
    model.node_with("Softmax", &[scores], &["shares"], axis);
    let shares = plain.after("shares");
    plain.model.node("MatMul", &[shares, "v"], &["y"]);
    plain.model.build()
}

// === impl Plain ===

impl Plain {
    fn after(&mut self, name: &'static str) -> &'static str {
        match self.between {
            Some((before, op_type, inputs)) if before == name => {
                self.model.node(op_type, inputs, &["between"]);
                "between"
            }
            _ => name,
        }
    }
}

#[test]
fn what_is_used_elsewhere_or_different_stays_apart() {
    let unchanged: Change = |_| {};
    let counts = operations(&plain(unchanged), &[3], Precision::Fp16);
    assert_eq!(count(&counts, "Attention"), 1, "{counts:?}");
    assert_eq!(count(&counts, "Gemm"), 0, "{counts:?}");
    let changes: [(&str, Change); 6] = [
        ("scores are an output", |it| it.outputs.push("scores")),
        ("shares are an output", |it| it.outputs.push("shares")),
        ("softmax over queries", |it| it.axis = 2),
        ("a function of scores", |it| {
            it.between = Some(("scores", "Tanh", &["scores"]));
        }),
        ("a function of shares", |it| {
            it.between = Some(("shares", "Sqrt", &["shares"]));
        }),
        ("a number that does not hide scores", |it| {
            it.between = Some(("scores", "Where", &["kept", "scores", "small"]));
        }),
    ];
    for (what, change) in changes {
        let counts = operations(&plain(change), &[3], Precision::Fp16);
        assert_eq!(count(&counts, "Attention"), 0, "{what}: {counts:?}");
        assert_eq!(count(&counts, "Softmax"), 1, "{what}: {counts:?}");
    }
}

/// The answer of a model on an engine without a device.
fn answer(model: &Bytes, precision: Precision) -> Vec<f32> {
    let driver = Arc::new(RecordingDriver::new(Pretence::default()));
    let config = Config {
        page_bytes: 16 << 10,
        pages: Some(8),
        workspace_bytes: 1 << 20,
        io_bytes: 64 << 10,
        scratch_bytes: 0,
        largest_batch: 4,
        host_bytes: 1 << 20,
    };
    let engine = CudaEngine::new(driver, config).expect("the memory is there");
    let request = LoadRequest {
        artefact: Digest::from_bytes([1; 32]),
        model: model.clone().into(),
        precision,
        optimization: Optimization::All,
        threads: 1,
    };
    let model = engine.load(&request);
    let model = model.unwrap_or_else(|error| panic!("{error}"));
    let inputs = random_inputs(model.signature(), &[3], 5);
    let outputs = model.run(&inputs).unwrap_or_else(|error| panic!("{error}"));
    outputs[0].to_vec().expect("32-bit floats")
}

/// Attention of `x` whose output is directly the queries, keys or values of another attention.
fn chained(part: &str) -> Bytes {
    let mut model = ModelBuilder::new("chained", 1);
    model.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(8), Dim::Fixed(32)]);
    let open = ["batch", "d1", "d2"].map(Dim::Dynamic);
    model.output("y", DataType::Fp32, &open);
    model.constant("split", &[4], &[0i64, 8, 2, 16]);
    model.constant("joined", &[3], &[0i64, 8, 32]);
    let of_x = [("q", "x"), ("k", "x"), ("v", "x")];
    let of_first = of_x.map(|(name, x)| (name, if name == part { "first" } else { x }));
    for (number, parts, y) in [(1, of_x, "first"), (2, of_first, "y")] {
        let name = |it: &str| format!("{it}{number}");
        let turn = |model: &mut ModelBuilder, x: &str, order: &[i64], y: &str| {
            let order = vec![AttributeProto::ints("perm", order)];
            model.node_with("Transpose", &[x], &[y], order);
        };
        for (part, x) in parts {
            let order = if part == "k" {
                [0, 2, 3, 1]
            } else {
                [0, 2, 1, 3]
            };
            let split = name(&format!("{part}_split"));
            model.node("Reshape", &[x, "split"], &[&split]);
            turn(&mut model, &split, &order, &name(part));
        }
        let [q, k, v, scores, shares, own, turned] =
            ["q", "k", "v", "scores", "shares", "own", "turned"].map(name);
        model.node("MatMul", &[&q, &k], &[&scores]);
        let axis = vec![AttributeProto::int("axis", -1)];
        model.node_with("Softmax", &[&scores], &[&shares], axis);
        model.node("MatMul", &[&shares, &v], &[&own]);
        turn(&mut model, &own, &[0, 2, 1, 3], &turned);
        model.node("Reshape", &[&turned, "joined"], &[y]);
    }
    model.build()
}

#[test]
fn attention_reads_another_ones_output_where_it_comes_to_lie() {
    for part in ["q", "k", "v"] {
        let model = chained(part);
        let counts = operations(&model, &[3], Precision::Fp16);
        assert_eq!(count(&counts, "Attention"), 2, "{part}: {counts:?}");
        let exact = answer(&model, Precision::Fp32);
        for precision in [Precision::Fp16, Precision::Bf16] {
            let rounded = answer(&model, precision);
            let pairs = exact.iter().zip(&rounded);
            let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < 0.05, "{part} at {precision:?}: {error}");
        }
    }
}
