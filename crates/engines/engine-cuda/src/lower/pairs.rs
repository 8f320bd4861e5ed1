//! Operators on two or more tensors, element by element.

use sextant_engine::Error;
use sextant_types::DataType;

use super::{
    Call,
    context::{Device, Lowering, Value},
    elementwise::{apply, scalar},
    layout,
};
use crate::operation::{Activation, Binary, BinaryFunction, Operand, Operation, UnaryFunction};

pub(super) fn binary_function(op_type: &str) -> Option<BinaryFunction> {
    use BinaryFunction as F;
    Some(match op_type {
        "Add" => F::Add,
        "Sub" => F::Sub,
        "Mul" => F::Mul,
        "Div" => F::Div,
        "Pow" => F::Pow,
        "Equal" => F::Equal,
        "Less" => F::Less,
        "LessOrEqual" => F::LessOrEqual,
        "Greater" => F::Greater,
        "GreaterOrEqual" => F::GreaterOrEqual,
        "And" => F::And,
        "Or" => F::Or,
        "Xor" => F::Xor,
        _ => return None,
    })
}

pub(super) fn binary(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let Some(function) = binary_function(&call.node.op_type) else {
        return Err(call.unsupported("no function"));
    };
    let a = lowering.stored(call, call.input(0)?)?;
    if function == BinaryFunction::Pow
        && let Some(simple) = power(lowering, call, &a)?
    {
        return Ok(vec![simple.into()]);
    }
    let mut b = lowering.stored(call, call.input(1)?)?;
    if function == BinaryFunction::Pow && b.data_type != a.data_type {
        if b.element.is_float() && !a.element.is_float() && !is_whole(call.input(1)?) {
            return Err(call.unsupported("of integers, by exponents that may be fractions"));
        }
        b = lowering.converted(&b, a.data_type, a.element);
    }
    let fused = call.node.activation;
    let y = combine_activated(lowering, call, function, [&a, &b], fused)?;
    Ok(vec![y.into()])
}

/// Powers that need no logarithm.
fn power(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    a: &Device,
) -> Result<Option<Device>, Error> {
    let Value::Constant(exponent) = call.input(1)? else {
        return Ok(None);
    };
    let exponent = exponent
        .tensor
        .scalar()
        .filter(|_| exponent.tensor.dims.len() <= a.dims.len());
    match exponent {
        Some(2.0) => combine(lowering, call, BinaryFunction::Mul, [a, a]).map(Some),
        Some(0.5) if a.element.is_float() => {
            apply(lowering, call, UnaryFunction::Sqrt, a).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether a value is known to contain only whole numbers, whatever its type.
fn is_whole(value: &Value) -> bool {
    let Value::Constant(constant) = value else {
        return false;
    };
    let floats = constant.tensor.to_floats();
    floats.is_some_and(|all| all.iter().all(|it| it.fract() == 0.0))
}

/// A function of two tensors, broadcast.
pub(super) fn combine(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    function: BinaryFunction,
    operands: [&Device; 2],
) -> Result<Device, Error> {
    combine_activated(lowering, call, function, operands, Activation::None)
}

/// The same with an activation.
pub(super) fn combine_activated(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    function: BinaryFunction,
    [a, b]: [&Device; 2],
    fused: Activation,
) -> Result<Device, Error> {
    use BinaryFunction as F;
    if a.data_type != b.data_type {
        return Err(call.invalid(&format!("of {} and {}", a.data_type, b.data_type)));
    }
    let logical = matches!(function, F::And | F::Or | F::Xor);
    let comparable = function == F::Equal || (a.data_type == DataType::Bool) == logical;
    if !comparable {
        return Err(call.unsupported(&format!("of {}", a.data_type)));
    }
    let dims = layout::broadcast(&a.dims, &b.dims)
        .ok_or_else(|| call.invalid(&format!("shapes {:?} and {:?}", a.dims, b.dims)))?;
    let data_type = if function.is_comparison() {
        DataType::Bool
    } else {
        a.data_type
    };
    let last = [a, b]
        .iter()
        .any(|it| it.channels_last && it.dims.len() == dims.len());
    let [a, b] = &[a, b].map(|it| ordered(lowering, it, &dims, last));
    let y = Device {
        channels_last: last,
        ..lowering.activation(call, &dims, data_type)?
    };
    let mut steps = [a, b].map(|it| it.strides(&dims));
    let mut lying = dims.clone();
    if last {
        // In the order of the output's layout.
        steps.iter_mut().for_each(|all| all[1..].rotate_left(1));
        lying[1..].rotate_left(1);
    }
    let own = layout::strides(&lying);
    let (sizes, strides) = layout::merge(&lying, [&steps[0], &steps[1], &own])
        .ok_or_else(|| call.unsupported("it needs more than six dimensions"))?;
    let operand = |x: &Device, strides| Operand {
        address: x.address,
        strides,
    };
    let inside = a.element.is_float() && !function.is_comparison();
    if sizes.count() > 0 {
        lowering.emit(Operation::Binary(Binary {
            function,
            a: operand(a, strides[0]),
            b: operand(b, strides[1]),
            y: y.address,
            sizes,
            activation: if inside { fused } else { Activation::None },
            element: a.element,
        }));
    }
    if fused == Activation::Relu && !inside {
        return apply(lowering, call, UnaryFunction::Relu, &y);
    }
    Ok(y)
}

/// An operand in the order of the output. Whole images are reordered; a broadcast operand stays as it is. The channels
/// of an operand with fewer dimensions are not those of the output.
fn ordered(lowering: &mut Lowering<'_>, x: &Device, dims: &[u64], last: bool) -> Device {
    match (x.channels_last, last && x.dims.len() == dims.len()) {
        (true, false) => lowering.row_major(x),
        (false, true) if x.dims == dims => lowering.channels_last(x, dims[1]),
        _ => x.clone(),
    }
}

pub(super) fn variadic(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let function = match call.node.op_type.as_str() {
        "Max" => BinaryFunction::Max,
        "Min" => BinaryFunction::Min,
        _ => BinaryFunction::Add,
    };
    let mut all = lowering.stored(call, call.input(0)?)?;
    for index in 1..call.inputs.len() {
        let next = lowering.stored(call, call.input(index)?)?;
        all = combine(lowering, call, function, [&all, &next])?;
    }
    if call.node.op_type == "Mean" {
        call.floats(all.data_type)?;
        let share = 1.0 / call.inputs.len() as f32;
        let share = scalar(lowering, call, share, all.data_type)?;
        all = combine(lowering, call, BinaryFunction::Mul, [&all, &share])?;
    }
    Ok(vec![all.into()])
}

/// `max(x, 0) + slope * min(x, 0)`.
pub(super) fn prelu(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let x = lowering.stored(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    let slope = lowering.device(call, call.input(1)?)?;
    let above = apply(lowering, call, UnaryFunction::Relu, &x)?;
    let below = UnaryFunction::Clip {
        min: f32::NEG_INFINITY,
        max: 0.0,
    };
    let below = apply(lowering, call, below, &x)?;
    let below = combine(lowering, call, BinaryFunction::Mul, [&below, &slope])?;
    Ok(vec![
        combine(lowering, call, BinaryFunction::Add, [&above, &below])?.into(),
    ])
}
