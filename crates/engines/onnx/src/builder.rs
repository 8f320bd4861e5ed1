//! Writes small models: for tests, examples and performance work.
//!
//! [`ModelBuilder`] adds nodes one by one; the functions at the end make whole models with seeded
//! random weights, the same bytes for the same arguments on every machine.

use bytes::Bytes;
use sextant_types::{DataType, tensor::Element};

use crate::{
    encode,
    proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
        ValueInfoProto,
    },
};

pub use crate::make::Dim;

/// Operator set of built models unless another is asked for.
pub const OPSET: i64 = 17;

/// Version of the file format of built models.
pub const IR_VERSION: i64 = 8;

/// The leading batch dimension of the whole models below.
pub const BATCH: Dim = Dim::Dynamic("batch");

/// Builds a model node by node.
#[derive(Debug, Clone)]
pub struct ModelBuilder {
    graph: GraphProto,
    opset: i64,
    random: SplitMix64,
}

// === impl ModelBuilder ===

impl ModelBuilder {
    /// An empty graph. `seed` drives [`Self::random`].
    pub fn new(name: &str, seed: u64) -> Self {
        let graph = GraphProto {
            name: Some(name.to_owned()),
            ..GraphProto::default()
        };
        Self {
            graph,
            opset: OPSET,
            random: SplitMix64(seed),
        }
    }

    /// Uses another version of the standard operator set.
    pub fn opset(&mut self, version: i64) -> &mut Self {
        self.opset = version;
        self
    }

    /// Declares an input.
    pub fn input(&mut self, name: &str, data_type: DataType, dims: &[Dim]) -> &mut Self {
        let value = ValueInfoProto::tensor(name, data_type, dims);
        self.graph.input.push(value);
        self
    }

    /// Declares an output.
    pub fn output(&mut self, name: &str, data_type: DataType, dims: &[Dim]) -> &mut Self {
        let value = ValueInfoProto::tensor(name, data_type, dims);
        self.graph.output.push(value);
        self
    }

    /// Adds a constant. The product of `dims` must be the number of values.
    pub fn constant<T: Element>(&mut self, name: &str, dims: &[usize], values: &[T]) -> &mut Self {
        let tensor = TensorProto::from_elements(name, dims, values);
        self.graph.initializer.push(tensor);
        self
    }

    /// Adds a constant of 32-bit floats, uniform in `-bound..bound`.
    pub fn random(&mut self, name: &str, dims: &[usize], bound: f32) -> &mut Self {
        let count = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|_| bound * self.random.signed()).collect();
        self.constant(name, dims, &values)
    }

    /// Adds a node of the standard operator set, named after its first output.
    pub fn node(&mut self, op_type: &str, inputs: &[&str], outputs: &[&str]) -> &mut Self {
        self.node_with(op_type, inputs, outputs, Vec::new())
    }

    /// Adds a node with attributes.
    pub fn node_with(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> &mut Self {
        let name = format!("{}_node", outputs.first().copied().unwrap_or(op_type));
        let mut node = NodeProto::new(op_type, &name, inputs, outputs);
        node.attribute = attributes;
        self.graph.node.push(node);
        self
    }

    /// The model so far.
    pub fn model(&self) -> ModelProto {
        ModelProto {
            ir_version: Some(IR_VERSION),
            producer_name: Some("sextant".to_owned()),
            opset_import: vec![OperatorSetIdProto {
                domain: Some(String::new()),
                version: Some(self.opset),
            }],
            graph: Some(self.graph.clone()),
            ..ModelProto::default()
        }
    }

    /// The model so far as a file.
    pub fn build(&self) -> Bytes {
        encode(&self.model())
    }
}

/// A multi-layer perceptron: input `input` `[batch, sizes[0]]`, fully connected layers (`Gemm`) of
/// the given sizes with `Relu` between, output `output` `[batch, sizes[last]]`.
pub fn mlp(sizes: &[usize], seed: u64) -> Bytes {
    let mut builder = ModelBuilder::new("mlp", seed);
    let (first, last) = (edge(sizes.first()), edge(sizes.last()));
    builder.input("input", DataType::Fp32, &[BATCH, Dim::Fixed(first)]);
    builder.output("output", DataType::Fp32, &[BATCH, Dim::Fixed(last)]);
    let layers = sizes.len().saturating_sub(1);
    let mut previous = "input".to_owned();
    for (index, pair) in sizes.windows(2).enumerate() {
        let (weight, bias) = (format!("w{index}"), format!("b{index}"));
        builder.random(&weight, &[pair[1], pair[0]], bound(pair[0]));
        builder.random(&bias, &[pair[1]], bound(pair[0]));
        let is_last = index + 1 == layers;
        let linear = if is_last {
            "output".to_owned()
        } else {
            format!("linear{index}")
        };
        let transposed = vec![AttributeProto::int("transB", 1)];
        builder.node_with("Gemm", &[&previous, &weight, &bias], &[&linear], transposed);
        previous = linear;
        if !is_last {
            let relu = format!("relu{index}");
            builder.node("Relu", &[&previous], &[&relu]);
            previous = relu;
        }
    }
    builder.build()
}

/// A small convolutional net with a residual block for `[batch, 1, 8, 8]` images (`image`) and
/// `classes` outputs (`logits`).
pub fn conv_net(channels: usize, classes: usize, seed: u64) -> Bytes {
    let mut builder = ModelBuilder::new("conv_net", seed);
    let dims = [BATCH, Dim::Fixed(1), Dim::Fixed(8), Dim::Fixed(8)];
    builder.input("image", DataType::Fp32, &dims);
    builder.output(
        "logits",
        DataType::Fp32,
        &[BATCH, Dim::Fixed(classes as u64)],
    );
    convolution(&mut builder, "conv0", "image", [channels, 1]);
    builder.node("Relu", &["conv0"], &["relu0"]);
    let pool = vec![
        AttributeProto::ints("kernel_shape", &[2, 2]),
        AttributeProto::ints("strides", &[2, 2]),
    ];
    builder.node_with("MaxPool", &["relu0"], &["pool0"], pool);
    convolution(&mut builder, "conv1", "pool0", [channels, channels]);
    builder.node("Relu", &["conv1"], &["relu1"]);
    convolution(&mut builder, "conv2", "relu1", [channels, channels]);
    builder.node("Add", &["conv2", "pool0"], &["residual"]);
    builder.node("Relu", &["residual"], &["relu2"]);
    builder.node("GlobalAveragePool", &["relu2"], &["gap"]);
    builder.node("Flatten", &["gap"], &["features"]);
    builder.random("fc_w", &[channels, classes], bound(channels));
    builder.random("fc_b", &[classes], bound(channels));
    builder.node("Gemm", &["features", "fc_w", "fc_b"], &["logits"]);
    builder.build()
}

/// Hands `input` through as `output`.
pub fn identity(data_type: DataType, dims: &[Dim]) -> Bytes {
    let mut builder = ModelBuilder::new("identity", 0);
    builder.input("input", data_type, dims);
    builder.output("output", data_type, dims);
    builder.node("Identity", &["input"], &["output"]);
    builder.build()
}

/// A 3x3 convolution that keeps the image's size; `channels` are those out and in.
fn convolution(builder: &mut ModelBuilder, output: &str, input: &str, channels: [usize; 2]) {
    let (weight, bias) = (format!("{output}_w"), format!("{output}_b"));
    let fan_in = channels[1] * 9;
    builder.random(&weight, &[channels[0], channels[1], 3, 3], bound(fan_in));
    builder.random(&bias, &[channels[0]], bound(fan_in));
    let attributes = vec![
        AttributeProto::ints("kernel_shape", &[3, 3]),
        AttributeProto::ints("pads", &[1, 1, 1, 1]),
    ];
    builder.node_with("Conv", &[input, &weight, &bias], &[output], attributes);
}

/// Keeps the variance of a `Relu` network's activations from layer to layer.
fn bound(fan_in: usize) -> f32 {
    (6.0 / fan_in.max(1) as f32).sqrt()
}

fn edge(size: Option<&usize>) -> u64 {
    size.map_or(0, |size| *size as u64)
}

/// The splitmix64 generator: enough for weights, the same everywhere.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in -1..1, in steps of 2^-23.
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
