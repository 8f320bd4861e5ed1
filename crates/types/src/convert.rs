//! Converts elements to another type without changing what they mean.
//!
//! An *input* is converted to the type that a model takes if no value changes (integers and booleans keep their value,
//! and any float holds a narrower one). A float is rounded to a narrower one, because NumPy makes `float64` of
//! everything. A finite value that would become infinite is refused, and so are floats for integers. Strings and
//! numbers are never converted into each other.

use bytes::BytesMut;
use half::{bf16, f16};

use crate::{Data, DataType, Tensor};

/// One element, exactly. Every numeric type fits one of the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Integers and booleans.
    Integer(i128),
    /// All floats.
    Float(f64),
}

impl Number {
    /// The value as a double. 64-bit integers are rounded.
    pub fn real(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// How a value may change in the conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Floats may be rounded to the nearest value, but not to infinity.
    Nearest,
    /// No value may change.
    Exact,
}

/// Converts an input to the type that the model takes.
///
/// # Errors
/// Which value cannot be converted, and why.
pub fn input(tensor: &Tensor, to: DataType) -> Result<Tensor, String> {
    convert(tensor, to, Rounding::Nearest)
}

/// Why strings are not converted to numbers, nor numbers to strings.
pub const NO_NUMBERS: &str = "strings and numbers are never exchanged";

/// Whether some elements of one type may be converted to another.
pub fn is_possible(from: DataType, to: DataType) -> bool {
    let are_numbers = from != DataType::Bytes && !matches!(to, DataType::Bytes | DataType::Bool);
    from == to || (are_numbers && (is_float(to) || !is_float(from)))
}

/// Converts elements to another type without changing their values.
///
/// # Errors
/// Which value the type cannot hold.
pub fn exact(tensor: &Tensor, to: DataType) -> Result<Tensor, String> {
    convert(tensor, to, Rounding::Exact)
}

/// Every element of a numeric tensor; `None` for strings.
pub fn numbers(tensor: &Tensor) -> Option<impl Iterator<Item = Number> + '_> {
    let data_type = tensor.data_type();
    let size = data_type.size()?;
    let Data::Plain(bytes) = tensor.data() else {
        return None;
    };
    Some(
        bytes
            .chunks_exact(size)
            .map(move |element| decode(data_type, element)),
    )
}

fn convert(tensor: &Tensor, to: DataType, rounding: Rounding) -> Result<Tensor, String> {
    let from = tensor.data_type();
    if from == to {
        return Ok(tensor.clone());
    }
    let Some(values) = numbers(tensor).filter(|_| to != DataType::Bytes) else {
        return Err(NO_NUMBERS.to_owned());
    };
    let mut bytes = BytesMut::with_capacity(tensor.len() * to.size().unwrap_or(1));
    for value in values {
        encode(value, to, rounding, &mut bytes)?;
    }
    Tensor::from_bytes(to, tensor.shape().to_vec(), bytes.freeze()).map_err(|e| e.to_string())
}

/// Whether elements have fractions.
pub fn is_float(data_type: DataType) -> bool {
    matches!(
        data_type,
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64
    )
}

fn decode(data_type: DataType, element: &[u8]) -> Number {
    macro_rules! read {
        ($type:ty) => {
            bytemuck::pod_read_unaligned::<$type>(element)
        };
    }
    match data_type {
        DataType::Bool | DataType::Uint8 | DataType::Bytes => Number::Integer(read!(u8).into()),
        DataType::Uint16 => Number::Integer(read!(u16).into()),
        DataType::Uint32 => Number::Integer(read!(u32).into()),
        DataType::Uint64 => Number::Integer(read!(u64).into()),
        DataType::Int8 => Number::Integer(read!(i8).into()),
        DataType::Int16 => Number::Integer(read!(i16).into()),
        DataType::Int32 => Number::Integer(read!(i32).into()),
        DataType::Int64 => Number::Integer(read!(i64).into()),
        DataType::Fp16 => Number::Float(read!(f16).into()),
        DataType::Bf16 => Number::Float(read!(bf16).into()),
        DataType::Fp32 => Number::Float(read!(f32).into()),
        DataType::Fp64 => Number::Float(read!(f64)),
    }
}

/// Appends `value` as an element of `to`.
///
/// # Errors
/// Why it cannot be one.
pub fn encode(
    value: Number,
    to: DataType,
    rounding: Rounding,
    bytes: &mut BytesMut,
) -> Result<(), String> {
    macro_rules! integer {
        ($type:ty) => {{
            let Number::Integer(value) = value else {
                return Err(fractional(value, to));
            };
            let value = <$type>::try_from(value).map_err(|_| out_of_range(value, to))?;
            bytes.extend_from_slice(&value.to_le_bytes());
        }};
    }
    macro_rules! float {
        ($narrow:expr) => {{
            let wide = to_f64(value, to)?;
            let narrow = $narrow(wide);
            check_rounding(wide, narrow.into(), rounding, to)?;
            bytes.extend_from_slice(&narrow.to_le_bytes());
        }};
    }
    match to {
        DataType::Uint8 => integer!(u8),
        DataType::Uint16 => integer!(u16),
        DataType::Uint32 => integer!(u32),
        DataType::Uint64 => integer!(u64),
        DataType::Int8 => integer!(i8),
        DataType::Int16 => integer!(i16),
        DataType::Int32 => integer!(i32),
        DataType::Int64 => integer!(i64),
        DataType::Fp16 => float!(f16::from_f64),
        DataType::Bf16 => float!(bf16::from_f64),
        DataType::Fp32 => float!(|wide: f64| wide as f32),
        DataType::Fp64 => float!(|wide: f64| wide),
        DataType::Bool | DataType::Bytes => return Err(format!("a number is not {to}")),
    }
    Ok(())
}

/// How JSON writes floats that are not finite, as in the JSON form of Protocol Buffers, and `null`, which is a missing
/// value.
const SPECIAL: [(&str, f64); 4] = [
    ("null", f64::NAN),
    ("\"NaN\"", f64::NAN),
    ("\"Infinity\"", f64::INFINITY),
    ("\"-Infinity\"", f64::NEG_INFINITY),
];

/// The float that a JSON value other than a number stands for: `null`, `"NaN"`, `"Infinity"`, `"-Infinity"`.
pub fn special(json: &str) -> Option<f64> {
    let found = SPECIAL.iter().find(|(text, _)| *text == json);
    found.map(|(_, value)| *value)
}

/// The JSON value for a float that is not finite: `null`, `"Infinity"` or `"-Infinity"`.
pub fn special_text(value: f64) -> &'static str {
    match value {
        f64::INFINITY => SPECIAL[2].0,
        f64::NEG_INFINITY => SPECIAL[3].0,
        _ => SPECIAL[0].0,
    }
}

/// Integers must survive the conversion to a float. Floats stay the same.
fn to_f64(value: Number, to: DataType) -> Result<f64, String> {
    match value {
        Number::Float(value) => Ok(value),
        Number::Integer(value) => {
            let wide = value as f64;
            let limit = match to {
                DataType::Fp64 => 1i128 << 53,
                DataType::Fp32 => 1 << 24,
                DataType::Fp16 => 1 << 11,
                _ => 1 << 8,
            };
            if value.abs() <= limit {
                return Ok(wide);
            }
            Err(format!("`{value}` is not exact in {to}"))
        }
    }
}

fn check_rounding(wide: f64, back: f64, rounding: Rounding, to: DataType) -> Result<(), String> {
    if rounding == Rounding::Exact && wide != back && !wide.is_nan() {
        return Err(format!("`{wide}` is not exact in {to}"));
    }
    if wide.is_finite() && !back.is_finite() {
        return Err(format!("`{wide}` is out of the range of {to}"));
    }
    Ok(())
}

fn fractional(value: Number, to: DataType) -> String {
    match value {
        Number::Float(value) => format!("float `{value}` where {to} is needed"),
        Number::Integer(value) => out_of_range(value, to),
    }
}

fn out_of_range(value: i128, to: DataType) -> String {
    format!("`{value}` is out of the range of {to}")
}
