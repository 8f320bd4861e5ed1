//! Lowers convolutions: to the device's library if there is one, otherwise to unfolding and a product.

use sextant_engine::Error;

use super::{
    Call, Constant,
    context::{Device, Lowering, Value},
    layout::{self, View},
    normalize::affine,
    pool::Images,
    product::{Product, matrix, multiply, vector},
};
use crate::operation::{
    Activation, Address, Convolution, Element, Fill, Gemm, Im2col, Matrix, Method, Operand,
    Operation, Sizes, Symbolic, Window,
};

/// Most bytes of images that are unfolded at a time. More would only cost workspace.
const UNFOLDED_BYTES: u64 = 64 << 20;

/// Channels that tensor cores process together, for 16-bit floats.
const EIGHT: u64 = 8;

struct Plan {
    x: Device,
    weights: Address<Symbolic>,
    bias: Option<Address<Symbolic>>,
    images: Images,
    window: Window,
    out_channels: u64,
    groups: u64,
}

/// The sizes of a convolution.
struct Shape {
    images: Images,
    window: Window,
    out_channels: u64,
    groups: u64,
}

pub(super) fn conv(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let shape = shape(call)?;
    let dims = shape.images.dims(shape.out_channels, shape.window.out_size);
    if shape.images.channels == 0 || dims.iter().product::<u64>() == 0 {
        return Err(call.unsupported("of no elements"));
    }
    if let Some(weights) = for_tensor_cores(lowering, call, &shape)? {
        return Ok(vec![
            channels_last(lowering, call, &shape, &weights, &dims)?.into(),
        ]);
    }
    let mut plan = plan(lowering, call, shape)?;
    if lowering.target.convolution && !symmetric(&plan.window) {
        pad(lowering, call, &mut plan)?;
    }
    let method = match (lowering.target.convolution, plan.groups) {
        (true, _) => Method::Library,
        (false, 1) => return Ok(vec![by_product(lowering, call, &plan, &dims)?.into()]),
        (false, _) => Method::Direct,
    };
    let y = lowering.activation(call, &dims, plan.x.data_type)?;
    lowering.emit(Operation::Convolution(Convolution {
        x: plan.x.address,
        weights: plan.weights,
        bias: plan.bias,
        addend: None,
        y: y.address,
        channels_last: false,
        batch: plan.images.batch,
        in_channels: plan.images.channels,
        out_channels: plan.out_channels,
        groups: plan.groups,
        window: plan.window,
        activation: call.node.activation,
        element: y.element,
        arithmetic: lowering.target.arithmetic,
        method,
    }));
    Ok(vec![y.into()])
}

fn symmetric(window: &Window) -> bool {
    window.pads_begin == window.pads_end
}

fn shape(call: &Call<'_>) -> Result<Shape, Error> {
    let (x, weights) = (call.input(0)?, call.input(1)?);
    call.floats(x.data_type())?;
    if weights.data_type() != x.data_type() {
        let types = format!("of {} and {}", x.data_type(), weights.data_type());
        return Err(call.invalid(&types));
    }
    let images = Images::new(call, x.dims())?;
    let (out_channels, depth, kernel) = match *weights.dims() {
        [out, depth, width] if images.flat => (out, depth, [1, width]),
        [out, depth, height, width] if !images.flat => (out, depth, [height, width]),
        _ => return Err(call.invalid(&format!("weights of shape {:?}", weights.dims()))),
    };
    let groups = u64::try_from(call.node.int("group", 1)).unwrap_or(0);
    let fits = groups > 0
        && depth.checked_mul(groups) == Some(images.channels)
        && out_channels % groups == 0;
    if !fits {
        let reason = format!("weights {:?} for images {:?}", weights.dims(), x.dims());
        return Err(call.invalid(&reason));
    }
    Ok(Shape {
        window: images.window(call, kernel)?,
        images,
        out_channels,
        groups,
    })
}

fn plan(lowering: &mut Lowering<'_>, call: &Call<'_>, shape: Shape) -> Result<Plan, Error> {
    let x = lowering.device(call, call.input(0)?)?;
    let weights = lowering.device(call, call.input(1)?)?;
    Ok(Plan {
        weights: weights.address,
        bias: vector(lowering, call, 2, shape.out_channels, &x)?,
        x,
        images: shape.images,
        window: shape.window,
        out_channels: shape.out_channels,
        groups: shape.groups,
    })
}

/// The weights of a convolution that tensor cores can compute: 16-bit floats, with channels in groups of eight. Then
/// the channels come last, as tensor cores need them; a library would reorder other images before and after each
/// convolution. If there are few input channels, as in a picture, they are padded to eight.
fn for_tensor_cores(
    lowering: &Lowering<'_>,
    call: &Call<'_>,
    shape: &Shape,
) -> Result<Option<Constant>, Error> {
    let element = lowering.element(call, call.input(0)?.data_type())?;
    let inputs = shape.images.channels;
    let fits = lowering.target.convolution
        && matches!(element, Element::F16 | Element::Bf16)
        && shape.groups == 1
        && symmetric(&shape.window)
        && shape.out_channels.is_multiple_of(EIGHT)
        && (inputs.is_multiple_of(EIGHT) || inputs < EIGHT);
    Ok(match call.input(1)? {
        Value::Constant(weights) if fits && weights.fixed => Some(weights.clone()),
        _ => None,
    })
}

/// A convolution with the channels last: a product if each output position reads one pixel, otherwise the library.
fn channels_last(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    shape: &Shape,
    weights: &Constant,
    dims: &[u64],
) -> Result<Device, Error> {
    let x = lowering.stored(call, call.input(0)?)?;
    let bias = vector(lowering, call, 2, shape.out_channels, &x)?;
    let activation = call.node.activation;
    let channels = shape.images.channels.next_multiple_of(EIGHT);
    let plain = pointwise(&shape.window) && channels == shape.images.channels;
    let x = lowering.channels_last(&x, channels);
    if plain {
        let product = Product {
            a: matrix(x.address, channels, false),
            b: matrix(Address::new(0), channels, true),
            m: shape.images.batch * shape.window.out_count(),
            n: shape.out_channels,
            k: channels,
            batch: 1,
            alpha: 1.0,
            bias,
        };
        let weights: Value = weights.clone().into();
        let y = multiply(lowering, call, &product, &weights, dims, activation)?;
        return Ok(Device {
            channels_last: true,
            ..y
        });
    }
    let count = shape.out_channels * shape.window.kernel_count() * channels;
    let key = format!("{} channels last", weights.key);
    let make = || weights.tensor.channels_last(channels);
    let weights = lowering.made(call, &key, weights.tensor.data_type, count, make)?;
    let y = Device {
        channels_last: true,
        ..lowering.activation(call, dims, x.data_type)?
    };
    lowering.emit(Operation::Convolution(Convolution {
        x: x.address,
        weights,
        bias,
        addend: None,
        y: y.address,
        channels_last: true,
        batch: shape.images.batch,
        in_channels: channels,
        out_channels: shape.out_channels,
        groups: 1,
        window: shape.window,
        activation,
        element: y.element,
        arithmetic: lowering.target.arithmetic,
        method: Method::Library,
    }));
    Ok(y)
}

/// Pads images in memory, for a library that pads both sides equally.
fn pad(lowering: &mut Lowering<'_>, call: &Call<'_>, plan: &mut Plan) -> Result<(), Error> {
    let window = &mut plan.window;
    let size =
        [0, 1].map(|dim| window.in_size[dim] + window.pads_begin[dim] + window.pads_end[dim]);
    let planes = plan.images.batch * plan.images.channels;
    let dims = [planes, size[0], size[1]];
    let padded = lowering.activation(call, &dims, plan.x.data_type)?;
    fill(lowering, &padded, 0.0);
    let inner = [planes, window.in_size[0], window.in_size[1]];
    let offset = window.pads_begin[0] * size[1] + window.pads_begin[1];
    let source = View {
        address: plan.x.address,
        strides: &layout::strides(&inner),
        element: plan.x.element,
    };
    let target = View {
        address: padded.address + offset * padded.element.bytes(),
        strides: &layout::strides(&dims),
        element: padded.element,
    };
    lowering.copy(call, &inner, &source, &target)?;
    window.in_size = size;
    window.pads_begin = [0; 2];
    window.pads_end = [0; 2];
    plan.x = padded;
    Ok(())
}

/// Sets all elements.
pub(super) fn fill(lowering: &mut Lowering<'_>, y: &Device, value: f64) {
    let count = y.count();
    if count > 0 {
        lowering.emit(Operation::Fill(Fill {
            y: Operand {
                address: y.address,
                strides: [1, 0, 0, 0, 0, 0],
            },
            sizes: Sizes {
                rank: 1,
                sizes: [count, 1, 1, 1, 1, 1],
            },
            value,
            element: y.element,
        }));
    }
}

/// `weights [out, depth] * unfolded [depth, positions]` for each image, some images at a time.
fn by_product(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    plan: &Plan,
    dims: &[u64],
) -> Result<Device, Error> {
    let activation = call.node.activation;
    let y = lowering.activation(call, dims, plan.x.data_type)?;
    let size = y.element.bytes();
    let positions = plan.window.out_count();
    let depth = plan.images.channels * plan.window.kernel_count();
    let plain = pointwise(&plan.window);
    let each = if plain {
        plan.images.batch
    } else {
        (UNFOLDED_BYTES / (depth * positions * size)).clamp(1, plan.images.batch)
    };
    for first in (0..plan.images.batch).step_by(each as usize) {
        let batch = each.min(plan.images.batch - first);
        let in_count = plan.images.channels * plan.window.in_count();
        let x = plan.x.address + first * in_count * size;
        let columns = if plain {
            x
        } else {
            unfold(lowering, plan, x, batch, depth * positions * size * batch)
        };
        lowering.emit(Operation::Gemm(Gemm {
            a: matrix(plan.weights, depth, false),
            b: Matrix {
                batch_stride: depth * positions,
                ..matrix(columns, positions, false)
            },
            c: Matrix {
                batch_stride: plan.out_channels * positions,
                ..matrix(
                    y.address + first * plan.out_channels * positions * size,
                    positions,
                    false,
                )
            },
            bias: None,
            addend: None,
            m: plan.out_channels,
            n: positions,
            k: depth,
            batch,
            alpha: 1.0,
            activation: if plan.bias.is_none() {
                activation
            } else {
                Activation::None
            },
            element: y.element,
            arithmetic: lowering.target.arithmetic,
        }));
    }
    match plan.bias {
        Some(bias) => affine(lowering, call, &y, [None, Some(bias)], activation),
        None => Ok(y),
    }
}

fn unfold(
    lowering: &mut Lowering<'_>,
    plan: &Plan,
    x: Address<Symbolic>,
    batch: u64,
    bytes: u64,
) -> Address<Symbolic> {
    let y = lowering.scratch(bytes);
    lowering.emit(Operation::Im2col(Im2col {
        x,
        y,
        batch,
        channels: plan.images.channels,
        window: plan.window,
        element: plan.x.element,
    }));
    y
}

/// Whether every output position reads only the pixel at the same position.
fn pointwise(window: &Window) -> bool {
    window.kernel == [1, 1] && window.in_size == window.out_size && window.strides == [1, 1]
}
