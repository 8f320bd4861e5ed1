//! Operators on shapes: they cost nothing on the device.

use std::sync::Arc;

use sextant_engine::Error;
use sextant_types::DataType;

use super::{
    Call, Constant, HostTensor,
    context::{Lowering, Value, elements},
    graph::host_tensor,
};

/// Most elements that an operator creates without an input of that size.
const MAX_COUNT: u64 = 1 << 24;

pub(super) fn constant(_: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let node = call.node;
    let tensor = if let Some(tensor) = node.attribute("value").and_then(|it| it.t.as_deref()) {
        host_tensor(tensor).ok_or_else(|| call.unsupported("of its element type"))?
    } else if let Some(value) = node.attribute("value_float").and_then(|it| it.f) {
        HostTensor::floats(&[], &[value])
    } else if let Some(value) = node.attribute("value_int").and_then(|it| it.i) {
        HostTensor {
            dims: Vec::new(),
            ..HostTensor::integers(&[value])
        }
    } else if let Some(values) = node.attribute("value_floats").map(|it| &it.floats) {
        HostTensor::floats(&[values.len() as u64], values)
    } else if let Some(values) = node.ints("value_ints") {
        HostTensor::integers(values)
    } else {
        return Err(call.unsupported("of a kind other than numbers"));
    };
    Ok(vec![known(call, tensor, true)])
}

fn known(call: &Call<'_>, tensor: HostTensor, fixed: bool) -> Value {
    let key = call.node.outputs.first().cloned().unwrap_or_default();
    Value::Constant(Constant {
        key,
        fixed,
        tensor: Arc::new(tensor),
    })
}

pub(super) fn constant_of_shape(
    _: &mut Lowering<'_>,
    call: &Call<'_>,
) -> Result<Vec<Value>, Error> {
    let dims = call.integers(0)?.unwrap_or_default();
    let dims: Result<Vec<u64>, _> = dims.iter().map(|dim| u64::try_from(*dim)).collect();
    let dims = dims.map_err(|_| call.invalid("a negative size"))?;
    let count = elements(&dims).ok_or_else(|| call.invalid("a tensor is too large"))?;
    let value = match call.node.attribute("value").and_then(|it| it.t.as_deref()) {
        Some(tensor) => host_tensor(tensor).filter(|it| it.count() == 1),
        None => Some(HostTensor::floats(&[1], &[0.0])),
    };
    let value = value.ok_or_else(|| call.unsupported("of its element type"))?;
    if count > MAX_COUNT {
        return Err(call.unsupported(&format!("a constant of {count} elements")));
    }
    let tensor = HostTensor {
        data_type: value.data_type,
        dims,
        bytes: value.bytes.repeat(count as usize).into(),
    };
    Ok(vec![known(call, tensor, false)])
}

pub(super) fn range(_: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let number = |index| {
        let number = call.number(index)?;
        number.ok_or_else(|| call.invalid(&format!("input {index} is missing")))
    };
    let (start, limit, step) = (number(0)?, number(1)?, number(2)?);
    let count = ((limit - start) / step).ceil().max(0.0);
    if step == 0.0 || !count.is_finite() || count > MAX_COUNT as f64 {
        return Err(call.invalid(&format!("from {start} to {limit} by {step}")));
    }
    let values = (0..count as u64).map(|at| start + at as f64 * step);
    let data_type = call.input(0)?.data_type();
    let count = count as u64;
    let tensor = match data_type {
        DataType::Int64 => HostTensor::integers(&values.map(|it| it as i64).collect::<Vec<_>>()),
        DataType::Int32 => HostTensor {
            data_type,
            dims: vec![count],
            bytes: values.flat_map(|it| (it as i32).to_le_bytes()).collect(),
        },
        DataType::Fp32 => {
            HostTensor::floats(&[count], &values.map(|it| it as f32).collect::<Vec<_>>())
        }
        other => return Err(call.unsupported(&format!("of {other}"))),
    };
    Ok(vec![known(call, tensor, false)])
}

pub(super) fn shape(_: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let dims: Vec<i64> = call
        .input(0)?
        .dims()
        .iter()
        .map(|dim| *dim as i64)
        .collect();
    let rank = dims.len() as i64;
    let bound = |name: &str, default: i64| {
        let at = call.node.int(name, default);
        (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize
    };
    let (start, end) = (bound("start", 0), bound("end", rank));
    let part = dims.get(start..end).unwrap_or_default();
    Ok(vec![known(call, HostTensor::integers(part), false)])
}

pub(super) fn size(_: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let count = call.input(0)?.dims().iter().product::<u64>() as i64;
    let tensor = HostTensor {
        dims: Vec::new(),
        ..HostTensor::integers(&[count])
    };
    Ok(vec![known(call, tensor, false)])
}

pub(super) fn reshape(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let wanted = match call.node.ints("shape") {
        Some(shape) => shape.to_vec(),
        None => call
            .integers(1)?
            .ok_or_else(|| call.invalid("it has no shape"))?,
    };
    let own = call.input(0)?.dims();
    let count: u64 = own.iter().product();
    let keep = call.node.int("allowzero", 0) == 0;
    let wrong = || call.invalid(&format!("shape {own:?} to {wanted:?}"));
    let mut dims = Vec::new();
    for (axis, size) in wanted.iter().enumerate() {
        dims.push(match size {
            0 if keep => *own.get(axis).ok_or_else(wrong)?,
            -1 => 1,
            size => u64::try_from(*size).map_err(|_| wrong())?,
        });
    }
    if let Some(open) = wanted.iter().position(|size| *size == -1) {
        let rest = elements(&dims).ok_or_else(wrong)?;
        dims[open] = count.checked_div(rest).unwrap_or(0);
    }
    if elements(&dims) != Some(count) {
        return Err(wrong());
    }
    reshaped(lowering, call, &dims)
}

fn reshaped(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    dims: &[u64],
) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    Ok(vec![x.reshaped(dims).into()])
}

pub(super) fn flatten(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let dims = call.input(0)?.dims();
    let axis = call.node.int("axis", 1);
    let axis = if axis == dims.len() as i64 {
        dims.len()
    } else {
        call.axis(axis, dims.len())?
    };
    let dims = [dims[..axis].iter().product(), dims[axis..].iter().product()];
    reshaped(lowering, call, &dims)
}

pub(super) fn squeeze(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let own = call.input(0)?.dims();
    let axes: Vec<usize> = match call.axes(1)? {
        None => (0..own.len()).filter(|axis| own[*axis] == 1).collect(),
        Some(axes) => axes
            .iter()
            .map(|axis| call.axis(*axis, own.len()))
            .collect::<Result<_, _>>()?,
    };
    if axes.iter().any(|axis| own[*axis] != 1) {
        return Err(call.invalid(&format!("axes {axes:?} of shape {own:?}")));
    }
    let kept = own
        .iter()
        .enumerate()
        .filter(|(axis, _)| !axes.contains(axis));
    let dims: Vec<u64> = kept.map(|(_, size)| *size).collect();
    reshaped(lowering, call, &dims)
}

pub(super) fn unsqueeze(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let own = call.input(0)?.dims();
    let given = call
        .axes(1)?
        .ok_or_else(|| call.invalid("it has no axes"))?;
    let rank = own.len() + given.len();
    let axes: Vec<usize> = given
        .iter()
        .map(|axis| call.axis(*axis, rank))
        .collect::<Result<_, _>>()?;
    let mut rest = own.iter().copied();
    let dims: Vec<u64> = (0..rank)
        .map(|axis| {
            if axes.contains(&axis) {
                1
            } else {
                rest.next().unwrap_or(1)
            }
        })
        .collect();
    reshaped(lowering, call, &dims)
}
