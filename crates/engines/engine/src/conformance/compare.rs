//! Comparing outputs.

use sextant_types::{DataType, Tensor};

/// Allowed relative and absolute difference of floats: engines add in different orders.
const TOLERANCE: f32 = 1e-4;

/// Asserts that outputs are equal: 32-bit floats to within 1e-4, all else to the bit.
///
/// # Panics
/// If they differ; `context` is part of the message.
pub fn assert_close(given: &[Tensor], wanted: &[Tensor], context: &str) {
    assert_eq!(given.len(), wanted.len(), "{context}: number of outputs");
    for (index, (given, wanted)) in given.iter().zip(wanted).enumerate() {
        let context = format!("{context}: output {index}");
        assert_eq!(given.data_type(), wanted.data_type(), "{context}");
        assert_eq!(given.shape(), wanted.shape(), "{context}");
        if given.data_type() == DataType::Fp32 {
            floats(given, wanted, &context);
        } else {
            assert_eq!(given, wanted, "{context}");
        }
    }
}

fn floats(given: &Tensor, wanted: &Tensor, context: &str) {
    let values = |tensor: &Tensor| tensor.to_vec::<f32>().unwrap_or_default();
    for (at, (given, wanted)) in values(given).iter().zip(values(wanted)).enumerate() {
        let allowed = TOLERANCE * (1.0 + wanted.abs());
        let close = (given - wanted).abs() <= allowed;
        assert!(close, "{context}: element {at} is {given}, not {wanted}");
    }
}
