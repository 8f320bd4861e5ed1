//! Tables of text: the columns that are the elements of each tensor, and cells as elements.
//!
//! A column belongs to the tensor with its name, or with `.` and a position to one of several elements: `x.0`, `x.1`,
//! counted in row-major order. If there is one input and no column has its name, all columns that belong to no other
//! tensor are its elements, in their order.

use std::collections::BTreeMap;

use sextant_types::{
    DataType,
    convert::{self, Number},
};

use crate::json::Elements;

/// The positions of a tensor's elements in a row, by the tensor's name.
pub type Columns = BTreeMap<String, Vec<usize>>;

/// Divides the columns of a table among the inputs and the optional further tensors.
///
/// # Errors
/// If a column belongs to no tensor, or a tensor lacks one of its elements.
pub fn assign<'a>(
    head: impl Iterator<Item = &'a str>,
    inputs: &[&str],
    besides: &[&str],
) -> Result<Columns, String> {
    let mut named: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    let mut nameless = Vec::new();
    let known = |name: &str| inputs.contains(&name) || besides.contains(&name);
    for (at, column) in head.map(str::trim).enumerate() {
        let element = column.rsplit_once('.');
        let element = element.and_then(|(name, of)| Some((name, of.parse::<usize>().ok()?)));
        match element {
            _ if known(column) => named.entry(column).or_default().push((0, at)),
            Some((name, of)) if known(name) => named.entry(name).or_default().push((of, at)),
            _ => nameless.push((column, at)),
        }
    }
    let are_named = named.keys().any(|name| inputs.contains(name));
    match (inputs, nameless.first()) {
        ([only], _) if !are_named => {
            let all = nameless.iter().enumerate();
            named.insert(only, all.map(|(of, (_, at))| (of, *at)).collect());
        }
        (_, Some((column, _))) => {
            let column: String = column.chars().take(64).collect();
            let besides = besides
                .iter()
                .map(|name| format!("`{name}` nor "))
                .collect::<String>();
            let names: Vec<String> = inputs.iter().map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            return Err(format!(
                "column `{column}` is neither {besides}an input: the model's inputs are {names}"
            ));
        }
        _ => {}
    }
    named
        .into_iter()
        .map(|(name, of)| Ok((name.to_owned(), ordered(name, of)?)))
        .collect()
}

/// The columns of a tensor in the order of their elements.
fn ordered(name: &str, mut columns: Vec<(usize, usize)>) -> Result<Vec<usize>, String> {
    columns.sort_unstable();
    match columns.iter().enumerate().all(|(at, (of, _))| at == *of) {
        true => Ok(columns.into_iter().map(|(_, at)| at).collect()),
        false => Err(format!(
            "`{name}` must have one column for each element, counted from 0"
        )),
    }
}

/// The shape of a record with `elements` elements, of which one dimension may have any size; `None` if they do not fit.
pub fn shape_of(row: &[Option<u64>], elements: usize) -> Option<Vec<usize>> {
    let known = row.iter().flatten();
    let known = known.map(|size| usize::try_from(*size).ok());
    let known = known.product::<Option<usize>>()?.max(1);
    let open = row.iter().filter(|size| size.is_none()).count();
    let fits = match open {
        0 => elements == known,
        1 => elements.is_multiple_of(known),
        _ => false,
    };
    let size = |size: &Option<u64>| match size {
        Some(size) => *size as usize,
        None => elements / known,
    };
    fits.then(|| row.iter().map(size).collect())
}

/// Appends a cell to the elements of the tensor `name`. An empty cell is a missing value if floats are needed, as
/// pandas writes it.
///
/// # Errors
/// If the cell is not an element of the type.
pub fn push(
    name: &str,
    cell: &str,
    data_type: DataType,
    elements: &mut Elements,
) -> Result<(), String> {
    if data_type == DataType::Bytes {
        let pushed = elements.push_text(cell.as_bytes());
        return pushed.map_err(|why| format!("`{name}` {why}"));
    }
    let number = number(cell.trim(), data_type).ok_or_else(|| {
        let cell: String = cell.chars().take(32).collect();
        format!("`{name}` has `{cell}` where {data_type} is needed")
    })?;
    let pushed = elements.push(number);
    pushed.map_err(|why| format!("`{name}` {why}"))
}

fn number(cell: &str, data_type: DataType) -> Option<Number> {
    match (cell, data_type) {
        ("" | "nan" | "NaN", to) if convert::is_float(to) => Some(Number::Float(f64::NAN)),
        ("true" | "True" | "TRUE", DataType::Bool) => Some(Number::Integer(1)),
        ("false" | "False" | "FALSE", DataType::Bool) => Some(Number::Integer(0)),
        (cell, to) if convert::is_float(to) => {
            let number = cell.parse::<f64>().ok()?;
            // Digits that become an infinity are too large for any type: the file does not contain an infinity.
            let has_digits = || cell.contains(|it: char| it.is_ascii_digit());
            let is_meant = !(number.is_infinite() && has_digits());
            is_meant.then_some(Number::Float(number))
        }
        // Spreadsheets write whole numbers as 3.0.
        (cell, _) => cell
            .strip_suffix(".0")
            .unwrap_or(cell)
            .parse()
            .ok()
            .map(Number::Integer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinity_is_one_that_was_written() {
        for (cell, is_read) in [
            ("Infinity", true),
            ("-inf", true),
            ("1e308", true),
            ("1e400", false),
            ("-1e400", false),
        ] {
            let mut elements = Elements::new(DataType::Fp64);
            let pushed = push("x", cell, DataType::Fp64, &mut elements);
            assert_eq!(pushed.is_ok(), is_read, "{cell}");
        }
    }
}
