//! Labels and metrics: what an output can have, and what labels mean to it.

use super::*;

#[test]
fn labels_are_never_rounded() {
    let x = || Archive::new().array("x", &[1, 2], &[1f32, 2.0]);
    let floats = top1(&x().array("labels", &[1], &[1f64]).zip());
    assert!(
        matches!(floats, Err(Invalid::LabelType { .. })),
        "{floats:?}"
    );
    let exact = |value: f64| {
        let archive = x().array("labels", &[1, 3], &[value, 0.0, 1.0]);
        read(&archive.zip(), expected(&classifier(), Metric::Exact))
    };
    assert!(exact(0.5).is_ok());
    assert!(matches!(exact(0.1), Err(Invalid::LabelType { .. })));
    let mae = x().array("labels", &[1, 3], &[0.1f64, 0.2, 0.3]).zip();
    let mae = read(&mae, expected(&classifier(), Metric::MeanAbsoluteError)).expect("reads");
    assert_eq!(mae.labels().values, Expectation::Real(vec![0.1, 0.2, 0.3]));
    let nan = x().array("labels", &[1, 3], &[f64::NAN, 0.2, 0.3]).zip();
    let nan = read(&nan, expected(&classifier(), Metric::MeanAbsoluteError));
    assert!(matches!(nan, Err(Invalid::Label { .. })), "{nan:?}");
}

#[test]
fn metrics_that_the_output_cannot_have_are_refused() {
    let mut signature = classifier();
    signature.outputs[0].shape = vec![None];
    let result = read(&good().zip(), expected(&signature, Metric::TopK(2)));
    assert!(matches!(result, Err(Invalid::NoClassAxis { .. })));
    signature.outputs.clear();
    let result = read(&good().zip(), expected(&signature, Metric::Top1));
    assert_eq!(result.err(), Some(Invalid::NoOutput));
}

#[test]
fn metrics_that_call_every_answer_right_are_refused() {
    let mut signature = classifier();
    let mut refused = |columns: Option<u64>, metric| {
        signature.outputs[0].shape = vec![None, columns];
        let result = read(&good().zip(), expected(&signature, metric));
        matches!(result, Err(Invalid::AlwaysRight { .. }))
    };
    for metric in [Metric::Top1, Metric::F1, Metric::LogLoss, Metric::Cosine] {
        assert!(refused(Some(1), metric), "{metric:?}");
        assert!(!refused(Some(2), metric), "{metric:?}");
        assert!(!refused(None, metric), "{metric:?}");
    }
    assert!(refused(Some(5), Metric::TopK(5)));
    assert!(!refused(Some(6), Metric::TopK(5)));
    for metric in [Metric::Auc, Metric::MeanAbsoluteError, Metric::Exact] {
        assert!(!refused(Some(1), metric), "{metric:?}");
    }
}

/// What scikit-learn's classifiers answer: a label and scores.
fn labelled() -> Signature {
    let label = spec("label", DataType::Int64, &[None]);
    let mut signature = classifier();
    signature.outputs.insert(0, label);
    signature
}

#[test]
fn each_metric_is_of_the_output_that_it_is_meant_for() {
    let of = |metric| ScoringTarget::by(metric, &labelled()).output;
    assert_eq!(of(Metric::Top1), 1);
    assert_eq!(of(Metric::TopK(2)), 1);
    assert_eq!(of(Metric::Exact), 0);
    assert_eq!(of(Metric::MeanAbsoluteError), 1);
    let only_scores = |metric| ScoringTarget::by(metric, &classifier()).output;
    assert_eq!(only_scores(Metric::Exact), 0);
}

#[test]
fn labels_are_classes_where_the_model_names_them() {
    let signature = labelled();
    let read = |classes: [&str; 3], file: &Bytes| {
        let scored = ScoringTarget {
            output: 1,
            classes: classes.map(str::to_owned).to_vec(),
            own: Vec::new(),
        };
        let expected = SetRequirements {
            scored: &scored,
            ..expected(&signature, Metric::Top1)
        };
        read(file, expected)
    };
    let lines = |labels: [&str; 3]| {
        let line = |label| format!("{{\"inputs\": {{\"x\": [1, 2]}}, \"label\": {label}}}\n");
        Bytes::from(labels.map(line).concat())
    };
    let names = ["cat", "dog", "eel"];
    let classes = |set: Result<ValidationSet, Invalid>| {
        let set = set.expect("reads");
        assert_eq!(set.scored(), 1);
        set.labels().values.clone()
    };
    let named = lines(["\"eel\"", "\"cat\"", "\"dog\""]);
    assert_eq!(
        classes(read(names, &named)),
        Expectation::Classes(vec![2, 0, 1])
    );
    // Positions may be given where classes have names that are no numbers.
    let positions = lines(["2", "0", "1"]);
    assert_eq!(
        classes(read(names, &positions)),
        Expectation::Classes(vec![2, 0, 1])
    );
    let numbers = lines(["7", "3", "5"]);
    assert_eq!(
        classes(read(["3", "5", "7"], &numbers)),
        Expectation::Classes(vec![2, 0, 1])
    );
    for wrong in [
        lines(["\"cat\"", "\"cow\"", "\"dog\""]),
        lines(["0", "1", "3"]),
    ] {
        let error = read(names, &wrong)
            .expect_err("there is no such class")
            .to_string();
        assert!(
            error.contains("`label`") || error.contains("label "),
            "{error}"
        );
    }
    let error = read(["3", "5", "7"], &positions)
        .expect_err("2 is no class")
        .to_string();
    assert!(error.contains("`3`, `5`, `7`"), "{error}");
}
