//! Scores compared with the numbers of other programs.

use super::*;

fn classes(values: &[u64]) -> Labels {
    Labels {
        per_record: 1,
        values: Expectation::Classes(values.to_vec()),
    }
}

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_elements(shape.to_vec(), values).expect("fits")
}

fn score(metric: Metric, labels: &Labels, output: &Tensor) -> Accuracy {
    let mut scorer = Scorer::new(metric, labels, "y");
    scorer.push(output, output.rows()).expect("scores");
    scorer.finish(32)
}

#[test]
fn the_first_of_equal_maxima_is_the_answer() {
    let output = floats(&[3, 3], &[1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 5.0, 1.0, 9.0]);
    assert_eq!(
        score(Metric::Top1, &classes(&[0, 1, 2]), &output).value,
        1.0
    );
    assert_eq!(
        score(Metric::Top1, &classes(&[1, 2, 0]), &output).value,
        0.0
    );
    assert_eq!(
        score(Metric::TopK(2), &classes(&[1, 2, 0]), &output).value,
        1.0
    );
    assert_eq!(
        score(Metric::TopK(2), &classes(&[2, 0, 1]), &output).value,
        0.0
    );
}

#[test]
fn not_a_number_finds_nothing() {
    let output = floats(&[1, 3], &[f32::NAN, 1.0, 0.0]);
    assert_eq!(score(Metric::TopK(2), &classes(&[1]), &output).value, 0.0);
    // Not even the first class, which is the most frequent.
    let output = floats(&[4, 2], &[[f32::NAN; 6].as_slice(), &[0.0, 1.0]].concat());
    for metric in [Metric::F1, Metric::F1Micro] {
        let nothing = classes(&[0, 0, 0, 0]);
        assert_eq!(score(metric, &nothing, &output).value, 0.0, "{metric:?}");
    }
    let last = classes(&[0, 0, 0, 1]);
    assert_eq!(score(Metric::F1, &last, &output).value, 0.5);
    assert_eq!(score(Metric::F1Micro, &last, &output).value, 0.25);
}

/// The positions of a sequence depend on each other: two records say as little as two labels.
#[test]
fn intervals_of_classes_are_of_whole_records() {
    let labels = Labels {
        per_record: 100,
        values: Expectation::Classes(vec![0; 200]),
    };
    let [right, wrong] = [[1.0f32, 0.0], [0.0, 1.0]].map(|row| row.repeat(100));
    let output = floats(&[2, 100, 2], &[right, wrong].concat());
    let accuracy = score(Metric::F1Micro, &labels, &output);
    assert_eq!(
        (accuracy.lower, accuracy.value, accuracy.upper),
        (0.0, 0.5, 1.0)
    );
    let one_by_one = floats(&[200, 2], &[1.0f32, 0.0, 0.0, 1.0].repeat(100));
    let accuracy = score(Metric::F1Micro, &classes(&[0; 200]), &one_by_one);
    assert!(accuracy.lower > 0.4 && accuracy.upper < 0.6, "{accuracy:?}");
}

#[test]
fn exact_compares_whole_records() {
    let labels = Labels {
        per_record: 2,
        values: Expectation::Exact(
            Tensor::from_elements(vec![2, 2], &[1i64, 2, i64::MAX, 4]).expect("fits"),
        ),
    };
    let output = Tensor::from_elements(vec![2, 2], &[1i64, 2, i64::MAX - 1, 4]).expect("fits");
    assert_eq!(score(Metric::Exact, &labels, &output).value, 0.5);
    let zero = Labels {
        per_record: 1,
        values: Expectation::Exact(floats(&[1], &[0.0])),
    };
    assert_eq!(
        score(Metric::Exact, &zero, &floats(&[1], &[-0.0])).value,
        1.0
    );
}

#[test]
fn mean_absolute_error_averages_records() {
    let labels = Labels {
        per_record: 2,
        values: Expectation::Real(vec![0.0, 0.0, 1.0, 1.0]),
    };
    let output = floats(&[2, 2], &[1.0, -3.0, 1.0, 1.0]);
    let accuracy = score(Metric::MeanAbsoluteError, &labels, &output);
    assert_eq!(accuracy.value, 1.0);
    let mut scorer = Scorer::new(Metric::MeanAbsoluteError, &labels, "y");
    let bad = scorer.push(&floats(&[2, 2], &[0.0, 0.0, f32::INFINITY, 0.0]), 2);
    assert!(matches!(bad, Err(ScoreError::NotFinite { record: 2, .. })));
}

/// Values by scikit-learn 1.9.1 (`f1_score`, `average="micro"`) on the same numbers.
#[test]
fn several_labels_of_a_record_count_one_by_one() {
    let labels = Labels {
        per_record: 3,
        values: Expectation::Real(vec![1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]),
    };
    let sure = [0.9, 0.6, 0.2, 0.1, 0.0, 0.4, 0.5, 0.7, 0.49];
    let accuracy = score(Metric::F1MultiLabel, &labels, &floats(&[3, 3], &sure));
    // Three of four labels are found, and one that does not exist.
    assert_close(accuracy.value, 6.0 / 8.0);
    assert!(
        accuracy.lower < 0.75 && accuracy.upper > 0.75,
        "{accuracy:?}"
    );
    let whole = Tensor::from_elements(vec![3, 3], &[1i64, 0, 1, 0, 0, 0, 1, 1, 0]).expect("fits");
    assert_eq!(score(Metric::F1MultiLabel, &labels, &whole).value, 1.0);
    let mut scorer = Scorer::new(Metric::F1MultiLabel, &labels, "y");
    let logits = scorer.push(&floats(&[3, 3], &[2.0; 9]), 3);
    let refused = matches!(
        logits,
        Err(ScoreError::Invalid(Invalid::NoProbability {
            record: 1,
            ..
        }))
    );
    assert!(refused, "{logits:?}");
}

fn assert_close(have: f64, want: f64) {
    assert!((have - want).abs() < 1e-9, "{have} for {want}");
}

/// Values by scikit-learn 1.9.1 on the same numbers.
#[test]
fn metrics_of_classes_agree_with_scikit_learn() {
    let rows = [
        [0.7, 0.2, 0.1],
        [0.1, 0.6, 0.3],
        [0.2, 0.5, 0.3],
        [0.3, 0.3, 0.4],
        [0.8, 0.1, 0.1],
        [0.25, 0.35, 0.4],
    ];
    let output = Tensor::from_elements(vec![6, 3], rows.as_flattened()).expect("fits");
    let labels = classes(&[0, 1, 2, 2, 1, 2]);
    assert_close(
        score(Metric::F1, &labels, &output).value,
        0.655_555_555_555_555_6,
    );
    assert_close(score(Metric::F1Micro, &labels, &output).value, 2.0 / 3.0);
    assert_close(
        score(Metric::LogLoss, &labels, &output).value,
        1.034_439_988_128_835_8,
    );
    let logits = [2.0, 1.0, -1.0, 0.0, 3.0, 1.0];
    let logits = Tensor::from_elements(vec![2, 3], &logits).expect("fits");
    let of_logits = score(Metric::LogLoss, &classes(&[0, 2]), &logits);
    assert_close(of_logits.value, 1.259_429_118_162_236);
    // One column, or two of which the second counts.
    let sure = [0.1, 0.4, 0.35, 0.8, 0.4, 0.9];
    let two: Vec<f64> = sure.iter().flat_map(|it| [1.0 - it, *it]).collect();
    let labels = classes(&[0, 0, 1, 1, 1, 0]);
    for (columns, values) in [(1, sure.to_vec()), (2, two)] {
        let output = Tensor::from_elements(vec![6, columns], &values).expect("fits");
        let area = score(Metric::Auc, &labels, &output);
        assert_close(area.value, 0.5);
        assert!(area.lower < 0.2 && area.upper > 0.8, "{area:?}");
    }
}

/// Values by scikit-learn 1.9.1 and NumPy on the same numbers.
#[test]
fn metrics_of_numbers_agree_with_scikit_learn() {
    let reals = |per_record, values: &[f64]| Labels {
        per_record,
        values: Expectation::Real(values.to_vec()),
    };
    let output = Tensor::from_elements(vec![4, 1], &[2.5, 0.0, 2.0, 8.0]).expect("fits");
    let labels = reals(1, &[3.0, -0.5, 2.0, 7.0]);
    let of = |metric| score(metric, &labels, &output).value;
    assert_close(of(Metric::RootMeanSquareError), 0.612_372_435_695_794_5);
    assert_close(of(Metric::R2), 0.948_608_137_044_967_9);
    assert_close(
        of(Metric::MeanAbsolutePercentageError),
        0.327_380_952_380_952_4,
    );
    let output = Tensor::from_elements(vec![2, 2], &[1.0, 2.0, 3.0, -1.0]).expect("fits");
    let labels = reals(2, &[2.0, 1.0, 3.0, 1.0]);
    let cosine = score(Metric::Cosine, &labels, &output);
    assert_close(cosine.value, 0.8);
    assert!(cosine.lower <= 0.8 && cosine.upper >= 0.8, "{cosine:?}");
}

#[test]
fn rounding_is_no_error_and_more_is() {
    let labels = Labels {
        per_record: 2,
        values: Expectation::Real(vec![100.0, 0.001]),
    };
    let of = |metric, output: [f32; 2]| {
        let output = Tensor::from_elements(vec![1, 2], &output).expect("fits");
        score(metric, &labels, &output).value
    };
    let (rounded, wrong) = ([100.0005, 0.001], [100.01, 0.001]);
    for metric in [Metric::MeanAbsoluteError, Metric::RootMeanSquareError] {
        assert!(of(metric, rounded) == 0.0, "{metric:?}");
        assert!(of(metric, wrong) > 0.004, "{metric:?}");
    }
    assert!(of(Metric::Cosine, rounded) == 1.0);
    // A small element is not within the rounding of a large one if each counts by itself.
    let small = [100.0, 0.0015];
    assert!(of(Metric::MeanAbsolutePercentageError, small) > 0.2);
}

#[test]
fn what_a_metric_cannot_say_is_refused_with_the_record() {
    let labels = Labels {
        per_record: 1,
        values: Expectation::Real(vec![1.0, 0.0]),
    };
    let mut scorer = Scorer::new(Metric::MeanAbsolutePercentageError, &labels, "y");
    let refused = scorer.push(&floats(&[2, 1], &[1.0, 2.0]), 2);
    let refused = refused.expect_err("it divides by 0").to_string();
    assert!(
        refused.contains("record `2`") && refused.contains("`mape`"),
        "{refused}"
    );
    let labels = classes(&[0, 1]);
    let mut scorer = Scorer::new(Metric::LogLoss, &labels, "y");
    let refused = scorer.push(&floats(&[2, 2], &[1.0, 0.0, f32::NAN, 1.0]), 2);
    assert!(refused.is_err());
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let labels = classes(&[0, 7]);
    let mut scorer = Scorer::new(Metric::Top1, &labels, "y");
    assert!(scorer.push(&floats(&[1, 3], &[0.0; 3]), 2).is_err());
    assert!(matches!(
        scorer.push(&floats(&[2, 3], &[0.0; 6]), 2),
        Err(ScoreError::Invalid(Invalid::Label { record: 2, .. }))
    ));
}

#[test]
fn classes_that_do_not_come_last_are_refused() {
    let labels = Labels {
        per_record: 2,
        values: Expectation::Classes(vec![0, 2]),
    };
    let mut scorer = Scorer::new(Metric::TokenAccuracy, &labels, "y");
    // A plane of two places for each of three classes.
    let planes = scorer.push(&floats(&[1, 3, 2], &[0.0; 6]), 1);
    assert!(
        matches!(
            planes,
            Err(ScoreError::Invalid(Invalid::OutputShape { .. }))
        ),
        "{planes:?}"
    );
    let places = floats(&[1, 2, 3, 1], &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(score(Metric::TokenAccuracy, &labels, &places).value, 1.0);
    // The area is of the second class of two, and not of the last of three.
    let two = classes(&[0, 1]);
    let mut scorer = Scorer::new(Metric::Auc, &two, "y");
    let three = scorer.push(&floats(&[2, 3], &[0.0; 6]), 2);
    assert!(
        matches!(
            three,
            Err(ScoreError::Invalid(Invalid::NotTwoClasses { .. }))
        ),
        "{three:?}"
    );
}

#[test]
fn batches_add_up() {
    let labels = classes(&[0, 1, 1]);
    let mut scorer = Scorer::new(Metric::Top1, &labels, "y");
    scorer
        .push(&floats(&[2, 2], &[1.0, 0.0, 0.0, 1.0]), 2)
        .expect("scores");
    scorer
        .push(&floats(&[1, 2], &[1.0, 0.0]), 1)
        .expect("scores");
    let accuracy = scorer.finish(2);
    assert_eq!((accuracy.records, accuracy.value), (3, 2.0 / 3.0));
}
