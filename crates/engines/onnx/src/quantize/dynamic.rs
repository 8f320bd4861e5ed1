//! Dynamic quantisation: `DynamicQuantizeLinear` before integer kernels.
//!
//! `y = x W + b` becomes `Cast(MatMulInteger(q, W8)) * (scale(x) * scale(W)) + b`, in exactly the order of operations
//! that ONNX Runtime and rten recognise and run as one kernel. `Gemm` becomes the same after its weights are
//! transposed. One `DynamicQuantizeLinear` serves all consumers of an activation. The zero points of weights are a
//! single zero: engines accept nothing else for `ConvInteger`.

use std::collections::BTreeMap;

use sextant_types::DataType;

use crate::{
    Error,
    proto::{AttributeProto, NodeProto},
    tensor::onnx_type,
};

use super::{
    QuantizedModel, Source, Weights,
    editor::{Editor, Floats},
    linear::{Kind, Linear},
    numeric::{Channels, quantize_weights, weight_scales},
};

/// The operator set that introduced `DynamicQuantizeLinear`.
const OLDEST: i64 = 11;

/// Options of the quantisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dynamic {
    /// How weights become bytes.
    pub weights: Weights,
    /// Whether `Conv` is quantised as well. Off by default: ONNX Runtime has no fast `ConvInteger` (seven to ten times
    /// slower than its 32-bit float convolution), and that of rten 0.27 gives wrong sums on AVX-512. Static
    /// quantisation is the way for convolutional nets.
    pub convolutions: bool,
}

/// [`quantize_dynamic_with`] with one scale per output channel, convolutions left as they are.
///
/// # Errors
/// See [`quantize_dynamic_with`].
pub fn quantize_dynamic<'a>(model: impl Into<Source<'a>>) -> Result<QuantizedModel, Error> {
    quantize_dynamic_with(model, Dynamic::default())
}

/// Quantises every `MatMul` and `Gemm`, and on request every `Conv`, of the main graph whose weights
/// and bias are constant.
///
/// # Errors
/// [`Error::NothingToQuantize`] when there is none, [`Error::OpsetTooOld`] below operator set 11,
/// [`Error::NotOnnx`] or [`Error::ExternalData`] for files that cannot be read.
pub fn quantize_dynamic_with<'a>(
    model: impl Into<Source<'a>>,
    options: Dynamic,
) -> Result<QuantizedModel, Error> {
    let mut rewriter = Rewriter {
        editor: Editor::open(model.into(), "dynamic quantisation", OLDEST)?,
        weights: options.weights,
        nodes: Vec::new(),
        activations: BTreeMap::new(),
        constants: BTreeMap::new(),
    };
    let mut quantized = Vec::new();
    for node in std::mem::take(&mut rewriter.editor.graph.node) {
        let linear = Linear::read(&node, &rewriter.editor);
        match linear.filter(|it| options.convolutions || it.kind != Kind::Conv) {
            Some(linear) if rewriter.rewrite(&node, &linear).is_some() => {
                quantized.push(label(&node));
            }
            _ => rewriter.nodes.push(node),
        }
    }
    if quantized.is_empty() {
        return Err(Error::NothingToQuantize);
    }
    rewriter.editor.graph.node = rewriter.nodes;
    Ok(QuantizedModel {
        model: rewriter.editor.finish(),
        nodes: quantized,
    })
}

/// The name of a node in reports.
pub(super) fn label(node: &NodeProto) -> String {
    let first = || node.output.first().cloned().unwrap_or_default();
    Some(node.name().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(first)
}

/// Names of a quantised activation.
#[derive(Clone)]
struct Activation {
    quantized: String,
    scale: String,
    zero_point: String,
}

/// Names of quantised weights.
#[derive(Clone)]
struct Constant {
    quantized: String,
    scale: String,
    zero_point: String,
}

struct Rewriter<'a> {
    editor: Editor<'a>,
    weights: Weights,
    nodes: Vec<NodeProto>,
    activations: BTreeMap<String, Activation>,
    constants: BTreeMap<(String, u8, u32), Constant>,
}

// === impl Rewriter<'_> ===

impl Rewriter<'_> {
    /// Writes the integer form of `node`; `None`, with nothing written, if there is none.
    fn rewrite(&mut self, node: &NodeProto, linear: &Linear) -> Option<()> {
        let bias = self.bias(linear)?;
        let weights = self.constant(linear)?;
        let activation = self.activation(&linear.input);
        let (op_type, attributes) = match linear.kind {
            Kind::Conv => ("ConvInteger", self.convolution(node, linear)),
            Kind::MatMul | Kind::Gemm { .. } => ("MatMulInteger", Vec::new()),
        };
        let output = linear.output.as_str();
        let sum = self.editor.fresh(&format!("{output}_integer"));
        let (quantized, zero_point) = (&activation.quantized, &activation.zero_point);
        let inputs = [
            quantized,
            &weights.quantized,
            zero_point,
            &weights.zero_point,
        ];
        let mut integer = self.node(op_type, &label(node), &inputs.map(String::as_str), &sum);
        integer.attribute = attributes;
        self.nodes.push(integer);
        let cast = self.editor.fresh(&format!("{output}_float"));
        let to = AttributeProto::int("to", i64::from(onnx_type(DataType::Fp32)));
        let node = self.node("Cast", output, &[&sum], &cast).with(to);
        self.nodes.push(node);
        let scale = self.editor.fresh(&format!("{output}_scale"));
        let node = self.node("Mul", output, &[&activation.scale, &weights.scale], &scale);
        self.nodes.push(node);
        self.scale_and_add(output, [&cast, &scale], bias.as_deref());
        Some(())
    }

    /// Attributes of a convolution, with the kernel's shape: rten requires it.
    fn convolution(&self, node: &NodeProto, linear: &Linear) -> Vec<AttributeProto> {
        let mut attributes = node.attribute.clone();
        if node.attribute("kernel_shape").is_none() {
            let dims = self.editor.dims(&linear.weight).unwrap_or_default();
            attributes.extend(
                dims.get(2..)
                    .map(|it| AttributeProto::ints("kernel_shape", it)),
            );
        }
        attributes
    }

    fn scale_and_add(&mut self, output: &str, product: [&str; 2], bias: Option<&str>) {
        let Some(bias) = bias else {
            let node = self.node("Mul", output, &product, output);
            return self.nodes.push(node);
        };
        let scaled = self.editor.fresh(&format!("{output}_scaled"));
        let node = self.node("Mul", output, &product, &scaled);
        self.nodes.push(node);
        let node = self.node("Add", output, &[&scaled, bias], output);
        self.nodes.push(node);
    }

    fn node(&mut self, op_type: &str, stem: &str, inputs: &[&str], output: &str) -> NodeProto {
        let name = self.editor.fresh(&format!("{stem}_{op_type}"));
        NodeProto::new(op_type, &name, inputs, &[output])
    }

    fn activation(&mut self, input: &str) -> Activation {
        if let Some(known) = self.activations.get(input) {
            return known.clone();
        }
        let [quantized, scale, zero_point] = ["quantized", "scale", "zero_point"]
            .map(|part| self.editor.fresh(&format!("{input}_{part}")));
        let mut node = self.node("DynamicQuantizeLinear", input, &[input], &quantized);
        node.output.extend([scale.clone(), zero_point.clone()]);
        self.nodes.push(node);
        let activation = Activation {
            quantized,
            scale,
            zero_point,
        };
        self.activations
            .insert(input.to_owned(), activation.clone());
        activation
    }

    /// The constant to add after scaling: `None` if its shape cannot be made to broadcast, `Some(None)` if there is
    /// none.
    fn bias(&mut self, linear: &Linear) -> Option<Option<String>> {
        let Some(name) = &linear.bias else {
            return Some(None);
        };
        if linear.kind != Kind::Conv && linear.beta == 1.0 {
            return Some(Some(name.clone()));
        }
        let bias = linear.bias(&self.editor)?;
        let mut dims = bias.dims.clone();
        if linear.kind == Kind::Conv {
            let rank = self.editor.dims(&linear.weight)?.len();
            dims = vec![1; rank];
            dims[1] = bias.values.len();
        }
        let stem = format!("{name}_broadcast");
        Some(Some(self.editor.add(&stem, &dims, &bias.values)))
    }

    fn constant(&mut self, linear: &Linear) -> Option<Constant> {
        let key = (
            linear.weight.clone(),
            layout(linear.kind),
            linear.alpha.to_bits(),
        );
        if let Some(known) = self.constants.get(&key) {
            return Some(known.clone());
        }
        let floats = linear.weights(&self.editor)?;
        let floats = match linear.kind {
            Kind::Gemm { transposed: true } => transpose(&floats)?,
            _ => floats,
        };
        let constant = self.add_constant(linear, &floats);
        self.constants.insert(key, constant.clone());
        Some(constant)
    }

    fn add_constant(&mut self, linear: &Linear, floats: &Floats) -> Constant {
        let rank = floats.dims.len();
        let axis = match linear.kind {
            Kind::Conv => Some(0),
            Kind::MatMul | Kind::Gemm { .. } => (rank == 2).then_some(1),
        };
        let axis = axis.filter(|_| self.weights.per_channel);
        let channels = Channels::new(&floats.dims, axis);
        let scales = weight_scales(&floats.values, channels, self.weights);
        let bytes = quantize_weights(&floats.values, channels, &scales);
        let dims = match (axis, linear.kind) {
            (None, _) => Vec::new(),
            (Some(_), Kind::Conv) => {
                let mut dims = vec![1; rank];
                dims[1] = scales.len();
                dims
            }
            (Some(_), _) => vec![scales.len()],
        };
        let stem = linear.weight.as_str();
        Constant {
            quantized: self
                .editor
                .add(&format!("{stem}_quantized"), &floats.dims, &bytes),
            scale: self.editor.add(&format!("{stem}_scale"), &dims, &scales),
            zero_point: self.editor.add(&format!("{stem}_zero_point"), &[], &[0i8]),
        }
    }
}

fn layout(kind: Kind) -> u8 {
    match kind {
        Kind::MatMul | Kind::Gemm { transposed: false } => 0,
        Kind::Gemm { transposed: true } => 1,
        Kind::Conv => 2,
    }
}

fn transpose(floats: &Floats) -> Option<Floats> {
    let [rows, columns] = *floats.dims.as_slice() else {
        return None;
    };
    let at = |index: usize| floats.values[index % rows * columns + index / rows];
    Some(Floats {
        dims: vec![columns, rows],
        values: (0..floats.values.len()).map(at).collect(),
    })
}
