//! The expected values of the scored output, in the form that the metric compares.

use serde::{Deserialize, Serialize};
use sextant_types::{
    Data, DataType, Metric, Tensor, TensorSpec,
    convert::{self, Number},
};

use super::{BOX, Invalid, RowShape, SetRequirements, fit_row, row_shape};

/// The class of a token that is not scored, as PyTorch writes it in labels.
const PASSED_OVER: i128 = -100;

/// The same in [`Expectation::Classes`].
pub const UNSCORED: u64 = u64::MAX;

/// The labels of records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Labels {
    /// Labels of one record: 1, or one per position for outputs like `[records, positions, classes]`.
    pub per_record: usize,
    /// The expected values.
    pub values: Expectation,
}

/// The form that a metric compares with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// Indices along the output's last axis; [`UNSCORED`] for tokens that are not scored.
    Classes(Vec<u64>),
    /// The output itself.
    #[serde(with = "super::bundle::tensor")]
    Exact(Tensor),
    /// The output's values, or boxes.
    Real(Vec<f64>),
    /// There are none: the answers of the uploaded file must replace them.
    Unknown,
}

/// Checks labels against metric and output.
pub(super) fn fit(labels: &Tensor, expected: SetRequirements<'_>) -> Result<Labels, Invalid> {
    let output = expected.output()?;
    let row = row_shape(output, expected.signature.batched);
    let context = Context {
        labels,
        output,
        expected,
    };
    match expected.metric {
        Metric::Top1
        | Metric::TopK(_)
        | Metric::F1
        | Metric::F1Micro
        | Metric::LogLoss
        | Metric::TokenAccuracy => {
            let (classes, positions) = row.split_last().ok_or(Invalid::NoOutput)?;
            context.check_shape(positions)?;
            context.classes(*classes)
        }
        Metric::Auc => {
            context.check_shape(&[])?;
            context.classes(Some(2))
        }
        Metric::Exact => {
            context.check_shape(row)?;
            context.exact()
        }
        Metric::MeanAbsoluteError
        | Metric::RootMeanSquareError
        | Metric::MeanAbsolutePercentageError
        | Metric::R2
        | Metric::Cosine
        | Metric::BoxOverlap => {
            context.check_shape(row)?;
            context.real()
        }
        Metric::F1MultiLabel => {
            context.check_shape(row)?;
            context.tags()
        }
        Metric::MeanAveragePrecision => {
            context.check_shape(&[None, Some(BOX + 1)])?;
            context.real()
        }
        // The metric's graph decides what it accepts.
        Metric::Custom => Ok(context.with(Expectation::Exact(labels.clone()))),
    }
}

/// Everything that a refusal names.
struct Context<'a> {
    labels: &'a Tensor,
    output: &'a TensorSpec,
    expected: SetRequirements<'a>,
}

impl Context<'_> {
    fn check_shape(&self, row: RowShape<'_>) -> Result<(), Invalid> {
        let given = self.labels.shape().get(1..).unwrap_or_default();
        // A file may leave out dimensions of 1 if there is one label for each record.
        if fit_row(given, row, self.expected.signature).is_some() || same_but_ones(given, row) {
            return Ok(());
        }
        Err(Invalid::LabelShape {
            given: self.labels.shape().to_vec(),
            metric: self.expected.metric.name(),
            output: self.output.name.clone(),
            expected: super::shape_text(row),
        })
    }

    fn classes(&self, classes: Option<u64>) -> Result<Labels, Invalid> {
        let scored = self.expected.scored;
        if let Data::Strings(names) = self.labels.data()
            && !scored.classes.is_empty()
        {
            let names = names.iter().map(String::from_utf8_lossy);
            return self.named(names.map(|name| name.into_owned()));
        }
        let values = integers(self.labels).ok_or_else(|| self.wrong_type("integers"))?;
        if scored.are_numbers() {
            return self.named(values.map(|value| value.to_string()));
        }
        let values = values
            .enumerate()
            .map(|(index, value)| {
                if value == PASSED_OVER && self.expected.metric == Metric::TokenAccuracy {
                    return Ok(UNSCORED);
                }
                let class = u64::try_from(value).ok();
                class
                    .filter(|class| classes.is_none_or(|classes| *class < classes))
                    .ok_or_else(|| self.no_such_class(index, value, classes))
            })
            .collect::<Result<Vec<u64>, Invalid>>()?;
        Ok(self.with(Expectation::Classes(values)))
    }

    /// Labels that are names of classes.
    fn named(&self, names: impl Iterator<Item = String>) -> Result<Labels, Invalid> {
        let column = |(index, name): (usize, String)| {
            let column = self.expected.scored.column(&name);
            column.ok_or_else(|| Invalid::Label {
                record: index + 1,
                why: self.known_classes(),
                value: name.chars().take(64).collect(),
            })
        };
        let columns = names.enumerate().map(column);
        Ok(self.with(Expectation::Classes(columns.collect::<Result<_, _>>()?)))
    }

    fn known_classes(&self) -> String {
        /// A message with more is too long.
        const MOST: usize = 10;
        let classes = &self.expected.scored.classes;
        let named = classes.iter().take(MOST).map(|class| format!("`{class}`"));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if classes.len() > MOST { ", .." } else { "" };
        format!(
            "the classes of output `{}` are {named}{more}",
            self.output.name
        )
    }

    fn exact(&self) -> Result<Labels, Invalid> {
        let to = self.output.data_type;
        let tensor = convert::exact(self.labels, to)
            .map_err(|why| self.wrong_type(&format!("values of {to}: {why}")))?;
        Ok(self.with(Expectation::Exact(tensor)))
    }

    fn real(&self) -> Result<Labels, Invalid> {
        let numbers = convert::numbers(self.labels).ok_or_else(|| self.wrong_type("numbers"))?;
        let values = numbers
            .enumerate()
            .map(|(index, number)| match number {
                Number::Integer(value) => Ok(value as f64),
                Number::Float(value) if value.is_finite() => Ok(value),
                Number::Float(value) => Err(Invalid::Label {
                    record: index + 1,
                    value: value.to_string(),
                    why: "an error from it cannot be a number".to_owned(),
                }),
            })
            .collect::<Result<Vec<f64>, Invalid>>()?;
        Ok(self.with(Expectation::Real(values)))
    }

    /// 1 for each label that a record has, and 0 for the others.
    fn tags(&self) -> Result<Labels, Invalid> {
        let numbers = convert::numbers(self.labels).ok_or_else(|| self.wrong_type("0 and 1"))?;
        let values = numbers.map(Number::real).enumerate().map(|(index, value)| {
            let is_tag = value == 0.0 || value == 1.0;
            is_tag.then_some(value).ok_or_else(|| Invalid::Label {
                record: index
                    / self
                        .labels
                        .len()
                        .checked_div(self.labels.rows())
                        .unwrap_or(1)
                        .max(1)
                    + 1,
                value: value.to_string(),
                why: "it must be 1 for a label that the record has, and 0 otherwise".to_owned(),
            })
        });
        let values = values.collect::<Result<Vec<f64>, Invalid>>()?;
        Ok(self.with(Expectation::Real(values)))
    }

    fn with(&self, values: Expectation) -> Labels {
        let records = self.labels.rows();
        Labels {
            per_record: self.labels.len().checked_div(records).unwrap_or(0),
            values,
        }
    }

    fn wrong_type(&self, expected: &str) -> Invalid {
        Invalid::LabelType {
            given: self.labels.data_type(),
            metric: self.expected.metric.name(),
            expected: expected.to_owned(),
        }
    }

    fn no_such_class(&self, index: usize, value: i128, classes: Option<u64>) -> Invalid {
        let why = match classes {
            Some(classes) => format!("output `{}` has `{classes}` classes", self.output.name),
            None => "classes count from 0".to_owned(),
        };
        Invalid::Label {
            record: index + 1,
            value: value.to_string(),
            why,
        }
    }
}

/// Whether two shapes are equal without their dimensions of 1.
pub(super) fn same_but_ones(given: &[usize], row: RowShape<'_>) -> bool {
    let given = given.iter().filter(|size| **size != 1).copied();
    let mut row = row.iter().filter(|size| **size != Some(1));
    let each = given.into_iter().all(|size| {
        let wanted = row.next();
        wanted.is_some_and(|wanted| wanted.is_none_or(|wanted| wanted == size as u64))
    });
    each && row.all(Option::is_none)
}

/// The values of a tensor of integers; floats and booleans are not class numbers.
fn integers(labels: &Tensor) -> Option<impl Iterator<Item = i128> + '_> {
    let integral = !convert::is_float(labels.data_type()) && labels.data_type() != DataType::Bool;
    let numbers = convert::numbers(labels).filter(|_| integral)?;
    Some(numbers.filter_map(|number| match number {
        Number::Integer(value) => Some(value),
        Number::Float(_) => None,
    }))
}

/// The type in which labels are read if the file has no types.
pub(super) fn untyped(expected: SetRequirements<'_>) -> Result<(DataType, RowShape<'_>), Invalid> {
    let output = expected.output()?;
    let row = row_shape(output, expected.signature.batched);
    Ok(match expected.metric {
        Metric::Top1
        | Metric::TopK(_)
        | Metric::F1
        | Metric::F1Micro
        | Metric::LogLoss
        | Metric::TokenAccuracy => (
            DataType::Int64,
            row.split_last().map_or(row, |(_, positions)| positions),
        ),
        Metric::Auc => (DataType::Int64, &[]),
        Metric::Exact => (output.data_type, row),
        Metric::MeanAbsoluteError
        | Metric::RootMeanSquareError
        | Metric::MeanAbsolutePercentageError
        | Metric::R2
        | Metric::Cosine
        | Metric::F1MultiLabel
        | Metric::BoxOverlap => (DataType::Fp64, row),
        Metric::MeanAveragePrecision => (DataType::Fp64, &[None, Some(BOX + 1)]),
        Metric::Custom => (DataType::Fp64, &[]),
    })
}

// === impl Expectation ===

impl Expectation {
    /// The number of labels.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Self::Classes(classes) => Some(classes.len()),
            Self::Exact(tensor) => Some(tensor.len()),
            Self::Real(values) => Some(values.len()),
            Self::Unknown => None,
        }
    }
}
