//! One operator call, and the readers of its attributes.

use sextant_engine::Error;
use sextant_onnx::proto::AttributeProto;
use sextant_types::DataType;

use super::context::Value;
use crate::operation::Activation;

/// Largest kernel, stride, dilation, padding or block.
const MAX_SIZE: u64 = 1 << 20;

/// A node of the graph, after fusion.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub op_type: String,
    /// Names of the inputs; empty where an optional input is absent.
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub attributes: Vec<AttributeProto>,
    /// The activation merged from a following node.
    pub activation: Activation,
}

/// A node with the values of its inputs.
pub(crate) struct Call<'a> {
    pub node: &'a Node,
    pub inputs: Vec<Option<Value>>,
    /// Version of the standard operator set.
    pub opset: i64,
}

// === impl Node ===

impl Node {
    /// The error of a node that cannot run here.
    pub fn unsupported(&self, reason: &str) -> Error {
        let Self { op_type, name, .. } = self;
        Error::Unsupported(format!("operator `{op_type}` (node `{name}`): {reason}"))
    }

    /// The error of a node that is wrong.
    pub fn invalid(&self, reason: &str) -> Error {
        let Self { op_type, name, .. } = self;
        Error::InvalidModel(format!("operator `{op_type}` (node `{name}`): {reason}"))
    }

    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|it| it.name() == name)
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).and_then(|it| it.i).unwrap_or(default)
    }

    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).and_then(|it| it.f).unwrap_or(default)
    }

    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|it| it.ints.as_slice())
    }

    /// A text; empty where absent.
    pub fn text(&self, name: &str) -> &str {
        let text = self.attribute(name).and_then(|it| it.s.as_ref());
        text.and_then(|it| std::str::from_utf8(it).ok())
            .unwrap_or_default()
    }

    /// A non-negative number with which arithmetic on sizes cannot overflow.
    pub fn size(&self, name: &str, value: i64) -> Result<u64, Error> {
        let size = u64::try_from(value).ok().filter(|size| *size <= MAX_SIZE);
        size.ok_or_else(|| self.unsupported(&format!("`{name}` of {value}")))
    }

    /// Two non-negative numbers; the first is `leading` if only one is given.
    pub fn pair(&self, name: &str, leading: u64, default: u64) -> Result<[u64; 2], Error> {
        let values: Vec<u64> = match self.ints(name) {
            None => return Ok([default; 2]),
            Some(values) => values
                .iter()
                .map(|value| self.size(name, *value))
                .collect::<Result<_, _>>()?,
        };
        match values[..] {
            [second] => Ok([leading, second]),
            [first, second] => Ok([first, second]),
            _ => Err(self.unsupported(&format!("`{name}` has {} dimensions", values.len()))),
        }
    }
}

// === impl Call ===

impl Call<'_> {
    pub fn unsupported(&self, reason: &str) -> Error {
        self.node.unsupported(reason)
    }

    pub fn invalid(&self, reason: &str) -> Error {
        self.node.invalid(reason)
    }

    /// An input that must be there.
    pub fn input(&self, index: usize) -> Result<&Value, Error> {
        self.optional(index)
            .ok_or_else(|| self.invalid(&format!("input {index} is missing")))
    }

    pub fn optional(&self, index: usize) -> Option<&Value> {
        self.inputs.get(index)?.as_ref()
    }

    /// Integers that must be known before a batch comes; `None` where the input is absent.
    pub fn integers(&self, index: usize) -> Result<Option<Vec<i64>>, Error> {
        let Some(value) = self.optional(index) else {
            return Ok(None);
        };
        let Value::Constant(constant) = value else {
            let reason = format!("its input {index} depends on the data of a batch");
            return Err(self.unsupported(&reason));
        };
        let integers = constant.tensor.to_integers();
        let wrong = || self.invalid(&format!("input {index} is not of integers"));
        integers.map(Some).ok_or_else(wrong)
    }

    /// A number that must be known before a batch comes; `None` where the input is absent.
    pub fn number(&self, index: usize) -> Result<Option<f64>, Error> {
        match self.optional(index) {
            None => Ok(None),
            Some(Value::Constant(constant)) => match constant.tensor.scalar() {
                Some(number) => Ok(Some(number)),
                None => Err(self.unsupported(&format!("its input {index} is not a single number"))),
            },
            Some(Value::Device(_)) => {
                let reason = format!("its input {index} depends on the data of a batch");
                Err(self.unsupported(&reason))
            }
        }
    }

    /// Axes from the attribute `axes`, or, in later operator sets, from an input.
    pub fn axes(&self, index: usize) -> Result<Option<Vec<i64>>, Error> {
        match self.node.ints("axes") {
            Some(axes) => Ok(Some(axes.to_vec())),
            None => self.integers(index),
        }
    }

    /// An axis counted from the front.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, Error> {
        let from_front = if axis < 0 { axis + rank as i64 } else { axis };
        usize::try_from(from_front)
            .ok()
            .filter(|axis| *axis < rank)
            .ok_or_else(|| self.invalid(&format!("axis {axis} of a tensor of rank {rank}")))
    }

    /// Fails unless the values are floats.
    pub fn floats(&self, data_type: DataType) -> Result<(), Error> {
        match data_type {
            DataType::Fp32 | DataType::Fp16 | DataType::Bf16 => Ok(()),
            other => Err(self.unsupported(&format!("of {other}"))),
        }
    }
}
