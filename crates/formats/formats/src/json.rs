//! Converts a tensor's elements to JSON, and nested lists of JSON to a tensor.

use bytes::BytesMut;
use half::{bf16, f16};
use serde_json::Value;
use sextant_types::{
    Data, DataType, InvalidTensor, Tensor, TextsBuilder,
    convert::{self, Number, Rounding},
    tensor::Element,
};

/// Elements as JSON; missing values (NaN) are `null`, infinities `"Infinity"` and `"-Infinity"`.
pub fn values(tensor: &Tensor) -> Vec<Value> {
    fn all<T: Element, J: Into<Value>>(tensor: &Tensor, convert: impl Fn(T) -> J) -> Vec<Value> {
        tensor
            .to_vec()
            .unwrap_or_default()
            .into_iter()
            .map(|value| convert(value).into())
            .collect()
    }
    match (tensor.data_type(), tensor.data()) {
        (_, Data::Strings(strings)) => strings
            .iter()
            .map(|text| String::from_utf8_lossy(text).into())
            .collect(),
        (DataType::Bool, Data::Plain(bytes)) => bytes.iter().map(|b| (*b != 0).into()).collect(),
        (DataType::Uint8, _) => all(tensor, |v: u8| v),
        (DataType::Uint16, _) => all(tensor, |v: u16| v),
        (DataType::Uint32, _) => all(tensor, |v: u32| v),
        (DataType::Uint64, _) => all(tensor, |v: u64| v),
        (DataType::Int8, _) => all(tensor, |v: i8| v),
        (DataType::Int16, _) => all(tensor, |v: i16| v),
        (DataType::Int32, _) => all(tensor, |v: i32| v),
        (DataType::Int64, _) => all(tensor, |v: i64| v),
        (DataType::Fp16, _) => all(tensor, |v: f16| single(v.to_f32())),
        (DataType::Bf16, _) => all(tensor, |v: bf16| single(v.to_f32())),
        (DataType::Fp32, _) => all(tensor, single),
        (DataType::Fp64, _) => all(tensor, double),
        (DataType::Bytes, Data::Plain(_)) => Vec::new(),
    }
}

fn single(value: f32) -> Value {
    match value.is_finite() {
        true => value.into(),
        false => double(value.into()),
    }
}

fn double(value: f64) -> Value {
    match value.is_infinite() {
        true => convert::special_text(value).trim_matches('"').into(),
        false => value.into(),
    }
}

/// Collects elements of one type until they become a tensor.
///
/// Numbers are converted to the type by the rules of [`convert`], which hold for inputs everywhere. Error texts begin
/// with a verb, so that the caller can put the name of what is read before them.
#[derive(Debug)]
pub struct Elements {
    data_type: DataType,
    plain: BytesMut,
    strings: TextsBuilder,
}

// === impl Elements ===

impl Elements {
    /// An empty collection.
    pub fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            plain: BytesMut::new(),
            strings: TextsBuilder::default(),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self.data_type.size() {
            Some(size) => self.plain.len() / size,
            None => self.strings.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that they take.
    pub fn byte_len(&self) -> u64 {
        (self.plain.len() + self.strings.held_bytes()) as u64
    }

    /// Appends the leaves of a nested list, in row-major order, and returns the shape of the list.
    ///
    /// # Errors
    /// If lists of one level differ in length, or a leaf is not an element of the type.
    pub fn extend(&mut self, value: &Value) -> Result<Vec<usize>, String> {
        let shape = nested_shape(value);
        self.fill(value, &shape)?;
        Ok(shape)
    }

    /// Appends the leaves of `value`, a nested list of exactly this shape.
    fn fill(&mut self, value: &Value, shape: &[usize]) -> Result<(), String> {
        match (value, shape.split_first()) {
            (Value::Array(items), Some((length, rest))) if items.len() == *length => {
                items.iter().try_for_each(|item| self.fill(item, rest))
            }
            (Value::Array(_), _) | (_, Some(_)) => {
                Err("is ragged: lists of one level need the same length".to_owned())
            }
            (leaf, None) => self.leaf(leaf),
        }
    }

    fn leaf(&mut self, value: &Value) -> Result<(), String> {
        let data_type = self.data_type;
        let wrong = || {
            let brief: String = value.to_string().chars().take(32).collect();
            format!("has `{brief}` where {data_type} is needed")
        };
        match (data_type, value) {
            (DataType::Bytes, Value::String(text)) => self.push_text(text.as_bytes()),
            (DataType::Bool, Value::Bool(value)) => self.push(Number::Integer((*value).into())),
            (DataType::Bytes | DataType::Bool, _) => Err(wrong()),
            (_, Value::Number(number)) => {
                self.push(read_number(number, data_type).ok_or_else(wrong)?)
            }
            (_, Value::Null | Value::String(_)) if convert::is_float(data_type) => {
                let float = convert::special(&value.to_string()).ok_or_else(wrong)?;
                self.push(Number::Float(float))
            }
            _ => Err(wrong()),
        }
    }

    /// Appends a number, or a boolean as 0 or 1.
    ///
    /// # Errors
    /// If the type cannot hold it.
    pub fn push(&mut self, number: Number) -> Result<(), String> {
        // Numbers are not converted to booleans, but booleans are read in this form.
        if let (DataType::Bool, Number::Integer(flag @ (0 | 1))) = (self.data_type, number) {
            self.plain.extend_from_slice(&[u8::from(flag == 1)]);
            return Ok(());
        }
        convert::encode(number, self.data_type, Rounding::Nearest, &mut self.plain)
            .map_err(|why| format!("cannot be read: {why}"))
    }

    /// Appends a string.
    ///
    /// # Errors
    /// If all strings together have 4 GiB or more.
    pub fn push_text(&mut self, text: &[u8]) -> Result<(), String> {
        let pushed = self.strings.push(text);
        pushed.map_err(|why| format!("cannot be read: {why}"))
    }

    /// The tensor with this shape.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn into_tensor(self, shape: Vec<usize>) -> Result<Tensor, InvalidTensor> {
        match self.data_type {
            DataType::Bytes => Tensor::from_texts(shape, self.strings.finish()),
            data_type => Tensor::from_bytes(data_type, shape, self.plain.freeze()),
        }
    }
}

/// Lengths along the first element of each level: the shape of a nested list, if it is not ragged.
pub fn nested_shape(value: &Value) -> Vec<usize> {
    let mut shape = Vec::new();
    let mut level = value;
    while let Value::Array(items) = level {
        shape.push(items.len());
        match items.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    shape
}

/// A JSON number as an element of `data_type`: `1` and `1.0` are the same for a float.
fn read_number(number: &serde_json::Number, data_type: DataType) -> Option<Number> {
    if convert::is_float(data_type) {
        return number.as_f64().map(Number::Float);
    }
    let integer = number.as_i64().map(i128::from);
    integer
        .or_else(|| number.as_u64().map(i128::from))
        .map(Number::Integer)
        .or_else(|| number.as_f64().map(Number::Float))
}
