//! Products of matrices, and lookups of rows in tables.

use sextant_engine::Error;

use super::{
    Memory, fault, float_only,
    functions::activate,
    values::{floats, integers, store_floats, tf32},
};
use crate::operation::{Arithmetic, Element, Gather, Gemm, Matrix};

pub(super) fn gemm(it: &Gemm, memory: &mut Memory) -> Result<(), Error> {
    float_only(it.element)?;
    if it.c.transposed {
        return Err(fault("a transposed product"));
    }
    let bias = match it.bias {
        Some(at) => floats(memory, at, it.n, it.element)?,
        None => vec![0.0; it.n as usize],
    };
    for index in 0..it.batch {
        let a = dense(memory, it, &it.a, index, [it.m, it.k])?;
        // The factor is transposed, so that both factors are read in the order of their memory.
        let flipped = Matrix {
            transposed: !it.b.transposed,
            ..it.b
        };
        let b = dense(memory, it, &flipped, index, [it.n, it.k])?;
        for row in 0..it.m {
            let start = index * it.c.batch_stride + row * it.c.row_stride;
            let mut addends = bias.clone();
            if let Some(addend) = it.addend {
                let at = addend + start * it.element.bytes();
                let addend = floats(memory, at, it.n, it.element)?;
                addends
                    .iter_mut()
                    .zip(addend)
                    .for_each(|(to, it)| *to += it);
            }
            let line = product_row(it, &a, &b, row as usize, &addends);
            let at = it.c.address + start * it.element.bytes();
            store_floats(memory, at, it.element, &line)?;
        }
    }
    Ok(())
}

fn product_row(it: &Gemm, a: &[f32], b: &[f32], row: usize, bias: &[f32]) -> Vec<f32> {
    let k = it.k as usize;
    let left = &a[row * k..(row + 1) * k];
    let column = |column: usize| {
        let right = &b[column * k..(column + 1) * k];
        let mut sum = 0.0;
        for (left, right) in left.iter().zip(right) {
            sum += left * right;
        }
        activate(it.activation, it.alpha * sum + bias[column])
    };
    (0..it.n as usize).map(column).collect()
}

/// A factor of the given size as contiguous floats, transposed if the matrix says so.
fn dense(
    memory: &Memory,
    gemm: &Gemm,
    matrix: &Matrix,
    index: u64,
    [rows, columns]: [u64; 2],
) -> Result<Vec<f32>, Error> {
    let (stored_rows, stored_columns) = if matrix.transposed {
        (columns, rows)
    } else {
        (rows, columns)
    };
    let mut values = Vec::with_capacity((rows * columns) as usize);
    for row in 0..stored_rows {
        let start = index * matrix.batch_stride + row * matrix.row_stride;
        let at = matrix.address + start * gemm.element.bytes();
        values.extend(floats(memory, at, stored_columns, gemm.element)?);
    }
    if gemm.element == Element::F32 && gemm.arithmetic == Arithmetic::Tf32 {
        values.iter_mut().for_each(|value| *value = tf32(*value));
    }
    if !matrix.transposed {
        return Ok(values);
    }
    let (rows, columns) = (rows as usize, columns as usize);
    let mut turned = Vec::with_capacity(values.len());
    for row in 0..rows {
        turned.extend((0..columns).map(|column| values[column * rows + row]));
    }
    Ok(turned)
}

pub(super) fn gather(it: &Gather, memory: &mut Memory) -> Result<(), Error> {
    let indices = integers(memory, it.indices, it.count, it.index)?;
    let row_bytes = it.inner * it.element.bytes();
    for outer in 0..it.outer {
        for (position, index) in indices.iter().enumerate() {
            let to = it.y + (outer * it.count + position as u64) * row_bytes;
            let wrapped = if *index < 0 {
                index + it.all_rows as i64
            } else {
                *index
            };
            if !(0..it.all_rows as i64).contains(&wrapped) {
                if it.first_row == 0 {
                    memory.write(to, &vec![0; row_bytes as usize])?;
                }
                continue;
            }
            let Some(row) = (wrapped as u64).checked_sub(it.first_row) else {
                continue;
            };
            if row < it.rows {
                let from = it.table + (outer * it.rows + row) * row_bytes;
                let bytes = memory.read(from..from + row_bytes)?.to_vec();
                memory.write(to, &bytes)?;
            }
        }
    }
    Ok(())
}
