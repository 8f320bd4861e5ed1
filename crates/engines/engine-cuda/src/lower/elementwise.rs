//! Operators on one tensor, element by element.

use sextant_engine::Error;
use sextant_onnx::tensor::element_type;
use sextant_types::DataType;

use super::{
    Call, Constant, HostTensor,
    context::{Device, Lowering, Value},
    pairs::combine,
};
use crate::operation::{BinaryFunction, Operation, Unary, UnaryFunction};

/// The function of an operator; its parameters come from the node's attributes.
pub(super) fn unary_function(op_type: &str) -> Option<UnaryFunction> {
    use UnaryFunction as F;
    Some(match op_type {
        "Relu" => F::Relu,
        "LeakyRelu" => F::LeakyRelu { alpha: 0.01 },
        "Elu" => F::Elu { alpha: 1.0 },
        "Selu" => F::Selu {
            alpha: 1.673_263_2,
            gamma: 1.050_701,
        },
        "Sigmoid" => F::Sigmoid,
        "HardSigmoid" => F::HardSigmoid {
            alpha: 0.2,
            beta: 0.5,
        },
        "HardSwish" => F::HardSwish,
        "Tanh" => F::Tanh,
        "Erf" => F::Erf,
        "Gelu" => F::Gelu,
        "Softplus" => F::Softplus,
        "Softsign" => F::Softsign,
        "Exp" => F::Exp,
        "Log" => F::Log,
        "Sqrt" => F::Sqrt,
        "Reciprocal" => F::Reciprocal,
        "Neg" => F::Neg,
        "Abs" => F::Abs,
        "Sign" => F::Sign,
        "Floor" => F::Floor,
        "Ceil" => F::Ceil,
        "Round" => F::Round,
        "Sin" => F::Sin,
        "Cos" => F::Cos,
        "Not" => F::Not,
        _ => return None,
    })
}

pub(super) fn unary(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let Some(function) = unary_function(&call.node.op_type) else {
        return Err(call.unsupported("no function"));
    };
    let function = parameters(call, function)?;
    let x = lowering.stored(call, call.input(0)?)?;
    Ok(vec![apply(lowering, call, function, &x)?.into()])
}

fn parameters(call: &Call<'_>, function: UnaryFunction) -> Result<UnaryFunction, Error> {
    use UnaryFunction as F;
    let node = call.node;
    Ok(match function {
        F::LeakyRelu { alpha } => F::LeakyRelu {
            alpha: node.float("alpha", alpha),
        },
        F::Elu { alpha } => F::Elu {
            alpha: node.float("alpha", alpha),
        },
        F::Selu { alpha, gamma } => F::Selu {
            alpha: node.float("alpha", alpha),
            gamma: node.float("gamma", gamma),
        },
        F::HardSigmoid { alpha, beta } => F::HardSigmoid {
            alpha: node.float("alpha", alpha),
            beta: node.float("beta", beta),
        },
        F::Gelu => match node.text("approximate") {
            "" | "none" => F::Gelu,
            "tanh" => F::GeluTanh,
            other => return Err(call.unsupported(&format!("approximation `{other}`"))),
        },
        other => other,
    })
}

/// Applies one function to a tensor.
pub(super) fn apply(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    function: UnaryFunction,
    x: &Device,
) -> Result<Device, Error> {
    use UnaryFunction as F;
    let fits = match function {
        F::Not => x.data_type == DataType::Bool,
        F::Relu | F::Neg | F::Abs | F::Sign | F::Clip { .. } => x.data_type != DataType::Bool,
        _ => x.element.is_float(),
    };
    if !fits {
        return Err(call.unsupported(&format!("of {}", x.data_type)));
    }
    let y = Device {
        channels_last: x.channels_last,
        ..lowering.activation(call, &x.dims, x.data_type)?
    };
    if x.count() > 0 {
        lowering.emit(Operation::Unary(Unary {
            function,
            x: x.address,
            y: y.address,
            count: x.count(),
            element: x.element,
        }));
    }
    Ok(y)
}

pub(super) fn clip(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let x = lowering.stored(call, call.input(0)?)?;
    if call.opset >= 11 && !x.element.is_float() {
        return clip_integers(lowering, call, x);
    }
    let (min, max) = if call.opset < 11 {
        let node = call.node;
        (
            node.float("min", f32::NEG_INFINITY),
            node.float("max", f32::INFINITY),
        )
    } else {
        let (min, max) = (call.number(1)?, call.number(2)?);
        (
            min.map_or(f32::NEG_INFINITY, |it| it as f32),
            max.map_or(f32::INFINITY, |it| it as f32),
        )
    };
    let function = UnaryFunction::Clip { min, max };
    Ok(vec![apply(lowering, call, function, &x)?.into()])
}

/// Clips integers between bounds of the same type, because a 32-bit float cannot hold every integer.
fn clip_integers(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    mut x: Device,
) -> Result<Vec<Value>, Error> {
    for (index, function) in [(1, BinaryFunction::Max), (2, BinaryFunction::Min)] {
        if let Some(bound) = call.optional(index) {
            let bound = lowering.stored(call, bound)?;
            x = combine(lowering, call, function, [&x, &bound])?;
        }
    }
    Ok(vec![x.into()])
}

/// At inference, dropout is the identity as well.
pub(super) fn identity(_: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let training = call.node.op_type == "Dropout" && call.number(2)?.is_some_and(|it| it != 0.0);
    let mask = call
        .node
        .outputs
        .get(1)
        .is_some_and(|name| !name.is_empty());
    if training || mask {
        return Err(call.unsupported("training"));
    }
    Ok(vec![call.input(0)?.clone()])
}

pub(super) fn cast(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let to = call.node.int("to", 0);
    let data_type = i32::try_from(to).ok().and_then(element_type);
    let data_type =
        data_type.ok_or_else(|| call.unsupported(&format!("to ONNX element type {to}")))?;
    let element = lowering.element(call, data_type)?;
    let x = lowering.device(call, call.input(0)?)?;
    Ok(vec![lowering.converted(&x, data_type, element).into()])
}

/// A constant of the given type with one element.
pub(super) fn scalar(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    value: f32,
    data_type: DataType,
) -> Result<Device, Error> {
    let tensor = HostTensor::floats(&[], &[value]);
    let key = format!("number {value}");
    let constant = Constant::fixed(&key, tensor.into());
    let number = lowering.device(call, &constant.into())?;
    let element = lowering.element(call, data_type)?;
    Ok(lowering.converted(&number, data_type, element))
}
