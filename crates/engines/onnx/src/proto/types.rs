//! Types and shapes of values.

use prost::{Message, Oneof};

use super::StringStringEntryProto;

/// A value's name and type.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// Name of the value.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// Free text.
    #[prost(string, optional, tag = "3")]
    pub doc_string: Option<String>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "4")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A type.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// Which type.
    #[prost(oneof = "type_proto::Value", tags = "1, 4, 5, 7, 8, 9")]
    pub value: Option<type_proto::Value>,
    /// Standard meaning, e.g. `IMAGE`.
    #[prost(string, optional, tag = "6")]
    pub denotation: Option<String>,
}

/// The alternatives of [`TypeProto`].
pub mod type_proto {
    use super::{Message, Oneof, TensorShapeProto, TypeProto};

    /// Which type.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// Dense tensor.
        #[prost(message, tag = "1")]
        TensorType(Tensor),
        /// Sequence.
        #[prost(message, tag = "4")]
        SequenceType(Box<Sequence>),
        /// Map.
        #[prost(message, tag = "5")]
        MapType(Box<Map>),
        /// Optional value.
        #[prost(message, tag = "9")]
        OptionalType(Box<Optional>),
        /// Sparse tensor.
        #[prost(message, tag = "8")]
        SparseTensorType(SparseTensor),
        /// Opaque.
        #[prost(message, tag = "7")]
        OpaqueType(Opaque),
    }

    /// Dense tensor.
    #[derive(Clone, PartialEq, Message)]
    pub struct Tensor {
        /// Element type, see [`data_type`](super::super::data_type).
        #[prost(int32, optional, tag = "1")]
        pub elem_type: Option<i32>,
        /// Shape; absent when even the rank is unknown.
        #[prost(message, optional, tag = "2")]
        pub shape: Option<TensorShapeProto>,
    }

    /// Sequence.
    #[derive(Clone, PartialEq, Message)]
    pub struct Sequence {
        /// Type of its elements.
        #[prost(message, optional, boxed, tag = "1")]
        pub elem_type: Option<Box<TypeProto>>,
    }

    /// Map.
    #[derive(Clone, PartialEq, Message)]
    pub struct Map {
        /// Type of the keys, see [`data_type`](super::super::data_type).
        #[prost(int32, optional, tag = "1")]
        pub key_type: Option<i32>,
        /// Type of the values.
        #[prost(message, optional, boxed, tag = "2")]
        pub value_type: Option<Box<TypeProto>>,
    }

    /// Optional value.
    #[derive(Clone, PartialEq, Message)]
    pub struct Optional {
        /// Type of the value.
        #[prost(message, optional, boxed, tag = "1")]
        pub elem_type: Option<Box<TypeProto>>,
    }

    /// Sparse tensor.
    #[derive(Clone, PartialEq, Message)]
    pub struct SparseTensor {
        /// Element type, see [`data_type`](super::super::data_type).
        #[prost(int32, optional, tag = "1")]
        pub elem_type: Option<i32>,
        /// Shape.
        #[prost(message, optional, tag = "2")]
        pub shape: Option<TensorShapeProto>,
    }

    /// Opaque.
    #[derive(Clone, PartialEq, Eq, Message)]
    pub struct Opaque {
        /// Name space.
        #[prost(string, optional, tag = "1")]
        pub domain: Option<String>,
        /// Name.
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
    }
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Dimensions.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// A dimension.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Dimension {
    /// Size or symbol; absent when unknown.
    #[prost(oneof = "dimension::Value", tags = "1, 2")]
    pub value: Option<dimension::Value>,
    /// Standard meaning, e.g. `DATA_BATCH`.
    #[prost(string, optional, tag = "3")]
    pub denotation: Option<String>,
}

/// The alternatives of [`Dimension`].
pub mod dimension {
    use super::Oneof;

    /// Size or symbol.
    #[derive(Clone, PartialEq, Eq, Oneof)]
    pub enum Value {
        /// Size.
        #[prost(int64, tag = "1")]
        DimValue(i64),
        /// Symbol.
        #[prost(string, tag = "2")]
        DimParam(String),
    }
}
