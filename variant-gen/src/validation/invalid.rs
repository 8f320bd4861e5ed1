//! Every way in which a validation set can be wrong.

use sextant_formats::npy::Problem;
use sextant_types::{DataType, InvalidTensor};

/// Why a validation set was refused. All of them carry the code `invalid_validation_set`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// There is nothing to score on.
    #[error("the validation set has no records")]
    NoRecords,
    /// A file of another kind.
    #[error("the validation set is {0}: save an `.npz` archive, JSONL or CSV")]
    Foreign(&'static str),
    /// More records than are accepted.
    #[error("the validation set has more than `{limit}` records")]
    TooManyRecords {
        /// The limit.
        limit: usize,
    },
    /// More bytes than are accepted, counted after decompression.
    #[error("the validation set is larger than `{limit}` bytes once decompressed")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The archive cannot be read.
    #[error("the .npz archive cannot be read: {0}")]
    Archive(String),
    /// An entry of the archive is damaged or cut short.
    #[error("array `{name}` of the .npz archive cannot be read: {why}")]
    Entry {
        /// The array's name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The same array twice.
    #[error("array `{0}` is in the .npz archive twice")]
    DuplicateArray(String),
    /// An array that is no input.
    #[error("array `{given}` is neither an input nor `labels`: the model's inputs are {known}")]
    UnknownArray {
        /// The array's name.
        given: String,
        /// The model's inputs, quoted.
        known: String,
    },
    /// What the archive holds is not an array that can be used.
    #[error("array `{name}`: {problem}")]
    Array {
        /// The array's name.
        name: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// An error that another process reported.
    #[error("{message}")]
    Told {
        /// Its message.
        message: String,
        /// Whether the shapes do not fit.
        of_shapes: bool,
    },
    /// A line is longer than any record that fits.
    #[error(
        "line {line} is longer than the `{limit}` bytes that a record of this model takes at most"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The limit.
        limit: u64,
    },
    /// A line of JSONL cannot be read.
    #[error("record {record}: {why}")]
    Record {
        /// Number of the record, from 1.
        record: usize,
        /// What is wrong.
        why: String,
    },
    /// A model input has no data.
    #[error("input `{name}` is missing from the validation set")]
    MissingInput {
        /// The input's name.
        name: String,
    },
    /// There are no labels, and the registration does not declare that.
    #[error(
        "the validation set has no labels, so no accuracy can be measured: add them (array, column or member `labels` or \
         `label`), or say so with `--no-labels` (field `labels=none`); then agreement with the uploaded file is measured, \
         which meets `min_relative_accuracy` and no `min_accuracy`"
    )]
    Unlabelled,
    /// There are labels, although the registration declares that there are none.
    #[error(
        "the validation set has labels: leave `--no-labels` (field `labels=none`) out, so that accuracy is measured, or \
         take the labels out of the set"
    )]
    Labelled,
    /// There are no labels, and the metric cannot compare with the file's own answers.
    #[error(
        "the validation set has no `labels`, and what the uploaded file answers cannot take their place for metric \
         `{metric}`: add labels, or take another metric"
    )]
    MissingLabels {
        /// The metric.
        metric: String,
    },
    /// The uploaded file answers records with different numbers of elements, so its answers cannot be labels.
    #[error(
        "the validation set has no `labels`, and what the uploaded file answers cannot take their place: output \
         `{output}` has `{one}` elements for some records and `{other}` for others: add labels, or leave records out \
         until each has as many"
    )]
    UnevenAnswers {
        /// The scored output.
        output: String,
        /// Elements of some records.
        one: String,
        /// Elements of others.
        other: String,
    },
    /// The uploaded file answers a record with NaN, or with an infinite number where numbers are compared.
    #[error(
        "the validation set has no `labels`, and what the uploaded file answers cannot take their place: output `{output}` \
         of record `{record}` has no finite number where `{metric}` needs one: add labels, leave the record out, or take \
         another metric"
    )]
    AnswersNotFinite {
        /// The scored output.
        output: String,
        /// The metric.
        metric: String,
        /// Number of the record, from 1.
        record: usize,
    },
    /// The name of the labels is that of an input.
    #[error(
        "the model has an input `labels`, and the array of this name in an .npz archive holds the labels: save the set as \
         JSONL, whose records have `inputs` and `label` apart"
    )]
    LabelsAreAnInput,
    /// A custom metric cannot be used.
    #[error("the graph of the metric (`--metric-model`) cannot be used: {0}")]
    CustomMetric(String),
    /// A table cannot be read.
    #[error("the CSV file cannot be read: {0}")]
    Table(String),
    /// A scalar instead of an array whose first dimension counts records.
    #[error("`{name}` is a scalar: its first dimension has to count the records")]
    NoRecordDimension {
        /// Which array.
        name: String,
    },
    /// Arrays disagree on the number of records.
    #[error("input `{name}` has `{records}` records, `labels` has `{labels}`")]
    RecordCounts {
        /// The input's name.
        name: String,
        /// Its records.
        records: usize,
        /// The labels' records.
        labels: usize,
    },
    /// An input's records have another shape than the model takes.
    #[error("input `{name}` has shape {given:?}: the model takes {expected}")]
    Shape {
        /// The input's name.
        name: String,
        /// The shape in the file.
        given: Vec<usize>,
        /// The accepted shape.
        expected: String,
    },
    /// An input's values do not fit the model's type.
    #[error("input `{name}` is {from}, the model takes {to}: {why}")]
    Convert {
        /// The input's name.
        name: String,
        /// The type in the file.
        from: DataType,
        /// The type the model takes.
        to: DataType,
        /// Which value cannot be converted.
        why: String,
    },
    /// The labels have another shape than the output.
    #[error(
        "`labels` has shape {given:?}: metric `{metric}` on output `{output}` needs {expected}"
    )]
    LabelShape {
        /// The shape in the file.
        given: Vec<usize>,
        /// The metric.
        metric: String,
        /// The scored output.
        output: String,
        /// The accepted shape.
        expected: String,
    },
    /// The labels have a type that the metric cannot use.
    #[error("`labels` is {given}: metric `{metric}` needs {expected}")]
    LabelType {
        /// The type in the file.
        given: DataType,
        /// The metric.
        metric: String,
        /// The accepted types.
        expected: String,
    },
    /// A label is no possible value of the output.
    #[error("label {record} is `{value}`: {why}")]
    Label {
        /// Number of the label, from 1.
        record: usize,
        /// Its value.
        value: String,
        /// Why not.
        why: String,
    },
    /// The model's output has no axis to take a class from.
    #[error(
        "metric `{metric}` needs a class axis: output `{output}` has shape {shape}; choose another output \
         (`--output`) or metric `exact`"
    )]
    NoClassAxis {
        /// The scored output.
        output: String,
        /// Its shape.
        shape: String,
        /// The metric.
        metric: String,
    },
    /// An output that should contain probabilities of labels contains something else.
    #[error(
        "metric `{metric}` is of probabilities, or 0 and 1: output `{output}` of record `{record}` has `{value}`; choose another \
         output (`--output`), or end the model in a sigmoid"
    )]
    NoProbability {
        /// The scored output.
        output: String,
        /// The metric.
        metric: String,
        /// Number of the record, from 1.
        record: usize,
        /// The value.
        value: String,
    },
    /// The output has no boxes.
    #[error(
        "metric `{metric}` is of boxes: output `{output}` has shape {shape}, and needs `{numbers}` numbers along its \
         last axis (docs/models.md); choose another output with `--output`"
    )]
    NoBoxes {
        /// The scored output.
        output: String,
        /// Its shape.
        shape: String,
        /// The metric.
        metric: String,
        /// Numbers of a box.
        numbers: u64,
    },
    /// There are more than two classes.
    #[error(
        "metric `auc` is of two classes: output `{output}` has shape {shape}; take `f1` or `log_loss`"
    )]
    NotTwoClasses {
        /// The scored output.
        output: String,
        /// Its shape.
        shape: String,
    },
    /// Every answer is right.
    #[error(
        "metric `{metric}` calls every answer of output `{output}` right, which has shape {shape}: {instead}"
    )]
    AlwaysRight {
        /// The scored output.
        output: String,
        /// Its shape.
        shape: String,
        /// The metric.
        metric: String,
        /// Advice.
        instead: &'static str,
    },
    /// The output's type cannot be scored by the metric.
    #[error("metric `{metric}` cannot score output `{output}` of type {data_type}")]
    MetricType {
        /// The scored output.
        output: String,
        /// Its type.
        data_type: DataType,
        /// The metric.
        metric: String,
    },
    /// The model has nothing to score.
    #[error("the model has no output")]
    NoOutput,
    /// The shape of the model's output does not fit the labels.
    #[error(
        "output `{output}` of {records} records has shape {given:?}: the labels need {expected}"
    )]
    OutputShape {
        /// The scored output.
        output: String,
        /// Records in the batch.
        records: usize,
        /// The output's shape.
        given: Vec<usize>,
        /// The shape that the labels need.
        expected: String,
    },
    /// A tensor could not be built.
    #[error("`{name}`: {source}")]
    Tensor {
        /// Which array.
        name: String,
        /// Why not.
        source: InvalidTensor,
    },
}

impl Invalid {
    /// Whether the number or the shape of records may be the reason. These depend on whether the model takes batches.
    pub fn is_of_shapes(&self) -> bool {
        matches!(
            self,
            Self::NoRecordDimension { .. }
                | Self::RecordCounts { .. }
                | Self::Record { .. }
                | Self::Shape { .. }
                | Self::Label { .. }
                | Self::LabelShape { .. }
                | Self::NoClassAxis { .. }
                | Self::NoBoxes { .. }
                | Self::NotTwoClasses { .. }
                | Self::AlwaysRight { .. }
                | Self::OutputShape { .. }
                | Self::Tensor { .. }
                | Self::Told {
                    of_shapes: true,
                    ..
                }
        )
    }
}
