//! Lowers an ONNX graph to operations with static parameters, for one set of input shapes.
//!
//! Entry points: [`Graph::read`], called once for a file; [`lower`], called once for each set of shapes.
//!
//! With the input shapes known, every shape in the graph is known. Lowering folds on the host what the graph computes
//! from shapes. Operators that only change a shape become another view of the same bytes, and the other operators
//! become [`Operation`]s. Their addresses are symbolic: the number of a buffer and an offset into it ([`Buffer`]).
//! [`crate::plan`] places the buffers.
//!
//! Half precisions change how floats are stored ([`Target::element`]), not what is computed.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sextant_engine::Error;
use sextant_types::{DataType, Precision};

use crate::driver::Abilities;
use crate::operation::{Address, Arithmetic, Element, Operation, Symbolic};

mod additions;
mod attention;
mod constant;
mod context;
mod convolution;
mod copies;
mod elementwise;
mod fold;
mod fuse;
mod graph;
mod layout;
mod linear;
mod moves;
mod node;
mod normalize;
mod operators;
mod pairs;
mod pool;
mod product;
mod reduce;
mod select;
mod shape;
mod strided;
mod uses;

pub(crate) use constant::HostTensor;
pub use graph::Graph;
pub use operators::OPERATORS;

use constant::Constant;
use context::Lowering;
use node::Call;

/// The device and the precision for which a graph is lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// How the 32-bit floats of the graph are stored.
    pub float: Element,
    /// How their products are computed.
    pub arithmetic: Arithmetic,
    /// Whether there is a library for convolutions.
    pub convolution: bool,
    /// Whether there are kernels for attention.
    pub attention: bool,
    /// Largest piece that a weight may be stored in, bytes.
    pub page_bytes: u64,
}

/// A range of bytes on the device that has no address yet. The symbolic address of byte `offset` of buffer `index` is
/// `index << OFFSET_BITS | offset`.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    /// Size.
    pub bytes: u64,
    /// What it holds.
    pub content: Content,
}

/// What a buffer holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Everything that comes to the device with a batch: its inputs, and constants that depend on shapes.
    Inputs,
    /// The output of operations.
    Activation,
    /// A weight, by its position in the [`Weights`].
    Weight(usize),
}

/// Bits of a symbolic address that hold the offset into the buffer.
pub const OFFSET_BITS: u32 = 40;

/// Alignment of every buffer, input and constant, bytes.
pub const ALIGNMENT: u64 = 256;

/// A tensor that the caller passes in or gets back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Symbolic address.
    pub address: Address<Symbolic>,
    /// The type that the caller uses.
    pub data_type: DataType,
    /// Shape.
    pub dims: Vec<u64>,
}

/// A lowered graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The buffers; the first is [`Content::Inputs`].
    pub buffers: Vec<Buffer>,
    /// The operations in the order in which they run.
    pub operations: Vec<Operation<Symbolic>>,
    /// The inputs in the signature's order.
    pub inputs: Vec<Port>,
    /// The constants in the first buffer, by offset.
    pub constants: Vec<(u64, Bytes)>,
    /// The outputs in the signature's order.
    pub outputs: Vec<Port>,
}

/// The weights that the programs of one artefact use. A key says what a weight was made of and how, so programs for
/// other shapes find it again.
#[derive(Debug, Default)]
pub struct Weights {
    keys: BTreeMap<String, usize>,
    contents: Vec<Bytes>,
    /// Weights that may be single numbers. They remain when the contents are dropped.
    numbers: BTreeMap<usize, Bytes>,
    frozen: bool,
}

/// Size of the largest element.
const MAX_NUMBER_BYTES: usize = 8;

/// Lowers a graph for input shapes in the order of its inputs.
///
/// # Errors
/// [`Error::Unsupported`] naming operator and node; [`Error::InvalidModel`] where the graph
/// contradicts itself or the shapes.
pub fn lower(
    graph: &Graph,
    shapes: &[Vec<u64>],
    target: &Target,
    weights: &mut Weights,
) -> Result<Draft, Error> {
    let mut lowering = Lowering::new(*target, Some(&mut *weights));
    for ((name, data_type), dims) in graph.inputs.iter().zip(shapes) {
        lowering.input(name, *data_type, dims)?;
    }
    for (name, tensor) in &graph.constants {
        let constant = Constant::fixed(name, Arc::clone(tensor));
        lowering.bind(name, constant.into());
    }
    for node in &graph.nodes {
        run(&mut lowering, node, graph.opset)?;
    }
    for (name, data_type) in &graph.outputs {
        lowering.output(name, *data_type)?;
    }
    let mut draft = lowering.finish();
    attention::fuse(&mut draft, target, weights);
    copies::merge(&mut draft);
    additions::merge(&mut draft);
    Ok(draft)
}

fn run(lowering: &mut Lowering<'_>, node: &node::Node, opset: i64) -> Result<(), Error> {
    let operator = operators::find(&node.op_type).ok_or_else(|| node.unsupported("no kernel"))?;
    let inputs = node
        .inputs
        .iter()
        .map(|name| match name.as_str() {
            "" => Ok(None),
            name => match lowering.value(name) {
                Some(value) => Ok(Some(value)),
                None => Err(node.invalid(&format!("nothing gives its input `{name}`"))),
            },
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let call = Call {
        node,
        inputs,
        opset,
    };
    let outputs = fold::run_or_fold(lowering, &call, operator)?;
    for (name, value) in node.outputs.iter().zip(outputs) {
        if !name.is_empty() {
            lowering.bind(name, value);
        }
    }
    Ok(())
}

// === impl Target ===

impl Target {
    /// The element in which values of an ONNX type are stored; `None` where the device has no such type.
    pub fn element(&self, data_type: DataType) -> Option<Element> {
        Some(match data_type {
            DataType::Fp32 => self.float,
            DataType::Fp16 => Element::F16,
            DataType::Bf16 => Element::Bf16,
            DataType::Int64 => Element::I64,
            DataType::Int32 => Element::I32,
            DataType::Int8 => Element::I8,
            DataType::Uint8 => Element::U8,
            DataType::Bool => Element::Bool,
            _ => return None,
        })
    }

    /// The target of a precision; `None` for 8-bit precisions.
    pub fn new(precision: Precision, abilities: Abilities, page_bytes: u64) -> Option<Self> {
        let (float, arithmetic) = match precision {
            Precision::Fp32 => (Element::F32, Arithmetic::Full),
            Precision::Tf32 => (Element::F32, Arithmetic::Tf32),
            Precision::Fp16 => (Element::F16, Arithmetic::Full),
            Precision::Bf16 => (Element::Bf16, Arithmetic::Full),
            Precision::Int8Dynamic
            | Precision::Int8Static
            | Precision::Int8Weights
            | Precision::Int4Weights => return None,
        };
        Some(Self {
            float,
            arithmetic,
            convolution: abilities.convolution,
            attention: abilities.attention,
            page_bytes,
        })
    }
}

// === impl Weights ===

impl Weights {
    /// Allows no more weights. Programs that need other constants bring them with each batch.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// The contents of the weights as they lie on the device.
    pub fn contents(&self) -> &[Bytes] {
        &self.contents
    }

    /// Bytes of all weights.
    pub fn bytes(&self) -> u64 {
        self.contents.iter().map(|it| it.len() as u64).sum()
    }

    /// Drops the contents, for callers that need only the places.
    pub fn drop_contents(&mut self) {
        self.contents.clear();
    }

    /// The bytes of a weight that may be a single number.
    fn number(&self, index: usize) -> Option<&Bytes> {
        self.numbers.get(&index)
    }

    /// The place of a weight. A new weight gets its bytes from `make`. `None` if the weight is new and no more weights
    /// are allowed.
    fn place(&mut self, key: &str, make: impl FnOnce() -> Bytes) -> Option<usize> {
        if let Some(index) = self.keys.get(key) {
            return Some(*index);
        }
        if self.frozen {
            return None;
        }
        let index = self.contents.len();
        self.keys.insert(key.to_owned(), index);
        let content = make();
        if content.len() <= MAX_NUMBER_BYTES {
            self.numbers.insert(index, content.clone());
        }
        self.contents.push(content);
        Some(index)
    }
}
