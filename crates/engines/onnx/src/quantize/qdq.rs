//! Static quantisation: pairs of `QuantizeLinear` and `DequantizeLinear` around the values that the plan chose.
//! Activations are unsigned bytes with a zero point, weights signed bytes without one, biases 32-bit integers at the
//! product of both scales.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::{
    Error,
    make::Dim,
    proto::{AttributeProto, NodeProto},
};

use super::{
    QuantizedModel, Ranges, Source, Weights,
    dynamic::label,
    editor::{Editor, Floats},
    linear::{Kind, Linear},
    numeric::{Channels, activation_scale, quantize_bias, quantize_weights, weight_scales},
    plan::Plan,
};

/// The operator set that introduced `QuantizeLinear`.
const OLDEST: i64 = 10;

/// The operator set that gave it an axis.
const PER_CHANNEL: i64 = 13;

/// A model that reports ranges while it runs.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The file. After the model's own outputs it has one more for each of `tensors`, in order: two 32-bit floats, the
    /// smallest and the largest value of the batch.
    pub model: Bytes,
    /// The name of each range for [`Ranges::observe`].
    pub tensors: Vec<String>,
}

/// Adds outputs to a model that report the ranges for [`quantize_static`].
///
/// # Errors
/// Those of [`quantize_static`].
pub fn calibration_graph<'a>(model: impl Into<Source<'a>>) -> Result<Calibration, Error> {
    let mut editor = Editor::open(model.into(), "static quantisation", OLDEST)?;
    let tensors = Plan::new(&editor)?.calibrated();
    let flat = editor.add("calibration_shape", &[1], &[-1i64]);
    for tensor in &tensors {
        let parts = ["flat", "low", "high", "range"];
        let [values, low, high, range] =
            parts.map(|part| editor.fresh(&format!("{tensor}_{part}")));
        let nodes = [
            NodeProto::new("Reshape", &values, &[tensor, &flat], &[&values]),
            NodeProto::new("ReduceMin", &low, &[&values], &[&low]),
            NodeProto::new("ReduceMax", &high, &[&values], &[&high]),
            NodeProto::new("Concat", &range, &[&low, &high], &[&range])
                .with(AttributeProto::int("axis", 0)),
        ];
        editor.graph.node.extend(nodes);
        editor.add_output(&range, &[Dim::Fixed(2)]);
    }
    Ok(Calibration {
        model: editor.finish(),
        tensors,
    })
}

/// Adds outputs to a model that are the values themselves: after the model's own, one more for each of
/// [`Calibration::tensors`], with its elements in one dimension. For few records at a time, because there are many
/// values.
///
/// # Errors
/// Those of [`quantize_static`].
pub fn activation_graph<'a>(model: impl Into<Source<'a>>) -> Result<Calibration, Error> {
    let mut editor = Editor::open(model.into(), "static quantisation", OLDEST)?;
    let tensors = Plan::new(&editor)?.calibrated();
    let flat = editor.add("calibration_shape", &[1], &[-1i64]);
    for tensor in &tensors {
        let values = editor.fresh(&format!("{tensor}_flat"));
        let node = NodeProto::new("Reshape", &values, &[tensor, &flat], &[&values]);
        editor.graph.node.push(node);
        editor.add_output(&values, &[Dim::Dynamic("elements")]);
    }
    Ok(Calibration {
        model: editor.finish(),
        tensors,
    })
}

/// [`quantize_static_with`] with one scale per output channel.
///
/// # Errors
/// See [`quantize_static_with`].
pub fn quantize_static<'a>(
    model: impl Into<Source<'a>>,
    ranges: &Ranges,
) -> Result<QuantizedModel, Error> {
    quantize_static_with(model, ranges, Weights::default())
}

/// Quantises every `MatMul`, `Gemm` and `Conv` of the main graph whose weights and bias are
/// constant, and the operators between them that have integer kernels. Below operator set 13
/// weights have one scale per tensor.
///
/// # Errors
/// [`Error::NothingToQuantize`] when there is none, [`Error::OpsetTooOld`] below operator set 10,
/// [`Error::MissingRange`] when `ranges` lacks a tensor of [`Calibration::tensors`],
/// [`Error::NotOnnx`] or [`Error::ExternalData`] for files that cannot be read.
pub fn quantize_static_with<'a>(
    model: impl Into<Source<'a>>,
    ranges: &Ranges,
    weights: Weights,
) -> Result<QuantizedModel, Error> {
    let mut editor = Editor::open(model.into(), "static quantisation", OLDEST)?;
    let plan = Plan::new(&editor)?;
    let per_channel = weights.per_channel && editor.opset >= PER_CHANNEL;
    let nodes = std::mem::take(&mut editor.graph.node);
    let mut rewriter = Rewriter {
        weights: Weights {
            per_channel,
            ..weights
        },
        editor,
        plan,
        ranges,
        nodes: Vec::with_capacity(2 * nodes.len()),
        scales: BTreeMap::new(),
        dequantized: BTreeMap::new(),
        constants: BTreeMap::new(),
    };
    let quantized = rewriter
        .plan
        .linear
        .keys()
        .map(|at| label(&nodes[*at]))
        .collect();
    rewriter.rewrite(nodes)?;
    rewriter.editor.graph.node = rewriter.nodes;
    Ok(QuantizedModel {
        model: rewriter.editor.finish(),
        nodes: quantized,
    })
}

/// Scale and zero point of an activation, as numbers and as names of constants.
#[derive(Clone)]
struct Scale {
    value: f32,
    scale: String,
    zero_point: String,
}

struct Rewriter<'r> {
    editor: Editor<'r>,
    plan: Plan,
    ranges: &'r Ranges,
    weights: Weights,
    nodes: Vec<NodeProto>,
    /// By the value whose range gives the scale.
    scales: BTreeMap<String, Scale>,
    /// The rounded copy of each demanded value.
    dequantized: BTreeMap<String, String>,
    /// Dequantised weights by name, factor and scales.
    constants: BTreeMap<(String, u32, Vec<u32>), String>,
}

// === impl Rewriter ===

impl Rewriter<'_> {
    fn rewrite(&mut self, nodes: Vec<NodeProto>) -> Result<(), Error> {
        let inputs: Vec<String> = self
            .editor
            .graph
            .input
            .iter()
            .map(|input| input.name().to_owned())
            .collect();
        self.demanded(&inputs)?;
        for (index, mut node) in nodes.into_iter().enumerate() {
            if self.plan.folded.contains(&index) {
                continue;
            }
            if self.plan.is_integer(index) {
                self.read_rounded(&mut node);
            }
            if let Some(linear) = self.plan.linear.get(&index).cloned() {
                self.linear(&mut node, &linear)?;
            }
            self.push(node)?;
        }
        Ok(())
    }

    /// Replaces a node's inputs by their rounded copies.
    fn read_rounded(&self, node: &mut NodeProto) {
        for input in &mut node.input {
            if let Some(rounded) = self.dequantized.get(input) {
                input.clone_from(rounded);
            }
        }
    }

    /// Writes a node and rounds its outputs.
    fn push(&mut self, mut node: NodeProto) -> Result<(), Error> {
        let mut forced = Vec::new();
        for output in &mut node.output {
            if let Some(renamed) = self.plan.renamed.get(output) {
                output.clone_from(renamed);
            }
            if self.plan.forced.contains(output) {
                let raw = self.editor.fresh(&format!("{output}_raw"));
                forced.push((raw.clone(), std::mem::replace(output, raw)));
            }
        }
        let outputs = node.output.clone();
        self.nodes.push(node);
        for (raw, value) in forced {
            self.round(&raw, &value, &value)?;
        }
        self.demanded(&outputs)
    }

    /// Writes the rounded copies of those of `values` that are demanded.
    fn demanded(&mut self, values: &[String]) -> Result<(), Error> {
        for value in values {
            if self.plan.demanded.contains(value) && !self.dequantized.contains_key(value) {
                let twin = self.editor.fresh(&format!("{value}_dequantized"));
                self.round(value, value, &twin)?;
                self.dequantized.insert(value.clone(), twin);
            }
        }
        Ok(())
    }

    /// Quantises `from` at the scale of `value` and dequantises into `to`.
    fn round(&mut self, from: &str, value: &str, to: &str) -> Result<(), Error> {
        let scale = self.scale(value)?;
        let bytes = self.editor.fresh(&format!("{value}_quantized"));
        let operands = [scale.scale.as_str(), scale.zero_point.as_str()];
        self.write("QuantizeLinear", value, from, operands, &bytes);
        self.write("DequantizeLinear", value, &bytes, operands, to);
        Ok(())
    }

    fn write(&mut self, op_type: &str, stem: &str, from: &str, scale: [&str; 2], to: &str) {
        let name = self.editor.fresh(&format!("{stem}_{op_type}"));
        let inputs = [from, scale[0], scale[1]];
        self.nodes
            .push(NodeProto::new(op_type, &name, &inputs, &[to]));
    }

    fn scale(&mut self, value: &str) -> Result<Scale, Error> {
        let root = self.plan.root(value).to_owned();
        if let Some(known) = self.scales.get(&root) {
            return Ok(known.clone());
        }
        let (mut low, high) = self.ranges.get(&root)?;
        if self.plan.is_rectified(&root) {
            low = 0.0;
        }
        let (value, zero_point) = activation_scale(low, high);
        let scale = Scale {
            value,
            scale: self.editor.add(&format!("{root}_scale"), &[], &[value]),
            zero_point: self
                .editor
                .add(&format!("{root}_zero_point"), &[], &[zero_point]),
        };
        self.scales.insert(root, scale.clone());
        Ok(scale)
    }

    /// Gives an operator with weights its quantised constants.
    fn linear(&mut self, node: &mut NodeProto, linear: &Linear) -> Result<(), Error> {
        let input = self.scale(&linear.input)?.value;
        let Some(weights) = linear.weights(&self.editor) else {
            return Ok(());
        };
        let bias = linear.bias(&self.editor);
        let axis = linear.channel_axis(weights.dims.len());
        let axis = axis.filter(|_| self.weights.per_channel);
        let channels = Channels::new(&weights.dims, axis);
        let mut scales = weight_scales(&weights.values, channels, self.weights);
        if let Some(bias) = &bias {
            widen_for_bias(&mut scales, &bias.values, input);
        }
        node.input[1] = self.constant(linear, &weights, axis, &scales);
        if let Some(bias) = bias {
            let scales: Vec<f32> = scales.iter().map(|scale| scale * input).collect();
            node.input[2] = self.bias(linear, &bias, axis.is_some(), &scales);
        }
        if matches!(linear.kind, Kind::Gemm { .. }) {
            node.attribute
                .retain(|it| !matches!(it.name(), "alpha" | "beta"));
        }
        Ok(())
    }

    fn constant(
        &mut self,
        linear: &Linear,
        weights: &Floats,
        axis: Option<usize>,
        scales: &[f32],
    ) -> String {
        let bits = scales.iter().map(|scale| scale.to_bits()).collect();
        let key = (linear.weight.clone(), linear.alpha.to_bits(), bits);
        if let Some(known) = self.constants.get(&key) {
            return known.clone();
        }
        let channels = Channels::new(&weights.dims, axis);
        let bytes = quantize_weights(&weights.values, channels, scales);
        let stem = linear.weight.as_str();
        let bytes = self
            .editor
            .add(&format!("{stem}_quantized"), &weights.dims, &bytes);
        let name = self.dequantize(stem, &bytes, axis, (scales, &vec![0i8; scales.len()]));
        self.constants.insert(key, name.clone());
        name
    }

    fn bias(&mut self, linear: &Linear, bias: &Floats, rows: bool, scales: &[f32]) -> String {
        let stem = linear.bias.as_deref().unwrap_or("bias");
        let integers = quantize_bias(&bias.values, scales);
        let name = format!("{stem}_quantized");
        let integers = self.editor.add(&name, &[bias.values.len()], &integers);
        let axis = rows.then_some(0);
        self.dequantize(stem, &integers, axis, (scales, &vec![0i32; scales.len()]))
    }

    /// Dequantises a constant and returns the name of the result.
    fn dequantize<T: sextant_types::tensor::Element>(
        &mut self,
        stem: &str,
        from: &str,
        axis: Option<usize>,
        (scales, zero_points): (&[f32], &[T]),
    ) -> String {
        let dims: &[usize] = if axis.is_some() { &[scales.len()] } else { &[] };
        let scale = self.editor.add(&format!("{stem}_scale"), dims, scales);
        let zero_point = self
            .editor
            .add(&format!("{stem}_zero_point"), dims, zero_points);
        let to = self.editor.fresh(&format!("{stem}_dequantized"));
        self.write("DequantizeLinear", stem, from, [&scale, &zero_point], &to);
        if let (Some(axis), Some(node)) = (axis, self.nodes.last_mut()) {
            node.attribute
                .push(AttributeProto::int("axis", axis as i64));
        }
        to
    }
}

/// Increases weight scales if the bias would not fit 32 bits at the product of both scales.
fn widen_for_bias(scales: &mut [f32], bias: &[f32], input: f32) {
    let slots = scales.len().max(1);
    for (index, value) in bias.iter().enumerate() {
        let smallest = f64::from(value.abs()) / f64::from(i32::MAX) / f64::from(input) * 1.0001;
        if let Some(scale) = scales.get_mut(index % slots) {
            *scale = scale.max(smallest as f32);
        }
    }
}
