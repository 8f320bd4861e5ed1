//! The values of a registration's fields.

use std::collections::HashSet;

use sextant_objects::PutBlob;
use sextant_registry::{DataFile, NO_LABELS};
use sextant_types::{Code, Constants, Names, Renames, signature};

use crate::{codec::short, extract, problem::Problem};

/// Greatest number of a version.
const MOST_VERSION: u32 = 999_999_999;

/// The number of a version, in a form.
pub(super) fn version(text: &str) -> Result<u32, Problem> {
    let number = extract::digits(text).and_then(|number| u32::try_from(number).ok());
    positive(number.unwrap_or(0))
}

pub(super) fn positive(version: u32) -> Result<u32, Problem> {
    match version {
        1..=MOST_VERSION => Ok(version),
        _ => {
            let detail = format!("`version` is a whole number from 1 to {MOST_VERSION}");
            Err(Problem::new(Code::InvalidRequest, detail).field("version"))
        }
    }
}

/// Whether a version becomes current as soon as it is ready.
pub(super) fn is_current(stage: Option<&str>) -> Result<bool, Problem> {
    match stage {
        None | Some("candidate") => Ok(false),
        Some("current") => Ok(true),
        Some(other) => {
            let detail = format!(
                "`stage` is `{}`: a version begins as `candidate`, or as `current`, which it becomes when it is ready",
                short(other)
            );
            Err(Problem::new(Code::InvalidRequest, detail).field("stage"))
        }
    }
}

/// Whether a validation set is declared to have no labels.
pub(super) fn unlabelled(labels: Option<&str>) -> Result<bool, Problem> {
    match labels {
        None => Ok(false),
        Some(NO_LABELS) => Ok(true),
        Some(other) => {
            let detail = format!(
                "`labels` is `{}`: its one value is `{NO_LABELS}`, of a validation set without labels",
                short(other)
            );
            Err(Problem::new(Code::InvalidRequest, detail).field("labels"))
        }
    }
}

/// A data file, named by the last part of its path.
pub(super) fn data_file(path: &str, blob: PutBlob) -> DataFile {
    DataFile {
        name: path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned(),
        digest: blob.digest,
        size_bytes: blob.size_bytes,
    }
}

/// Files in the order of their names; refuses two files with one name.
pub(super) fn named_once(mut data: Vec<DataFile>) -> Result<Vec<DataFile>, Problem> {
    data.sort_by(|a, b| a.name.cmp(&b.name));
    match data.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => {
            let detail = format!("two files of `data` are called `{}`", short(&pair[0].name));
            Err(Problem::new(Code::InvalidRequest, detail).field("data"))
        }
        None => Ok(data),
    }
}

/// Names in the order in which they were given; refuses a name that occurs twice.
pub(super) fn distinct(names: Vec<String>, what: &'static str) -> Result<Vec<String>, Problem> {
    let mut seen = HashSet::with_capacity(names.len());
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(name) => {
            let detail = format!("{what} `{}` is named twice", short(name));
            Err(Problem::new(Code::InvalidRequest, detail).field(what))
        }
        None => Ok(names),
    }
}

/// The names of the classes; none if the field is left out.
pub(super) fn classes(names: Option<Vec<String>>) -> Result<Vec<String>, Problem> {
    let Some(names) = names else {
        return Ok(Vec::new());
    };
    if names.is_empty() || names.iter().any(String::is_empty) {
        let detail = "`classes` must be one name in each line, and no line may be empty";
        return Err(Problem::new(Code::InvalidRequest, detail).field("classes"));
    }
    distinct(names, "class")
}

/// Adds a new name from `OLD=NEW`.
pub(super) fn named(field: &'static str, names: &mut Names, text: &str) -> Result<(), Problem> {
    let (old, new) = signature::rename(text).map_err(|why| invalid_name(field, why))?;
    match names.insert(old, new) {
        None => Ok(()),
        Some(_) => Err(invalid_name(field, "a name in the file is given twice")),
    }
}

/// Refuses empty names. The registration finds out whether the model has the inputs and outputs.
pub(super) fn usable(names: Renames) -> Result<Renames, Problem> {
    let is_bad = |(old, new): (&String, &String)| old.is_empty() || new.is_empty();
    for (field, of) in [
        ("input_name", &names.inputs),
        ("output_name", &names.outputs),
    ] {
        if of.iter().any(is_bad) {
            return Err(invalid_name(field, "no name may be empty"));
        }
    }
    Ok(names)
}

pub(super) fn invalid_name(field: &'static str, why: &str) -> Problem {
    Problem::new(Code::InvalidRequest, format!("`{field}`: {why}")).field(field)
}

/// `input=value`.
pub(super) fn padding(text: &str) -> Result<(String, f64), Problem> {
    let parsed = text.split_once('=');
    let parsed = parsed.and_then(|(input, value)| {
        let value = value.trim().parse::<f64>().ok()?;
        (!input.is_empty() && value.is_finite()).then(|| (input.trim().to_owned(), value))
    });
    parsed.ok_or_else(|| {
        let text = short(text);
        let detail = format!("`pad` is `{text}`: it must be `input=value` with a number");
        Problem::new(Code::InvalidPadding, detail).field("pad")
    })
}

/// Refuses impossible constants. The registration finds out whether the model has the inputs.
pub(super) fn checked(constants: Constants) -> Result<Constants, Problem> {
    let is_bad = |(input, values): (&String, &Vec<f64>)| {
        input.is_empty() || values.is_empty() || values.iter().any(|value| !value.is_finite())
    };
    match constants.iter().any(is_bad) {
        true => Err(invalid_constant(
            "each must name an input and have a value, and values must be finite",
        )),
        false => Ok(constants),
    }
}

pub(super) fn invalid_constant(why: &str) -> Problem {
    Problem::new(Code::InvalidRequest, format!("`constant`: {why}")).field("constant")
}
