//! `.npz`: a zip archive of NumPy arrays.

use std::io::{Cursor, Read};

use bytes::Bytes;
use npyz::npz::{NpzArchive, array_name_from_file_name};
use sextant_types::NamedTensor;

use super::{Expected, Invalid, LABELS, Raw, ValidationSet, assemble, npy};

/// Whether the bytes begin like a zip archive, an empty one included.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Reads the arrays, each at most once and never past the limit.
pub(super) fn read(bytes: &Bytes, expected: Expected<'_>) -> Result<ValidationSet, Invalid> {
    let mut archive = NpzArchive::new(Cursor::new(bytes.as_ref()))
        .map_err(|e| Invalid::Archive(e.to_string()))?;
    let zip = archive.zip_archive();
    let mut budget = expected.limits.bytes;
    let (mut inputs, mut labels) = (Vec::<NamedTensor>::new(), None);
    for index in 0..zip.len() {
        let entry = zip
            .by_index(index)
            .map_err(|e| Invalid::Archive(e.to_string()))?;
        let Some(name) = array_name_from_file_name(entry.name()).map(str::to_owned) else {
            continue;
        };
        check_name(&name, expected)?;
        let taken = inputs.iter().any(|input| input.name == name);
        if taken || (name == LABELS && labels.is_some()) {
            return Err(Invalid::DuplicateArray(name));
        }
        let file = inflate(&name, entry, &mut budget, expected.limits.bytes)?;
        let tensor = npy::read(&name, &file)?;
        if name == LABELS {
            labels = Some(tensor);
        } else {
            inputs.push(NamedTensor::new(name, tensor));
        }
    }
    let labels = labels.ok_or(Invalid::MissingLabels)?;
    assemble(&Raw { inputs, labels }, expected)
}

fn check_name(name: &str, expected: Expected<'_>) -> Result<(), Invalid> {
    let inputs = &expected.signature.inputs;
    if name == LABELS || inputs.iter().any(|input| input.name == name) {
        return Ok(());
    }
    let known: Vec<String> = inputs.iter().map(|i| format!("`{}`", i.name)).collect();
    Err(Invalid::UnknownArray {
        given: name.chars().take(64).collect(),
        known: known.join(", "),
    })
}

/// Unpacks one entry, stopping one byte past what is left of the limit: what an archive says
/// about its own sizes is not believed.
fn inflate(name: &str, entry: impl Read, budget: &mut u64, limit: u64) -> Result<Bytes, Invalid> {
    let mut file = Vec::new();
    let read = entry.take(budget.saturating_add(1)).read_to_end(&mut file);
    let read = read.map_err(|e| Invalid::Entry {
        name: name.to_owned(),
        why: e.to_string(),
    })?;
    *budget = budget
        .checked_sub(read as u64)
        .ok_or(Invalid::TooLarge { limit })?;
    Ok(file.into())
}
