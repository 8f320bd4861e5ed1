//! Short ways to write messages, shared by the builder and the rewriters.

use bytes::Bytes;
use sextant_types::DataType;

use crate::{
    proto::{
        AttributeProto, Dimension, NodeProto, TensorProto, TensorShapeProto, TypeProto,
        ValueInfoProto, attribute_type, dimension, type_proto,
    },
    tensor::onnx_type,
};

/// A dimension of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// A size.
    Fixed(u64),
    /// A symbol.
    Dynamic(&'static str),
}

impl NodeProto {
    /// A node of the standard operator set.
    pub fn new(op_type: &str, name: &str, inputs: &[&str], outputs: &[&str]) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            op_type: Some(op_type.to_owned()),
            name: Some(name.to_owned()),
            input: owned(inputs),
            output: owned(outputs),
            ..Self::default()
        }
    }

    /// The same node with one more attribute.
    pub fn with(mut self, attribute: AttributeProto) -> Self {
        self.attribute.push(attribute);
        self
    }

    /// Whether this is `op_type` of the standard operator set.
    pub fn is(&self, op_type: &str) -> bool {
        self.op_type() == op_type && matches!(self.domain(), "" | "ai.onnx")
    }

    /// An attribute by name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attribute.iter().find(|it| it.name() == name)
    }
}

impl AttributeProto {
    fn named(name: &str, kind: i32) -> Self {
        Self {
            name: Some(name.to_owned()),
            r#type: Some(kind),
            ..Self::default()
        }
    }

    /// An integer.
    pub fn int(name: &str, value: i64) -> Self {
        Self {
            i: Some(value),
            ..Self::named(name, attribute_type::INT)
        }
    }

    /// A list of integers.
    pub fn ints(name: &str, values: &[i64]) -> Self {
        Self {
            ints: values.to_vec(),
            ..Self::named(name, attribute_type::INTS)
        }
    }

    /// A float.
    pub fn float(name: &str, value: f32) -> Self {
        Self {
            f: Some(value),
            ..Self::named(name, attribute_type::FLOAT)
        }
    }

    /// A text.
    pub fn string(name: &str, value: &'static str) -> Self {
        Self {
            s: Some(Bytes::from_static(value.as_bytes())),
            ..Self::named(name, attribute_type::STRING)
        }
    }

    /// A tensor.
    pub fn tensor(name: &str, value: TensorProto) -> Self {
        Self {
            t: Some(Box::new(value)),
            ..Self::named(name, attribute_type::TENSOR)
        }
    }
}

impl ValueInfoProto {
    /// A dense tensor of known rank.
    pub fn tensor(name: &str, data_type: DataType, dims: &[Dim]) -> Self {
        let dim = dims.iter().map(|dim| Dimension::from(*dim)).collect();
        let tensor = type_proto::Tensor {
            elem_type: Some(onnx_type(data_type)),
            shape: Some(TensorShapeProto { dim }),
        };
        Self {
            name: Some(name.to_owned()),
            r#type: Some(TypeProto {
                value: Some(type_proto::Value::TensorType(tensor)),
                denotation: None,
            }),
            ..Self::default()
        }
    }
}

impl From<Dim> for Dimension {
    fn from(dim: Dim) -> Self {
        let value = match dim {
            Dim::Fixed(size) => dimension::Value::DimValue(size as i64),
            Dim::Dynamic(symbol) => dimension::Value::DimParam(symbol.to_owned()),
        };
        Self {
            value: Some(value),
            denotation: None,
        }
    }
}
