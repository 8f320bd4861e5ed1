//! Operators that choose elements by the values of others.

use sextant_engine::Error;
use sextant_types::DataType;

use super::{
    Call,
    context::{Device, Lowering, Piece, Value},
    layout,
};
use crate::operation::{Element, Gather, Operand, Operation, Select};

/// `Where`.
pub(super) fn choose(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let condition = lowering.device(call, call.input(0)?)?;
    let a = lowering.device(call, call.input(1)?)?;
    let b = lowering.device(call, call.input(2)?)?;
    if condition.data_type != DataType::Bool || a.data_type != b.data_type {
        return Err(call.invalid("its inputs have other types"));
    }
    let dims = layout::broadcast(&a.dims, &b.dims)
        .and_then(|dims| layout::broadcast(&condition.dims, &dims))
        .ok_or_else(|| call.invalid("its inputs have shapes that do not fit"))?;
    let y = lowering.activation(call, &dims, a.data_type)?;
    let steps = [&condition, &a, &b].map(|x| layout::expanded(&x.dims, &dims));
    let own = layout::strides(&dims);
    let (sizes, strides) = layout::merge(&dims, [&steps[0], &steps[1], &steps[2], &own])
        .ok_or_else(|| call.unsupported("it needs more than six dimensions"))?;
    let operand = |x: &Device, strides| Operand {
        address: x.address,
        strides,
    };
    if sizes.count() > 0 {
        lowering.emit(Operation::Select(Select {
            condition: operand(&condition, strides[0]),
            a: operand(&a, strides[1]),
            b: operand(&b, strides[2]),
            y: y.address,
            sizes,
            element: a.element,
        }));
    }
    Ok(vec![y.into()])
}

pub(super) fn gather(lowering: &mut Lowering<'_>, call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let table = call.input(0)?;
    let axis = call.axis(call.node.int("axis", 0), table.dims().len())?;
    let indices = lowering.device(call, call.input(1)?)?;
    if !matches!(indices.element, Element::I32 | Element::I64) {
        return Err(call.invalid(&format!("indices of {}", indices.data_type)));
    }
    let rows = table.dims()[axis];
    let outer: u64 = table.dims()[..axis].iter().product();
    let inner: u64 = table.dims()[axis + 1..].iter().product();
    let mut dims = table.dims()[..axis].to_vec();
    dims.extend(&indices.dims);
    dims.extend(&table.dims()[axis + 1..]);
    let y = lowering.activation(call, &dims, table.data_type())?;
    if y.count() == 0 || rows == 0 {
        return Ok(vec![y.into()]);
    }
    let pieces = if axis == 0 {
        lowering.pieces(call, table, rows)?
    } else {
        let address = lowering.device(call, table)?.address;
        vec![Piece {
            address,
            first_row: 0,
            rows,
        }]
    };
    for piece in pieces {
        lowering.emit(Operation::Gather(Gather {
            table: piece.address,
            indices: indices.address,
            y: y.address,
            outer,
            rows: piece.rows,
            inner,
            count: indices.count(),
            first_row: piece.first_row,
            all_rows: rows,
            element: y.element,
            index: indices.element,
        }));
    }
    Ok(vec![y.into()])
}
