//! The quantisers against ONNX Runtime's own, on models that cover every rewriting.
//!
//! Runs `oracle/oracle.py` with the interpreter that `SEXTANT_PYTHON` names, or the one that
//! `cargo xtask provision` installs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use serde_json::{Value, json};
use sextant_onnx::{
    Calibration, Ranges, Weights,
    builder::{self, BATCH, Dim, ModelBuilder},
    calibration_graph, decode, encode, inspect,
    proto::AttributeProto,
    quantize::{Dynamic, quantize_dynamic_with, quantize_static_with},
};
use sextant_test_servers::interpreter;
use sextant_types::DataType;

const ROWS: usize = 64;

/// Seed of the data; models have their own.
const SEED: u64 = 21;

fn ask(steps: &Value) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/oracle.py");
    let mut child = Command::new(interpreter())
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the interpreter starts");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(steps.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the oracle failed, see above");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One model with its data, in a folder of its own.
struct Case {
    folder: tempfile::TempDir,
    model: Bytes,
    inputs: Value,
}

impl Case {
    fn new(model: &Bytes) -> Self {
        let spec = inspect(model).unwrap().signature.inputs.remove(0);
        let row: u64 = spec.shape[1..].iter().map(|dim| dim.unwrap()).product();
        let mut shape = vec![ROWS as u64];
        shape.extend(spec.shape[1..].iter().map(|dim| dim.unwrap()));
        let data = uniform(SEED, ROWS * row as usize);
        let mut inputs = serde_json::Map::new();
        inputs.insert(spec.name, json!({ "shape": shape, "data": data }));
        let case = Self {
            folder: tempfile::tempdir().unwrap(),
            model: model.clone(),
            inputs: inputs.into(),
        };
        case.write("model", model);
        case
    }

    fn path(&self, name: &str) -> String {
        let path = self.folder.path().join(format!("{name}.onnx"));
        path.to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, model: &Bytes) {
        fs::write(self.path(name), model).unwrap();
    }

    fn read(&self, name: &str) -> Bytes {
        fs::read(self.path(name)).unwrap().into()
    }

    fn run(&self, name: &str) -> Value {
        json!({ "do": "run", "model": self.path(name), "inputs": self.inputs })
    }

    fn oracle(&self, how: &str, name: &str, per_channel: bool) -> Value {
        json!({
            "do": how, "model": self.path("model"), "out": self.path(name),
            "inputs": self.inputs, "per_channel": per_channel,
        })
    }
}

/// Values in -1..1 from the same generator as the builder's weights.
fn uniform(seed: u64, count: usize) -> Vec<f32> {
    let mut builder = ModelBuilder::new("data", seed);
    builder.random("x", &[count], 1.0);
    let graph = builder.model().graph.unwrap();
    graph.initializer[0].to_floats().unwrap()
}

fn floats(result: &Value, output: usize) -> Vec<f64> {
    let data = result["outputs"][output]["data"].as_array().unwrap();
    data.iter().map(|value| value.as_f64().unwrap()).collect()
}

/// What the last outputs of a calibration model report.
fn ranges(calibration: &Calibration, result: &Value) -> Ranges {
    let outputs = result["outputs"].as_array().unwrap().len();
    let own = outputs - calibration.tensors.len();
    let mut ranges = Ranges::new();
    for (index, tensor) in calibration.tensors.iter().enumerate() {
        let range = floats(result, own + index);
        let range: Vec<f32> = range.iter().map(|value| *value as f32).collect();
        ranges.observe(tensor, &range);
    }
    ranges
}

fn mean_error(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    let sum: f64 = left.iter().zip(right).map(|(a, b)| (a - b).abs()).sum();
    sum / left.len() as f64
}

fn spread(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    mean_error(values, &vec![mean; values.len()])
}

/// Original names of the nodes that the oracle's dynamic quantiser turned into integer ones.
fn integer_nodes(model: &Bytes) -> BTreeSet<String> {
    let graph = decode(model).unwrap().graph.unwrap();
    let integer = graph
        .node
        .iter()
        .filter(|node| matches!(node.op_type(), "MatMulInteger" | "ConvInteger"));
    let name = |name: &str| name.replace("_quant", "").replace("_MatMul", "");
    integer.map(|node| name(node.name())).collect()
}

/// Names of the nodes with weights whose inputs come dequantised.
fn fed_by_bytes(model: &Bytes) -> BTreeSet<String> {
    let graph = decode(model).unwrap().graph.unwrap();
    let dequantized: BTreeSet<&str> = graph
        .node
        .iter()
        .filter(|node| node.is("DequantizeLinear"))
        .map(|node| node.output[0].as_str())
        .collect();
    graph
        .node
        .iter()
        .filter(|node| matches!(node.op_type(), "MatMul" | "Gemm" | "Conv"))
        .filter(|node| {
            node.input[..2]
                .iter()
                .all(|it| dequantized.contains(it.as_str()))
        })
        .map(|node| node.name().to_owned())
        .collect()
}

struct Models;

impl Models {
    fn mlp() -> Bytes {
        builder::mlp(&[16, 32, 32, 10], 7)
    }

    fn conv() -> Bytes {
        builder::conv_net(8, 10, 8)
    }

    /// `MatMul` and `Add` apart, one weight used twice and one activation read twice.
    fn shared() -> Bytes {
        let mut builder = ModelBuilder::new("shared", 9);
        builder.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(16)]);
        builder.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(16)]);
        builder.random("w", &[16, 16], 0.5);
        builder.random("v", &[16, 16], 0.5);
        builder.random("b", &[16], 0.5);
        builder.node("MatMul", &["x", "w"], &["first"]);
        builder.node("Add", &["first", "b"], &["biased"]);
        builder.node("Tanh", &["biased"], &["bent"]);
        builder.node("MatMul", &["bent", "w"], &["left"]);
        builder.node("MatMul", &["bent", "v"], &["right"]);
        builder.node("Mul", &["left", "right"], &["y"]);
        builder.build()
    }

    /// Depthwise and pointwise convolutions with `Clip` between, joined by `Concat`.
    fn mobile() -> Bytes {
        let mut builder = ModelBuilder::new("mobile", 10);
        let dims = [BATCH, Dim::Fixed(4), Dim::Fixed(8), Dim::Fixed(8)];
        builder.input("x", DataType::Fp32, &dims);
        builder.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(8)]);
        builder.random("deep_w", &[4, 1, 3, 3], 0.8);
        builder.random("deep_b", &[4], 0.2);
        builder.random("point_w", &[4, 4, 1, 1], 0.8);
        builder.constant("low", &[], &[0f32]);
        builder.constant("high", &[], &[6f32]);
        let attributes = vec![
            AttributeProto::int("group", 4),
            AttributeProto::string("auto_pad", "SAME_UPPER"),
        ];
        builder.node_with("Conv", &["x", "deep_w", "deep_b"], &["deep"], attributes);
        builder.node("Clip", &["deep", "low", "high"], &["clipped"]);
        builder.node("Conv", &["clipped", "point_w"], &["point"]);
        let axis = vec![AttributeProto::int("axis", 1)];
        builder.node_with("Concat", &["point", "clipped"], &["joined"], axis);
        builder.node("GlobalAveragePool", &["joined"], &["pooled"]);
        builder.node("Flatten", &["pooled"], &["y"]);
        builder.build()
    }
}

/// What no integer kernel takes as it stands: factors, odd biases, activations that leave the
/// graph or enter a subgraph, old operator sets.
fn odd(opset: i64) -> Bytes {
    let mut builder = ModelBuilder::new("odd", 11);
    builder.opset(opset);
    builder.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(16)]);
    builder.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    builder.output("first_relu", DataType::Fp32, &[BATCH, Dim::Fixed(24)]);
    builder.random("w", &[24, 16], 0.4);
    builder.random("b", &[1, 24], 0.4);
    builder.random("v", &[24, 4], 0.4);
    builder.random("scalar", &[], 0.4);
    let attributes = vec![
        AttributeProto::float("alpha", 0.5),
        AttributeProto::float("beta", 3.0),
        AttributeProto::int("transB", 1),
    ];
    builder.node_with("Gemm", &["x", "w", "b"], &["first"], attributes);
    builder.node("Relu", &["first"], &["first_relu"]);
    builder.node("MatMul", &["first_relu", "v"], &["second"]);
    builder.node("Sigmoid", &["first_relu"], &["gate"]);
    builder.node("Gemm", &["gate", "v", "scalar"], &["third"]);
    builder.node("Add", &["second", "third"], &["y"]);
    builder.build()
}

fn models() -> [(&'static str, Bytes); 4] {
    [
        ("mlp", Models::mlp()),
        ("conv", Models::conv()),
        ("shared", Models::shared()),
        ("mobile", Models::mobile()),
    ]
}

fn everything(per_channel: bool) -> Dynamic {
    Dynamic {
        weights: Weights {
            per_channel,
            ..Weights::default()
        },
        convolutions: true,
    }
}

#[test]
fn dynamic_matches_the_oracle() {
    for (name, model) in models() {
        let case = Case::new(&model);
        for (ours, per_channel) in [("tensor", false), ("channel", true)] {
            let options = everything(per_channel);
            let quantized = quantize_dynamic_with(&case.model, options).unwrap();
            case.write(ours, &quantized.model);
        }
        let results = ask(&json!([
            case.run("model"),
            case.oracle("dynamic", "oracle", false),
            case.run("oracle"),
            case.run("tensor"),
            case.run("channel"),
        ]));
        let [original, oracle, tensor, channel] = [0, 2, 3, 4].map(|at| floats(&results[at], 0));
        let error = mean_error(&oracle, &original);
        let (by_tensor, by_channel) = (
            mean_error(&tensor, &original),
            mean_error(&channel, &original),
        );
        let apart = mean_error(&tensor, &oracle);
        println!(
            "{name}: oracle {error:e}, per tensor {by_tensor:e} ({apart:e} from the oracle), per channel {by_channel:e}"
        );
        assert!(
            error > 0.0 && error < 0.1 * spread(&original),
            "{name}: the oracle works"
        );
        assert!(
            apart <= 0.02 * error,
            "{name}: the same arithmetic as the oracle"
        );
        assert!(by_tensor <= 1.1 * error, "{name}: per tensor");
        assert!(by_channel <= 1.1 * error, "{name}: per channel");
        assert_eq!(
            quantize_dynamic_with(&case.model, everything(true))
                .unwrap()
                .nodes
                .len(),
            integer_nodes(&case.read("oracle")).len(),
            "{name}: as many nodes"
        );
    }
}

#[test]
fn static_matches_the_oracle() {
    for (name, model) in models() {
        let case = Case::new(&model);
        let calibration = calibration_graph(&case.model).unwrap();
        inspect(&calibration.model).unwrap();
        case.write("calibration", &calibration.model);
        let results = ask(&json!([
            case.run("model"),
            case.oracle("static", "oracle", true),
            case.run("oracle"),
            case.run("calibration"),
        ]));
        let ranges = ranges(&calibration, &results[3]);
        let ours = quantize_static_with(&case.model, &ranges, Weights::default()).unwrap();
        case.write("ours", &ours.model);
        let [original, oracle] = [0, 2].map(|at| floats(&results[at], 0));
        let ours = floats(&ask(&json!([case.run("ours")]))[0], 0);
        let (error, our_error) = (mean_error(&oracle, &original), mean_error(&ours, &original));
        let apart = mean_error(&ours, &oracle);
        println!("{name} (seed {SEED}): oracle {error:e}, ours {our_error:e}, {apart:e} apart");
        assert!(
            error > 0.0 && error < 0.2 * spread(&original),
            "{name}: the oracle works"
        );
        assert!(
            our_error <= 1.1 * error,
            "{name}: as close to the original as the oracle"
        );
        assert!(apart <= 2.0 * error, "{name}: close to the oracle");
        assert_eq!(
            fed_by_bytes(&case.read("ours")),
            fed_by_bytes(&case.read("oracle")),
            "{name}: the same nodes"
        );
    }
}

#[test]
fn odd_models_stay_close_to_the_original() {
    for opset in [11, 12, 13, 17, 21] {
        let case = Case::new(&odd(opset));
        let calibration = calibration_graph(&case.model).unwrap();
        case.write("calibration", &calibration.model);
        let dynamic = quantize_dynamic_with(&case.model, everything(true)).unwrap();
        assert_eq!(dynamic.nodes.len(), 3);
        case.write("dynamic", &dynamic.model);
        let steps = ["model", "calibration", "dynamic"].map(|name| case.run(name));
        let results = ask(&json!(steps));
        let ranges = ranges(&calibration, &results[1]);
        let fixed = quantize_static_with(&case.model, &ranges, Weights::default()).unwrap();
        case.write("static", &fixed.model);
        let fixed = &ask(&json!([case.run("static")]))[0];
        for output in 0..2 {
            let original = floats(&results[0], output);
            for (how, result) in [("dynamic", &results[2]), ("static", fixed)] {
                let error = mean_error(&floats(result, output), &original) / spread(&original);
                println!("operator set {opset}, output {output}, {how}: {error:.4} of the spread");
                assert!(error < 0.03, "{how}");
            }
        }
    }
}

#[test]
fn no_field_of_the_format_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    ask(&json!([{ "do": "fill", "out": path("full") }]));
    let full: Bytes = fs::read(path("full")).unwrap().into();
    fs::write(path("again"), encode(&decode(&full).unwrap())).unwrap();
    let same = json!({ "do": "same", "model": path("full"), "other": path("again") });
    assert_eq!(
        ask(&json!([same]))[0]["same"],
        true,
        "of {} bytes",
        full.len()
    );
}
