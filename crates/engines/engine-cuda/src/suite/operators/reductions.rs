//! Reductions, and normalisations that use them.

use super::{AttributeProto, Case, DataType, Model, Random};

pub(super) fn cases(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    const REDUCTIONS: [&str; 6] = [
        "ReduceL2",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSumSquare",
    ];
    for operator in REDUCTIONS {
        for axes in [&[-1][..], &[1], &[1, 2], &[1, 3]] {
            cases.push(reduction(operator, axes, random));
        }
    }
    cases.push(sum(random));
    for operator in ["ArgMax", "ArgMin"] {
        for axis in [1, -1] {
            let dims = [random.between(1, 9), random.between(2, 40)];
            let mut model = Model::new(operator, format!("axis {axis} of {dims:?}"), &dims);
            let attributes = vec![AttributeProto::int("axis", axis)];
            cases.push(model.call(&["x"], attributes).finish_as(DataType::Int64, 3));
        }
    }
    cases.extend(softmax(random));
    cases.extend(layer_norm(random));
    let mut instance = Model::new("InstanceNormalization", "", &[4, 3, 5]);
    instance.weights("s", &[4]).weights("b", &[4]);
    cases.push(instance.call(&["x", "s", "b"], Vec::new()).finish(4));
    cases
}

fn reduction(operator: &'static str, axes: &[i64], random: &mut Random) -> Case {
    let dims = [
        random.between(1, 5),
        random.between(1, 6),
        random.between(1, 7),
    ];
    let keep = random.between(0, 1) as i64;
    let detail = format!("axes {axes:?} of {dims:?}, keep {keep}");
    let attributes = vec![
        AttributeProto::ints("axes", axes),
        AttributeProto::int("keepdims", keep),
    ];
    let rank = if keep == 1 { 4 } else { 4 - axes.len() };
    let mut model = Model::new(operator, detail, &dims);
    // There are few exact values near 1, so that products can be represented in half floats.
    model.number("quarter", 0.25).number("one", 1.0);
    model.node("Round", &["x"], "whole");
    model.node("Mul", &["whole", "quarter"], "small");
    model.node("Add", &["small", "one"], "near");
    let input = if operator == "ReduceProd" {
        "near"
    } else {
        "x"
    };
    model.call(&[input], attributes).finish(rank)
}

/// Its axes are an input.
fn sum(random: &mut Random) -> Case {
    let mut model = Model::new(
        "ReduceSum",
        "",
        &[random.between(1, 5), random.between(1, 90)],
    );
    model.integers("axes", &[2]);
    model.call(&["x", "axes"], Vec::new()).finish(3)
}

fn softmax(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for operator in ["Softmax", "LogSoftmax"] {
        for (opset, axis) in [(17, -1), (17, 1), (11, 1)] {
            let dims = [random.between(1, 6), random.between(1, 60)];
            let detail = format!("axis {axis} of {dims:?}, operator set {opset}");
            let mut model = Model::new(operator, detail, &dims);
            model
                .opset(opset)
                .number("wide", 8.0)
                .node("Mul", &["x", "wide"], "scaled");
            let attributes = vec![AttributeProto::int("axis", axis)];
            cases.push(model.call(&["scaled"], attributes).finish(3));
        }
    }
    cases
}

fn layer_norm(random: &mut Random) -> Vec<Case> {
    let width = random.between(2, 60);
    let mut plain = Model::new("LayerNormalization", format!("width {width}"), &[4, width]);
    plain.weights("s", &[width]).weights("b", &[width]);
    let attributes = vec![AttributeProto::float("epsilon", 1e-3)];
    let plain = plain.call(&["x", "s", "b"], attributes).finish(3);
    let mut wide = Model::new("LayerNormalization", "two axes, no shift", &[4, width]);
    wide.weights("s", &[4, width]);
    let attributes = vec![AttributeProto::int("axis", 1)];
    let wide = wide.call(&["x", "s"], attributes).finish(3);
    let apart = [width, 1].map(|scales| taken_apart(width, scales));
    [plain, wide].into_iter().chain(apart).collect()
}

/// Layer normalisation as exporters write it for older operator sets, with a scale for each element or one for all.
fn taken_apart(width: u64, scales: u64) -> Case {
    let detail = format!("taken apart, scales: {scales}");
    let mut model = Model::new("LayerNormalization", detail, &[4, width]);
    let axes = || vec![AttributeProto::ints("axes", &[-1])];
    model.weights("s", &[scales]).weights("b", &[scales]);
    model.number("two", 2.0).number("epsilon", 1e-5);
    model
        .builder
        .node_with("ReduceMean", &["x"], &["mean"], axes());
    model
        .node("Sub", &["x", "mean"], "d")
        .node("Pow", &["d", "two"], "q");
    model
        .builder
        .node_with("ReduceMean", &["q"], &["v"], axes());
    model
        .node("Add", &["v", "epsilon"], "e")
        .node("Sqrt", &["e"], "r");
    model
        .node("Div", &["d", "r"], "n")
        .node("Mul", &["n", "s"], "m");
    model.node("Add", &["m", "b"], "y").finish(3)
}
