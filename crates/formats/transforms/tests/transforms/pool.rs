//! One vector of those of all tokens.

use serde_json::{Value, json};
use sextant_types::{NamedTensor, Tensor};

use crate::{floats, output, transform, with_files};

#[test]
fn rows_of_texts_that_are_out_of_order_are_no_texts() {
    let pool = with_files(json!({"pool": {}}), &[], &["text_index"]);
    for (index, expected) in [
        ([1i64, 1], "has 1 in row `0`"),
        ([0, 2], "has 2 in row `1`"),
    ] {
        let index = Tensor::from_elements(vec![2], &index).expect("numbers");
        let mask = Tensor::from_elements(vec![2, 1], &[1i64, 1]).expect("numbers");
        let refused = pool.apply(&[
            floats("hidden", &[2, 1, 1], &[1.0, 2.0]),
            NamedTensor::new("attention_mask", mask),
            NamedTensor::new("text_index", index),
        ]);
        let error = refused.expect_err("no texts").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn tokens_are_pooled_without_those_that_the_mask_leaves_out() {
    let hidden = floats("hidden", &[1, 3, 2], &[3.0, 4.0, 1.0, 0.0, 9.0, 9.0]);
    let mask = Tensor::from_elements(vec![1, 3], &[1i64, 1, 0]).expect("a mask");
    let inputs = [hidden, NamedTensor::new("attention_mask", mask)];
    let to = |options: Value| {
        let outputs = transform(json!({"pool": options}))
            .apply(&inputs)
            .expect("pooled");
        output(&outputs, "embedding")
            .to_vec::<f32>()
            .expect("floats")
    };
    assert_eq!(to(json!({})), [2.0, 2.0]);
    assert_eq!(to(json!({"mode": "max"})), [3.0, 4.0]);
    assert_eq!(to(json!({"mode": "first", "normalize": true})), [0.6, 0.8]);
}

#[test]
fn vectors_of_large_and_of_small_numbers_have_the_length_one() {
    for scale in [1e38f32, 3e19, 1.0, 1e-30] {
        let vectors = floats("vectors", &[2, 2], &[3.0 * scale, 0.0, scale, -scale]);
        let outputs = transform(json!({"normalize": {}}))
            .apply(&[vectors])
            .expect("vectors");
        let made = output(&outputs, "vectors").to_vec::<f32>().expect("floats");
        let half = 0.5f32.sqrt();
        for (made, wanted) in made.iter().zip([1.0, 0.0, half, -half]) {
            assert!((made - wanted).abs() < 1e-6, "{scale}: {made}, {wanted}");
        }
        let hidden = floats(
            "hidden",
            &[1, 2, 2],
            &[3.0 * scale, scale, 3.0 * scale, scale],
        );
        let mask = Tensor::from_elements(vec![1, 2], &[1i64, 1]).expect("a mask");
        let outputs = transform(json!({"pool": {}}))
            .apply(&[hidden, NamedTensor::new("attention_mask", mask)])
            .expect("pooled");
        let made = output(&outputs, "embedding")
            .to_vec::<f32>()
            .expect("floats");
        for (made, wanted) in made.iter().zip([3.0f32, 1.0]) {
            assert!((made / scale - wanted).abs() < 1e-6, "{scale}: {made}");
        }
    }
}
