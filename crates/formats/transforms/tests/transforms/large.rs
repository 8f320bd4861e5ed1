//! Outputs of any transform that would be too large.

use serde_json::json;
use sextant_transforms::{Error, MOST_BYTES, Transform};
use sextant_types::{NamedTensor, Tensor};

use crate::{floats, output, strings, transform, with_files};

/// What would be made is too large, and is refused before it is made.
fn assert_too_large(of: &Transform, inputs: &[NamedTensor], wanted: &str) {
    assert!(of.needs_bytes(inputs) > MOST_BYTES, "{wanted}");
    let error = of.apply(inputs);
    assert!(
        matches!(error, Err(Error::TooLarge { what, .. }) if what == wanted),
        "{error:?}"
    );
}

#[test]
fn inputs_without_elements_make_nothing_large() {
    let pool = transform(json!({"pool": {}}));
    for (rows, components) in [(1, 1 << 40), (1 << 40, 1)] {
        let mask = Tensor::from_elements(vec![rows, 0], &[0i64; 0]).expect("a mask");
        let tokens = [
            floats("hidden", &[rows, 0, components], &[]),
            NamedTensor::new("attention_mask", mask),
        ];
        assert!(
            !pool.is_quick(&tokens),
            "nobody waits for it on this thread"
        );
        assert_too_large(&pool, &tokens, "embedding");
    }
    let file = &[("l.txt", "-\na\n")];
    let ctc = with_files(json!({"ctc": {"labels_file": "l.txt"}}), file, &[]);
    assert_too_large(&ctc, &[floats("scores", &[1 << 40, 0, 2], &[])], "text");
}

#[test]
fn names_that_are_long_are_not_repeated_without_end() {
    let long = "x".repeat(1 << 20);
    let top = transform(json!({"top_k": {"labels": [long]}}));
    let rows = |rows: usize| [floats("scores", &[rows, 1], &vec![0.5; rows])];
    assert_too_large(&top, &rows(1000), "labels");
    let outputs = top.apply(&rows(2)).expect("two names");
    assert_eq!(
        strings(output(&outputs, "labels")),
        [long.as_str(), long.as_str()]
    );
    let file = format!("-\n{long}\n");
    let options = json!({"ctc": {"labels_file": "l.txt"}});
    let ctc = with_files(options, &[("l.txt", file.as_str())], &[]);
    let steps = floats("scores", &[1, 1000, 2], &[0.5; 2000]);
    assert_too_large(&ctc, &[steps], "text");
}
