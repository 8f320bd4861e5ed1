//! Validation sets: the records that a model's variants are scored on.
//!
//! There are three formats. An `.npz` holds one array per model input under the input's name, and `labels`. JSONL holds
//! one record per line, `{"inputs": {name: nested array}, "label": ..}`. CSV has a column for each element of a record.
//!
//! Records of JSONL may differ in length if the model takes any length: records of one length are a *group* and run
//! together. A set without labels is [scored](ValidationSet::is_labelled) against the answers of the uploaded file.
//!
//! Types. *Inputs* are converted to the type that the model takes by the rules of [`sextant_types::convert`], which
//! hold for queries too. *Labels* are never rounded: a label that the metric's type cannot hold exactly is refused.
//! JSON numbers have no type of their own and are read as the tensor's type.
//!
//! Shapes. Each array's first dimension counts the records. A model without a batch dimension gets one record at a
//! time. If its first dimension is 1, or is open with others after it and beside an input with a fixed first dimension,
//! records may leave out a 1. A 1 before a record of a model with a batch dimension is removed.
//!
//! The metric applies to one output, see [`ScoringTarget`]. If a model says what the columns of that output stand for,
//! labels are those classes: names, or numbers if all classes are numbers.

use bytes::Bytes;
use sextant_formats::npy;
use sextant_types::{DataType, Metric, NamedTensor, Names, Signature, Tensor, TensorSpec};

mod bundle;
mod csv;
mod fit;
mod invalid;
mod jsonl;
mod labels;
mod line;
mod npz;
mod scored;
mod shapes;

pub use bundle::with_labels;
pub(crate) use bundle::{Front, FrontSearch};
pub(crate) use fit::row_shape;
use fit::{fit_input, fit_row, shape_text, without_first_dimension};
pub use invalid::Invalid;
pub use labels::{Expectation, Labels, UNSCORED};
pub use scored::ScoringTarget;
pub use shapes::{RecordShapes, record_shapes};

/// Name of the labels' array in an `.npz`.
pub const LABELS: &str = "labels";

/// Numbers of a box: its left, upper, right and lower end.
const BOX: u64 = 4;

/// Numbers of a detected box: those of the box, the model's confidence, and the class.
const DETECTION: u64 = 6;

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

/// The requirements of a model on its validation set.
#[derive(Debug, Clone, Copy)]
pub struct SetRequirements<'a> {
    /// The model's inputs and outputs.
    pub signature: &'a Signature,
    /// How outputs are scored.
    pub metric: Metric,
    /// The scored output.
    pub scored: &'a ScoringTarget,
    /// How much is accepted.
    pub limits: Limits,
}

/// A validation set that fits its model.
#[derive(Debug, Clone)]
pub struct ValidationSet {
    /// Never empty; the records of a group have one length.
    groups: Vec<Group>,
    /// The group with the median length.
    typical: usize,
    scored: usize,
    records: usize,
    batched: bool,
    /// The graph of a custom metric, if there is one.
    judge: Option<Bytes>,
}

/// Records of one length: every tensor's first dimension counts them.
#[derive(Debug, Clone)]
struct Group {
    inputs: Vec<NamedTensor>,
    labels: Labels,
    /// The position of its first record.
    first: usize,
    records: usize,
}

/// Records that can run together.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The position of the first, for [`ValidationSet::rows`].
    pub start: usize,
    /// The number of records, at least 1.
    pub count: usize,
    /// The labels of the group.
    pub labels: &'a Labels,
    /// Whether it is the first part of its group.
    pub begins: bool,
}

impl<'a> SetRequirements<'a> {
    /// The scored output.
    fn output(&self) -> Result<&'a TensorSpec, Invalid> {
        let output = self.signature.outputs.get(self.scored.output);
        output.ok_or(Invalid::NoOutput)
    }
}

/// Reads a validation set, whose first bytes tell its format, and checks that it fits.
pub fn read(bytes: &Bytes, expected: SetRequirements<'_>) -> Result<ValidationSet, Invalid> {
    check_metric(expected)?;
    match bundle::open(bytes)? {
        Some(bundle) => bundle.read(expected),
        None => read_file(bytes, expected, &Names::new()),
    }
}

/// Reads a file that names inputs by their names, or by those that `names` gives them.
fn read_file(
    bytes: &Bytes,
    expected: SetRequirements<'_>,
    names: &Names,
) -> Result<ValidationSet, Invalid> {
    if let Some(kind) = foreign(bytes) {
        return Err(Invalid::Foreign(kind));
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None => Err(Invalid::NoRecords),
        _ if sextant_formats::zip::is_archive(bytes) => npz::read(bytes, expected, names),
        Some(b'{' | b'[') => jsonl::read(bytes, expected, names),
        Some(_) => csv::read(bytes, expected, names),
    }
}

/// The name of another data format, by its first bytes.
fn foreign(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        _ if bytes.starts_with(npy::MAGIC) => {
            Some("a single array (`.npy`), and a set has one for each input and `labels`")
        }
        [b'P', b'A', b'R', b'1', ..] => {
            Some("Parquet, which `sextant register` converts before it sends it")
        }
        [0x80, 2..=5, ..] => Some("a pickle, whose Python objects are never unpickled"),
        [0x1f, 0x8b, ..] => Some("compressed by gzip"),
        _ => None,
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

    /// The labels of the first group; of all records, if they have one length.
    pub fn labels(&self) -> &Labels {
        &self.groups[0].labels
    }

    /// Whether its records have labels. If not, the answers of the uploaded file must [replace them](with_labels).
    pub fn is_labelled(&self) -> bool {
        !matches!(self.labels().values, Expectation::Unknown)
    }

    /// The graph of a custom metric, if there is one.
    pub fn judge(&self) -> Option<&Bytes> {
        self.judge.as_ref()
    }

    /// Parts of at most `most` records, which run together, always in the same order.
    pub fn parts(&self, most: usize) -> impl Iterator<Item = Part<'_>> {
        let most = most.max(1);
        self.groups.iter().flat_map(move |group| {
            let starts = (0..group.records).step_by(most);
            starts.map(move |start| Part {
                start: group.first + start,
                count: most.min(group.records - start),
                labels: &group.labels,
                begins: start == 0,
            })
        })
    }

    /// Inputs of records `start .. start + count`, which have one length, ready to run. A model without a batch
    /// dimension takes one record: `count` is then 1.
    pub fn rows(&self, start: usize, count: usize) -> Result<Vec<NamedTensor>, Invalid> {
        let of = self.groups.partition_point(|group| group.first <= start);
        let group = &self.groups[of.saturating_sub(1)];
        let rows = group.inputs.iter().map(|input| {
            let rows = input.tensor.slice_rows(start - group.first, count);
            let rows = rows.and_then(|rows| match self.batched {
                true => Ok(rows),
                false => without_first_dimension(&rows),
            });
            let tensor = rows.map_err(|source| Invalid::Tensor {
                name: input.name.clone(),
                source,
            })?;
            Ok(NamedTensor::new(input.name.clone(), tensor))
        });
        rows.collect()
    }

    /// At most `most` records of the median length from all over the set, each as inputs with one row. The model takes
    /// batches.
    pub fn spread(&self, most: usize) -> Result<Vec<Vec<NamedTensor>>, Invalid> {
        let group = &self.groups[self.typical];
        let count = most.clamp(1, group.records);
        let at = (0..count).map(|at| group.first + at * group.records / count);
        at.map(|at| self.rows(at, 1)).collect()
    }

    /// A batch of `count` records of the median length for profiling: the first ones, repeated from the start if there
    /// are fewer.
    pub fn repeated(&self, count: usize) -> Result<Vec<NamedTensor>, Invalid> {
        let group = &self.groups[self.typical];
        if !self.batched {
            return self.rows(group.first, 1);
        }
        if count <= group.records {
            return self.rows(group.first, count);
        }
        let batch = group.inputs.iter().map(|input| {
            let wrap = |source| Invalid::Tensor {
                name: input.name.clone(),
                source,
            };
            let mut parts = vec![&input.tensor; count / group.records];
            let rest = count % group.records;
            let rest = input.tensor.slice_rows(0, rest).map_err(wrap)?;
            parts.push(&rest);
            let tensor = Tensor::concat(&parts).map_err(wrap)?;
            Ok(NamedTensor::new(input.name.clone(), tensor))
        });
        batch.collect()
    }
}

// === helpers ===

/// The input that a name in a file means.
fn meant<'n>(name: &'n str, names: &'n Names, signature: &Signature) -> &'n str {
    let is_one = signature.inputs.iter().any(|it| it.name == name);
    match names.get(name).filter(|_| !is_one) {
        Some(named) => named,
        None => name,
    }
}

/// Tensors as a file has them, before they are fitted to the model.
struct Raw {
    inputs: Vec<NamedTensor>,
    /// `None` if the file has none.
    labels: Option<Tensor>,
}

/// The shape of a row; `None` for a dimension that may have any size.
type RowShape<'a> = &'a [Option<u64>];

/// One group for each of `raws`; the records of each have one length.
fn assemble(raws: &[Raw], expected: SetRequirements<'_>) -> Result<ValidationSet, Invalid> {
    let signature = expected.signature;
    let (mut groups, mut records) = (Vec::with_capacity(raws.len()), 0);
    for raw in raws {
        let count = count(raw)?;
        let inputs = signature
            .inputs
            .iter()
            .map(|spec| fit_input(spec, raw, count, signature))
            .collect::<Result<Vec<_>, _>>()?;
        let labels = match &raw.labels {
            Some(labels) => labels::fit(labels, expected)?,
            None => Labels {
                per_record: 0,
                values: Expectation::Unknown,
            },
        };
        groups.push(Group {
            inputs,
            labels,
            first: records,
            records: count,
        });
        records += count;
        check_records(records, expected.limits)?;
    }
    if records == 0 {
        return Err(Invalid::NoRecords);
    }
    Ok(ValidationSet {
        typical: typical(&groups, records),
        groups,
        scored: expected.scored.output,
        records,
        batched: signature.batched,
        judge: None,
    })
}

/// The number of records, by the labels, or by the first input if there are none.
fn count(raw: &Raw) -> Result<usize, Invalid> {
    let first = raw.inputs.first();
    let (name, tensor) = match (&raw.labels, first) {
        (Some(labels), _) => (LABELS, labels),
        (None, Some(input)) => (input.name.as_str(), &input.tensor),
        (None, None) => return Err(Invalid::NoRecords),
    };
    let records = tensor.shape().first().copied();
    records.ok_or_else(|| Invalid::NoRecordDimension {
        name: name.to_owned(),
    })
}

/// The group with the median length.
fn typical(groups: &[Group], records: usize) -> usize {
    let size = |group: &Group| {
        let elements = group.inputs.iter().map(|input| input.tensor.len());
        elements.sum::<usize>() / group.records.max(1)
    };
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|at| size(&groups[*at]));
    let mut before = 0;
    let half = order.into_iter().find(|at| {
        before += groups[*at].records;
        before * 2 >= records
    });
    half.unwrap_or(0)
}

fn check_metric(expected: SetRequirements<'_>) -> Result<(), Invalid> {
    let output = expected.output()?;
    let row = row_shape(output, expected.signature.batched);
    let classes = matches!(
        expected.metric,
        Metric::Top1
            | Metric::TopK(_)
            | Metric::F1
            | Metric::F1Micro
            | Metric::LogLoss
            | Metric::TokenAccuracy
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
    let numbers = match expected.metric {
        Metric::BoxOverlap => Some(BOX),
        Metric::MeanAveragePrecision => Some(DETECTION),
        _ => None,
    };
    if let Some(numbers) = numbers
        && row
            .last()
            .is_none_or(|it| it.is_some_and(|it| it != numbers))
    {
        return Err(Invalid::NoBoxes {
            output: output.name.clone(),
            shape: output.shape_text(),
            metric: expected.metric.name(),
            numbers,
        });
    }
    let numeric = output.data_type != DataType::Bytes;
    if !numeric && !matches!(expected.metric, Metric::Exact | Metric::Custom) {
        return Err(Invalid::MetricType {
            output: output.name.clone(),
            data_type: output.data_type,
            metric: expected.metric.name(),
        });
    }
    can_be_wrong(expected.metric, row, (&output.name, || output.shape_text()))
}

/// Refuses to score an output if any answer would be right. `row` is the shape of one record's answer.
pub(crate) fn can_be_wrong(
    metric: Metric,
    row: RowShape<'_>,
    (output, shape): (&str, impl FnOnce() -> String),
) -> Result<(), Invalid> {
    match always_right(metric, row) {
        None => Ok(()),
        Some(instead) => Err(Invalid::AlwaysRight {
            output: output.to_owned(),
            shape: shape(),
            metric: metric.name(),
            instead,
        }),
    }
}

/// Advice if a metric finds no difference between answers of this shape.
fn always_right(metric: Metric, row: RowShape<'_>) -> Option<&'static str> {
    let classes = row.last().copied().flatten();
    let are_at_most = |most: u64| classes.is_some_and(|classes| classes <= most);
    let is_one_number = row.iter().all(|dim| *dim == Some(1));
    match metric {
        Metric::TopK(k) if k > 1 => {
            are_at_most(k.into()).then_some("it has no more classes than that; take `top1`")
        }
        Metric::Top1
        | Metric::TopK(_)
        | Metric::F1
        | Metric::F1Micro
        | Metric::LogLoss
        | Metric::TokenAccuracy => are_at_most(1).then_some(
            "it has one class; take `auc` where it is a score of two classes, `mae` where it is a number, or another \
             output (`--output`)",
        ),
        Metric::Cosine => {
            is_one_number.then_some("it is one number for each record, which has no direction; take `mae`")
        }
        _ => None,
    }
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
