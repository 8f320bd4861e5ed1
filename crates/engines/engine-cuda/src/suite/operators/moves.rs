//! Operators that move, choose or join elements, or only change a shape.

use sextant_onnx::proto::TensorProto;

use super::{AttributeProto, Case, DataType, Model, Random};

pub(super) fn cases(random: &mut Random) -> Vec<Case> {
    let mut cases = transposes(random);
    cases.extend(slices());
    cases.extend(joins(random));
    cases.extend(shapes());
    cases.extend(gathers());
    cases.extend(from_shapes());
    cases
}

fn transposes(random: &mut Random) -> Vec<Case> {
    let orders: [&[i64]; 4] = [&[0, 2, 1, 3], &[0, 3, 1, 2], &[0, 2, 3, 1], &[0, 1, 3, 2]];
    let case = |order: &[i64]| {
        let dims = [
            random.between(1, 6),
            random.between(1, 7),
            random.between(1, 8),
        ];
        let mut model = Model::new("Transpose", format!("{order:?} of {dims:?}"), &dims);
        model
            .call(&["x"], vec![AttributeProto::ints("perm", order)])
            .finish(4)
    };
    let mut cases: Vec<Case> = orders.map(case).into();
    for mode in ["DCR", "CRD"] {
        let mut model = Model::new("DepthToSpace", mode, &[12, 3, 2]);
        let attributes = vec![
            AttributeProto::int("blocksize", 2),
            AttributeProto::string("mode", mode),
        ];
        cases.push(model.call(&["x"], attributes).finish(4));
    }
    cases
}

fn slices() -> Vec<Case> {
    let parts: [[&[i64]; 4]; 5] = [
        [&[1], &[4], &[1], &[1]],
        [&[0, 2], &[5, i64::MAX], &[1, 2], &[2, 3]],
        [&[-1], &[i64::MIN], &[2], &[-1]],
        [&[-2], &[-1], &[1], &[1]],
        [&[-20], &[i64::MIN], &[2], &[-1]],
    ];
    let slice = |[starts, ends, axes, steps]: [&[i64]; 4]| {
        let detail = format!("{starts:?}..{ends:?} of axes {axes:?} by {steps:?}");
        let mut model = Model::new("Slice", detail, &[5, 9]);
        model.integers("starts", starts).integers("ends", ends);
        model.integers("axes", axes).integers("steps", steps);
        let inputs = ["x", "starts", "ends", "axes", "steps"];
        model.call(&inputs, Vec::new()).finish(3)
    };
    let mut cases: Vec<Case> = parts.map(slice).into();
    let pads: [(&[i64], Option<f32>); 3] = [
        (&[0, 1, 2, 0, 0, 3], None),
        (&[0, 0, 1, 0, 2, 0], Some(1.5)),
        (&[0, -1, 2, 0, 1, -2], Some(-1.0)),
    ];
    for (amounts, value) in pads {
        let mut model = Model::new("Pad", format!("{amounts:?} with {value:?}"), &[4, 5]);
        model.integers("pads", amounts);
        let mut inputs = vec!["x", "pads"];
        if let Some(value) = value {
            model.number("value", value);
            inputs.push("value");
        }
        cases.push(model.call(&inputs, Vec::new()).finish(3));
    }
    let mut integers = Model::new("Pad", "integers with -2", &[4, 5]);
    integers
        .number("wide", 8.0)
        .node("Mul", &["x", "wide"], "scaled");
    let to = vec![AttributeProto::int("to", 6)];
    integers
        .integers("pads", &[0, 1, 2, 0, 0, 3])
        .builder
        .node_with("Cast", &["scaled"], &["c"], to)
        .constant("value", &[], &[-2i32]);
    let inputs = ["c", "pads", "value"];
    cases.push(
        integers
            .call(&inputs, Vec::new())
            .finish_as(DataType::Int32, 3),
    );
    for axis in [1, 2] {
        let mut model = Model::new("Split", format!("axis {axis}"), &[4, 6]);
        model.integers("parts", if axis == 1 { &[1, 3] } else { &[4, 2] });
        let attributes = vec![AttributeProto::int("axis", axis)];
        model
            .builder
            .node_with("Split", &["x", "parts"], &["a", "y"], attributes);
        cases.push(model.finish(3));
    }
    cases
}

fn joins(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for axis in [1, -1] {
        let (rows, columns) = (random.between(1, 6), random.between(1, 9));
        let mut model = Model::new("Concat", format!("axis {axis}"), &[rows, columns]);
        model.node("Neg", &["x"], "z");
        let attributes = vec![AttributeProto::int("axis", axis)];
        cases.push(model.call(&["x", "z", "x"], attributes).finish(3));
    }
    let mut expand = Model::new("Expand", "", &[1, 6]);
    expand.integers("shape", &[1, 4, 1]);
    cases.push(expand.call(&["x", "shape"], Vec::new()).finish(3));
    let mut tile = Model::new("Tile", "", &[2, 6]);
    tile.integers("repeats", &[1, 3, 2]);
    cases.push(tile.call(&["x", "repeats"], Vec::new()).finish(3));
    cases
}

/// Operators that only change a shape.
fn shapes() -> Vec<Case> {
    let mut reshape = Model::new("Reshape", "", &[4, 6]);
    reshape.integers("shape", &[0, -1, 3]);
    let mut flatten = Model::new("Flatten", "", &[4, 6]);
    let mut squeeze = Model::new("Squeeze", "", &[1, 6]);
    squeeze.integers("axes", &[1]);
    let mut unsqueeze = Model::new("Unsqueeze", "", &[6]);
    unsqueeze.integers("axes", &[1, -1]);
    vec![
        reshape.call(&["x", "shape"], Vec::new()).finish(3),
        flatten.call(&["x"], Vec::new()).finish(2),
        squeeze.call(&["x", "axes"], Vec::new()).finish(2),
        unsqueeze.call(&["x", "axes"], Vec::new()).finish(4),
    ]
}

fn gathers() -> Vec<Case> {
    let mut table = Model::new("Gather", "rows of a table", &[4]);
    table
        .input("z", DataType::Int64, &[5])
        .weights("w", &[100, 4]);
    table.node("Gather", &["w", "z"], "g");
    table
        .integers("axes", &[1])
        .node("Unsqueeze", &["x", "axes"], "u");
    let table = table.node("Add", &["g", "u"], "y").finish(3);
    let mut column = Model::new("Gather", "one column", &[4, 6]);
    column.builder.constant("at", &[], &[-2i64]);
    let attributes = vec![AttributeProto::int("axis", 2)];
    let column = column.call(&["x", "at"], attributes).finish(2);
    let mut columns = Model::new("Gather", "columns in any order", &[7]);
    columns.integers("at", &[3, 0, -1, 3]);
    let attributes = vec![AttributeProto::int("axis", 1)];
    vec![
        table,
        column,
        columns.call(&["x", "at"], attributes).finish(2),
    ]
}

/// Operators whose results are computed from shapes before a batch comes.
fn from_shapes() -> Vec<Case> {
    let mut shape = Model::new("Shape", "to Reshape", &[4, 6]);
    shape
        .node("Shape", &["x"], "s")
        .integers("ends", &[0, 2])
        .integers("none", &[-1]);
    shape.node("Gather", &["s", "ends"], "kept");
    let axis = || vec![AttributeProto::int("axis", 0)];
    shape
        .builder
        .node_with("Concat", &["kept", "none"], &["t"], axis());
    let shape = shape.node("Reshape", &["x", "t"], "y").finish(3);
    let mut ones = Model::new("ConstantOfShape", "", &[4]);
    let value = TensorProto::from_elements("", &[1], &[2.5f32]);
    ones.node("Shape", &["x"], "s");
    ones.builder.node_with(
        "ConstantOfShape",
        &["s"],
        &["c"],
        vec![AttributeProto::tensor("value", value)],
    );
    let ones = ones.node("Mul", &["x", "c"], "y").finish(2);
    let mut range = Model::new("Range", "positions", &[9]);
    range
        .node("Shape", &["x"], "s")
        .builder
        .constant("at", &[], &[1i64]);
    range
        .builder
        .constant("zero", &[], &[0i64])
        .constant("step", &[], &[1i64]);
    range.weights("w", &[20]).node("Gather", &["s", "at"], "n");
    range
        .node("Range", &["zero", "n", "step"], "r")
        .node("Gather", &["w", "r"], "p");
    let range = range.node("Add", &["x", "p"], "y").finish(2);
    let mut size = Model::new("Size", "", &[9]);
    size.node("Size", &["x"], "all").node("Shape", &["x"], "s");
    size.builder.constant("at", &[], &[0i64]);
    size.node("Gather", &["s", "at"], "rows")
        .node("Div", &["all", "rows"], "n");
    size.builder
        .node_with("Cast", &["n"], &["f"], vec![AttributeProto::int("to", 1)]);
    let size = size.node("Div", &["x", "f"], "y").finish(2);
    let mut constant = Model::new("Constant", "", &[3]);
    let value = TensorProto::from_elements("", &[3], &[2.5f32, 0.0, -1.0]);
    let attributes = vec![AttributeProto::tensor("value", value)];
    constant
        .builder
        .node_with("Constant", &[], &["c"], attributes);
    let constant = constant.node("Add", &["x", "c"], "y").finish(2);
    vec![shape, ones, range, size, constant]
}
