//! One product of matrices, and batches of products.

use sextant_engine::Error;

use super::{
    Call,
    context::{Device, Lowering, Piece, Value},
    layout,
};
use crate::operation::{Activation, Address, Gemm, Matrix, Operation, Symbolic};

/// The parameters of one product, before it is split along the pieces of its right factor.
pub(super) struct Product {
    pub a: Matrix<Symbolic>,
    /// Of the right factor: stride, batch stride, transposition.
    pub b: Matrix<Symbolic>,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch: u64,
    pub alpha: f32,
    pub bias: Option<Address<Symbolic>>,
}

/// Products for each index of the batch dimensions. Products with regular strides share one operation.
pub(super) fn batched(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    product: &Product,
    right: &Value,
    dims: &[u64],
    steps: &[Vec<i64>; 2],
) -> Result<Device, Error> {
    let b = lowering.device(call, right)?;
    let y = lowering.activation(call, dims, b.data_type)?;
    let outer = &dims[..dims.len() - 2];
    let (sizes, strides) = layout::merge(outer, [&steps[0], &steps[1]])
        .ok_or_else(|| call.unsupported("it needs more than six dimensions"))?;
    let inner_rank = sizes.rank.saturating_sub(1);
    let inner = if sizes.rank == 0 {
        1
    } else {
        sizes.sizes[inner_rank]
    };
    let (a_size, b_size, c_size) = (
        product.m * product.k,
        product.k * product.n,
        product.m * product.n,
    );
    for index in 0..sizes.count() / inner.max(1) {
        let (mut rest, mut at) = (index, [0, 0]);
        for dim in (0..inner_rank).rev() {
            let place = (rest % sizes.sizes[dim]) as i64;
            rest /= sizes.sizes[dim];
            (0..2).for_each(|n| at[n] += place * strides[n][dim]);
        }
        let bytes = y.element.bytes();
        let offset = |steps: i64, size: u64| steps as u64 * size * bytes;
        lowering.emit(Operation::Gemm(Gemm {
            a: Matrix {
                address: product.a.address + offset(at[0], a_size),
                batch_stride: strides[0][inner_rank] as u64 * a_size,
                ..product.a
            },
            b: Matrix {
                address: b.address + offset(at[1], b_size),
                batch_stride: strides[1][inner_rank] as u64 * b_size,
                ..product.b
            },
            c: Matrix {
                address: y.address + index * inner * c_size * bytes,
                batch_stride: c_size,
                ..matrix(Address::new(0), product.n, false)
            },
            bias: product.bias,
            addend: None,
            m: product.m,
            n: product.n,
            k: product.k,
            batch: inner,
            alpha: product.alpha,
            activation: call.node.activation,
            element: y.element,
            arithmetic: lowering.target.arithmetic,
        }));
    }
    Ok(y)
}

/// One product, split along the pieces of a right factor that lies in several pages.
pub(super) fn multiply(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    product: &Product,
    right: &Value,
    dims: &[u64],
    activation: Activation,
) -> Result<Device, Error> {
    let y = lowering.activation(call, dims, right.data_type())?;
    let stored = if product.b.transposed {
        product.n
    } else {
        product.k
    };
    if product.m * product.n == 0 || product.k == 0 {
        return Err(call.unsupported("of empty matrices"));
    }
    let (product, pieces) = pieces(lowering, call, product, right, stored)?;
    for piece in pieces {
        let bytes = y.element.bytes();
        let start = piece.first_row * bytes;
        let (columns, at) = if product.b.transposed {
            (piece.rows, start)
        } else {
            (product.n, 0)
        };
        lowering.emit(Operation::Gemm(Gemm {
            a: product.a,
            b: Matrix {
                address: piece.address,
                ..product.b
            },
            c: matrix(y.address + at, product.n, false),
            bias: product.bias.map(|bias| bias + at),
            addend: None,
            m: product.m,
            n: columns,
            k: product.k,
            batch: 1,
            alpha: product.alpha,
            activation,
            element: y.element,
            arithmetic: lowering.target.arithmetic,
        }));
    }
    Ok(y)
}

/// A right factor that needs several pages is stored transposed, so that each piece gives columns of the product.
fn pieces(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    product: &Product,
    right: &Value,
    stored: u64,
) -> Result<(Product, Vec<Piece>), Error> {
    let mut turned = Product { ..*product };
    let bytes = product.k * product.n * lowering.element(call, right.data_type())?.bytes();
    let constant = match right {
        Value::Constant(constant) if bytes > lowering.target.page_bytes => constant,
        _ => return Ok((turned, lowering.pieces(call, right, stored)?)),
    };
    if product.b.transposed {
        return Ok((turned, lowering.pieces(call, right, stored)?));
    }
    turned.b = matrix(Address::new(0), product.k, true);
    let transposed: Value = constant.transposed().into();
    let pieces = lowering.pieces(call, &transposed, product.n)?;
    Ok((turned, pieces))
}

/// An optional vector of the given length, stored in the element of `like`.
pub(super) fn vector(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    index: usize,
    length: u64,
    like: &Device,
) -> Result<Option<Address<Symbolic>>, Error> {
    let Some(value) = call.optional(index) else {
        return Ok(None);
    };
    let vector = lowering.device(call, value)?;
    if vector.count() != length {
        let reason = format!("input {index} has shape {:?}, not [{length}]", vector.dims);
        return Err(call.invalid(&reason));
    }
    let vector = lowering.converted(&vector, like.data_type, like.element);
    Ok(Some(vector.address))
}

pub(super) fn matrix(
    address: Address<Symbolic>,
    row_stride: u64,
    transposed: bool,
) -> Matrix<Symbolic> {
    Matrix {
        address,
        row_stride,
        batch_stride: 0,
        transposed,
    }
}
