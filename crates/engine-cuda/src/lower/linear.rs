//! Products of matrices.

use sextant_engine::Error;

use super::{
    Call,
    context::{Device, Lowering, Piece, Value},
    elementwise::{combine, combine_activated},
    layout,
};
use crate::operation::{Activation, Address, BinaryFunction, Gemm, Matrix, Operation};

/// What one product is made of, before it is cut along the pieces of its right factor.
struct Product {
    a: Matrix,
    /// Of the right factor: stride, batch stride, transposition.
    b: Matrix,
    m: u64,
    n: u64,
    k: u64,
    batch: u64,
    alpha: f32,
    bias: Option<Address>,
}

/// `alpha * op(A) * op(B) + beta * C`.
pub(super) fn gemm(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let node = call.node;
    let a = lowering.device(call, call.input(0)?)?;
    call.floats(a.data_type)?;
    let right = call.input(1)?;
    let (turn_a, turn_b) = (node.int("transA", 0) != 0, node.int("transB", 0) != 0);
    let [rows, columns] = pair(call, &a.dims)?;
    let [b_rows, b_columns] = pair(call, right.dims())?;
    let (m, k) = if turn_a {
        (columns, rows)
    } else {
        (rows, columns)
    };
    let (b_k, n) = if turn_b {
        (b_columns, b_rows)
    } else {
        (b_rows, b_columns)
    };
    if k != b_k || right.data_type() != a.data_type {
        return Err(call.invalid(&format!("shapes {:?} and {:?}", a.dims, right.dims())));
    }
    let (bias, addend) = bias(lowering, call, n, &a)?;
    let last = addend.is_none();
    let product = Product {
        a: matrix(a.address, columns, turn_a),
        b: matrix(0, b_columns, turn_b),
        m,
        n,
        k,
        batch: 1,
        alpha: node.float("alpha", 1.0),
        bias,
    };
    let activation = if last {
        node.activation
    } else {
        Activation::None
    };
    let y = multiply(lowering, call, &product, right, &[m, n], activation)?;
    let Some(addend) = addend else {
        return Ok(vec![y.into()]);
    };
    let function = BinaryFunction::Add;
    let y = combine_activated(lowering, call, function, [&y, &addend], node.activation)?;
    Ok(vec![y.into()])
}

/// What is added to a product: one value for each column, or a tensor of another shape.
fn bias(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    n: u64,
    like: &Device,
) -> Result<(Option<Address>, Option<Device>), Error> {
    let beta = call.node.float("beta", 1.0);
    if beta == 0.0 || call.optional(2).is_none() {
        return Ok((None, None));
    }
    let c = lowering.device(call, call.input(2)?)?;
    if c.data_type != like.data_type {
        return Err(call.invalid(&format!("of {} and {}", like.data_type, c.data_type)));
    }
    let columns = c.dims.last() == Some(&n) && c.count() == n;
    match (beta == 1.0, columns) {
        (true, true) => Ok((Some(c.address), None)),
        (true, false) => Ok((None, Some(c))),
        (false, _) => {
            let beta = super::elementwise::scalar(lowering, call, beta, c.data_type)?;
            let plain = combine(lowering, call, BinaryFunction::Mul, [&c, &beta])?;
            Ok((None, Some(plain)))
        }
    }
}

pub(super) fn matmul(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let a = lowering.device(call, call.input(0)?)?;
    call.floats(a.data_type)?;
    let right = call.input(1)?.clone();
    if right.data_type() != a.data_type {
        return Err(call.invalid(&format!("of {} and {}", a.data_type, right.data_type())));
    }
    let (a_dims, b_dims) = (whole(&a.dims, true), whole(right.dims(), false));
    let [m, k] = tail(call, &a_dims)?;
    let [b_k, n] = tail(call, &b_dims)?;
    let outer = |dims: &[u64]| dims[..dims.len() - 2].to_vec();
    let batch = layout::broadcast(&outer(&a_dims), &outer(&b_dims));
    let (Some(batch), true) = (batch, k == b_k) else {
        return Err(call.invalid(&format!("shapes {:?} and {:?}", a.dims, right.dims())));
    };
    let bias = vector(lowering, call, 2, n, &a)?;
    let alpha = call.node.float("alpha", 1.0);
    let mut dims = batch.clone();
    dims.extend([m, n]);
    let mut product = Product {
        a: matrix(a.address, k, false),
        b: matrix(0, n, false),
        m,
        n,
        k,
        batch: batch.iter().product(),
        alpha,
        bias,
    };
    let steps = [outer(&a_dims), outer(&b_dims)].map(|own| layout::expanded(&own, &batch));
    if steps[1].iter().all(|step| *step == 0) && outer(&a_dims) == batch {
        // One right factor for all: the rows of the left ones form one matrix.
        product.m *= product.batch;
        product.batch = 1;
    }
    let y = if product.batch == 1 {
        multiply(
            lowering,
            call,
            &product,
            &right,
            &dims,
            call.node.activation,
        )?
    } else {
        batched(lowering, call, &product, &right, &dims, &steps)?
    };
    Ok(vec![y.reshaped(&squeezed(call, &dims)?).into()])
}

/// A vector counts as a matrix of one row on the left and of one column on the right.
fn whole(dims: &[u64], left: bool) -> Vec<u64> {
    match (dims, left) {
        ([length], true) => vec![1, *length],
        ([length], false) => vec![*length, 1],
        _ => dims.to_vec(),
    }
}

/// The output without the dimensions that [`whole`] has added.
fn squeezed(call: &Call<'_>, dims: &[u64]) -> Result<Vec<u64>, Error> {
    let mut dims = dims.to_vec();
    if call.input(1)?.dims().len() == 1 {
        dims.pop();
    }
    if call.input(0)?.dims().len() == 1 {
        let row = dims.len()
            - if call.input(1)?.dims().len() == 1 {
                1
            } else {
                2
            };
        dims.remove(row);
    }
    Ok(dims)
}

/// Products for each index of the batch dimensions, as many in one operation as have regular strides.
fn batched(
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
                ..matrix(0, product.n, false)
            },
            bias: product.bias,
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

/// One product, cut along the pieces of a right factor that lies in several pages.
fn multiply(
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

/// A right factor that needs several pages is stored transposed, so that each piece gives columns of
/// the product.
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
    turned.b = matrix(0, product.k, true);
    let transposed: Value = constant.transposed().into();
    let pieces = lowering.pieces(call, &transposed, product.n)?;
    Ok((turned, pieces))
}

/// An optional vector of the given length, stored as `like` is.
pub(super) fn vector(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    index: usize,
    length: u64,
    like: &Device,
) -> Result<Option<Address>, Error> {
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

pub(super) fn matrix(address: Address, row_stride: u64, transposed: bool) -> Matrix {
    Matrix {
        address,
        row_stride,
        batch_stride: 0,
        transposed,
    }
}

fn pair(call: &Call<'_>, dims: &[u64]) -> Result<[u64; 2], Error> {
    match *dims {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(call.invalid(&format!("shape {dims:?} is no matrix"))),
    }
}

fn tail(call: &Call<'_>, dims: &[u64]) -> Result<[u64; 2], Error> {
    match *dims {
        [.., rows, columns] => Ok([rows, columns]),
        _ => Err(call.invalid(&format!("shape {dims:?} is no matrix"))),
    }
}
