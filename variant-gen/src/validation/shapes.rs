//! The shapes of records, by what a file itself says of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use sextant_formats::{json::nested_shape, npy::{BEGINNING_BYTES, Header}, zip::Archive};
use sextant_types::Names;

use super::{Invalid, LABELS, Limits, bundle, jsonl};

/// The shape of a record of each input, by name; `None` for a dimension that differs from record to record.
pub type RecordShapes = BTreeMap<String, Vec<Option<u64>>>;

/// The shape of a record of each input. Arrays of an `.npz` and records of JSONL tell theirs, the columns of CSV do not:
/// it is then empty. Inputs whose records differ in rank are left out.
///
/// # Errors
/// When the file cannot be read.
pub fn record_shapes(bytes: &Bytes, limits: Limits) -> Result<RecordShapes, Invalid> {
    let bundle = bundle::open(bytes)?;
    let whole = || (bytes.clone(), Names::new());
    let (file, names) = bundle.map_or_else(whole, bundle::Bundle::into_file);
    let first = file.iter().find(|byte| !byte.is_ascii_whitespace());
    let mut shapes = match first {
        _ if sextant_formats::zip::is_archive(&file) => of_arrays(&file)?,
        Some(b'{') => of_lines(&file, limits)?,
        _ => BTreeMap::new(),
    };
    for (old, new) in names {
        if let Some(shape) = shapes.remove(&old) {
            shapes.entry(new).or_insert(shape);
        }
    }
    Ok(shapes)
}

fn of_arrays(file: &Bytes) -> Result<RecordShapes, Invalid> {
    let archive = Archive::open(file.clone()).map_err(|it| Invalid::Archive(it.to_string()))?;
    let mut shapes = BTreeMap::new();
    for entry in archive.entries() {
        let name = entry.name.strip_suffix(".npy");
        let Some(name) = name.filter(|name| *name != LABELS) else {
            continue;
        };
        let array = archive.beginning(entry, BEGINNING_BYTES);
        let array = array.map_err(|problem| Invalid::Entry {
            name: name.to_owned(),
            why: problem.to_string(),
        })?;
        let header = Header::parse(&array).map_err(|problem| Invalid::Array {
            name: name.to_owned(),
            problem,
        })?;
        let row = header.shape.iter().skip(1).map(|size| Some(*size as u64));
        shapes.insert(name.to_owned(), row.collect());
    }
    Ok(shapes)
}

fn of_lines(file: &Bytes, limits: Limits) -> Result<RecordShapes, Invalid> {
    let mut shapes: BTreeMap<String, Option<Vec<Option<u64>>>> = BTreeMap::new();
    for inputs in jsonl::inputs(file, limits) {
        for (name, value) in inputs? {
            let sizes = nested_shape(&value);
            let sizes = sizes.into_iter().map(|size| Some(size as u64));
            let sizes: Vec<Option<u64>> = sizes.collect();
            let known = shapes.entry(name).or_insert_with(|| Some(sizes.clone()));
            *known = known.take().and_then(|known| common(&known, &sizes));
        }
    }
    let known = shapes.into_iter();
    Ok(known.filter_map(|(name, it)| Some((name, it?))).collect())
}

/// What two shapes of one rank have in common.
fn common(one: &[Option<u64>], other: &[Option<u64>]) -> Option<Vec<Option<u64>>> {
    let both = one.iter().zip(other);
    let both = both.map(|(a, b)| a.filter(|_| a == b));
    (one.len() == other.len()).then(|| both.collect())
}
