//! The size of a query, if the inputs of its model have dynamic dimensions.

use std::hash::{DefaultHasher, Hash, Hasher};

use sextant_controller::{Shape, Sharing};
use sextant_types::{Signature, Variant};

/// What is known of a query's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputSize {
    /// Elements of one row over all inputs; 0 if queries come in one size.
    size: u64,
    /// Identifies the dimensions.
    dims: u64,
    /// Whether all dynamic dimensions have the same length, as those of a text do.
    is_even: bool,
}

/// Classes of sizes per doubling. Within one class, sizes differ by at most 9 %.
const CLASSES_PER_DOUBLING: f64 = 8.0;

/// The number of classes of sizes.
pub const CLASSES: usize = 64 * CLASSES_PER_DOUBLING as usize + 1;

// === impl InputSize ===

impl InputSize {
    /// The size of a query with these values of the dynamic dimensions, in the order of the
    /// signature.
    pub fn new(signature: &Signature, dims: &[u64]) -> Self {
        let Some(first) = dims.first() else {
            return Self::default();
        };
        let mut hasher = DefaultHasher::new();
        dims.hash(&mut hasher);
        Self {
            size: signature.row_elements(dims).max(1),
            dims: hasher.finish(),
            is_even: dims.iter().all(|size| size == first),
        }
    }

    /// The class of its size; `None` if queries come in one size.
    pub fn class(self) -> Option<usize> {
        (self.size > 0).then(|| {
            let class = (self.size as f64).log2() * CLASSES_PER_DOUBLING;
            // Rounding must not turn the end of a class into the beginning of the next.
            (class - 1e-9).ceil().max(0.0) as usize
        })
    }

    /// The largest size of its class.
    pub fn class_end(self) -> u64 {
        let end = |class: usize| (class as f64 / CLASSES_PER_DOUBLING).exp2();
        // The cast saturates.
        self.class()
            .map_or(0, |class| (end(class).ceil() as u64).max(self.size))
    }

    /// Elements of one row over all inputs.
    pub fn size(self) -> u64 {
        self.size
    }

    /// Identifies the queries of a variant with which it may share a batch.
    pub fn shape(self, variant: &Variant) -> Shape {
        let sharing = match &variant.padding {
            Some(_) if self.is_even => Sharing::Near,
            _ => Sharing::Equal(self.dims),
        };
        Shape {
            size: self.size,
            sharing,
        }
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::{DataType, TensorSpec};

    use super::*;

    fn extent(size: u64) -> InputSize {
        let input = TensorSpec {
            name: "x".to_owned(),
            data_type: DataType::Int64,
            shape: vec![None, None],
        };
        let signature = Signature {
            inputs: vec![input],
            outputs: vec![],
            batched: true,
        };
        InputSize::new(&signature, &[size])
    }

    #[test]
    fn a_class_ends_less_than_a_tenth_above_its_sizes() {
        for size in (1..5_000).chain([1 << 40, (1 << 40) + 1]) {
            let end = extent(size).class_end();
            assert!(end >= size, "{size} ends at {end}");
            assert!(
                end as f64 <= size as f64 * 1.1 + 1.0,
                "{size} ends at {end}"
            );
        }
        assert_eq!(extent(512).class_end(), 512);
        assert!(extent(u64::MAX).class() < Some(CLASSES));
    }

    #[test]
    fn one_size_has_no_class() {
        assert_eq!(InputSize::default().class(), None);
        assert_ne!(extent(3).dims, extent(4).dims);
    }
}
