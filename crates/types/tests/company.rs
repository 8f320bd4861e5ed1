//! Compares rows in company with the same rows alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sextant_types::{
    Tensor,
    company::{Difference, Tolerance},
};

fn row(values: [f32; 2]) -> Tensor {
    Tensor::from_elements(vec![1, 2], &values).unwrap()
}

#[test]
fn what_is_infinite_in_company_alone_is_another_answer() {
    for tolerance in [false, true].map(Tolerance::of) {
        let compare = |together, alone| tolerance.compare(&row(together), &row(alone));
        for (together, alone) in [
            ([f32::INFINITY, 1.0], [5.0, 1.0]),
            ([5.0, 1.0], [f32::INFINITY, 1.0]),
            ([f32::INFINITY, 1.0], [f32::NEG_INFINITY, 1.0]),
            ([f32::NAN, 1.0], [5.0, 1.0]),
            ([f32::NAN, 1.0], [f32::INFINITY, 1.0]),
        ] {
            assert_eq!(
                compare(together, alone),
                Difference::Values,
                "{together:?} {alone:?}"
            );
        }
        // A masked position is masked in both, and the others are compared as usual.
        for same in [f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(compare([same, 1.0], [same, 1.00005]), Difference::None);
            assert_eq!(compare([same, 1.0], [same, 2.0]), Difference::Values);
        }
    }
}
