//! Elements of outputs, as they are compared.

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

/// Integers and booleans, compared as bytes: 64-bit values do not fit a double.
pub(super) fn equal_plain(have: &Tensor, want: &Tensor, per_record: usize) -> Vec<f64> {
    let size = have.data_type().size().unwrap_or(1);
    match (have.data(), want.data()) {
        (Data::Plain(have), Data::Plain(want)) => equal_records(have, want, per_record * size),
        _ => Vec::new(),
    }
}

/// A numeric tensor's elements as doubles; 64-bit integers are rounded. `None` for strings.
pub(crate) fn reals(tensor: &Tensor) -> Option<Vec<f64>> {
    Some(convert::numbers(tensor)?.map(Number::real).collect())
}
