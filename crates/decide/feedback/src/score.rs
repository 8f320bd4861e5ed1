//! Scores the feedback on a row.

use serde_json::Value;
use sextant_types::Metric;

use crate::{
    Prediction,
    prediction::{digest_of_numbers, digest_of_texts},
};

/// The right answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Label {
    /// The number of a class, or a value.
    Number(f64),
    /// Several values.
    Numbers(Vec<f64>),
    /// A text. Names of classes arrive as numbers.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
}

impl Label {
    /// A number, a text, or a list of either, from a JSON value; `true` is 1. `None` for any other value.
    pub fn of_json(value: &Value) -> Option<Self> {
        match value {
            Value::Array(all) if all.is_empty() => None,
            Value::Array(all) => {
                let numbers = || {
                    all.iter()
                        .map(real)
                        .collect::<Option<_>>()
                        .map(Self::Numbers)
                };
                let texts = || all.iter().map(text).collect::<Option<_>>().map(Self::Texts);
                numbers().or_else(texts)
            }
            Value::String(_) => text(value).map(Self::Text),
            value => real(value).map(Self::Number),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|it| !it.contains('\0'));
    text.map(str::to_owned)
}

fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        value => value.as_f64().filter(|number| number.is_finite()),
    }
}

/// The reason why a label does not fit the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LabelMismatch {
    /// It should name a class.
    #[error(
        "the label of this answer is a class: a whole number from 0 to 65534, or the name of one"
    )]
    NoClass,
    /// It should be a number.
    #[error("the label of this answer is one finite number")]
    NoNumber,
    /// A relative error of a value of zero is not defined.
    #[error("the label is 0, and errors are shares of labels here: it says nothing")]
    Zero,
}

/// The score of a label, in the unit that the metric sums: 1 or 0 if rows are right or wrong, the error of the row if
/// errors are averaged, its square for `rmse`. `None` if the token lacks what the score needs.
///
/// # Errors
/// When no label of this answer can have this form.
pub fn score(
    metric: Metric,
    prediction: &Prediction,
    row: u32,
    label: &Label,
) -> Result<Option<f64>, LabelMismatch> {
    let row = row as usize;
    match prediction {
        Prediction::Unknown => Ok(None),
        Prediction::Classes { best, classes } => {
            let best = usize::from(*best);
            let class = class(label)?;
            let of_row = classes.chunks(best).nth(row);
            Ok(of_row.map(|row| f64::from(u8::from(row.contains(&class)))))
        }
        Prediction::Numbers(numbers) => {
            let Label::Number(wanted) = label else {
                return Err(LabelMismatch::NoNumber);
            };
            let have = numbers.get(row).map(|have| f64::from(*have));
            have.map(|have| error(metric, have, *wanted)).transpose()
        }
        Prediction::Digests(digests) => {
            let wanted = digest(label);
            let have = digests.get(row);
            Ok(have.map(|have| f64::from(u8::from(*have == wanted))))
        }
    }
}

fn class(label: &Label) -> Result<u16, LabelMismatch> {
    let Label::Number(number) = label else {
        return Err(LabelMismatch::NoClass);
    };
    let is_class = number.fract() == 0.0 && (0.0..f64::from(u16::MAX)).contains(number);
    is_class
        .then_some(*number as u16)
        .ok_or(LabelMismatch::NoClass)
}

fn error(metric: Metric, have: f64, wanted: f64) -> Result<f64, LabelMismatch> {
    let error = (have - wanted).abs();
    let score = match metric {
        Metric::RootMeanSquareError => error * error,
        Metric::MeanAbsolutePercentageError if wanted == 0.0 => return Err(LabelMismatch::Zero),
        Metric::MeanAbsolutePercentageError => error / wanted.abs(),
        _ => error,
    };
    score
        .is_finite()
        .then_some(score)
        .ok_or(LabelMismatch::NoNumber)
}

fn digest(label: &Label) -> u64 {
    match label {
        Label::Number(number) => digest_of_numbers(&[*number]),
        Label::Numbers(numbers) => digest_of_numbers(numbers),
        Label::Text(text) => digest_of_texts(&[text]),
        Label::Texts(texts) => digest_of_texts(texts),
    }
}

#[cfg(test)]
mod tests {
    use sextant_types::{DataType, Tensor};

    use super::*;

    fn tensor(shape: Vec<usize>, values: &[f32]) -> Tensor {
        let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
        Tensor::from_bytes(DataType::Fp32, shape, bytes.into()).unwrap()
    }

    fn scores(metric: Metric, output: &Tensor, rows: u32, label: f64) -> Vec<Option<f64>> {
        let prediction = Prediction::of(metric, output, rows);
        let label = Label::Number(label);
        let each = (0..rows).map(|row| score(metric, &prediction, row, &label));
        each.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_class_is_right_where_it_is_the_first_of_the_greatest() {
        let output = tensor(
            vec![3, 3],
            &[0.1, 0.7, 0.7, 5.0, 1.0, 2.0, f32::NAN, 9.0, 1.0],
        );
        let right = [Some(1.0), Some(0.0), Some(0.0)];
        assert_eq!(scores(Metric::Top1, &output, 3, 1.0), right);
        let right = [Some(1.0), Some(1.0), Some(0.0)];
        assert_eq!(scores(Metric::TopK(2), &output, 3, 2.0), right);
    }

    #[test]
    fn errors_are_summed_as_the_metric_has_them() {
        let output = tensor(vec![2, 1], &[3.0, 1.0]);
        let errors = |metric| scores(metric, &output, 2, 2.0);
        assert_eq!(errors(Metric::MeanAbsoluteError), [Some(1.0), Some(1.0)]);
        let output = tensor(vec![1, 1], &[5.0]);
        let square = scores(Metric::RootMeanSquareError, &output, 1, 2.0);
        assert_eq!(square, [Some(9.0)]);
        let share = scores(Metric::MeanAbsolutePercentageError, &output, 1, 2.0);
        assert_eq!(share, [Some(1.5)]);
    }

    #[test]
    fn a_label_of_another_shape_is_refused() {
        let classes = Prediction::of(Metric::Top1, &tensor(vec![1, 2], &[0.0, 1.0]), 1);
        let refused = |label: Label| score(Metric::Top1, &classes, 0, &label).unwrap_err();
        for number in [0.5, -1.0, f64::NAN, f64::INFINITY, 65_535.0] {
            assert_eq!(
                refused(Label::Number(number)),
                LabelMismatch::NoClass,
                "{number}"
            );
        }
        assert_eq!(refused(Label::Text("x".into())), LabelMismatch::NoClass);
        let numbers = Prediction::Numbers(vec![1.0]);
        let error = |metric, label| score(metric, &numbers, 0, &label).unwrap_err();
        let text = Label::Text("x".into());
        assert_eq!(
            error(Metric::MeanAbsoluteError, text),
            LabelMismatch::NoNumber
        );
        let (mae, nan) = (Metric::MeanAbsoluteError, Label::Number(f64::NAN));
        assert_eq!(error(mae, nan), LabelMismatch::NoNumber);
        let mape = Metric::MeanAbsolutePercentageError;
        assert_eq!(error(mape, Label::Number(0.0)), LabelMismatch::Zero);
    }

    #[test]
    fn whole_rows_are_compared_exactly() {
        let output = tensor(vec![2, 2], &[1.0, 2.0, -0.0, 3.0]);
        let exact = Prediction::of(Metric::Exact, &output, 2);
        let at = |row, numbers: &[f64]| {
            let label = Label::Numbers(numbers.to_vec());
            score(Metric::Exact, &exact, row, &label).unwrap()
        };
        assert_eq!(at(0, &[1.0, 2.0]), Some(1.0));
        assert_eq!(at(0, &[2.0, 1.0]), Some(0.0));
        assert_eq!(at(1, &[0.0, 3.0]), Some(1.0));
    }

    #[test]
    fn what_a_token_has_no_room_for_is_not_scored() {
        let output = tensor(vec![2048, 1], &[0.0; 2048]);
        let prediction = Prediction::of(Metric::MeanAbsoluteError, &output, 2048);
        assert_eq!(prediction, Prediction::Unknown);
        let label = Label::Number(0.0);
        let none = score(Metric::MeanAbsoluteError, &prediction, 0, &label);
        assert_eq!(none, Ok(None));
    }
}
