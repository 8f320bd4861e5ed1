//! A transformer encoder for text (Devlin et al., 2019), written as exporters write it: shapes are computed in the
//! graph, and layer normalisation and Gelu are split into their steps.

use bytes::Bytes;
use sextant_onnx::{
    builder::{BATCH, Dim, ModelBuilder},
    proto::AttributeProto,
};
use sextant_types::DataType;

/// Sizes of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoder {
    /// Layers.
    pub layers: usize,
    /// Width of a token.
    pub hidden: usize,
    /// Heads of attention; divides the width.
    pub heads: usize,
    /// Width between the two products of a layer.
    pub inner: usize,
    /// Size of the vocabulary.
    pub words: usize,
    /// Largest number of tokens.
    pub positions: usize,
}

// === impl Encoder ===

impl Encoder {
    /// As published, without its task's head.
    pub const BASE: Self = Self {
        layers: 12,
        hidden: 768,
        heads: 12,
        inner: 3072,
        words: 30_522,
        positions: 512,
    };

    /// For tests.
    pub const SMALL: Self = Self {
        layers: 2,
        hidden: 24,
        heads: 3,
        inner: 48,
        words: 120,
        positions: 64,
    };
}

/// Inputs `ids`, `mask` and `types` `[batch, length]`, whole numbers; outputs `hidden`
/// `[batch, length, hidden]` and `pooled` `[batch, hidden]`. Values of `mask` and `types` above 1
/// count as 1.
pub fn encoder(sizes: &Encoder, seed: u64) -> Bytes {
    let mut text = Text {
        model: ModelBuilder::new("encoder", seed),
        sizes: *sizes,
    };
    let length = Dim::Dynamic("length");
    for name in ["ids", "mask", "types"] {
        text.model.input(name, DataType::Int64, &[BATCH, length]);
    }
    let hidden = Dim::Fixed(sizes.hidden as u64);
    text.model
        .output("hidden", DataType::Fp32, &[BATCH, length, hidden]);
    text.model
        .output("pooled", DataType::Fp32, &[BATCH, hidden]);
    text.constants();
    text.embed();
    text.mask();
    let mut previous = "embedded".to_owned();
    for layer in 0..sizes.layers {
        let name = match layer + 1 == sizes.layers {
            true => "hidden".to_owned(),
            false => format!("l{layer}"),
        };
        text.layer(&name, &previous);
        previous = name;
    }
    let axis = vec![AttributeProto::int("axis", 1)];
    text.model
        .node_with("Gather", &["hidden", "zero"], &["first"], axis);
    text.dense("pool", "first", [sizes.hidden, sizes.hidden]);
    text.model.node("Tanh", &["pool"], &["pooled"]);
    text.model.build()
}

struct Text {
    model: ModelBuilder,
    sizes: Encoder,
}

// === impl Text ===

impl Text {
    fn constants(&mut self) {
        let depth = (self.sizes.hidden / self.sizes.heads) as i64;
        let model = &mut self.model;
        model
            .constant("zero", &[], &[0i64])
            .constant("one", &[], &[1i64]);
        model
            .constant("axis0", &[1], &[0i64])
            .constant("axis1", &[1], &[1i64]);
        model.constant("axis2", &[1], &[2i64]);
        model.constant("heads", &[1], &[self.sizes.heads as i64]);
        model
            .constant("depth", &[1], &[depth])
            .constant("rest", &[1], &[-1i64]);
        model
            .constant("two", &[], &[2f32])
            .constant("half", &[], &[0.5f32]);
        model
            .constant("unit", &[], &[1f32])
            .constant("lowest", &[], &[f32::MIN]);
        model.constant("epsilon", &[], &[1e-12f32]);
        model.constant("root_two", &[], &[std::f32::consts::SQRT_2]);
        model.constant("root_depth", &[], &[(depth as f32).sqrt()]);
        let positions: Vec<i64> = (0..self.sizes.positions as i64).collect();
        model.constant("all_positions", &[1, positions.len()], &positions);
    }

    /// Words, positions and types, normalised.
    fn embed(&mut self) {
        let Encoder {
            hidden,
            words,
            positions,
            ..
        } = self.sizes;
        let model = &mut self.model;
        model.random("word_table", &[words, hidden], 1.0);
        model.random("position_table", &[positions, hidden], 1.0);
        model.random("type_table", &[2, hidden], 1.0);
        model.node("Shape", &["ids"], &["shape"]);
        model.node("Gather", &["shape", "one"], &["length"]);
        model.node("Unsqueeze", &["length", "axis0"], &["end"]);
        model.node(
            "Slice",
            &["all_positions", "axis0", "end", "axis1"],
            &["positions"],
        );
        model.node("Min", &["types", "one"], &["kinds"]);
        model.node("Gather", &["word_table", "ids"], &["words"]);
        model.node("Gather", &["position_table", "positions"], &["places"]);
        model.node("Gather", &["type_table", "kinds"], &["type"]);
        model.node("Add", &["words", "type"], &["sum0"]);
        model.node("Add", &["sum0", "places"], &["sum1"]);
        self.normalise("embedded", "sum1");
    }

    /// The mask that is added to scores: 0 for tokens that count, the lowest number for the others.
    fn mask(&mut self) {
        let model = &mut self.model;
        model.node("Min", &["mask", "one"], &["mask0"]);
        model.node("Unsqueeze", &["mask0", "axis1"], &["mask1"]);
        model.node("Unsqueeze", &["mask1", "axis2"], &["mask2"]);
        let to = vec![AttributeProto::int("to", 1)];
        model.node_with("Cast", &["mask2"], &["mask3"], to);
        model.node("Sub", &["unit", "mask3"], &["mask4"]);
        model.node("Mul", &["mask4", "lowest"], &["bias"]);
    }

    fn layer(&mut self, name: &str, input: &str) {
        let Encoder { hidden, inner, .. } = self.sizes;
        let part = |what: &str| format!("{name}_{what}");
        let [attention, out, sum, middle] = ["attention", "out", "sum", "middle"].map(part);
        self.attention(&attention, input);
        self.dense(&out, &attention, [hidden, hidden]);
        self.model.node("Add", &[&out, input], &[&sum]);
        self.normalise(&middle, &sum);
        let [up, bent, down, total] = ["up", "bent", "down", "total"].map(part);
        self.dense(&up, &middle, [hidden, inner]);
        self.gelu(&bent, &up);
        self.dense(&down, &bent, [inner, hidden]);
        self.model.node("Add", &[&down, &middle], &[&total]);
        self.normalise(name, &total);
    }

    fn attention(&mut self, name: &str, input: &str) {
        let hidden = self.sizes.hidden;
        let part = |what: &str| format!("{name}_{what}");
        for (what, order) in [
            ("q", [0, 2, 1, 3]),
            ("k", [0, 2, 3, 1]),
            ("v", [0, 2, 1, 3]),
        ] {
            let [dense, split, turned] =
                ["dense", "split", "turned"].map(|it| part(&format!("{what}_{it}")));
            self.dense(&dense, input, [hidden, hidden]);
            self.reshape(&split, &dense, &["heads", "depth"]);
            let order = vec![AttributeProto::ints("perm", &order)];
            self.model
                .node_with("Transpose", &[&split], &[&turned], order);
        }
        let names = ["scores", "scaled", "masked", "shares", "seen", "joined"].map(part);
        let [scores, scaled, masked, shares, seen, joined] = names.each_ref().map(String::as_str);
        let model = &mut self.model;
        model.node("MatMul", &[&part("q_turned"), &part("k_turned")], &[scores]);
        model.node("Div", &[scores, "root_depth"], &[scaled]);
        model.node("Add", &[scaled, "bias"], &[masked]);
        let axis = vec![AttributeProto::int("axis", -1)];
        model.node_with("Softmax", &[masked], &[shares], axis);
        model.node("MatMul", &[shares, &part("v_turned")], &[seen]);
        let order = vec![AttributeProto::ints("perm", &[0, 2, 1, 3])];
        model.node_with("Transpose", &[seen], &[joined], order);
        self.reshape(name, joined, &["rest"]);
    }

    /// Reshapes to `[batch, length, ..]`; both sizes are taken from the input's shape.
    fn reshape(&mut self, name: &str, input: &str, last: &[&str]) {
        let [shape, rows, length, first, second, target] =
            ["shape", "rows", "length", "first", "second", "target"]
                .map(|it| format!("{name}_{it}"));
        let model = &mut self.model;
        model.node("Shape", &[input], &[&shape]);
        model.node("Gather", &[&shape, "zero"], &[&rows]);
        model.node("Gather", &[&shape, "one"], &[&length]);
        model.node("Unsqueeze", &[&rows, "axis0"], &[&first]);
        model.node("Unsqueeze", &[&length, "axis0"], &[&second]);
        let parts = [&[first.as_str(), second.as_str()], last].concat();
        let axis = vec![AttributeProto::int("axis", 0)];
        model.node_with("Concat", &parts, &[&target], axis);
        model.node("Reshape", &[input, &target], &[name]);
    }

    fn dense(&mut self, name: &str, input: &str, [from, to]: [usize; 2]) {
        let [weights, bias, product] = ["w", "b", "product"].map(|it| format!("{name}_{it}"));
        let bound = (3.0 / from as f32).sqrt();
        self.model
            .random(&weights, &[from, to], bound)
            .random(&bias, &[to], 0.1);
        self.model.node("MatMul", &[input, &weights], &[&product]);
        self.model.node("Add", &[&bias, &product], &[name]);
    }

    fn gelu(&mut self, name: &str, input: &str) {
        let [scaled, erf, bell, product] =
            ["scaled", "erf", "bell", "product"].map(|it| format!("{name}_{it}"));
        let model = &mut self.model;
        model.node("Div", &[input, "root_two"], &[&scaled]);
        model.node("Erf", &[&scaled], &[&erf]);
        model.node("Add", &[&erf, "unit"], &[&bell]);
        model.node("Mul", &[input, &bell], &[&product]);
        model.node("Mul", &[&product, "half"], &[name]);
    }

    fn normalise(&mut self, name: &str, input: &str) {
        let hidden = self.sizes.hidden;
        let part = |what: &str| format!("{name}_n_{what}");
        let names = ["mean", "d", "q", "v", "e", "r", "n", "m", "s", "b"].map(part);
        let [mean, d, q, v, e, r, n, m, s, b] = names.each_ref().map(String::as_str);
        let model = &mut self.model;
        let scale: Vec<f32> = (0..hidden).map(|at| 0.9 + (at % 7) as f32 / 30.0).collect();
        model
            .constant(s, &[hidden], &scale)
            .random(b, &[hidden], 0.1);
        let last = || vec![AttributeProto::ints("axes", &[-1])];
        model.node_with("ReduceMean", &[input], &[mean], last());
        model
            .node("Sub", &[input, mean], &[d])
            .node("Pow", &[d, "two"], &[q]);
        model.node_with("ReduceMean", &[q], &[v], last());
        model
            .node("Add", &[v, "epsilon"], &[e])
            .node("Sqrt", &[e], &[r]);
        model.node("Div", &[d, r], &[n]).node("Mul", &[n, s], &[m]);
        model.node("Add", &[m, b], &[name]);
    }
}
