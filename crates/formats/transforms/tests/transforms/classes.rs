//! Scores: probabilities, and the likeliest classes.

use serde_json::json;
use sextant_transforms::Error;

use crate::{floats, output, refused, strings, transform, with_files};

#[test]
fn scores_become_probabilities_and_the_likeliest_classes() {
    let scores = floats(
        "scores",
        &[2, 3],
        &[0.0, 0.0, 0.0, 1000.0, 0.0, f32::NEG_INFINITY],
    );
    let outputs = transform(json!({"softmax": {}}))
        .apply(std::slice::from_ref(&scores))
        .expect("softmax");
    let probabilities = output(&outputs, "probabilities")
        .to_vec::<f32>()
        .expect("floats");
    assert_eq!(probabilities[3..], [1.0, 0.0, 0.0]);
    assert!(
        probabilities[..3]
            .iter()
            .all(|it| (it - 1.0 / 3.0).abs() < 1e-6)
    );
    let top = transform(json!({"top_k": {"k": 2, "labels": ["ant", "bee", "cat"]}}));
    let outputs = top.apply(&[scores]).expect("top");
    assert_eq!(
        strings(output(&outputs, "labels")),
        ["ant", "bee", "ant", "bee"]
    );
    let unnamed = with_files(
        json!({"top_k": {"labels_file": "l.txt"}}),
        &[("l.txt", "x\r\ny\n")],
        &[],
    );
    let outputs = unnamed
        .apply(&[floats("scores", &[1, 2], &[f32::NAN, 0.1])])
        .expect("top");
    assert_eq!(strings(output(&outputs, "labels")), ["y"]);
    let error = top.apply(&[floats("scores", &[1, 2], &[0.1, 0.2])]);
    assert!(
        matches!(
            error,
            Err(Error::Input {
                input: "scores",
                ..
            })
        ),
        "{error:?}"
    );
}

#[test]
fn a_temperature_that_makes_no_probabilities_is_refused() {
    for temperature in [0.0, -1.0, 1e39] {
        let error = refused(json!({"softmax": {"temperature": temperature}}));
        assert!(
            matches!(
                error,
                Error::Option {
                    option: "temperature",
                    ..
                }
            ),
            "{error:?}"
        );
    }
}
