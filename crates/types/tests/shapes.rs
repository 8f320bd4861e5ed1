//! Sizes of dynamic dimensions, resized tensors, declared paddings.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use bytes::Bytes;
use sextant_types::{
    BatchLatency, DataType, Fill, InvalidPadding, NamedTensor, Padding, ShapeProfile, Signature,
    Tensor, TensorSpec,
};

fn spec(name: &str, data_type: DataType, shape: &[Option<u64>]) -> TensorSpec {
    TensorSpec {
        name: name.to_owned(),
        data_type,
        shape: shape.to_vec(),
    }
}

fn encoder() -> Signature {
    Signature {
        inputs: vec![
            spec("tokens", DataType::Int64, &[None, None]),
            spec("mask", DataType::Int64, &[None, None]),
            spec("language", DataType::Fp32, &[None, Some(4)]),
        ],
        outputs: vec![spec("vectors", DataType::Fp32, &[None, None, Some(8)])],
        batched: true,
    }
}

fn ints(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_elements(shape.to_vec(), values).unwrap()
}

#[test]
fn the_size_of_a_query_is_that_of_its_dynamic_dimensions() {
    let signature = encoder();
    let inputs = [
        NamedTensor::new("tokens", ints(&[2, 5], &[1; 10])),
        NamedTensor::new("mask", ints(&[2, 5], &[1; 10])),
        NamedTensor::new(
            "language",
            Tensor::from_elements(vec![2, 4], &[0f32; 8]).unwrap(),
        ),
    ];
    let dims = signature.dims(&inputs);
    assert_eq!(dims, [5, 5]);
    assert_eq!(signature.row_elements(&dims), 14);
    assert_eq!(signature.shape_with(1, 3, &dims), [3, 5]);
    assert_eq!(signature.shape_with(2, 3, &dims), [3, 4]);
    let fixed = Signature {
        inputs: vec![spec("x", DataType::Fp32, &[None, Some(3)])],
        ..encoder()
    };
    assert!(!fixed.is_dynamic() && fixed.dims(&[]).is_empty());
    let unbatched = Signature {
        batched: false,
        ..fixed
    };
    assert!(unbatched.is_dynamic());
}

#[test]
fn tensors_grow_by_a_value_or_by_repetition_and_are_cut() {
    let two = ints(&[2, 2], &[1, 2, 3, 4]);
    let padded = two.resized(&[2, 3], Fill::Value(-7.0)).unwrap();
    assert_eq!(padded.to_vec::<i64>().unwrap(), [1, 2, -7, 3, 4, -7]);
    let taller = two.resized(&[3, 1], Fill::Value(0.0)).unwrap();
    assert_eq!(taller.to_vec::<i64>().unwrap(), [1, 3, 0]);
    let again = two.resized(&[3, 5], Fill::Repeated).unwrap();
    assert_eq!(
        again.to_vec::<i64>().unwrap(),
        [1, 2, 1, 2, 1, 3, 4, 3, 4, 3, 1, 2, 1, 2, 1]
    );
    assert_eq!(padded.resized(&[2, 2], Fill::Value(0.0)).unwrap(), two);
    let cube = ints(&[1, 2, 2], &[1, 2, 3, 4]);
    let cut = cube.resized(&[1, 1, 2], Fill::Repeated).unwrap();
    assert_eq!(cut.to_vec::<i64>().unwrap(), [1, 2]);
    let words = Tensor::from_strings(vec![1, 1], vec![Bytes::from_static(b"a")]).unwrap();
    let words = words.resized(&[1, 2], Fill::Value(0.0)).unwrap();
    assert_eq!(words.byte_len(), 1);
    assert!(two.resized(&[4], Fill::Repeated).is_err());
    assert!(two.resized(&[2, 3], Fill::Value(0.5)).is_err());
    let empty = ints(&[2, 0], &[]);
    assert!(empty.resized(&[2, 1], Fill::Repeated).is_err());
    assert_eq!(empty.resized(&[2, 1], Fill::Value(9.0)).unwrap().len(), 2);
}

#[test]
fn a_padding_must_suit_the_inputs() {
    let padding = |mask: &str, values: &[(&str, f64)]| {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        let padding = Padding {
            mask: mask.to_owned(),
            values: values.collect::<BTreeMap<_, _>>(),
            cropped: Vec::new(),
        };
        padding.check(&encoder())
    };
    assert_eq!(padding("mask", &[("tokens", 1.0)]), Ok(()));
    assert!(matches!(
        padding("masks", &[]),
        Err(InvalidPadding::Input(_))
    ));
    assert!(matches!(
        padding("language", &[]),
        Err(InvalidPadding::FixedMask(_))
    ));
    for wrong in [("tokens", 0.5), ("mask", 1.0)] {
        assert!(matches!(
            padding("mask", &[wrong]),
            Err(InvalidPadding::Value { .. })
        ));
    }
}

#[test]
fn latencies_between_and_beyond_the_measured_batches() {
    let point = |(batch, ms): (u32, f64)| BatchLatency {
        batch,
        p50_ms: ms,
        p99_ms: 2.0 * ms,
        mean_ms: ms,
        samples: 3,
    };
    let profile = |points: &[(u32, f64)]| ShapeProfile {
        dims: vec![9],
        batches: points.iter().copied().map(point).collect(),
    };
    let two = profile(&[(1, 2.0), (5, 6.0)]);
    assert_eq!((two.latency_ms(3), two.latency_ms(9)), (4.0, 10.0));
    assert_eq!(two.tail_latency_ms(9), 20.0);
    let one = profile(&[(1, 2.0)]);
    assert_eq!(one.latency_ms(4), 8.0);
}

#[test]
fn a_query_with_more_rows_than_can_be_counted_is_refused() {
    let signature = Signature {
        inputs: vec![spec("x", DataType::Int64, &[None, None])],
        outputs: vec![spec("y", DataType::Int64, &[None, None])],
        batched: true,
    };
    let empty_rows = |rows: usize| {
        let tensor = Tensor::from_bytes(DataType::Int64, vec![rows, 0], Bytes::new()).unwrap();
        signature.bind(vec![NamedTensor::new("x", tensor)])
    };
    assert_eq!(empty_rows(u32::MAX as usize).unwrap().1, u32::MAX);
    for rows in [1usize << 32, (1 << 32) + 1, (1 << 33) + 3, 1 << 40] {
        let error = empty_rows(rows).unwrap_err().to_string();
        assert!(error.contains(&format!("`{rows}` rows")), "{error}");
    }
}
