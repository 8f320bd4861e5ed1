//! Softmax and normalisation.

use sextant_engine::Error;

use super::{
    Call,
    context::{Device, Lowering, Value},
    product::vector,
    reduce,
};
use crate::operation::{
    Activation, Address, Affine, LayerNorm, Operation, Softmax, Span, Symbolic,
};

pub(super) fn softmax(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    let rank = x.dims.len();
    let span = if call.opset >= 13 {
        let axis = call.axis(call.node.int("axis", -1), rank)?;
        reduce::span(call, &x.dims, axis)?
    } else {
        // In earlier operator sets, all dimensions from the axis on counted as one.
        let axis = call.axis(call.node.int("axis", 1), rank)?;
        Span {
            outer: x.dims[..axis].iter().product(),
            length: x.dims[axis..].iter().product(),
            inner: 1,
        }
    };
    let y = lowering.activation(call, &x.dims, x.data_type)?;
    if x.count() > 0 {
        lowering.emit(Operation::Softmax(Softmax {
            logarithm: call.node.op_type == "LogSoftmax",
            x: x.address,
            y: y.address,
            span,
            element: x.element,
        }));
    }
    Ok(vec![y.into()])
}

pub(super) fn layer_norm(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
) -> Result<Vec<Value>, Error> {
    if call.node.outputs.iter().skip(1).any(|it| !it.is_empty()) {
        return Err(call.unsupported("its mean and deviation as outputs"));
    }
    let x = lowering.device(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    let axis = call.axis(call.node.int("axis", -1), x.dims.len())?;
    let length: u64 = x.dims[axis..].iter().product();
    let scale = vector(lowering, call, 1, length, &x)?;
    let shift = vector(lowering, call, 2, length, &x)?;
    let y = lowering.activation(call, &x.dims, x.data_type)?;
    if x.count() > 0 {
        lowering.emit(Operation::LayerNorm(LayerNorm {
            x: x.address,
            y: y.address,
            scale,
            shift,
            rows: x.dims[..axis].iter().product(),
            length,
            epsilon: call.node.float("epsilon", 1e-5),
            element: x.element,
        }));
    }
    Ok(vec![y.into()])
}

/// `(x - mean) / sqrt(variance + epsilon) * scale + shift` with constant statistics. The fusion has reduced the four
/// vectors to two.
pub(super) fn batch_norm(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
) -> Result<Vec<Value>, Error> {
    if call.node.int("training_mode", 0) != 0 || call.inputs.len() != 3 {
        return Err(call.unsupported("its parameters are not constant, or it is in training mode"));
    }
    let x = lowering.stored(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    let Some(channels) = x.dims.get(1).copied() else {
        return Err(call.invalid(&format!("of shape {:?}", x.dims)));
    };
    let scale = vector(lowering, call, 1, channels, &x)?;
    let shift = vector(lowering, call, 2, channels, &x)?;
    let y = affine(lowering, call, &x, [scale, shift], call.node.activation)?;
    Ok(vec![y.into()])
}

pub(super) fn instance_norm(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
) -> Result<Vec<Value>, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    call.floats(x.data_type)?;
    if x.dims.len() < 3 {
        return Err(call.invalid(&format!("of shape {:?}", x.dims)));
    }
    let scale = vector(lowering, call, 1, x.dims[1], &x)?;
    let shift = vector(lowering, call, 2, x.dims[1], &x)?;
    let middle = lowering.activation(call, &x.dims, x.data_type)?;
    if x.count() > 0 {
        lowering.emit(Operation::LayerNorm(LayerNorm {
            x: x.address,
            y: middle.address,
            scale: None,
            shift: None,
            rows: x.dims[0] * x.dims[1],
            length: x.dims[2..].iter().product(),
            epsilon: call.node.float("epsilon", 1e-5),
            element: x.element,
        }));
    }
    let y = affine(lowering, call, &middle, [scale, shift], Activation::None)?;
    Ok(vec![y.into()])
}

/// `activation(x * scale + shift)` for each channel, the second dimension.
pub(super) fn affine(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    x: &Device,
    [scale, shift]: [Option<Address<Symbolic>>; 2],
    activation: Activation,
) -> Result<Device, Error> {
    let y = Device {
        channels_last: x.channels_last,
        ..lowering.activation(call, &x.dims, x.data_type)?
    };
    let pixels: u64 = x.dims[2..].iter().product();
    let (outer, inner) = match x.channels_last {
        true => (x.dims[0] * pixels, 1),
        false => (x.dims[0], pixels),
    };
    if x.count() > 0 {
        lowering.emit(Operation::Affine(Affine {
            x: x.address,
            y: y.address,
            scale,
            shift,
            outer,
            channels: x.dims[1],
            inner,
            activation,
            element: x.element,
        }));
    }
    Ok(y)
}
