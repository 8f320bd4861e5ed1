//! Compares the elements of outputs.

use sextant_types::{
    Data, Tensor,
    convert::{self, Number},
};

pub(super) fn equal_records<T: PartialEq>(have: &[T], want: &[T], per_record: usize) -> Vec<f64> {
    let pairs = have.chunks(per_record).zip(want.chunks(per_record));
    pairs
        .map(|(have, want)| f64::from(u8::from(have == want)))
        .collect()
}

/// Compares integers and booleans as bytes: 64-bit values do not fit a double.
pub(super) fn equal_plain(have: &Tensor, want: &Tensor, per_record: usize) -> Vec<f64> {
    let size = have.data_type().size().unwrap_or(1);
    match (have.data(), want.data()) {
        (Data::Plain(have), Data::Plain(want)) => equal_records(have, want, per_record * size),
        _ => Vec::new(),
    }
}

/// Largest difference that another order of the same sums makes in single precision, relative to a record's greatest
/// element.
const ROUNDING: f64 = 1e-5;

/// Whether a record differs from the expected one by no more than rounding.
pub(super) fn is_rounding(have: &[f64], want: &[f64]) -> bool {
    let greatest = want
        .iter()
        .fold(0.0_f64, |most, value| most.max(value.abs()));
    let differ = |(have, want): (&f64, &f64)| (have - want).abs() > ROUNDING * greatest;
    greatest > 0.0
        && !have.iter().zip(want).any(differ)
        && have.iter().all(|value| value.is_finite())
}

/// A numeric tensor's elements as doubles; 64-bit integers are rounded. `None` for strings.
pub(crate) fn reals(tensor: &Tensor) -> Option<Vec<f64>> {
    Some(convert::numbers(tensor)?.map(Number::real).collect())
}
