//! `.npz`: a zip archive of NumPy arrays.

use bytes::Bytes;
use sextant_formats::{
    npy,
    zip::{Archive, Problem},
};
use sextant_types::{NamedTensor, Names};

use super::{Invalid, LABELS, Raw, SetRequirements, ValidationSet, assemble, meant};

/// Reads the arrays, each at most once and never past the limit.
pub(super) fn read(
    bytes: &Bytes,
    expected: SetRequirements<'_>,
    names: &Names,
) -> Result<ValidationSet, Invalid> {
    let specs = &expected.signature.inputs;
    if specs.iter().any(|input| input.name == LABELS) {
        return Err(Invalid::LabelsAreAnInput);
    }
    let archive = Archive::open(bytes.clone()).map_err(|it| Invalid::Archive(it.to_string()))?;
    let limit = expected.limits.bytes;
    let mut left = limit;
    let (mut inputs, mut labels) = (Vec::<NamedTensor>::new(), None);
    for entry in archive.entries() {
        let Some(name) = entry.name.strip_suffix(".npy") else {
            continue;
        };
        let name = meant(name, names, expected.signature);
        check_name(name, expected)?;
        let taken = inputs.iter().any(|input| input.name == name);
        if taken || (name == LABELS && labels.is_some()) {
            return Err(Invalid::DuplicateArray(name.to_owned()));
        }
        let file = archive.read(entry, left).map_err(|problem| match problem {
            Problem::TooLarge(_) => Invalid::TooLarge { limit },
            problem => Invalid::Entry {
                name: name.to_owned(),
                why: problem.to_string(),
            },
        })?;
        left -= file.len() as u64;
        let tensor = npy::read(&file).map_err(|problem| Invalid::Array {
            name: name.to_owned(),
            problem,
        })?;
        if name == LABELS {
            labels = Some(tensor);
        } else {
            inputs.push(NamedTensor::new(name, tensor));
        }
    }
    assemble(&[Raw { inputs, labels }], expected)
}

fn check_name(name: &str, expected: SetRequirements<'_>) -> Result<(), Invalid> {
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
