//! Products of matrices.

use super::{AttributeProto, Case, Model, Random};

pub(super) fn cases(random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for (turn_a, turn_b) in [(0, 0), (0, 1)] {
        let (k, n) = (random.between(1, 70), random.between(1, 40));
        for bias in [None, Some(vec![n]), Some(vec![1]), Some(vec![1, n])] {
            cases.push(gemm([turn_a, turn_b], [k, n], bias.as_deref()));
        }
    }
    cases.push(scaled_gemm(random));
    cases.extend(matmul(random));
    cases.push(attention(random));
    cases.push(fused(random));
    cases
}

fn gemm([turn_a, turn_b]: [i64; 2], [k, n]: [u64; 2], bias: Option<&[u64]>) -> Case {
    let detail = format!("transposed {turn_a}{turn_b}, bias {bias:?}, {k} x {n}");
    let mut model = Model::new("Gemm", detail, &[k]);
    let dims = if turn_b == 1 { [n, k] } else { [k, n] };
    model.weights("w", &dims);
    let mut inputs = vec!["x", "w"];
    if let Some(dims) = bias {
        model.weights("b", dims);
        inputs.push("b");
    }
    let attributes = vec![
        AttributeProto::int("transA", turn_a),
        AttributeProto::int("transB", turn_b),
    ];
    model.call(&inputs, attributes).finish(2)
}

fn scaled_gemm(random: &mut Random) -> Case {
    let (k, n) = (random.between(2, 30), random.between(2, 30));
    let mut model = Model::new("Gemm", format!("alpha, beta, Relu, {k} x {n}"), &[k]);
    model.weights("w", &[k, n]).weights("b", &[n]);
    let attributes = vec![
        AttributeProto::float("alpha", 0.5),
        AttributeProto::float("beta", 2.0),
    ];
    model
        .builder
        .node_with("Gemm", &["x", "w", "b"], &["z"], attributes);
    model.node("Relu", &["z"], "y").finish(2)
}

fn matmul(random: &mut Random) -> Vec<Case> {
    let (s, k, n) = (
        random.between(1, 12),
        random.between(1, 40),
        random.between(1, 20),
    );
    let shapes: [(Vec<u64>, Vec<u64>, usize); 5] = [
        (vec![k], vec![k, n], 2),
        (vec![s, k], vec![k, n], 3),
        (vec![2, s, k], vec![2, k, n], 4),
        (vec![2, s, k], vec![1, 1, k, n], 4),
        (vec![s, k], vec![k], 2),
    ];
    let case = |(left, right, rank): (Vec<u64>, Vec<u64>, usize)| {
        let mut model = Model::new("MatMul", format!("{left:?} x {right:?}"), &left);
        model.weights("w", &right);
        model.call(&["x", "w"], Vec::new()).finish(rank)
    };
    shapes.map(case).into()
}

/// Scores of attention: both factors are activations, one is transposed, and the product is scaled.
fn attention(random: &mut Random) -> Case {
    let (heads, length, depth) = (
        random.between(1, 3),
        random.between(2, 9),
        random.between(2, 17),
    );
    let detail = format!("{heads} heads, {length} x {depth}");
    let mut model = Model::new("MatMul", detail, &[heads, length, depth]);
    let turn = vec![AttributeProto::ints("perm", &[0, 1, 3, 2])];
    model.builder.node_with("Transpose", &["x"], &["t"], turn);
    model.number("root", (depth as f32).sqrt());
    model.node("MatMul", &["x", "t"], "scores");
    model.node("Div", &["scores", "root"], "y").finish(4)
}

/// A product followed by a bias and an activation.
fn fused(random: &mut Random) -> Case {
    let (s, k, n) = (
        random.between(1, 12),
        random.between(1, 40),
        random.between(1, 20),
    );
    let mut model = Model::new("MatMul", "then Add, Relu", &[s, k]);
    model.weights("w", &[k, n]).weights("b", &[n]);
    model
        .node("MatMul", &["x", "w"], "p")
        .node("Add", &["b", "p"], "q");
    model.node("Relu", &["q"], "y").finish(3)
}
