//! Validation sets: the records a model's variants are scored on.
//!
//! Two formats. An `.npz` holds one array per model input under the input's name, and `labels`.
//! JSONL holds one record per line, `{"inputs": {name: nested array}, "label": ..}`.
//!
//! Types. *Inputs* are brought to the type that the model takes by the rules of
//! [`sextant_types::convert`], which hold for queries too. *Labels*
//! are never rounded: a label that the metric's type cannot hold exactly is refused. JSON numbers
//! have no type of their own and are read as the tensor's type.
//!
//! Shapes. Each array's first dimension counts the records. A model without a batch dimension
//! gets one record at a time; when its first dimension is fixed at 1, that 1 may be left out of
//! the record, and a 1 in front of a record of a model with a batch dimension is left out.
//!
//! The metric applies to one output, see [`Scored`]. Where a model says what the columns of that output
//! stand for, labels are those classes: names, or numbers where all classes are numbers.

use bytes::Bytes;
use sextant_types::{Data, DataType, Metric, NamedTensor, Signature, Tensor, TensorSpec, convert};

mod invalid;
mod jsonl;
mod labels;
mod npz;
mod scored;

pub use invalid::Invalid;
pub use labels::{Expectation, Labels};
pub use scored::Scored;

/// Name of the labels' array in an `.npz`.
pub const LABELS: &str = "labels";

/// How large a validation set may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Most bytes of all arrays once decompressed.
    pub bytes: u64,
    /// Most records.
    pub records: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 1 << 30,
            records: 1_000_000,
        }
    }
}

/// What a validation set has to fit.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The model's inputs and outputs.
    pub signature: &'a Signature,
    /// How outputs are scored.
    pub metric: Metric,
    /// Which of them.
    pub scored: &'a Scored,
    /// How much is accepted.
    pub limits: Limits,
}

/// A validation set that fits its model: every tensor's first dimension counts the records.
#[derive(Debug, Clone)]
pub struct ValidationSet {
    inputs: Vec<NamedTensor>,
    labels: Labels,
    scored: usize,
    records: usize,
    batched: bool,
}

impl<'a> Expected<'a> {
    /// The output that is scored.
    fn output(&self) -> Result<&'a TensorSpec, Invalid> {
        let output = self.signature.outputs.get(self.scored.output);
        output.ok_or(Invalid::NoOutput)
    }
}

/// Reads a validation set, telling the formats apart by their first bytes, and checks that it
/// fits.
pub fn read(bytes: &Bytes, expected: Expected<'_>) -> Result<ValidationSet, Invalid> {
    check_metric(expected)?;
    if bytes.is_empty() {
        return Err(Invalid::NoRecords);
    }
    if sextant_formats::zip::is_archive(bytes) {
        npz::read(bytes, expected)
    } else {
        jsonl::read(bytes, expected)
    }
}

// === impl ValidationSet ===

impl ValidationSet {
    /// Number of records, at least 1.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Position of the output that is scored.
    pub fn scored(&self) -> usize {
        self.scored
    }

    /// What the scored output should be.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Inputs of records `start .. start + count`, ready to run. A model without a batch
    /// dimension takes one record: `count` is then 1.
    pub fn rows(&self, start: usize, count: usize) -> Result<Vec<NamedTensor>, Invalid> {
        self.inputs
            .iter()
            .map(|input| {
                let rows = input.tensor.slice_rows(start, count);
                let rows = rows.and_then(|rows| match self.batched {
                    true => Ok(rows),
                    false => without_first_dimension(&rows),
                });
                let tensor = rows.map_err(|source| Invalid::Tensor {
                    name: input.name.clone(),
                    source,
                })?;
                Ok(NamedTensor::new(input.name.clone(), tensor))
            })
            .collect()
    }

    /// A batch of `count` records for profiling: the first ones, again from the start when the
    /// set is smaller.
    pub fn repeated(&self, count: usize) -> Result<Vec<NamedTensor>, Invalid> {
        if !self.batched {
            return self.rows(0, 1);
        }
        if count <= self.records {
            return self.rows(0, count);
        }
        self.inputs
            .iter()
            .map(|input| {
                let wrap = |source| Invalid::Tensor {
                    name: input.name.clone(),
                    source,
                };
                let mut parts = vec![&input.tensor; count / self.records];
                let rest = input
                    .tensor
                    .slice_rows(0, count % self.records)
                    .map_err(wrap)?;
                parts.push(&rest);
                let tensor = Tensor::concat(&parts).map_err(wrap)?;
                Ok(NamedTensor::new(input.name.clone(), tensor))
            })
            .collect()
    }
}

// === helpers ===

/// Tensors as a file gave them, before they are fitted to the model.
struct Raw {
    inputs: Vec<NamedTensor>,
    labels: Tensor,
}

/// A dimension where anything fits is `None`.
type RowShape<'a> = &'a [Option<u64>];

fn assemble(raw: &Raw, expected: Expected<'_>) -> Result<ValidationSet, Invalid> {
    let signature = expected.signature;
    let records = raw.labels.shape().first().copied();
    let records = records.ok_or(Invalid::NoRecordDimension {
        name: LABELS.to_owned(),
    })?;
    check_records(records, expected.limits)?;
    let inputs = signature
        .inputs
        .iter()
        .map(|spec| fit_input(spec, raw, records, signature.batched))
        .collect::<Result<Vec<_>, _>>()?;
    let labels = labels::fit(&raw.labels, expected)?;
    Ok(ValidationSet {
        inputs,
        labels,
        scored: expected.scored.output,
        records,
        batched: signature.batched,
    })
}

fn check_metric(expected: Expected<'_>) -> Result<(), Invalid> {
    let output = expected.output()?;
    let row = row_shape(output, expected.signature.batched);
    let classes = matches!(
        expected.metric,
        Metric::Top1 | Metric::TopK(_) | Metric::F1 | Metric::F1Micro | Metric::LogLoss
    );
    if classes && row.is_empty() {
        return Err(Invalid::NoClassAxis {
            output: output.name.clone(),
            shape: output.shape_text(),
            metric: expected.metric.name(),
        });
    }
    let columns = row
        .iter()
        .copied()
        .try_fold(1, |columns, size| Some(columns * size?));
    if expected.metric == Metric::Auc && columns.is_some_and(|columns| columns > 2) {
        return Err(Invalid::NotTwoClasses {
            output: output.name.clone(),
            shape: output.shape_text(),
        });
    }
    let numeric = output.data_type != DataType::Bytes;
    if !numeric && expected.metric != Metric::Exact {
        return Err(Invalid::MetricType {
            output: output.name.clone(),
            data_type: output.data_type,
            metric: expected.metric.name(),
        });
    }
    Ok(())
}

fn check_records(records: usize, limits: Limits) -> Result<(), Invalid> {
    match records {
        0 => Err(Invalid::NoRecords),
        records if records > limits.records => Err(Invalid::TooManyRecords {
            limit: limits.records,
        }),
        _ => Ok(()),
    }
}

fn fit_input(
    spec: &TensorSpec,
    raw: &Raw,
    records: usize,
    batched: bool,
) -> Result<NamedTensor, Invalid> {
    let name = || spec.name.clone();
    let given = raw.inputs.iter().find(|input| input.name == spec.name);
    let given = given.ok_or_else(|| Invalid::MissingInput { name: name() })?;
    let tensor = &given.tensor;
    let Some((rows, row)) = tensor.shape().split_first() else {
        return Err(Invalid::NoRecordDimension { name: name() });
    };
    if *rows != records {
        return Err(Invalid::RecordCounts {
            name: name(),
            records: *rows,
            labels: records,
        });
    }
    let shape = row_shape(spec, batched);
    let Some(fit) = fit_row(row, shape, batched) else {
        return Err(Invalid::Shape {
            name: name(),
            given: tensor.shape().to_vec(),
            expected: shape_text(shape),
        });
    };
    let tensor = convert::input(tensor, spec.data_type).map_err(|why| Invalid::Convert {
        name: name(),
        from: tensor.data_type(),
        to: spec.data_type,
        why,
    })?;
    let tensor = match fit {
        Fit::AsItIs => Ok(tensor),
        Fit::WithoutOne => with_unit_dimension(&tensor),
        Fit::WithOne => without_unit_dimension(&tensor),
    };
    let tensor = tensor.map_err(|source| Invalid::Tensor {
        name: name(),
        source,
    })?;
    Ok(NamedTensor::new(name(), tensor))
}

/// The shape of one record: without the batch dimension where there is one.
pub(crate) fn row_shape(spec: &TensorSpec, batched: bool) -> RowShape<'_> {
    let skip = usize::from(batched);
    spec.shape.get(skip..).unwrap_or_default()
}

/// How a record's shape fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    AsItIs,
    /// The 1 in front, which the model takes, is left out.
    WithoutOne,
    /// There is a 1 in front that the model does not take.
    WithOne,
}

/// Whether a record's shape fits, and how.
fn fit_row(given: &[usize], expected: RowShape<'_>, batched: bool) -> Option<Fit> {
    if dimensions_fit(given, expected) {
        return Some(Fit::AsItIs);
    }
    let (needed, has) = (
        expected.first() == Some(&Some(1)),
        given.first() == Some(&1),
    );
    if !batched && needed && dimensions_fit(given, &expected[1..]) {
        return Some(Fit::WithoutOne);
    }
    (batched && has && dimensions_fit(&given[1..], expected)).then_some(Fit::WithOne)
}

fn dimensions_fit(given: &[usize], expected: RowShape<'_>) -> bool {
    given.len() == expected.len()
        && given
            .iter()
            .zip(expected)
            .all(|(have, want)| want.is_none_or(|want| want == *have as u64))
}

/// `[records, 3, ?]`.
fn shape_text(row: RowShape<'_>) -> String {
    let dims = row
        .iter()
        .map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string()));
    let dims: Vec<String> = std::iter::once("records".to_owned()).chain(dims).collect();
    format!("[{}]", dims.join(", "))
}

fn with_unit_dimension(tensor: &Tensor) -> Result<Tensor, sextant_types::InvalidTensor> {
    let mut shape = tensor.shape().to_vec();
    shape.insert(1, 1);
    reshape(tensor, shape)
}

fn without_unit_dimension(tensor: &Tensor) -> Result<Tensor, sextant_types::InvalidTensor> {
    let mut shape = tensor.shape().to_vec();
    shape.remove(1);
    reshape(tensor, shape)
}

fn without_first_dimension(tensor: &Tensor) -> Result<Tensor, sextant_types::InvalidTensor> {
    reshape(tensor, tensor.shape().get(1..).unwrap_or_default().to_vec())
}

fn reshape(tensor: &Tensor, shape: Vec<usize>) -> Result<Tensor, sextant_types::InvalidTensor> {
    match tensor.data() {
        Data::Plain(bytes) => Tensor::from_bytes(tensor.data_type(), shape, bytes.clone()),
        Data::Strings(strings) => Tensor::from_strings(shape, strings.clone()),
    }
}
