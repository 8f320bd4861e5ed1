//! Decides which values of a graph become bytes in the static form.
//!
//! The plan starts from operators with constant weights. Their inputs are *demanded* in 8 bits. The output of a `Conv`
//! is *forced* to 8 bits as well, because engines have no integer kernel that outputs floats. The same holds for
//! operators that directly follow, if they work in 8 bits without loss (`MaxPool`, reshapes) or have integer kernels of
//! their own (pooling, `Add` of two such values, `Concat`). `MatMul` and `Gemm` can output floats: their outputs are
//! rounded only if another operator demands it, so that logits, biases added later and normalisation keep full
//! precision. A `Relu` after such an operator is removed: unsigned bytes with zero point 0 cannot be negative.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Error, proto::NodeProto};

use super::{
    editor::Editor,
    linear::{Kind, Linear},
};

#[derive(Default)]
pub(super) struct Plan {
    /// Operators with weights, by position.
    pub(super) linear: BTreeMap<usize, Linear>,
    /// Other operators that work on bytes, by position.
    pub(super) followers: BTreeSet<usize>,
    /// Operators that are removed, by position.
    pub(super) folded: BTreeSet<usize>,
    /// The value that a producer writes instead, if the operator after it is removed.
    pub(super) renamed: BTreeMap<String, String>,
    /// Values that all readers get rounded.
    pub(super) forced: BTreeSet<String>,
    /// Values that operators in the plan get rounded, and others unrounded.
    pub(super) demanded: BTreeSet<String>,
    /// Values that use the scale of another value.
    shares: BTreeMap<String, String>,
}

struct Uses {
    readers: BTreeMap<String, usize>,
    producers: BTreeMap<String, usize>,
}

// === impl Plan ===

impl Plan {
    /// Plans the main graph. Errors with [`Error::NothingToQuantize`].
    pub(super) fn new(editor: &Editor<'_>) -> Result<Self, Error> {
        let mut plan = Self::default();
        let uses = Uses::new(editor);
        for (index, node) in editor.graph.node.iter().enumerate() {
            if let Some(linear) = Linear::read(node, editor).filter(|it| has_row_bias(it, editor)) {
                plan.demanded.insert(linear.input.clone());
                plan.linear.insert(index, linear);
            }
        }
        if plan.linear.is_empty() {
            return Err(Error::NothingToQuantize);
        }
        for (index, node) in editor.graph.node.iter().enumerate() {
            plan.follow(index, node, editor, &uses);
        }
        plan.demanded.retain(|value| !plan.forced.contains(value));
        Ok(plan)
    }

    /// The value whose range gives the scale of `value`.
    pub(super) fn root<'a>(&'a self, value: &'a str) -> &'a str {
        self.shares.get(value).map_or(value, String::as_str)
    }

    /// Values whose ranges are needed, sorted.
    pub(super) fn calibrated(&self) -> Vec<String> {
        let values = self.forced.iter().chain(&self.demanded);
        values
            .filter(|value| !self.shares.contains_key(*value))
            .cloned()
            .collect()
    }

    /// Whether the zero point replaces a `Relu` before this value.
    pub(super) fn is_rectified(&self, value: &str) -> bool {
        self.renamed.values().any(|renamed| renamed == value)
    }

    /// Whether the node at `index` computes on bytes.
    pub(super) fn is_integer(&self, index: usize) -> bool {
        self.linear.contains_key(&index) || self.followers.contains(&index)
    }

    fn follow(&mut self, index: usize, node: &NodeProto, editor: &Editor<'_>, uses: &Uses) {
        let (Some(input), Some(output)) = (node.input.first(), node.output.first()) else {
            return;
        };
        if let Some(linear) = self.linear.get(&index) {
            if linear.kind == Kind::Conv {
                self.forced.insert(output.clone());
            }
        } else if is_relu(node, editor) {
            if self.folds(input, output, editor, uses) {
                self.forced.remove(input);
                self.forced.insert(output.clone());
                self.renamed.insert(input.clone(), output.clone());
                self.folded.insert(index);
            }
        } else if self.takes_bytes(node, editor) {
            self.followers.insert(index);
            self.forced.insert(output.clone());
            if shares_scale(node) {
                let root = self.root(input).to_owned();
                self.shares.insert(output.clone(), root);
            }
        }
    }

    /// Whether a `Relu` from `input` to `output` can be removed.
    fn folds(&self, input: &str, output: &str, editor: &Editor<'_>, uses: &Uses) -> bool {
        let producer = uses.producers.get(input);
        let from_linear = producer.is_some_and(|at| self.linear.contains_key(at));
        let rounded = self.forced.contains(input) && !self.shares.contains_key(input);
        let hidden = !editor.is_output(input) && !editor.is_captured(input);
        let only_reader = uses.readers.get(input) == Some(&1);
        let asked = from_linear && self.demanded.contains(output);
        // If the producer is removed itself, no operator is left to write the value.
        let is_made = producer.is_some_and(|at| !self.folded.contains(at));
        (rounded || asked) && hidden && only_reader && is_made
    }

    fn takes_bytes(&self, node: &NodeProto, editor: &Editor<'_>) -> bool {
        let forced = |value: &String| self.forced.contains(value);
        let rounded = |value: &String| forced(value) || self.demanded.contains(value);
        let constant = |value: &String| editor.is_constant(value);
        if shares_scale(node) || node.is("GlobalAveragePool") || node.is("AveragePool") {
            return node.output.len() == 1 && node.input.first().is_some_and(forced);
        }
        if node.is("Concat") {
            return node.input.iter().all(forced);
        }
        node.is("Add")
            && node.input.len() == 2
            && node.input.iter().all(|it| rounded(it) && !constant(it))
            && node.input.iter().any(forced)
    }
}

// === impl Uses ===

impl Uses {
    fn new(editor: &Editor<'_>) -> Self {
        let mut uses = Self {
            readers: BTreeMap::new(),
            producers: BTreeMap::new(),
        };
        for (index, node) in editor.graph.node.iter().enumerate() {
            for input in &node.input {
                *uses.readers.entry(input.clone()).or_default() += 1;
            }
            for output in &node.output {
                uses.producers.insert(output.clone(), index);
            }
        }
        uses
    }
}

/// Operators that move bytes without changing them.
fn shares_scale(node: &NodeProto) -> bool {
    const MOVES: [&str; 6] = [
        "MaxPool",
        "Flatten",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
    ];
    MOVES.iter().any(|op_type| node.is(op_type))
}

/// `Relu`, or `Clip` from zero up to a number that is the same in every run: the range ends at that number.
fn is_relu(node: &NodeProto, editor: &Editor<'_>) -> bool {
    let zero = |name: &String| {
        let low = editor.floats(name);
        low.is_some_and(|low| low.values == [0.0])
    };
    let attribute = || node.attribute("min").is_some_and(|it| it.f() == 0.0);
    let most = node.input.get(2).filter(|most| !most.is_empty());
    let is_fixed = most.is_none_or(|most| editor.is_constant(most));
    node.is("Relu") || node.is("Clip") && is_fixed && node.input.get(1).map_or_else(attribute, zero)
}

/// Whether the bias, if any, is one value per output channel: the form that integer kernels accept.
fn has_row_bias(linear: &Linear, editor: &Editor<'_>) -> bool {
    if linear.bias.is_none() {
        return true;
    }
    let (Some(bias), Some(weights)) = (linear.bias(editor), linear.weights(editor)) else {
        return false;
    };
    let axis = linear.channel_axis(weights.dims.len());
    let channels = axis.and_then(|axis| weights.dims.get(axis));
    bias.dims.last() == channels && Some(&bias.values.len()) == channels
}
