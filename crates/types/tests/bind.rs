//! Inputs of another type than the model's.

use sextant_types::{DataType, NamedTensor, Signature, SignatureMismatch, Tensor, TensorSpec};

fn signature(data_type: DataType) -> Signature {
    let spec = |name: &str| TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: vec![None, Some(2)],
    };
    Signature {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        batched: true,
    }
}

fn bind(tensor: Tensor, to: DataType) -> Result<Tensor, SignatureMismatch> {
    let inputs = vec![NamedTensor::new("x", tensor)];
    let (inputs, rows) = signature(to).bind(inputs)?;
    assert_eq!(rows, 1);
    Ok(inputs.into_iter().next().expect("the input").tensor)
}

macro_rules! tensor {
    ($($value:expr),*) => {
        Tensor::from_elements(vec![1, 2], &[$($value),*]).expect("fits")
    };
}

#[test]
fn numbers_come_to_the_models_type_where_it_holds_them() {
    let wanted = Some(vec![1f32, 2.0]);
    for given in [tensor![1u8, 2], tensor![1i64, 2], tensor![1f64, 2.0]] {
        let bound = bind(given, DataType::Fp32).expect("it holds them");
        assert_eq!(bound.to_vec::<f32>(), wanted);
    }
    let bound = bind(tensor![1i8, -2], DataType::Int64).expect("it holds them");
    assert_eq!(bound.to_vec::<i64>(), Some(vec![1, -2]));
    // NumPy makes 64-bit floats of everything: they are rounded.
    let bound = bind(tensor![0.1f64, 1.0], DataType::Fp32).expect("it is rounded");
    assert_eq!(bound.to_vec::<f32>(), Some(vec![0.1f32, 1.0]));
}

#[test]
fn what_the_type_cannot_hold_is_refused_with_the_element() {
    for (given, to, why) in [
        (tensor![1e39f64, 0.0], DataType::Fp32, "out of the range"),
        (
            tensor![16_777_217i64, 0],
            DataType::Fp32,
            "`16777217` is not exact in FP32",
        ),
        (
            tensor![300i32, 0],
            DataType::Uint8,
            "`300` is out of the range of UINT8",
        ),
        (
            tensor![-1i32, 0],
            DataType::Uint64,
            "`-1` is out of the range",
        ),
        (
            tensor![1.0f32, 2.0],
            DataType::Int32,
            "float `1` where INT32 is needed",
        ),
        (tensor![1.0f32, 2.0], DataType::Bytes, "strings and numbers"),
    ] {
        let error = bind(given, to)
            .expect_err("it cannot hold them")
            .to_string();
        assert!(error.contains(why), "{error}");
    }
}
