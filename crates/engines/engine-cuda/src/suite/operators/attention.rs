//! Attention as exporters write it.

use super::{AttributeProto, BATCH, Case, DataType, Dim, Model, Random};

/// Sizes of attention.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: usize,
    heads: u64,
    length: u64,
    depth: u64,
}

/// How the scores are scaled and the keys transposed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Keys {
    /// Heads come before tokens and the keys are transposed in one step; scores are divided afterwards.
    Once,
    /// The same in two steps; scores are multiplied afterwards.
    Twice,
    /// Both factors are scaled before the product, the keys after their last step.
    Scaled,
    /// Queries are divided by the square root of their depth, which is read from their shape.
    Shaped,
}

/// Where queries, keys and values come from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    /// Each is an input.
    Apart,
    /// They are parts of one product.
    Joined,
    /// They are three products of one input.
    Products,
}

/// The mask of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mask {
    None,
    /// The lowest number, added for tokens that do not count; one row a sequence.
    Tokens,
    /// Negative infinity, added for tokens that come later; the same for all sequences.
    Later,
    /// A number added to each score.
    Scores,
    /// The lowest number, chosen for tokens that do not count.
    Hidden,
    /// Negative infinity, chosen for tokens that do not count. A row in which no token counts has nothing left.
    Dropped,
    /// Scores chosen for tokens that come no later, negative infinity for the others.
    Kept,
}

pub(super) fn cases(random: &mut Random) -> Vec<Case> {
    use Keys::{Once, Scaled, Shaped, Twice};
    use Mask::{Dropped, Hidden, Kept, Later, None, Scores, Tokens};
    use Source::{Apart, Joined, Products};
    let sizes = |rows, heads, length, depth| Sizes {
        rows,
        heads,
        length,
        depth,
    };
    let mut cases = vec![
        attention(sizes(1, 2, 1, 64), Once, Apart, Tokens),
        attention(sizes(3, 3, 7, 16), Twice, Products, None),
        attention(sizes(16, 1, 64, 32), Once, Apart, Tokens),
        attention(sizes(1, 2, 127, 64), Scaled, Apart, None),
        attention(sizes(3, 2, 128, 64), Once, Joined, Tokens),
        attention(sizes(1, 1, 200, 40), Twice, Apart, Tokens),
        attention(sizes(1, 2, 100, 40), Twice, Apart, Later),
        attention(sizes(1, 1, 384, 64), Once, Apart, None),
        attention(sizes(3, 2, 33, 96), Twice, Apart, Scores),
        attention(sizes(2, 1, 65, 128), Scaled, Joined, Later),
        attention(sizes(16, 2, 5, 8), Once, Products, Scores),
        attention(sizes(3, 1, 20, 80), Twice, Apart, Tokens),
        attention(sizes(3, 2, 31, 24), Once, Products, Hidden),
        attention(sizes(2, 2, 66, 64), Twice, Joined, Kept),
        attention(sizes(16, 2, 1, 8), Once, Apart, Dropped),
        // There is no kernel for heads of this depth.
        attention(sizes(2, 2, 9, 12), Once, Apart, Tokens),
    ];
    for keys in [Once, Twice, Scaled, Shaped] {
        let length = random.between(2, 70);
        for source in [Apart, Joined, Products] {
            cases.push(attention(sizes(2, 2, length, 16), keys, source, Tokens));
        }
    }
    cases
}

fn attention(sizes: Sizes, keys: Keys, source: Source, mask: Mask) -> Case {
    let Sizes {
        rows,
        heads,
        length,
        depth,
    } = sizes;
    let detail = format!("attention {sizes:?}, keys {keys:?}, {source:?}, mask {mask:?}");
    let width = heads * depth;
    let mut model = Model::new("Softmax", detail, &[length, width]);
    model.rows = rows;
    sources(&mut model, source, [length, width]);
    let split = [0, length as i64, heads as i64, depth as i64];
    model.integers("split", &split);
    for (name, turned) in [("q", "q1"), ("v", "v1")] {
        model.node("Reshape", &[name, "split"], &format!("{name}0"));
        model.turn(&format!("{name}0"), &[0, 2, 1, 3], turned);
    }
    model.node("Reshape", &["k", "split"], "k0");
    let root = (depth as f32).sqrt();
    model
        .number("root", root)
        .number("half_root", root.sqrt().recip());
    model.number("share", root.recip());
    match keys {
        Keys::Once => {
            model.turn("k0", &[0, 2, 3, 1], "k1");
            model.node("MatMul", &["q1", "k1"], "product");
            model.node("Div", &["product", "root"], "scores");
        }
        Keys::Twice => {
            model.turn("k0", &[0, 2, 1, 3], "k1");
            model.turn("k1", &[0, 1, 3, 2], "k2");
            model.node("MatMul", &["q1", "k2"], "product");
            model.node("Mul", &["product", "share"], "scores");
        }
        Keys::Scaled => {
            model.turn("k0", &[0, 2, 1, 3], "k1");
            model.turn("k1", &[0, 1, 3, 2], "k2");
            model.node("Mul", &["q1", "half_root"], "q2");
            model.node("Mul", &["k2", "half_root"], "k3");
            model.node("MatMul", &["q2", "k3"], "scores");
        }
        Keys::Shaped => {
            model.turn("k0", &[0, 2, 3, 1], "k1");
            model.integers("last", &[3]);
            model.node("Shape", &["q1"], "shape");
            model.node("Gather", &["shape", "last"], "size");
            let to = vec![AttributeProto::int("to", 1)];
            model.builder.node_with("Cast", &["size"], &["depth"], to);
            model.node("Sqrt", &["depth"], "root_of_shape");
            model.node("Div", &["q1", "root_of_shape"], "q2");
            model.node("MatMul", &["q2", "k1"], "scores");
        }
    }
    let masked = masked(&mut model, mask, [heads, length]);
    let axis = vec![AttributeProto::int("axis", -1)];
    let builder = &mut model.builder;
    builder.node_with("Softmax", &[masked], &["shares"], axis);
    model.node("MatMul", &["shares", "v1"], "seen");
    model.turn("seen", &[0, 2, 1, 3], "joined");
    model.integers("whole", &[0, length as i64, width as i64]);
    model.node("Reshape", &["joined", "whole"], "y").finish(3)
}

/// Makes `q`, `k` and `v` `[batch, length, width]`.
fn sources(model: &mut Model, source: Source, [length, width]: [u64; 2]) {
    match source {
        Source::Apart => {
            model.input("x1", DataType::Fp32, &[length, width]);
            model.input("x2", DataType::Fp32, &[length, width]);
            for (name, from) in [("q", "x"), ("k", "x1"), ("v", "x2")] {
                model.node("Identity", &[from], name);
            }
        }
        Source::Joined => {
            model.weights("w", &[width, 3 * width]);
            model.node("MatMul", &["x", "w"], "all");
            model.integers("widths", &[width as i64; 3]);
            let axis = vec![AttributeProto::int("axis", 2)];
            let builder = &mut model.builder;
            builder.node_with("Split", &["all", "widths"], &["q", "k", "v"], axis);
        }
        Source::Products => {
            for name in ["q", "k", "v"] {
                let [w, b, product] = ["w", "b", "product"].map(|it| format!("{name}_{it}"));
                model.weights(&w, &[width, width]).weights(&b, &[width]);
                model.node("MatMul", &["x", &w], &product);
                model.node("Add", &[&product, &b], name);
            }
        }
    }
}

/// The scores after the mask.
fn masked(model: &mut Model, mask: Mask, [heads, length]: [u64; 2]) -> &'static str {
    let size = length as usize;
    match mask {
        Mask::None => return "scores",
        Mask::Tokens => {
            tokens(model, length);
            let to = vec![AttributeProto::int("to", 1)];
            model.builder.node_with("Cast", &["hidden"], &["far"], to);
            model.node("Mul", &["far", "lowest"], "mask");
        }
        Mask::Hidden => {
            tokens(model, length);
            model.node("Where", &["hidden", "lowest", "scores"], "masked");
            return "masked";
        }
        Mask::Dropped => {
            tokens(model, length);
            model.number("floor", f32::NEG_INFINITY);
            model.node("Where", &["hidden", "floor", "scores"], "masked");
            return "masked";
        }
        Mask::Kept => {
            let kept = |at: usize| if at % size > at / size { -1.0f32 } else { 1.0 };
            let values: Vec<f32> = (0..size * size).map(kept).collect();
            model
                .builder
                .constant("signs", &[1, 1, size, size], &values);
            model.number("zero", 0.0).number("floor", f32::NEG_INFINITY);
            model.node("Greater", &["signs", "zero"], "kept");
            model.node("Where", &["kept", "scores", "floor"], "masked");
            return "masked";
        }
        Mask::Later => {
            let later = |at: usize| at % size > at / size;
            let hidden = |at: usize| if later(at) { f32::NEG_INFINITY } else { 0.0 };
            let values: Vec<f32> = (0..size * size).map(hidden).collect();
            model.builder.constant("mask", &[1, 1, size, size], &values);
        }
        Mask::Scores => {
            model.input("mask", DataType::Fp32, &[heads, length, length]);
        }
    }
    model.node("Add", &["scores", "mask"], "masked");
    "masked"
}

/// Makes the condition that says which tokens are `hidden`, and the number for these.
fn tokens(model: &mut Model, length: u64) {
    let row = [BATCH, Dim::Fixed(1), Dim::Fixed(1), Dim::Fixed(length)];
    model.builder.input("m", DataType::Fp32, &row);
    model.number("zero", 0.0).number("lowest", f32::MIN);
    model.node("Less", &["m", "zero"], "hidden");
}

// === impl Model ===

impl Model {
    fn turn(&mut self, from: &str, order: &[i64], to: &str) {
        let order = vec![AttributeProto::ints("perm", order)];
        self.builder.node_with("Transpose", &[from], &[to], order);
    }
}
