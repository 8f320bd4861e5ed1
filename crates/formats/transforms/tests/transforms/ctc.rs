//! What a model that reads a line step by step has read.

use serde_json::json;

use crate::{floats, output, strings, with_files};

#[test]
fn what_was_read_step_by_step_is_one_text() {
    let file = &[("l.txt", "-\na\n\u{e9}\n \n")];
    let ctc = with_files(json!({"ctc": {"labels_file": "l.txt"}}), file, &[]);
    // Classes of the steps of two rows: repeats are one, but for a blank between them.
    let steps = [1, 1, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0];
    let mut scores = vec![0.0; steps.len() * 4];
    for (at, class) in steps.into_iter().enumerate() {
        scores[at * 4 + class] = if at == 0 { 0.6 } else { 0.8 };
    }
    let outputs = ctc
        .apply(&[floats("scores", &[2, 6, 4], &scores)])
        .expect("ctc");
    assert_eq!(strings(output(&outputs, "text")), ["aa\u{e9} ", ""]);
    let scores = output(&outputs, "scores").to_vec::<f32>().expect("floats");
    assert!(
        (scores[0] - 0.75).abs() < 1e-6 && scores[1] == 0.0,
        "{scores:?}"
    );
    let none = ctc
        .apply(&[floats("scores", &[0, 6, 4], &[])])
        .expect("ctc");
    assert!(strings(output(&none, "text")).is_empty());
    let error = ctc.apply(&[floats("scores", &[1, 1, 2], &[0.1, 0.2])]);
    assert!(error.is_err(), "two classes, and names of four");
}
