//! Operators that move, repeat, cut or join elements. They become copies between views.

use sextant_engine::Error;

use super::{
    Call,
    context::{Device, Lowering, Value},
    convolution::fill,
    layout::{self, View},
};

pub(super) fn transpose(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    let rank = x.dims.len();
    let order: Vec<usize> = match call.node.ints("perm") {
        None => (0..rank).rev().collect(),
        Some(order) => order
            .iter()
            .map(|axis| call.axis(*axis, rank))
            .collect::<Result<_, _>>()?,
    };
    let mut seen = order.clone();
    seen.sort_unstable();
    if !seen.into_iter().eq(0..rank) {
        return Err(call.invalid(&format!("order {order:?} of {rank} dimensions")));
    }
    let dims: Vec<u64> = order.iter().map(|axis| x.dims[*axis]).collect();
    let own = layout::strides(&x.dims);
    let strides: Vec<i64> = order.iter().map(|axis| own[*axis]).collect();
    Ok(vec![view(lowering, call, &x, 0, &dims, &strides)?.into()])
}

/// A strided view as a tensor of its own; it is free if the bytes already have this layout.
fn view(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    x: &Device,
    offset: u64,
    dims: &[u64],
    strides: &[i64],
) -> Result<Device, Error> {
    let own = layout::strides(dims);
    let same = |at: usize| dims[at] == 1 || strides[at] == own[at];
    if (0..dims.len()).all(same) {
        return Ok(Device {
            address: x.address + offset * x.element.bytes(),
            ..x.reshaped(dims)
        });
    }
    lowering.gathered(call, x, offset as i64, dims, strides)
}

pub(super) fn expand(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let wanted = sizes(call, 1)?;
    let x = lowering.device(call, call.input(0)?)?;
    let dims = layout::broadcast(&x.dims, &wanted)
        .ok_or_else(|| call.invalid(&format!("shape {:?} to {wanted:?}", x.dims)))?;
    let strides = layout::expanded(&x.dims, &dims);
    Ok(vec![view(lowering, call, &x, 0, &dims, &strides)?.into()])
}

pub(super) fn tile(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let repeats = sizes(call, 1)?;
    let x = lowering.device(call, call.input(0)?)?;
    if repeats.len() != x.dims.len() {
        return Err(call.invalid(&format!("shape {:?}, repeats {repeats:?}", x.dims)));
    }
    let own = layout::strides(&x.dims);
    let (mut dims, mut strides, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, repeat) in repeats.iter().enumerate() {
        dims.extend([*repeat, x.dims[axis]]);
        strides.extend([0, own[axis]]);
        out.push(repeat.saturating_mul(x.dims[axis]));
    }
    let y = lowering.gathered(call, &x, 0, &dims, &strides)?;
    Ok(vec![y.reshaped(&out).into()])
}

pub(super) fn depth_to_space(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    let block = call.node.size("blocksize", call.node.int("blocksize", 0))?;
    let [batch, channels, height, width] = x.dims[..] else {
        return Err(call.invalid(&format!("of shape {:?}", x.dims)));
    };
    if block == 0 || channels % (block * block) != 0 {
        return Err(call.invalid(&format!("blocks of {block} in {channels} channels")));
    }
    let depth = channels / (block * block);
    // The positions of the block's row, its column and the channel among the input's channels.
    let order = match call.node.text("mode") {
        "CRD" => [1, 2, 0],
        _ => [0, 1, 2],
    };
    let mut seen = [block, block, depth];
    if order[0] == 1 {
        seen = [depth, block, block];
    }
    let input = [batch, seen[0], seen[1], seen[2], height, width];
    let own = layout::strides(&input);
    let part = |index: usize| own[1 + order[index]];
    let dims = [batch, depth, height, block, width, block];
    let strides = [own[0], part(2), own[4], part(0), own[5], part(1)];
    let y = lowering.gathered(call, &x, 0, &dims, &strides)?;
    Ok(vec![
        y.reshaped(&[batch, depth, height * block, width * block])
            .into(),
    ])
}

pub(super) fn slice(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let early = call.opset < 10;
    let given = |name: &str, index: usize| match early {
        true => Ok(call.node.ints(name).map(<[i64]>::to_vec)),
        false => call.integers(index),
    };
    let missing = || call.invalid("it has no bounds");
    let starts = given("starts", 1)?.ok_or_else(missing)?;
    let ends = given("ends", 2)?.ok_or_else(missing)?;
    let axes = given("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if early { None } else { call.integers(4)? };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] || steps.contains(&0) {
        return Err(call.invalid("its bounds do not belong together"));
    }
    let x = lowering.device(call, call.input(0)?)?;
    let (mut dims, mut strides) = (x.dims.clone(), layout::strides(&x.dims));
    let mut offset = 0;
    for index in 0..starts.len() {
        let axis = call.axis(axes[index], x.dims.len())?;
        let size = x.dims[axis] as i64;
        let step = steps[index];
        let (start, count) = bounds(size, starts[index], ends[index], step);
        offset += start * strides[axis];
        // A step that is never taken may have any size.
        strides[axis] *= if count > 1 { step } else { 1 };
        dims[axis] = count;
    }
    let offset = if dims.contains(&0) { 0 } else { offset as u64 };
    Ok(vec![
        view(lowering, call, &x, offset, &dims, &strides)?.into(),
    ])
}

/// First index and number of elements of a slice.
fn bounds(size: i64, start: i64, end: i64, step: i64) -> (i64, u64) {
    let wrap = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
    if step > 0 {
        let (start, end) = (wrap(start).clamp(0, size), wrap(end).clamp(0, size));
        let count = (end - start).max(0) as u64;
        (start, count.div_ceil(step as u64))
    } else {
        // A slice that begins before the first element begins with the first element, if there is one.
        let (start, end) = (
            wrap(start).clamp((size - 1).min(0), size - 1),
            wrap(end).clamp(-1, size - 1),
        );
        let count = (start - end).max(0) as u64;
        (start, count.div_ceil(step.unsigned_abs()))
    }
}

pub(super) fn split(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    let axis = call.axis(call.node.int("axis", 0), x.dims.len())?;
    let given = match call.node.ints("split") {
        Some(parts) => Some(parts.to_vec()),
        None => call.integers(1)?,
    };
    let size = x.dims[axis];
    let parts: Vec<u64> = match given {
        Some(parts) => parts.iter().map(|part| (*part).max(0) as u64).collect(),
        None => {
            let each = size.div_ceil((call.node.outputs.len() as u64).max(1));
            let start = |index: u64| (index * each).min(size);
            (0..call.node.outputs.len() as u64)
                .map(|index| start(index + 1) - start(index))
                .collect()
        }
    };
    let sum = parts
        .iter()
        .try_fold(0u64, |sum, part| sum.checked_add(*part));
    if sum != Some(size) || parts.len() < call.node.outputs.len() {
        return Err(call.invalid(&format!("parts {parts:?} of {size}")));
    }
    let strides = layout::strides(&x.dims);
    let mut first = 0;
    parts
        .iter()
        .map(|part| {
            let mut dims = x.dims.clone();
            dims[axis] = *part;
            let offset = first * strides[axis] as u64;
            first += part;
            Ok(view(lowering, call, &x, offset, &dims, &strides)?.into())
        })
        .collect()
}

pub(super) fn concat(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let first = call.input(0)?;
    let (rank, data_type) = (first.dims().len(), first.data_type());
    let axis = call.axis(call.node.int("axis", 0), rank)?;
    let mut dims = first.dims().to_vec();
    dims[axis] = 0;
    for index in 0..call.inputs.len() {
        let part = call.input(index)?;
        let mut alike = part.dims().to_vec();
        if part.dims().len() != rank || part.data_type() != data_type {
            return Err(call.invalid(&format!("input {index} is unlike the first")));
        }
        dims[axis] += alike[axis];
        alike[axis] = dims[axis];
        if alike != dims {
            return Err(call.invalid(&format!("input {index} is unlike the first")));
        }
    }
    let y = lowering.activation(call, &dims, data_type)?;
    let strides = layout::strides(&dims);
    let mut at = 0;
    for index in 0..call.inputs.len() {
        let x = lowering.device(call, call.input(index)?)?;
        let source = View {
            address: x.address,
            strides: &layout::strides(&x.dims),
            element: x.element,
        };
        let target = View {
            address: y.address + at * strides[axis] as u64 * y.element.bytes(),
            strides: &strides,
            element: y.element,
        };
        lowering.copy(call, &x.dims, &source, &target)?;
        at += x.dims[axis];
    }
    Ok(vec![y.into()])
}

pub(super) fn pad(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let mode = call.node.text("mode");
    if !matches!(mode, "" | "constant") {
        return Err(call.unsupported(&format!("mode `{mode}`")));
    }
    let early = call.opset < 11;
    let pads = match early {
        true => call.node.ints("pads").map(<[i64]>::to_vec),
        false => call.integers(1)?,
    };
    let pads = pads.ok_or_else(|| call.invalid("it has no padding"))?;
    let value = match early {
        true => f64::from(call.node.float("value", 0.0)),
        false => call.number(2)?.unwrap_or(0.0),
    };
    let x = lowering.device(call, call.input(0)?)?;
    let rank = x.dims.len();
    let axes: Vec<usize> = match call.integers(3)? {
        None => (0..rank).collect(),
        Some(axes) => axes
            .iter()
            .map(|axis| call.axis(*axis, rank))
            .collect::<Result<_, _>>()?,
    };
    if pads.len() != 2 * axes.len() {
        return Err(call.invalid(&format!("padding {pads:?} of {rank} dimensions")));
    }
    let (mut begin, mut end) = (vec![0; rank], vec![0; rank]);
    for (index, axis) in axes.iter().enumerate() {
        (begin[*axis], end[*axis]) = (pads[index], pads[index + axes.len()]);
    }
    padded(lowering, call, &x, [&begin, &end], value)
}

/// Negative padding cuts elements off.
fn padded(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    x: &Device,
    [begin, end]: [&[i64]; 2],
    value: f64,
) -> Result<Vec<Value>, Error> {
    let rank = x.dims.len();
    let dims: Option<Vec<u64>> = (0..rank)
        .map(|axis| {
            let size = (x.dims[axis] as i64).checked_add(begin[axis])?;
            u64::try_from(size.checked_add(end[axis])?).ok()
        })
        .collect();
    let dims = dims.ok_or_else(|| call.invalid("padding below nothing"))?;
    let y = lowering.activation(call, &dims, x.data_type)?;
    fill(lowering, &y, value);
    let (from, to) = (layout::strides(&x.dims), layout::strides(&dims));
    let (mut inner, mut skip, mut start) = (Vec::new(), 0, 0);
    for axis in 0..rank {
        let cut = begin[axis].min(0) + end[axis].min(0);
        inner.push((x.dims[axis] as i64 + cut).max(0) as u64);
        skip += -begin[axis].min(0) * from[axis];
        start += begin[axis].max(0) * to[axis];
    }
    if inner.contains(&0) {
        return Ok(vec![y.into()]);
    }
    let view =
        |device: &Device, offset: i64| device.address + offset as u64 * device.element.bytes();
    let source = View {
        address: view(x, skip),
        strides: &from,
        element: x.element,
    };
    let target = View {
        address: view(&y, start),
        strides: &to,
        element: y.element,
    };
    lowering.copy(call, &inner, &source, &target)?;
    Ok(vec![y.into()])
}

/// Sizes that must be known before a batch comes.
fn sizes(call: &Call<'_>, index: usize) -> Result<Vec<u64>, Error> {
    let given = call.integers(index)?;
    let given = given.ok_or_else(|| call.invalid(&format!("input {index} is missing")))?;
    let sizes: Result<Vec<u64>, _> = given.iter().map(|it| u64::try_from(*it)).collect();
    sizes.map_err(|_| call.invalid(&format!("sizes {given:?}")))
}
