//! The ONNX messages (IR versions up to 13), field for field as in `onnx-ml.proto` of ONNX 1.23.
//!
//! They are written by hand so that no protobuf compiler is needed. Every field is listed, also
//! those that nothing here reads: a field that is not listed would be lost when a model is written
//! again. Weights are [`Bytes`], slices of the file's own buffer without a copy.

use bytes::Bytes;
use prost::Message;

mod device;
mod types;

pub use device::*;
pub use types::*;

/// `TensorProto.DataType` values.
pub mod data_type {
    /// 32-bit float.
    pub const FLOAT: i32 = 1;
    /// Unsigned 8-bit.
    pub const UINT8: i32 = 2;
    /// Signed 8-bit.
    pub const INT8: i32 = 3;
    /// Unsigned 16-bit.
    pub const UINT16: i32 = 4;
    /// Signed 16-bit.
    pub const INT16: i32 = 5;
    /// Signed 32-bit.
    pub const INT32: i32 = 6;
    /// Signed 64-bit.
    pub const INT64: i32 = 7;
    /// Text or opaque bytes.
    pub const STRING: i32 = 8;
    /// Boolean, one byte.
    pub const BOOL: i32 = 9;
    /// IEEE half.
    pub const FLOAT16: i32 = 10;
    /// 64-bit float.
    pub const DOUBLE: i32 = 11;
    /// Unsigned 32-bit.
    pub const UINT32: i32 = 12;
    /// Unsigned 64-bit.
    pub const UINT64: i32 = 13;
    /// Two 32-bit floats.
    pub const COMPLEX64: i32 = 14;
    /// Two 64-bit floats.
    pub const COMPLEX128: i32 = 15;
    /// Brain float.
    pub const BFLOAT16: i32 = 16;
    /// First of the four 8-bit float formats, 17..=20.
    pub const FLOAT8E4M3FN: i32 = 17;
    /// The same without negative zero.
    pub const FLOAT8E4M3FNUZ: i32 = 18;
    /// 8-bit float with five bits of exponent.
    pub const FLOAT8E5M2: i32 = 19;
    /// Last of the four 8-bit float formats.
    pub const FLOAT8E5M2FNUZ: i32 = 20;
    /// Unsigned 4-bit, two per byte.
    pub const UINT4: i32 = 21;
    /// Signed 4-bit, two per byte.
    pub const INT4: i32 = 22;
    /// 4-bit float, two per byte.
    pub const FLOAT4E2M1: i32 = 23;
    /// 8-bit exponent.
    pub const FLOAT8E8M0: i32 = 24;
    /// Unsigned 2-bit, four per byte.
    pub const UINT2: i32 = 25;
    /// Signed 2-bit, four per byte.
    pub const INT2: i32 = 26;
}

/// `AttributeProto.AttributeType` values.
pub mod attribute_type {
    /// `f`.
    pub const FLOAT: i32 = 1;
    /// `i`.
    pub const INT: i32 = 2;
    /// `s`.
    pub const STRING: i32 = 3;
    /// `t`.
    pub const TENSOR: i32 = 4;
    /// `g`.
    pub const GRAPH: i32 = 5;
    /// `floats`.
    pub const FLOATS: i32 = 6;
    /// `ints`.
    pub const INTS: i32 = 7;
    /// `strings`.
    pub const STRINGS: i32 = 8;
}

/// `TensorProto.data_location` of a tensor whose bytes lie in another file.
pub const EXTERNAL: i32 = 1;

/// A whole file.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the format itself.
    #[prost(int64, optional, tag = "1")]
    pub ir_version: Option<i64>,
    /// Operator sets in use.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Tool that wrote the file.
    #[prost(string, optional, tag = "2")]
    pub producer_name: Option<String>,
    /// Its version.
    #[prost(string, optional, tag = "3")]
    pub producer_version: Option<String>,
    /// Name space of the model.
    #[prost(string, optional, tag = "4")]
    pub domain: Option<String>,
    /// Version of the model.
    #[prost(int64, optional, tag = "5")]
    pub model_version: Option<i64>,
    /// Free text.
    #[prost(string, optional, tag = "6")]
    pub doc_string: Option<String>,
    /// The main graph.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Training graphs.
    #[prost(message, repeated, tag = "20")]
    pub training_info: Vec<TrainingInfoProto>,
    /// Functions local to the model.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
    /// Multi-device configurations.
    #[prost(message, repeated, tag = "26")]
    pub configuration: Vec<DeviceConfigurationProto>,
}

/// A graph, or the body of a control-flow operator.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// Nodes in topological order.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// Name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Constant tensors.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Constant sparse tensors.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
    /// Free text.
    #[prost(string, optional, tag = "10")]
    pub doc_string: Option<String>,
    /// Inputs; before IR version 4 also every initialiser.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
    /// Types of values in between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Quantisation notes.
    #[prost(message, repeated, tag = "14")]
    pub quantization_annotation: Vec<TensorAnnotation>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// One operator call.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Names of values taken; empty for an absent optional one.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of values made.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Name.
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    /// Operator.
    #[prost(string, optional, tag = "4")]
    pub op_type: Option<String>,
    /// Operator set; empty is the standard one.
    #[prost(string, optional, tag = "7")]
    pub domain: Option<String>,
    /// Overload of a local function.
    #[prost(string, optional, tag = "8")]
    pub overload: Option<String>,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// Free text.
    #[prost(string, optional, tag = "6")]
    pub doc_string: Option<String>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Multi-device placement.
    #[prost(message, repeated, tag = "10")]
    pub device_configurations: Vec<NodeDeviceConfigurationProto>,
}

/// A named attribute: one of the value fields is set.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Attribute of the enclosing function that this one takes its value from.
    #[prost(string, optional, tag = "21")]
    pub ref_attr_name: Option<String>,
    /// Free text.
    #[prost(string, optional, tag = "13")]
    pub doc_string: Option<String>,
    /// Which value field is set, see [`attribute_type`].
    #[prost(int32, optional, tag = "20")]
    pub r#type: Option<i32>,
    /// Float.
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    /// Integer.
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    /// Text.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub s: Option<Bytes>,
    /// Tensor.
    #[prost(message, optional, boxed, tag = "5")]
    pub t: Option<Box<TensorProto>>,
    /// Graph.
    #[prost(message, optional, boxed, tag = "6")]
    pub g: Option<Box<GraphProto>>,
    /// Sparse tensor.
    #[prost(message, optional, boxed, tag = "22")]
    pub sparse_tensor: Option<Box<SparseTensorProto>>,
    /// Type.
    #[prost(message, optional, boxed, tag = "14")]
    pub tp: Option<Box<TypeProto>>,
    /// Floats.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Texts.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Tensors.
    #[prost(message, repeated, tag = "10")]
    pub tensors: Vec<TensorProto>,
    /// Graphs.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<GraphProto>,
    /// Sparse tensors.
    #[prost(message, repeated, tag = "23")]
    pub sparse_tensors: Vec<SparseTensorProto>,
    /// Types.
    #[prost(message, repeated, tag = "15")]
    pub type_protos: Vec<TypeProto>,
}

/// A constant tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Dimensions.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// Element type, see [`data_type`].
    #[prost(int32, optional, tag = "2")]
    pub data_type: Option<i32>,
    /// Part of a larger tensor; never seen in practice.
    #[prost(message, optional, tag = "3")]
    pub segment: Option<Segment>,
    /// Elements of FLOAT and COMPLEX64.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of the integer types up to 32 bits, BOOL and the 16-bit and smaller floats.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Elements of STRING.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// Elements of INT64.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Name of the value.
    #[prost(string, optional, tag = "8")]
    pub name: Option<String>,
    /// Free text.
    #[prost(string, optional, tag = "12")]
    pub doc_string: Option<String>,
    /// Elements of any fixed-width type, little-endian, row-major.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub raw_data: Option<Bytes>,
    /// Where the bytes lie: keys `location`, `offset`, `length`, `checksum`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// [`EXTERNAL`] or absent.
    #[prost(int32, optional, tag = "14")]
    pub data_location: Option<i32>,
    /// Elements of DOUBLE and COMPLEX128.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of UINT32 and UINT64.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// Part of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Segment {
    /// First element.
    #[prost(int64, optional, tag = "1")]
    pub begin: Option<i64>,
    /// One past the last element.
    #[prost(int64, optional, tag = "2")]
    pub end: Option<i64>,
}

/// A constant sparse tensor.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// Non-default values; its name is the tensor's name.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
    /// Where they stand.
    #[prost(message, optional, tag = "2")]
    pub indices: Option<TensorProto>,
    /// Dimensions of the dense tensor.
    #[prost(int64, repeated, packed = "false", tag = "3")]
    pub dims: Vec<i64>,
}

/// An operator set.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OperatorSetIdProto {
    /// Name space; empty is the standard one.
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    /// Version.
    #[prost(int64, optional, tag = "2")]
    pub version: Option<i64>,
}

/// A key-value pair.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StringStringEntryProto {
    /// Key.
    #[prost(string, optional, tag = "1")]
    pub key: Option<String>,
    /// Value.
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

/// Quantisation notes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorAnnotation {
    /// Which tensor.
    #[prost(string, optional, tag = "1")]
    pub tensor_name: Option<String>,
    /// Keys such as `SCALE_TENSOR`, values are tensor names.
    #[prost(message, repeated, tag = "2")]
    pub quant_parameter_tensor_names: Vec<StringStringEntryProto>,
}

/// Training graphs.
#[derive(Clone, PartialEq, Message)]
pub struct TrainingInfoProto {
    /// Runs once.
    #[prost(message, optional, tag = "1")]
    pub initialization: Option<GraphProto>,
    /// Runs each step.
    #[prost(message, optional, tag = "2")]
    pub algorithm: Option<GraphProto>,
    /// Initialiser that each output of `initialization` replaces.
    #[prost(message, repeated, tag = "3")]
    pub initialization_binding: Vec<StringStringEntryProto>,
    /// Initialiser that each output of `algorithm` replaces.
    #[prost(message, repeated, tag = "4")]
    pub update_binding: Vec<StringStringEntryProto>,
}

/// A function local to the model.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Names of inputs.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of outputs.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// Attributes without default.
    #[prost(string, repeated, tag = "6")]
    pub attribute: Vec<String>,
    /// Attributes with default.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Body.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// Free text.
    #[prost(string, optional, tag = "8")]
    pub doc_string: Option<String>,
    /// Operator sets of the body.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// Name space.
    #[prost(string, optional, tag = "10")]
    pub domain: Option<String>,
    /// Overload.
    #[prost(string, optional, tag = "13")]
    pub overload: Option<String>,
    /// Types of values in the body.
    #[prost(message, repeated, tag = "12")]
    pub value_info: Vec<ValueInfoProto>,
    /// Free key-value pairs.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}
