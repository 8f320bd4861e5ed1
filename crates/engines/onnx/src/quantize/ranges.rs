//! The observations of a calibration.

use std::collections::BTreeMap;

use crate::Error;

/// Smallest and largest value of each observed tensor. The order of observations does not matter.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ranges(BTreeMap<String, (f32, f32)>);

// === impl Ranges ===

impl Ranges {
    /// No observations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Widens the range of `tensor` to hold `values`: all its elements, or only their extremes. Infinities and NaN are
    /// ignored.
    pub fn observe(&mut self, tensor: &str, values: &[f32]) {
        for value in values.iter().copied().filter(|value| value.is_finite()) {
            self.widen(tensor, value, value);
        }
    }

    /// Adds the observations of another calibration.
    pub fn merge(&mut self, other: &Self) {
        for (tensor, (low, high)) in &other.0 {
            self.widen(tensor, *low, *high);
        }
    }

    /// The same ranges without a few values at either end. A tensor with samples gets the range that holds a share of
    /// them, never wider than the observed one. Values outside are rounded to the nearer end, and values inside have
    /// finer steps.
    #[must_use]
    pub fn clipped(&self, samples: &BTreeMap<String, Vec<f32>>, share: f64) -> Self {
        let clip = |(tensor, seen): (&String, &(f32, f32))| {
            let held = samples.get(tensor).and_then(|values| ends(values, share));
            let range = held.map_or(*seen, |(low, high)| (low.max(seen.0), high.min(seen.1)));
            // If a tensor is zero except for a few values, those values are its range.
            let is_empty = range.0.min(0.0) == 0.0 && range.1.max(0.0) == 0.0;
            (tensor.clone(), if is_empty { *seen } else { range })
        };
        Self(self.0.iter().map(clip).collect())
    }

    /// Smallest and largest value of a tensor, widened to hold zero.
    ///
    /// # Errors
    /// [`Error::MissingRange`] if no finite value was observed.
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

/// The values between which a share of the finite ones lies; as many are left out at either end.
fn ends(values: &[f32], share: f64) -> Option<(f32, f32)> {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let mut sorted: Vec<f32> = finite.collect();
    sorted.sort_by(f32::total_cmp);
    let outside = (1.0 - share.clamp(0.0, 1.0)) / 2.0;
    let left_out =
        ((sorted.len() as f64 * outside) as usize).min(sorted.len().saturating_sub(1) / 2);
    let low = *sorted.get(left_out)?;
    Some((low, sorted[sorted.len() - 1 - left_out]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_few_values_at_either_end_are_left_out() {
        let mut ranges = Ranges::new();
        let mut values: Vec<f32> = (0..998u16).map(|at| f32::from(at) / 998.0).collect();
        values.extend([-50.0, 800.0]);
        ranges.observe("t", &values);
        ranges.observe("unsampled", &[-1.0, 5.0]);
        let samples = BTreeMap::from([("t".to_owned(), values)]);
        let whole = ranges.clipped(&samples, 1.0);
        assert_eq!(whole, ranges);
        let clipped = ranges.clipped(&samples, 0.99);
        let (low, high) = clipped.get("t").unwrap();
        assert!(low == 0.0 && high < 1.0, "{low} {high}");
        assert_eq!(clipped.get("unsampled"), Ok((-1.0, 5.0)));
    }

    #[test]
    fn what_is_zero_but_for_a_few_values_keeps_its_range() {
        let mut ranges = Ranges::new();
        let mut values = vec![0.0; 999];
        values.push(7.0);
        ranges.observe("t", &values);
        let samples = BTreeMap::from([("t".to_owned(), values)]);
        assert_eq!(ranges.clipped(&samples, 0.9).get("t"), Ok((0.0, 7.0)));
    }

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
