//! Operators that reduce dimensions.

use sextant_engine::Error;
use sextant_types::DataType;

use super::{
    Call,
    context::{Device, Lowering, Value},
    layout,
};
use crate::operation::{Arg, Operation, Reduce, ReduceFunction, Span};

pub(super) fn function(op_type: &str) -> Option<ReduceFunction> {
    Some(match op_type {
        "ReduceSum" => ReduceFunction::Sum,
        "ReduceMean" => ReduceFunction::Mean,
        "ReduceMax" => ReduceFunction::Max,
        "ReduceMin" => ReduceFunction::Min,
        "ReduceProd" => ReduceFunction::Product,
        "ReduceL2" => ReduceFunction::L2,
        "ReduceSumSquare" => ReduceFunction::SumSquare,
        _ => return None,
    })
}

pub(super) fn reduce(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let Some(function) = function(&call.node.op_type) else {
        return Err(call.unsupported("no function"));
    };
    let x = lowering.stored(call, call.input(0)?)?;
    let rank = x.dims.len();
    let given = call.axes(1)?.unwrap_or_default();
    if given.is_empty() && call.node.int("noop_with_empty_axes", 0) != 0 {
        return Ok(vec![x.into()]);
    }
    let mut axes: Vec<usize> = given
        .iter()
        .map(|axis| call.axis(*axis, rank))
        .collect::<Result<_, _>>()?;
    if axes.is_empty() {
        axes = (0..rank).collect();
    }
    axes.sort_unstable();
    axes.dedup();
    let integer = matches!(x.data_type, DataType::Int32 | DataType::Int64);
    if !(x.element.is_float() || integer && function != ReduceFunction::L2) {
        return Err(call.unsupported(&format!("of {}", x.data_type)));
    }
    let dims = reduced(&x.dims, &axes, call.node.int("keepdims", 1) != 0);
    let y = if x.channels_last && axes.iter().copied().eq(2..rank) {
        images(lowering, call, function, &x)?
    } else {
        let x = lowering.row_major(&x);
        along(lowering, call, function, &x, &axes)?
    };
    Ok(vec![y.reshaped(&dims).into()])
}

/// Reduces axes in ascending order. The result lacks the reduced axes.
fn along(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    function: ReduceFunction,
    x: &Device,
    axes: &[usize],
) -> Result<Device, Error> {
    let adjacent = axes.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let (x, axes) = if adjacent {
        (x.clone(), axes.to_vec())
    } else {
        last(lowering, call, x, axes)?
    };
    let first = axes.first().copied().unwrap_or(0);
    let behind = axes.last().map_or(0, |last| last + 1);
    let span = Span {
        outer: x.dims[..first].iter().product(),
        length: x.dims[first..behind].iter().product(),
        inner: x.dims[behind..].iter().product(),
    };
    let dims = reduced(&x.dims, &axes, false);
    let y = lowering.activation(call, &dims, x.data_type)?;
    if span.length == 0 {
        return Err(call.unsupported("of no elements"));
    }
    if span.reduced() > 0 {
        lowering.emit(Operation::Reduce(Reduce {
            function,
            x: x.address,
            y: y.address,
            span,
            element: x.element,
        }));
    }
    Ok(y)
}

/// The same tensor with the given axes moved behind the others.
fn last(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    x: &Device,
    axes: &[usize],
) -> Result<(Device, Vec<usize>), Error> {
    let rank = x.dims.len();
    let kept = (0..rank).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let dims: Vec<u64> = order.iter().map(|axis| x.dims[*axis]).collect();
    let own = layout::strides(&x.dims);
    let strides: Vec<i64> = order.iter().map(|axis| own[*axis]).collect();
    let moved = lowering.gathered(call, x, 0, &dims, &strides)?;
    Ok((moved, (rank - axes.len()..rank).collect()))
}

fn reduced(dims: &[u64], axes: &[usize], keep: bool) -> Vec<u64> {
    let dims = dims.iter().enumerate();
    dims.filter_map(|(axis, size)| match axes.contains(&axis) {
        true if keep => Some(1),
        true => None,
        false => Some(*size),
    })
    .collect()
}

/// Reduces the pixels of images to `[batch, channels]`.
fn images(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    function: ReduceFunction,
    x: &Device,
) -> Result<Device, Error> {
    let pixels = x.dims[2..].iter().product();
    match x.channels_last {
        true => {
            let lying = Device {
                channels_last: false,
                dims: vec![x.dims[0], pixels, x.dims[1]],
                ..x.clone()
            };
            along(lowering, call, function, &lying, &[1])
        }
        false => {
            let flat = x.reshaped(&[x.dims[0], x.dims[1], pixels]);
            along(lowering, call, function, &flat, &[2])
        }
    }
}

pub(super) fn global_pool(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
) -> Result<Vec<Value>, Error> {
    let x = lowering.stored(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    if x.dims.len() < 3 {
        return Err(call.invalid(&format!("of shape {:?}", x.dims)));
    }
    let function = match call.node.op_type.as_str() {
        "GlobalMaxPool" => ReduceFunction::Max,
        _ => ReduceFunction::Mean,
    };
    let axes: Vec<usize> = (2..x.dims.len()).collect();
    let dims = reduced(&x.dims, &axes, true);
    let y = images(lowering, call, function, &x)?;
    Ok(vec![y.reshaped(&dims).into()])
}

pub(super) fn arg(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    let integer = matches!(x.data_type, DataType::Int32 | DataType::Int64);
    if !x.element.is_float() && !integer {
        return Err(call.unsupported(&format!("of {}", x.data_type)));
    }
    let axis = call.axis(call.node.int("axis", 0), x.dims.len())?;
    let dims = reduced(&x.dims, &[axis], call.node.int("keepdims", 1) != 0);
    let y = lowering.activation(call, &dims, DataType::Int64)?;
    let span = span(call, &x.dims, axis)?;
    if span.reduced() > 0 {
        lowering.emit(Operation::Arg(Arg {
            largest: call.node.op_type == "ArgMax",
            last: call.node.int("select_last_index", 0) != 0,
            x: x.address,
            y: y.address,
            span,
            element: x.element,
        }));
    }
    Ok(vec![y.into()])
}

/// A tensor viewed along one axis.
pub(super) fn span(call: &Call<'_>, dims: &[u64], axis: usize) -> Result<Span, Error> {
    if dims[axis] == 0 {
        return Err(call.unsupported("of no elements"));
    }
    Ok(Span {
        outer: dims[..axis].iter().product(),
        length: dims[axis],
        inner: dims[axis + 1..].iter().product(),
    })
}
