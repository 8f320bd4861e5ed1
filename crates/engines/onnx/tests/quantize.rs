//! The shape of quantised graphs: what is shared, kept, refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use sextant_onnx::{
    Error, Ranges, Weights,
    builder::{self, BATCH, Dim, ModelBuilder},
    calibration_graph, decode, encode, inspect,
    proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto},
    quantize::{Dynamic, quantize_dynamic_with},
    quantize_dynamic, quantize_static,
};
use sextant_types::DataType;

fn graph(bytes: &Bytes) -> GraphProto {
    decode(bytes).unwrap().graph.unwrap()
}

fn count(graph: &GraphProto, op_type: &str) -> usize {
    graph.node.iter().filter(|node| node.is(op_type)).count()
}

fn constants(graph: &GraphProto) -> Vec<&str> {
    graph.initializer.iter().map(TensorProto::name).collect()
}

/// Every tensor of the calibration graph, in -1..1.
fn ranges(model: &Bytes) -> Ranges {
    let mut ranges = Ranges::new();
    for tensor in calibration_graph(model).unwrap().tensors {
        ranges.observe(&tensor, &[-1.0, 1.0]);
    }
    ranges
}

/// `x` [batch, 4] times `w` [4, 4], twice, summed.
fn twice() -> ModelBuilder {
    let mut builder = ModelBuilder::new("twice", 3);
    builder.input("x", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    builder.output("y", DataType::Fp32, &[BATCH, Dim::Fixed(4)]);
    builder.random("w", &[4, 4], 1.0);
    builder.node("MatMul", &["x", "w"], &["a"]);
    builder.node("MatMul", &["x", "w"], &["b"]);
    builder.node("Add", &["a", "b"], &["y"]);
    builder
}

#[test]
fn activations_and_weights_are_quantised_once() {
    let model = twice().build();
    let dynamic = quantize_dynamic(&model).unwrap();
    assert_eq!(dynamic.nodes, ["a_node", "b_node"]);
    let dynamic = graph(&dynamic.model);
    assert_eq!(count(&dynamic, "DynamicQuantizeLinear"), 1);
    assert_eq!(count(&dynamic, "MatMulInteger"), 2);
    assert_eq!(
        constants(&dynamic),
        ["w_quantized", "w_scale", "w_zero_point"]
    );
    let fixed = graph(&quantize_static(&model, &ranges(&model)).unwrap().model);
    assert_eq!(count(&fixed, "QuantizeLinear"), 1);
    assert_eq!(count(&fixed, "DequantizeLinear"), 2);
}

#[test]
fn weights_with_other_uses_stay() {
    let mut builder = twice();
    builder.output("w", DataType::Fp32, &[Dim::Fixed(4), Dim::Fixed(4)]);
    let kept = graph(&quantize_dynamic(&builder.build()).unwrap().model);
    assert!(constants(&kept).contains(&"w"));

    let mut model = twice().model();
    let branch = AttributeProto {
        name: Some("then_branch".to_owned()),
        g: Some(Box::new(GraphProto {
            node: vec![NodeProto::new("Identity", "i", &["w"], &["inner"])],
            ..GraphProto::default()
        })),
        ..AttributeProto::default()
    };
    let branching = NodeProto::new("If", "if", &["x"], &["z"]).with(branch);
    model.graph.as_mut().unwrap().node.push(branching);
    let kept = graph(&quantize_dynamic(&encode(&model)).unwrap().model);
    assert!(constants(&kept).contains(&"w"));
}

#[test]
fn weights_in_constant_nodes_count() {
    let mut model = twice().model();
    let inner = model.graph.as_mut().unwrap();
    let value = AttributeProto::tensor("value", inner.initializer.remove(0));
    inner
        .node
        .insert(0, NodeProto::new("Constant", "c", &[], &["w"]).with(value));
    assert_eq!(quantize_dynamic(&encode(&model)).unwrap().nodes.len(), 2);
}

#[test]
fn names_never_clash() {
    let mut builder = twice();
    builder.node("Relu", &["x"], &["x_quantized"]);
    builder.node("Relu", &["x_quantized"], &["w_scale"]);
    let model = builder.build();
    for bytes in [
        quantize_dynamic(&model).unwrap().model,
        quantize_static(&model, &ranges(&model)).unwrap().model,
        calibration_graph(&model).unwrap().model,
    ] {
        let graph = graph(&bytes);
        let mut made: Vec<&str> = constants(&graph);
        made.extend(
            graph
                .node
                .iter()
                .flat_map(|node| node.output.iter().map(String::as_str)),
        );
        let all = made.len();
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), all);
    }
}

#[test]
fn signatures_do_not_change() {
    let model = builder::conv_net(4, 10, 1);
    let signature = inspect(&model).unwrap().signature;
    let all = Dynamic {
        convolutions: true,
        ..Dynamic::default()
    };
    for bytes in [
        quantize_dynamic_with(&model, all).unwrap().model,
        quantize_static(&model, &ranges(&model)).unwrap().model,
    ] {
        let info = inspect(&bytes).unwrap();
        assert_eq!(info.signature, signature);
        assert!(info.weights_bytes < inspect(&model).unwrap().weights_bytes / 2);
    }
}

#[test]
fn rectifiers_behind_integer_kernels_disappear() {
    let model = builder::conv_net(4, 10, 1);
    let fixed = graph(&quantize_static(&model, &ranges(&model)).unwrap().model);
    assert_eq!(count(&fixed, "Relu"), 0);
    let kept = builder::mlp(&[4, 4], 1);
    let mut model = decode(&kept).unwrap();
    let inner = model.graph.as_mut().unwrap();
    inner.node[0].output[0] = "linear".to_owned();
    inner
        .node
        .push(NodeProto::new("Relu", "r", &["linear"], &["output"]));
    let model = encode(&model);
    let fixed = graph(&quantize_static(&model, &ranges(&model)).unwrap().model);
    assert_eq!(
        count(&fixed, "Relu"),
        1,
        "full precision at the end of the graph"
    );
}

/// Two convolutions with rectifiers between: operators with what they read besides.
fn rectified(between: &[(&str, &[&str])]) -> Bytes {
    let mut builder = ModelBuilder::new("rectified", 5);
    let image = [BATCH, Dim::Fixed(1), Dim::Fixed(4), Dim::Fixed(4)];
    builder.input("image", DataType::Fp32, &image);
    builder.input("most", DataType::Fp32, &[]);
    builder.output("y", DataType::Fp32, &image);
    builder.random("w", &[1, 1, 1, 1], 1.0);
    builder.constant("zero", &[], &[0.0f32]);
    builder.constant("six", &[], &[6.0f32]);
    builder.node("Conv", &["image", "w"], &["v0"]);
    for (at, (operator, others)) in between.iter().enumerate() {
        let (from, to) = (format!("v{at}"), format!("v{}", at + 1));
        let mut inputs = vec![from.as_str()];
        inputs.extend_from_slice(others);
        builder.node(operator, &inputs, &[&to]);
    }
    let last = format!("v{}", between.len());
    builder.node("Conv", &[&last, "w"], &["y"]);
    builder.build()
}

#[test]
fn one_rectifier_behind_another_stays() {
    let clip: (&str, &[&str]) = ("Clip", &["zero", "six"]);
    let relu: (&str, &[&str]) = ("Relu", &[]);
    for (between, left) in [
        (vec![relu], 0),
        (vec![clip], 0),
        (vec![relu, clip], 1),
        (vec![relu, relu], 1),
        (vec![clip, relu, relu], 2),
    ] {
        let model = rectified(&between);
        let fixed = graph(&quantize_static(&model, &ranges(&model)).unwrap().model);
        let stays = count(&fixed, "Relu") + count(&fixed, "Clip");
        assert_eq!(stays, left, "{between:?}");
        // Whatever is read was made before.
        let mut made: Vec<&str> = fixed.input.iter().map(|it| it.name()).collect();
        made.extend(constants(&fixed));
        for node in &fixed.node {
            for read in &node.input {
                assert!(made.contains(&read.as_str()), "{between:?}: {read}");
            }
            made.extend(node.output.iter().map(String::as_str));
        }
        assert!(made.contains(&"y"));
    }
}

#[test]
fn an_upper_end_that_is_computed_is_kept() {
    let model = rectified(&[("Clip", &["zero", "most"])]);
    let fixed = graph(&quantize_static(&model, &ranges(&model)).unwrap().model);
    assert_eq!(count(&fixed, "Clip"), 1);
}

#[test]
fn old_operator_sets_get_one_scale_or_are_refused() {
    let old = |version| twice().opset(version).build();
    let refused = quantize_dynamic(&old(10)).unwrap_err();
    assert!(matches!(
        refused,
        Error::OpsetTooOld {
            needed: 11,
            found: 10,
            ..
        }
    ));
    let refused = calibration_graph(&old(9)).unwrap_err();
    assert!(matches!(
        refused,
        Error::OpsetTooOld {
            needed: 10,
            found: 9,
            ..
        }
    ));
    for (version, scales) in [(12, 1), (13, 4)] {
        let model = old(version);
        let fixed = graph(&quantize_static(&model, &ranges(&model)).unwrap().model);
        let scale = fixed
            .initializer
            .iter()
            .find(|it| it.name() == "w_scale")
            .unwrap();
        assert_eq!(scale.elements(), Ok(scales));
    }
}

#[test]
fn nothing_to_quantise_is_said() {
    let model = builder::identity(DataType::Fp32, &[BATCH]);
    assert_eq!(
        quantize_dynamic(&model).unwrap_err(),
        Error::NothingToQuantize
    );
    assert_eq!(
        calibration_graph(&model).unwrap_err(),
        Error::NothingToQuantize
    );
    assert!(quantize_dynamic(&Bytes::from_static(b"no model")).is_err());
    let mut infinite = twice().model();
    let weight = &mut infinite.graph.as_mut().unwrap().initializer[0];
    *weight = TensorProto::from_elements("w", &[4, 4], &[f32::INFINITY; 16]);
    let refused = quantize_dynamic(&encode(&infinite)).unwrap_err();
    assert_eq!(refused, Error::NothingToQuantize);
}

#[test]
fn a_missing_range_is_named() {
    let missing = quantize_static(&twice().build(), &Ranges::new()).unwrap_err();
    assert_eq!(missing, Error::MissingRange("x".to_owned()));
}

#[test]
fn reduced_weights_leave_room_for_sums() {
    let options = Dynamic {
        weights: Weights {
            reduced: true,
            ..Weights::default()
        },
        ..Dynamic::default()
    };
    let bytes = quantize_dynamic_with(&twice().build(), options)
        .unwrap()
        .model;
    let ModelProto { graph, .. } = decode(&bytes).unwrap();
    let weights = graph.unwrap().initializer.swap_remove(0);
    let (data_type, bytes) = weights.to_bytes().unwrap();
    assert_eq!(data_type, DataType::Int8);
    assert!(bytes.iter().all(|byte| (*byte as i8).unsigned_abs() <= 64));
}
