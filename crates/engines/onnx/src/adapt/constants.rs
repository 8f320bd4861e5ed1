//! Inputs with the same value in every query, such as a sample rate or the threshold of a detector: they become
//! constants.

use bytes::BytesMut;
use sextant_types::{
    Constants,
    convert::{self, Number, Rounding},
};

use super::Plain;
use crate::{
    Error,
    proto::{
        Dimension, GraphProto, ModelProto, TensorProto, ValueInfoProto, dimension, type_proto,
    },
    tensor::element_type,
};

/// The first version of the format in which a constant need not be an input.
pub(super) const CONSTANTS_ALONE: i64 = 4;

/// Most values that a message lists.
const MOST_VALUES: usize = 4;

/// Gives inputs constant values, so that queries no longer supply them.
///
/// One value fills an input of any shape, with a 1 for each dynamic dimension. Several values are the elements in
/// row-major order, of a shape with at most one dynamic dimension.
///
/// # Errors
/// [`Error::NoSuchInput`] for a name that the model does not have, [`Error::Constant`] if the values do not fit.
pub(super) fn fix(
    model: &mut ModelProto,
    constants: &Constants,
    plain: &mut Plain,
) -> Result<(), Error> {
    let Some(graph) = &mut model.graph else {
        return Ok(());
    };
    for (name, values) in constants {
        let at = graph.input.iter().position(|input| input.name() == name);
        let Some(at) = at else {
            return Err(Error::NoSuchInput {
                given: name.clone(),
                known: inputs(graph),
            });
        };
        let tensor = tensor(&graph.input[at], values).map_err(|why| Error::Constant {
            name: name.clone(),
            why,
        })?;
        graph.input.remove(at);
        graph.initializer.retain(|it| it.name() != name);
        graph.initializer.push(tensor);
        let told = told(values);
        let change =
            format!("input `{name}` is `{told}` in every query, and queries do not give it");
        plain.changes.push(change);
    }
    if !constants.is_empty() {
        model.ir_version = model.ir_version.max(Some(CONSTANTS_ALONE));
    }
    Ok(())
}

fn inputs(graph: &GraphProto) -> String {
    let names = graph
        .input
        .iter()
        .map(|input| format!("`{}`", input.name()));
    names.collect::<Vec<_>>().join(", ")
}

fn told(values: &[f64]) -> String {
    let shown = values.iter().take(MOST_VALUES).map(f64::to_string);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match values.len() > MOST_VALUES {
        true => format!("{shown}, .."),
        false => shown,
    }
}

fn tensor(input: &ValueInfoProto, values: &[f64]) -> Result<TensorProto, String> {
    let held = input.r#type.as_ref().and_then(|it| it.value.as_ref());
    let Some(type_proto::Value::TensorType(held)) = held else {
        return Err("it is no tensor".to_owned());
    };
    let data_type = element_type(held.elem_type.unwrap_or_default())
        .ok_or_else(|| "its type is not supported".to_owned())?;
    let dims = held.shape.as_ref().map(|shape| {
        let size = |dim: &Dimension| match dim.value {
            Some(dimension::Value::DimValue(size)) => usize::try_from(size).ok(),
            _ => None,
        };
        shape.dim.iter().map(size).collect::<Vec<_>>()
    });
    let dims = shape(dims.as_deref(), values.len())?;
    let elements = elements(&dims)?;
    let mut bytes = BytesMut::new();
    for value in values.iter().cycle().take(elements) {
        convert::encode(number(*value), data_type, Rounding::Nearest, &mut bytes)?;
    }
    Ok(TensorProto::from_bytes(
        input.name(),
        data_type,
        &dims,
        bytes.freeze(),
    ))
}

/// Whole numbers fit every numeric type.
fn number(value: f64) -> Number {
    match value.fract() == 0.0 && value.abs() < i64::MAX as f64 {
        true => Number::Integer(value as i128),
        false => Number::Float(value),
    }
}

/// The shape of `count` values for the declared one.
fn shape(declared: Option<&[Option<usize>]>, count: usize) -> Result<Vec<usize>, String> {
    let Some(declared) = declared else {
        return Ok(match count {
            1 => Vec::new(),
            count => vec![count],
        });
    };
    let is_one = count == 1;
    let dynamic = declared.iter().filter(|dim| dim.is_none()).count();
    let mut fixed = declared.iter().flatten();
    let fixed = fixed.try_fold(1_usize, |all, dim| all.checked_mul(*dim));
    let fits = match (fixed, dynamic) {
        _ if is_one => Some(1),
        (Some(fixed), 0) => (fixed == count).then_some(1),
        (Some(fixed), 1) if fixed > 0 && count.is_multiple_of(fixed) => Some(count / fixed),
        _ => None,
    };
    let rest = fits.ok_or_else(|| {
        let text = |dim: &Option<usize>| dim.map_or_else(|| "?".to_owned(), |it| it.to_string());
        let declared: Vec<_> = declared.iter().map(text).collect();
        let declared = declared.join(", ");
        format!("`{count}` values do not fill [{declared}]; one value fills any shape")
    })?;
    Ok(declared.iter().map(|dim| dim.unwrap_or(rest)).collect())
}

/// Most elements of a constant: one value fills a shape that only the file has declared.
const MOST_ELEMENTS: usize = 1 << 20;

fn elements(dims: &[usize]) -> Result<usize, String> {
    let elements = dims
        .iter()
        .try_fold(1_usize, |all, dim| all.checked_mul(*dim));
    elements
        .filter(|elements| *elements <= MOST_ELEMENTS)
        .ok_or_else(|| format!("it has more than `{MOST_ELEMENTS}` elements"))
}
