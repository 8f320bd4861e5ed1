//! Launches over contiguous tensors.

use sextant_engine::Error;

use super::{GRID, Launch, Parameters, aligned, code, float_only, lanes, suffix, unsupported};
use crate::operation::{
    Activation, Affine, Convolution, Element, Gather, Gemm, Im2col, Matrix, Pool, PoolFunction,
    Unary, UnaryFunction, Window,
};

pub(super) fn unary(it: &Unary) -> Result<Option<Launch>, Error> {
    use UnaryFunction as F;
    let integers = matches!(
        it.function,
        F::Relu | F::Neg | F::Abs | F::Sign | F::Clip { .. } | F::Not
    );
    if it.element.is_float() == (it.function == F::Not) || !(it.element.is_float() || integers) {
        return Err(unsupported(&format!("{:?}", it.function), it.element));
    }
    let wide = it.element.is_float() && aligned(&[it.x, it.y]);
    let (function, p, q) = unary_code(it.function);
    let parameters = Parameters::default()
        .address(it.x)
        .address(it.y)
        .u64(it.count)
        .i32(function)
        .f32(p)
        .f32(q);
    let kernel = format!(
        "unary_{}{}",
        suffix(it.element),
        if wide { "_wide" } else { "" }
    );
    let items = it.count.div_ceil(if wide { lanes(it.element) } else { 1 });
    Ok((it.count > 0).then(|| Launch::flat(kernel, items, parameters)))
}

/// The function's code in the sources and its two parameters.
fn unary_code(function: UnaryFunction) -> (i32, f32, f32) {
    use UnaryFunction as F;
    match function {
        F::Relu => (0, 0.0, 0.0),
        F::LeakyRelu { alpha } => (1, alpha, 0.0),
        F::Elu { alpha } => (2, alpha, 0.0),
        F::Selu { alpha, gamma } => (3, alpha, gamma),
        F::Sigmoid => (4, 0.0, 0.0),
        F::HardSigmoid { alpha, beta } => (5, alpha, beta),
        F::HardSwish => (6, 0.0, 0.0),
        F::Silu => (7, 0.0, 0.0),
        F::Tanh => (8, 0.0, 0.0),
        F::Erf => (9, 0.0, 0.0),
        F::Gelu => (10, 0.0, 0.0),
        F::GeluTanh => (11, 0.0, 0.0),
        F::Softplus => (12, 0.0, 0.0),
        F::Softsign => (13, 0.0, 0.0),
        F::Exp => (14, 0.0, 0.0),
        F::Log => (15, 0.0, 0.0),
        F::Sqrt => (16, 0.0, 0.0),
        F::Reciprocal => (17, 0.0, 0.0),
        F::Neg => (18, 0.0, 0.0),
        F::Abs => (19, 0.0, 0.0),
        F::Sign => (20, 0.0, 0.0),
        F::Floor => (21, 0.0, 0.0),
        F::Ceil => (22, 0.0, 0.0),
        F::Round => (23, 0.0, 0.0),
        F::Sin => (24, 0.0, 0.0),
        F::Cos => (25, 0.0, 0.0),
        F::Clip { min, max } => (26, min, max),
        F::Not => (27, 0.0, 0.0),
    }
}

pub(super) fn affine(it: &Affine) -> Result<Option<Launch>, Error> {
    float_only("scaling", it.element)?;
    let count = it.outer * it.channels * it.inner;
    let parameters = Parameters::default()
        .address(it.x)
        .address(it.y)
        .optional(it.scale)
        .optional(it.shift)
        .u64s(&[count, it.channels, it.inner])
        .i32(activation(it.activation));
    let kernel = format!("affine_{}", suffix(it.element));
    Ok((count > 0).then(|| Launch::flat(kernel, count, parameters)))
}

pub(super) fn gemm(it: &Gemm) -> Result<Option<Launch>, Error> {
    const TILE: u64 = 16;
    float_only("a product of matrices", it.element)?;
    let matrix = |parameters: Parameters, matrix: &Matrix| {
        parameters.u64s(&[
            matrix.row_stride,
            matrix.batch_stride,
            u64::from(matrix.transposed),
        ])
    };
    let parameters = Parameters::default()
        .address(it.a.address)
        .address(it.b.address)
        .optional(it.bias)
        .optional(it.addend)
        .address(it.c.address)
        .u64s(&[it.m, it.n, it.k, it.batch]);
    let parameters = [it.a, it.b, it.c].iter().fold(parameters, matrix);
    let parameters = parameters.f32(it.alpha).i32(activation(it.activation));
    let tiles = it.m.div_ceil(TILE) * it.n.div_ceil(TILE) * it.batch;
    Ok((tiles > 0).then(|| Launch {
        kernel: format!("gemm_{}", suffix(it.element)),
        grid: tiles.min(GRID) as u32,
        block: (TILE * TILE) as u32,
        parameters,
    }))
}

pub(super) fn convolution(it: &Convolution) -> Result<Option<Launch>, Error> {
    float_only("a convolution", it.element)?;
    check(&it.window)?;
    if it.channels_last || it.addend.is_some() {
        return Err(Error::Unsupported(
            "a convolution with an addend or of pixels has no kernel".to_owned(),
        ));
    }
    let small = |value: u64| {
        u32::try_from(value).map_err(|_| Error::Unsupported(format!("{value} channels")))
    };
    let count = it.batch * it.out_channels * it.window.out_count();
    let parameters = Parameters::default()
        .address(it.x)
        .address(it.weights)
        .optional(it.bias)
        .address(it.y)
        .u64(count)
        .u32(small(it.in_channels)?)
        .u32(small(it.out_channels)?)
        .u32(small(it.groups)?);
    let parameters = window(parameters, &it.window).i32(activation(it.activation));
    let kernel = format!("convolution_{}", suffix(it.element));
    Ok((count > 0).then(|| Launch::flat(kernel, count, parameters)))
}

pub(super) fn pool(it: &Pool) -> Result<Option<Launch>, Error> {
    float_only("pooling", it.element)?;
    check(&it.window)?;
    let function = match it.function {
        PoolFunction::Max => 0,
        PoolFunction::Average => 1,
        PoolFunction::AverageWithPadding => 2,
    };
    let lanes = lanes(it.element);
    let wide = it.inner.is_multiple_of(lanes) && aligned(&[it.x, it.y]);
    let count = it.planes * it.window.out_count() * it.inner;
    let packs = count / if wide { lanes } else { 1 };
    let parameters = Parameters::default()
        .address(it.x)
        .address(it.y)
        .u64s(&[packs, it.inner]);
    let parameters = window(parameters, &it.window).i32(function);
    let ending = if wide { "_wide" } else { "" };
    let kernel = format!("pool_{}{ending}", suffix(it.element));
    Ok((count > 0).then(|| Launch::flat(kernel, packs, parameters)))
}

pub(super) fn im2col(it: &Im2col) -> Result<Option<Launch>, Error> {
    check(&it.window)?;
    let count = it.batch * it.channels * it.window.kernel_count() * it.window.out_count();
    let parameters = Parameters::default().address(it.x).address(it.y).u64(count);
    let kernel = format!("im2col_{}", it.element.bytes());
    Ok((count > 0).then(|| Launch::flat(kernel, count, window(parameters, &it.window))))
}

pub(super) fn gather(it: &Gather) -> Result<Option<Launch>, Error> {
    if !matches!(it.index, Element::I32 | Element::I64) {
        return Err(unsupported("indices", it.index));
    }
    let count = it.outer * it.count * it.inner;
    let parameters = Parameters::default()
        .address(it.table)
        .address(it.indices)
        .address(it.y)
        .u64s(&[it.outer, it.rows, it.inner, it.count])
        .u64s(&[it.first_row, it.all_rows])
        .i32(code(it.index));
    let kernel = format!("gather_{}", it.element.bytes());
    Ok((count > 0).then(|| Launch::flat(kernel, count, parameters)))
}

pub(super) fn activation(activation: Activation) -> i32 {
    match activation {
        Activation::None => 0,
        Activation::Relu => 1,
    }
}

/// The kernels count pixels, positions and window elements in 32 bits.
fn check(window: &Window) -> Result<(), Error> {
    let counts = [window.in_count(), window.out_count(), window.kernel_count()];
    match counts.iter().find(|count| **count > u64::from(u32::MAX)) {
        Some(count) => Err(Error::Unsupported(format!("an image of {count} pixels"))),
        None => Ok(()),
    }
}

fn window(parameters: Parameters, window: &Window) -> Parameters {
    let fields = [
        window.in_size,
        window.out_size,
        window.kernel,
        window.strides,
        window.dilations,
        window.pads_begin,
        window.pads_end,
    ];
    parameters.u64s(fields.as_flattened())
}
