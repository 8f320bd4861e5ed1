//! Reads the operators with weights, `MatMul`, `Gemm` and `Conv`, into one form.

use crate::proto::{AttributeProto, NodeProto};

use super::editor::{Editor, Floats};

/// A node whose constant weights can be quantised.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    pub(super) kind: Kind,
    /// The activation.
    pub(super) input: String,
    pub(super) output: String,
    /// Name of the weights in the graph.
    pub(super) weight: String,
    /// Name of the constant bias.
    pub(super) bias: Option<String>,
    /// Factor to fold into the weights (`alpha` of `Gemm`).
    pub(super) alpha: f32,
    /// Factor to fold into the bias (`beta` of `Gemm`).
    pub(super) beta: f32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    MatMul,
    Gemm {
        /// Weights are `[out, in]`.
        transposed: bool,
    },
    Conv,
}

// === impl Linear ===

impl Linear {
    /// Reads a node; `None` for other operators, weights or biases that are not constant finite
    /// 32-bit floats, transposed activations, and forms without a quantised kernel.
    pub(super) fn read(node: &NodeProto, editor: &Editor<'_>) -> Option<Self> {
        let kind = kind(node)?;
        let (input, weight) = (node.input.first()?, node.input.get(1)?);
        let output = node.output.first()?;
        let bias = node.input.get(2).filter(|bias| !bias.is_empty());
        let linear = Self {
            kind,
            input: input.clone(),
            output: output.clone(),
            weight: weight.clone(),
            bias: bias.cloned(),
            alpha: float(node, "alpha"),
            beta: float(node, "beta"),
        };
        let fits = !editor.is_constant(input) && !input.is_empty() && linear.fits(editor);
        fits.then_some(linear)
    }

    /// Weights with `alpha` folded in.
    pub(super) fn weights(&self, editor: &Editor<'_>) -> Option<Floats> {
        folded(editor.floats(&self.weight)?, self.alpha)
    }

    /// Bias with `beta` folded in.
    pub(super) fn bias(&self, editor: &Editor<'_>) -> Option<Floats> {
        folded(editor.floats(self.bias.as_ref()?)?, self.beta)
    }

    /// The axis of output channels in the weights; `None` if there must be one scale per tensor.
    pub(super) fn channel_axis(&self, rank: usize) -> Option<usize> {
        match self.kind {
            Kind::Conv | Kind::Gemm { transposed: true } => Some(0),
            Kind::Gemm { transposed: false } => Some(1),
            Kind::MatMul => (rank == 2).then_some(1),
        }
    }

    fn fits(&self, editor: &Editor<'_>) -> bool {
        let Some(weights) = self.weights(editor) else {
            return false;
        };
        let rank = match self.kind {
            Kind::MatMul => weights.dims.len() >= 2,
            Kind::Gemm { .. } => weights.dims.len() == 2,
            Kind::Conv => weights.dims.len() >= 3,
        };
        let bias = self.bias.is_none() || self.bias(editor).is_some();
        rank && bias && !weights.values.is_empty()
    }
}

fn kind(node: &NodeProto) -> Option<Kind> {
    let flag = |name: &str| node.attribute(name).is_some_and(|it| it.i() != 0);
    if node.is("MatMul") {
        Some(Kind::MatMul)
    } else if node.is("Conv") {
        Some(Kind::Conv)
    } else if node.is("Gemm") && !flag("transA") {
        let transposed = flag("transB");
        Some(Kind::Gemm { transposed })
    } else {
        None
    }
}

fn float(node: &NodeProto, name: &str) -> f32 {
    node.attribute(name).map_or(1.0, AttributeProto::f)
}

fn folded(mut floats: Floats, factor: f32) -> Option<Floats> {
    if factor != 1.0 {
        floats.values.iter_mut().for_each(|value| *value *= factor);
    }
    floats
        .values
        .iter()
        .all(|it| it.is_finite())
        .then_some(floats)
}
