//! Inputs of queries: random ones that fit a signature, or the records of a file.

use std::{collections::BTreeMap, ops::Range, path::Path};

use bytes::Bytes;
use sextant_formats::{npy, zip};
use sextant_types::{
    DataType, InvalidTensor, NamedTensor, Signature, Tensor, TensorSpec, random::Random,
};

use crate::Error;

/// Elements that the random inputs of all queries have together, at most, unless one query has more.
const MOST_ELEMENTS: usize = 1 << 20;

/// Most bytes of an array in an archive.
const MOST_BYTES: u64 = 4 << 30;

/// Random floats are multiples of this: exact in every float type, and short as text.
const STEP: f64 = 1.0 / 256.0;

/// Sizes and values that a signature leaves open.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Rows of a query, where queries have a batch dimension.
    pub rows: usize,
    /// Size of every other dynamic dimension.
    pub dynamic: usize,
    /// Whole shapes by input, in place of both.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Among which integers are drawn.
    pub integers: Range<i64>,
}

// === impl Sizes ===

impl Default for Sizes {
    /// One row, one element, and integers that are 0 or 1.
    fn default() -> Self {
        Self {
            rows: 1,
            dynamic: 1,
            shapes: BTreeMap::new(),
            integers: 0..2,
        }
    }
}

impl Sizes {
    fn shape(&self, spec: &TensorSpec, batched: bool) -> Result<Vec<usize>, Error> {
        if let Some(shape) = self.shapes.get(&spec.name) {
            return match spec.accepts(shape) {
                true => Ok(shape.clone()),
                false => Err(refuse(
                    &spec.name,
                    format!("the shape {shape:?} does not fit {}", spec.shape_text()),
                )),
            };
        }
        let dims = spec.shape.iter().enumerate();
        let dims = dims.map(|(axis, dim)| match dim {
            None if axis == 0 && batched => self.rows,
            None => self.dynamic,
            Some(dim) => usize::try_from(*dim).unwrap_or(usize::MAX),
        });
        Ok(dims.collect())
    }
}

/// The inputs of at most `count` queries, which `seed` decides; fewer where they are large.
///
/// # Errors
/// A shape fits no input, or integers do not fit the type of one.
pub fn random(
    signature: &Signature,
    sizes: &Sizes,
    count: usize,
    seed: u64,
) -> Result<Vec<Vec<NamedTensor>>, Error> {
    let is_input = |name: &String| signature.inputs.iter().any(|spec| spec.name == *name);
    if let Some(unknown) = sizes.shapes.keys().find(|name| !is_input(name)) {
        return Err(refuse(
            unknown,
            format!("the model has {}", names(signature)),
        ));
    }
    let specs = signature.inputs.iter();
    let specs = specs.map(|spec| Ok((spec, sizes.shape(spec, signature.batched)?)));
    let specs = specs.collect::<Result<Vec<_>, Error>>()?;
    let elements: usize = specs
        .iter()
        .map(|(_, shape)| {
            shape
                .iter()
                .fold(1, |all: usize, dim| all.saturating_mul(*dim))
        })
        .fold(0, usize::saturating_add);
    let count = count.min(MOST_ELEMENTS / elements.max(1)).max(1);
    let mut random = Random::new(seed);
    let mut query = || {
        let inputs = specs.iter().map(|(spec, shape)| {
            let tensor = draw(spec.data_type, shape, &sizes.integers, &mut random);
            let tensor = tensor.map_err(|reason| refuse(&spec.name, reason))?;
            Ok(NamedTensor::new(&spec.name, tensor))
        });
        inputs.collect()
    };
    (0..count).map(|_| query()).collect()
}

/// The records of a file, `rows` in each query and at most `count` queries: `.npz` with an array for each input, `.npy`
/// for a model with one input, or `.jsonl`, as offline jobs read them.
///
/// # Errors
/// The file cannot be read, or its records do not fit the signature.
pub fn file(
    path: &Path,
    signature: &Signature,
    rows: usize,
    count: usize,
) -> Result<Vec<Vec<NamedTensor>>, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let refuse = |reason| Error::File {
        path: path.to_owned(),
        reason,
    };
    let rows = if signature.batched { rows.max(1) } else { 1 };
    let records = records(bytes.into(), signature, rows.saturating_mul(count));
    let records = records.map_err(refuse)?;
    let queries = records.chunks_exact(rows).map(join);
    let queries = queries.collect::<Result<Vec<_>, _>>();
    let queries = queries.map_err(|error| refuse(error.to_string()))?;
    match queries.is_empty() {
        true => Err(refuse(format!("it holds fewer than {rows} records"))),
        false => Ok(queries),
    }
}

/// At most `most` records, each with one row.
fn records(
    bytes: Bytes,
    signature: &Signature,
    most: usize,
) -> Result<Vec<Vec<NamedTensor>>, String> {
    if zip::is_archive(&bytes) {
        return rows_of(&arrays(bytes, signature)?, signature.batched, most);
    }
    if bytes.starts_with(npy::MAGIC) {
        let [input] = &*signature.inputs else {
            return Err(format!(
                "one array is not enough: the model has {}",
                names(signature)
            ));
        };
        let array = npy::read(&bytes).map_err(|problem| problem.to_string())?;
        let arrays = [NamedTensor::new(&input.name, array)];
        return rows_of(&arrays, signature.batched, most);
    }
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    let lines = lines.take(most).map(|(number, line)| {
        let record = sextant_records::parse_line(line, signature);
        record.map_err(|reason| format!("line {}: {reason}", number + 1))
    });
    lines.collect()
}

/// The arrays of an archive that are named as inputs.
fn arrays(bytes: Bytes, signature: &Signature) -> Result<Vec<NamedTensor>, String> {
    let archive = zip::Archive::open(bytes).map_err(|problem| problem.to_string())?;
    let array = |spec: &TensorSpec| {
        let name = format!("{}.npy", spec.name);
        let entry = archive.entries().iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| format!("it has no array `{}`", spec.name))?;
        let file = archive.read(entry, MOST_BYTES);
        let file = file.map_err(|problem| format!("`{name}`: {problem}"))?;
        let array = npy::read(&file).map_err(|problem| format!("`{name}`: {problem}"))?;
        Ok(NamedTensor::new(&spec.name, array))
    };
    signature.inputs.iter().map(array).collect()
}

/// The rows of arrays, side by side.
fn rows_of(
    arrays: &[NamedTensor],
    batched: bool,
    most: usize,
) -> Result<Vec<Vec<NamedTensor>>, String> {
    let length = |array: &NamedTensor| array.tensor.shape().first().copied().unwrap_or(0);
    let rows = arrays.first().map_or(0, length);
    if let Some(other) = arrays.iter().find(|array| length(array) != rows) {
        let (first, name, count) = (&arrays[0].name, &other.name, length(other));
        return Err(format!("`{first}` has {rows} rows and `{name}` {count}"));
    }
    let row = |at: usize| {
        let inputs = arrays.iter().map(|array| {
            let row = array.tensor.slice_rows(at, 1)?;
            let row = if batched {
                row
            } else {
                row.reshaped(row.shape()[1..].to_vec())?
            };
            Ok(NamedTensor::new(&array.name, row))
        });
        inputs.collect::<Result<Vec<_>, InvalidTensor>>()
    };
    let rows = (0..rows.min(most)).map(row).collect::<Result<_, _>>();
    rows.map_err(|error| error.to_string())
}

/// Records as one query.
fn join(records: &[Vec<NamedTensor>]) -> Result<Vec<NamedTensor>, InvalidTensor> {
    let [first, rest @ ..] = records else {
        return Ok(Vec::new());
    };
    if rest.is_empty() {
        return Ok(first.clone());
    }
    let joined = first.iter().map(|input| {
        let of = |record: &'_ Vec<NamedTensor>| {
            let same = record.iter().position(|other| other.name == input.name);
            same.ok_or(InvalidTensor::Mixed)
        };
        let parts = records
            .iter()
            .map(|record| Ok(&record[of(record)?].tensor))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(NamedTensor::new(&input.name, Tensor::concat(&parts)?))
    });
    joined.collect()
}

/// Random elements: floats between 0 and 1, words of small letters.
fn draw(
    data_type: DataType,
    shape: &[usize],
    integers: &Range<i64>,
    random: &mut Random,
) -> Result<Tensor, String> {
    let count = shape.iter().product::<usize>();
    let tensor = match data_type {
        DataType::Bytes => {
            let words = (0..count).map(|_| word(random));
            Tensor::from_strings(shape.to_vec(), words)
        }
        _ => {
            let mut bytes = Vec::new();
            for _ in 0..count {
                let value = number(data_type, integers, random);
                let element = data_type.element(value);
                bytes.extend(element.ok_or_else(|| {
                    format!("`{value}` is no {data_type}: draw from other integers")
                })?);
            }
            Tensor::from_bytes(data_type, shape.to_vec(), bytes.into())
        }
    };
    tensor.map_err(|error| error.to_string())
}

fn number(data_type: DataType, integers: &Range<i64>, random: &mut Random) -> f64 {
    use DataType::{Bf16, Bool, Fp16, Fp32, Fp64};
    match data_type {
        Fp16 | Bf16 | Fp32 | Fp64 => random.below(256) as f64 * STEP,
        Bool => random.below(2) as f64,
        _ => {
            let span = usize::try_from(integers.end.saturating_sub(integers.start));
            integers.start as f64 + random.below(span.unwrap_or(0)) as f64
        }
    }
}

fn word(random: &mut Random) -> Bytes {
    let length = 3 + random.below(6);
    (0..length).map(|_| b'a' + random.below(26) as u8).collect()
}

fn names(signature: &Signature) -> String {
    let names = signature.inputs.iter();
    let names: Vec<String> = names.map(|spec| format!("`{}`", spec.name)).collect();
    format!("the inputs {}", names.join(", "))
}

fn refuse(input: &str, reason: String) -> Error {
    let input = input.to_owned();
    Error::Input { input, reason }
}
