//! What in a file speaks against batches.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder, mlp},
    proto::{AttributeProto, GraphProto, NodeProto},
    quantize_dynamic,
    rows::{counted_output, mixes_rows},
};
use sextant_types::DataType;

const FOUR: Dim = Dim::Fixed(4);

fn model(build: impl FnOnce(&mut ModelBuilder)) -> Bytes {
    let mut builder = ModelBuilder::new("rows", 1);
    builder.input("x", DataType::Fp32, &[BATCH, FOUR]);
    builder.output("y", DataType::Fp32, &[BATCH, FOUR]);
    build(&mut builder);
    builder.build()
}

#[test]
fn scales_of_a_whole_batch_are_found() {
    let plain = mlp(&[4, 8, 3], 1);
    assert_eq!(mixes_rows(&plain).unwrap(), None);
    let dynamic = quantize_dynamic(&plain).unwrap().model;
    let said = mixes_rows(&dynamic).unwrap().unwrap();
    assert!(said.contains("`DynamicQuantizeLinear`"), "{said}");

    // By hand: the greatest value of all.
    let by_hand = model(|builder| {
        builder
            .node("Abs", &["x"], &["size"])
            .node("ReduceMax", &["size"], &["most"])
            .node("Div", &["x", "most"], &["y"]);
    });
    let said = mixes_rows(&by_hand).unwrap().unwrap();
    assert!(said.contains("`ReduceMax`"), "{said}");
}

#[test]
fn scales_inside_a_branch_and_of_other_operator_sets_are_found() {
    let mut builder = ModelBuilder::new("rows", 1);
    builder.input("x", DataType::Fp32, &[BATCH, FOUR]);
    builder.output("y", DataType::Fp32, &[BATCH, FOUR]);
    builder.constant("yes", &[], &[1i64]);
    let mut fused = NodeProto::new("DynamicQuantizeMatMul", "n", &["x", "w", "s"], &["inner"]);
    fused.domain = Some("com.microsoft".to_owned());
    let branch = AttributeProto {
        name: Some("then_branch".to_owned()),
        g: Some(Box::new(GraphProto {
            node: vec![fused],
            ..GraphProto::default()
        })),
        ..AttributeProto::default()
    };
    builder.node_with("If", &["yes"], &["y"], vec![branch]);
    let said = mixes_rows(&builder.build()).unwrap().unwrap();
    assert!(said.contains("`DynamicQuantizeMatMul`"), "{said}");
}

#[test]
fn what_is_found_for_each_row_or_of_no_row_mixes_nothing() {
    let of_rows = model(|builder| {
        let axes = AttributeProto::ints("axes", &[1]);
        builder
            .node("Abs", &["x"], &["size"])
            .node_with("ReduceMax", &["size"], &["most"], vec![axes])
            .node("Div", &["x", "most"], &["y"]);
    });
    assert_eq!(mixes_rows(&of_rows).unwrap(), None);
    let of_weights = model(|builder| {
        builder
            .constant("w", &[4, 4], &[1.0f32; 16])
            .node("DynamicQuantizeLinear", &["w"], &["q", "s", "z"])
            .node("DequantizeLinear", &["q", "s", "z"], &["near"])
            .node("MatMul", &["x", "near"], &["y"]);
    });
    assert_eq!(mixes_rows(&of_weights).unwrap(), None);
    let of_shapes = model(|builder| {
        builder
            .node("Shape", &["x"], &["shape"])
            .node("ReduceMax", &["shape"], &["most"])
            .node("Identity", &["x"], &["y"]);
    });
    assert_eq!(mixes_rows(&of_shapes).unwrap(), None);
}

fn counted(input: Dim, output: Dim) -> Option<String> {
    let mut builder = ModelBuilder::new("rows", 1);
    builder.input("x", DataType::Fp32, &[input, FOUR]);
    builder.output("y", DataType::Fp32, &[output, FOUR]);
    builder.node("Identity", &["x"], &["y"]);
    let found = counted_output(&builder.build()).unwrap();
    found.map(|found| {
        assert_eq!(found.output, "y");
        found.counts
    })
}

#[test]
fn names_of_dimensions_say_what_an_output_counts() {
    for (input, output) in [
        (BATCH, "num_dets"),
        (Dim::Dynamic("N"), "detections"),
        (Dim::Fixed(1), "num_selected_indices"),
    ] {
        assert_eq!(
            counted(input, Dim::Dynamic(output)),
            Some(output.to_owned())
        );
    }
    // The batch by another name, names that nobody gave, and inputs that say nothing.
    for (input, output) in [
        (BATCH, BATCH),
        (BATCH, Dim::Dynamic("N")),
        (BATCH, Dim::Dynamic("samples")),
        (BATCH, Dim::Dynamic("unk__17")),
        (BATCH, Dim::Dynamic("Reshapey_dim_0")),
        (Dim::Dynamic("sequence"), Dim::Dynamic("tokens")),
        (Dim::Fixed(1), Dim::Fixed(1)),
    ] {
        assert_eq!(counted(input, output), None);
    }
}
