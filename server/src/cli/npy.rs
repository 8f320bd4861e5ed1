//! Arrays of NumPy (`.npy`) as JSON tensors.

use npyz::{Deserialize, NpyFile, Order};
use serde_json::{Number, Value};

/// A tensor as the API takes it, its name apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Dimensions.
    pub shape: Vec<u64>,
    /// `FP32`, `INT64`, ..
    pub data_type: &'static str,
    /// Row-major elements.
    pub data: Vec<Value>,
}

/// What every `.npy` file begins with.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Result<Array, String> {
    let file = NpyFile::new(bytes).map_err(|error| format!("not a NumPy array: {error}"))?;
    let shape = file.shape().to_vec();
    if file.order() == Order::Fortran && shape.len() > 1 {
        return Err("in Fortran order; save `numpy.ascontiguousarray(..)`".to_owned());
    }
    let (data_type, data) = elements(file)?;
    Ok(Array {
        shape,
        data_type,
        data,
    })
}

fn elements(file: NpyFile<&[u8]>) -> Result<(&'static str, Vec<Value>), String> {
    let npyz::DType::Plain(kind) = file.dtype() else {
        return Err("a structured array; save each field apart".to_owned());
    };
    let kind = kind.to_string();
    match kind.trim_start_matches(['<', '>', '|', '=']) {
        "b1" => convert::<bool>(file, "BOOL", |value| Some(Value::Bool(value))),
        "u1" => convert::<u8>(file, "UINT8", |value| Some(value.into())),
        "u2" => convert::<u16>(file, "UINT16", |value| Some(value.into())),
        "u4" => convert::<u32>(file, "UINT32", |value| Some(value.into())),
        "u8" => convert::<u64>(file, "UINT64", |value| Some(value.into())),
        "i1" => convert::<i8>(file, "INT8", |value| Some(value.into())),
        "i2" => convert::<i16>(file, "INT16", |value| Some(value.into())),
        "i4" => convert::<i32>(file, "INT32", |value| Some(value.into())),
        "i8" => convert::<i64>(file, "INT64", |value| Some(value.into())),
        "f2" => convert::<half::f16>(file, "FP16", |value| float(value.to_f64())),
        "f4" => convert::<f32>(file, "FP32", |value| float(value.into())),
        "f8" => convert::<f64>(file, "FP64", float),
        other => Err(format!("elements of type `{other}` are not supported")),
    }
}

fn convert<T: Deserialize>(
    file: NpyFile<&[u8]>,
    data_type: &'static str,
    json: impl Fn(T) -> Option<Value>,
) -> Result<(&'static str, Vec<Value>), String> {
    let elements: Vec<T> = file.into_vec().map_err(|error| error.to_string())?;
    let data: Option<Vec<Value>> = elements.into_iter().map(json).collect();
    let data = data.ok_or("it holds NaN or infinity, which JSON cannot carry")?;
    Ok((data_type, data))
}

fn float(value: f64) -> Option<Value> {
    Number::from_f64(value).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use npyz::WriterBuilder;

    fn file<T: npyz::AutoSerialize + Copy>(shape: &[u64], values: &[T], order: Order) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(shape)
            .order(order)
            .writer(&mut bytes)
            .begin_nd()
            .expect("the header is written");
        writer
            .extend(values.iter().copied())
            .expect("elements are written");
        writer.finish().expect("the array is complete");
        bytes
    }

    #[test]
    fn shape_type_and_elements_survive() {
        let bytes = file(&[2, 2], &[1.5f32, -2.0, 0.1, 4.0], Order::C);
        assert!(bytes.starts_with(MAGIC));
        let array = read(&bytes).expect("an array");
        assert_eq!(
            (array.shape.as_slice(), array.data_type),
            ([2, 2].as_slice(), "FP32")
        );
        assert_eq!(array.data[2].as_f64(), Some(f64::from(0.1f32)));
        let array = read(&file(&[3], &[1i64, -2, i64::MAX], Order::C)).expect("an array");
        assert_eq!(
            (array.data_type, &array.data[2]),
            ("INT64", &Value::from(i64::MAX))
        );
    }

    #[test]
    fn what_json_cannot_carry_is_refused() {
        assert!(
            read(&file(&[1], &[f32::NAN], Order::C))
                .expect_err("NaN")
                .contains("NaN")
        );
        let fortran = file(&[2, 2], &[1f32, 2.0, 3.0, 4.0], Order::Fortran);
        assert!(read(&fortran).expect_err("order").contains("Fortran"));
        assert!(read(b"\x93NUMPY").is_err());
        let mut short = file(&[3], &[1i64, 2, 3], Order::C);
        short.truncate(short.len() - 4);
        assert!(read(&short).is_err());
    }
}
