//! `Gemm` and `MatMul`.

use sextant_engine::Error;

use super::{
    Call,
    context::{Device, Lowering, Value},
    layout,
    pairs::{combine, combine_activated},
    product::{Product, batched, matrix, multiply, vector},
};
use crate::operation::{Activation, Address, BinaryFunction, Symbolic};

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
        b: matrix(Address::new(0), b_columns, turn_b),
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

/// The addition to a product: one value for each column, or a tensor of another shape.
fn bias(
    lowering: &mut Lowering<'_>,
    call: &Call<'_>,
    n: u64,
    like: &Device,
) -> Result<(Option<Address<Symbolic>>, Option<Device>), Error> {
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
    let [b_rows, b_columns] = tail(call, &b_dims)?;
    let turned = call.node.int("transB", 0) != 0;
    let (b_k, n) = if turned {
        (b_columns, b_rows)
    } else {
        (b_rows, b_columns)
    };
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
        b: matrix(Address::new(0), b_columns, turned),
        m,
        n,
        k,
        batch: batch.iter().product(),
        alpha,
        bias,
    };
    let steps = [outer(&a_dims), outer(&b_dims)].map(|own| layout::expanded(&own, &batch));
    if steps[1].iter().all(|step| *step == 0) && outer(&a_dims) == batch {
        // With one right factor for all products, the rows of the left factors form one matrix.
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

/// A vector counts as a matrix with one row on the left, and with one column on the right.
fn whole(dims: &[u64], left: bool) -> Vec<u64> {
    match (dims, left) {
        ([length], true) => vec![1, *length],
        ([length], false) => vec![*length, 1],
        _ => dims.to_vec(),
    }
}

/// The output without the dimensions that [`whole`] added.
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

fn pair(call: &Call<'_>, dims: &[u64]) -> Result<[u64; 2], Error> {
    match *dims {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(call.invalid(&format!("shape {dims:?} is not a matrix"))),
    }
}

fn tail(call: &Call<'_>, dims: &[u64]) -> Result<[u64; 2], Error> {
    match *dims {
        [.., rows, columns] => Ok([rows, columns]),
        _ => Err(call.invalid(&format!("shape {dims:?} is not a matrix"))),
    }
}
