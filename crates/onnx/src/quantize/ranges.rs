//! What calibration has seen.

use std::collections::BTreeMap;

use crate::Error;

/// Smallest and largest value of each observed tensor. Order of observations does not matter.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ranges(BTreeMap<String, (f32, f32)>);

// === impl Ranges ===

impl Ranges {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Widens the range of `tensor` to hold `values`: all its elements, or only their extremes.
    /// Infinities and NaN are passed over.
    pub fn observe(&mut self, tensor: &str, values: &[f32]) {
        for value in values.iter().copied().filter(|value| value.is_finite()) {
            self.widen(tensor, value, value);
        }
    }

    /// Takes in what another calibration has seen.
    pub fn merge(&mut self, other: &Self) {
        for (tensor, (low, high)) in &other.0 {
            self.widen(tensor, *low, *high);
        }
    }

    /// Smallest and largest value of a tensor, widened to hold zero.
    ///
    /// # Errors
    /// [`Error::MissingRange`] when no finite value was observed.
    pub fn get(&self, tensor: &str) -> Result<(f32, f32), Error> {
        self.0
            .get(tensor)
            .map(|(low, high)| (low.min(0.0), high.max(0.0)))
            .ok_or_else(|| Error::MissingRange(tensor.to_owned()))
    }

    /// Tensors with a range, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn widen(&mut self, tensor: &str, low: f32, high: f32) {
        match self.0.get_mut(tensor) {
            Some(range) => *range = (range.0.min(low), range.1.max(high)),
            None => {
                self.0.insert(tensor.to_owned(), (low, high));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_finite_is_no_range() {
        let mut ranges = Ranges::new();
        ranges.observe("t", &[f32::NAN, f32::INFINITY]);
        assert_eq!(ranges.get("t"), Err(Error::MissingRange("t".to_owned())));
        ranges.observe("t", &[3.0]);
        assert_eq!(ranges.get("t"), Ok((0.0, 3.0)));
    }

    proptest! {
        #[test]
        fn batches_and_merging_do_not_matter(
            values in prop::collection::vec(any::<f32>(), 0..32), cut in 0usize..32,
        ) {
            let cut = cut.min(values.len());
            let mut whole = Ranges::new();
            whole.observe("t", &values);
            let (mut left, mut right) = (Ranges::new(), Ranges::new());
            left.observe("t", &values[..cut]);
            right.observe("t", &values[cut..]);
            right.merge(&left);
            prop_assert_eq!(right, whole);
        }
    }
}
