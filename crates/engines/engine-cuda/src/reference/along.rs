//! Operations along one dimension.

use sextant_engine::Error;

use super::{
    Memory, fault, float_only,
    functions::activate,
    values::{floats, integers, store_floats, store_integers},
};
use crate::operation::{
    Address, Affine, Arg, Element, LayerNorm, Reduce, ReduceFunction, Softmax, Span,
};

pub(super) fn affine(it: &Affine, memory: &mut Memory) -> Result<(), Error> {
    float_only(it.element)?;
    let vector = |at: Option<Address>, default: f32| match at {
        Some(at) => floats(memory, at, it.channels, it.element),
        None => Ok(vec![default; it.channels as usize]),
    };
    let (scale, shift) = (vector(it.scale, 1.0)?, vector(it.shift, 0.0)?);
    let count = it.outer * it.channels * it.inner;
    let mut values = floats(memory, it.x, count, it.element)?;
    for (at, value) in values.iter_mut().enumerate() {
        let channel = at / it.inner as usize % it.channels as usize;
        *value = activate(it.activation, *value * scale[channel] + shift[channel]);
    }
    store_floats(memory, it.y, it.element, &values)
}

pub(super) fn reduce(it: &Reduce, memory: &mut Memory) -> Result<(), Error> {
    if it.element.is_float() {
        let x = floats(memory, it.x, it.span.count(), it.element)?;
        let y: Vec<f32> = lines(&it.span, &x)
            .map(|line| reduce_floats(it.function, &line))
            .collect();
        return store_floats(memory, it.y, it.element, &y);
    }
    let x = integers(memory, it.x, it.span.count(), it.element)?;
    let y: Option<Vec<i64>> = lines(&it.span, &x)
        .map(|line| reduce_integers(it.function, &line))
        .collect();
    let y = y.ok_or_else(|| fault("a root of integers"))?;
    store_integers(memory, it.y, it.element, &y)
}

fn reduce_floats(function: ReduceFunction, line: &[f32]) -> f32 {
    let sum = || line.iter().sum::<f32>();
    let squares = || line.iter().map(|it| it * it).sum::<f32>();
    let numbers = line.iter().copied();
    match function {
        ReduceFunction::Sum => sum(),
        ReduceFunction::Mean => sum() / line.len() as f32,
        ReduceFunction::Max => numbers.fold(f32::NEG_INFINITY, f32::max),
        ReduceFunction::Min => numbers.fold(f32::INFINITY, f32::min),
        ReduceFunction::Product => numbers.product(),
        ReduceFunction::L2 => squares().sqrt(),
        ReduceFunction::SumSquare => squares(),
    }
}

fn reduce_integers(function: ReduceFunction, line: &[i64]) -> Option<i64> {
    let sum = line.iter().fold(0i64, |sum, it| sum.wrapping_add(*it));
    Some(match function {
        ReduceFunction::Sum => sum,
        ReduceFunction::Mean => sum / line.len().max(1) as i64,
        ReduceFunction::Max => *line.iter().max()?,
        ReduceFunction::Min => *line.iter().min()?,
        ReduceFunction::Product => line.iter().fold(1, |all, it| all.wrapping_mul(*it)),
        ReduceFunction::SumSquare => line.iter().map(|it| it.wrapping_mul(*it)).sum(),
        ReduceFunction::L2 => return None,
    })
}

pub(super) fn arg(it: &Arg, memory: &mut Memory) -> Result<(), Error> {
    let y: Vec<i64> = if it.element.is_float() {
        let x = floats(memory, it.x, it.span.count(), it.element)?;
        lines(&it.span, &x).map(|line| best(it, &line)).collect()
    } else {
        let x = integers(memory, it.x, it.span.count(), it.element)?;
        lines(&it.span, &x).map(|line| best(it, &line)).collect()
    };
    store_integers(memory, it.y, Element::I64, &y)
}

fn best<T: PartialOrd + Copy>(it: &Arg, line: &[T]) -> i64 {
    let mut best = 0;
    for (at, value) in line.iter().enumerate() {
        let better = if it.largest {
            *value > line[best]
        } else {
            *value < line[best]
        };
        if better || (it.last && *value == line[best]) {
            best = at;
        }
    }
    best as i64
}

pub(super) fn softmax(it: &Softmax, memory: &mut Memory) -> Result<(), Error> {
    float_only(it.element)?;
    let x = floats(memory, it.x, it.span.count(), it.element)?;
    let mut y = vec![0.0; x.len()];
    let (length, inner) = (it.span.length as usize, it.span.inner as usize);
    for (index, line) in lines(&it.span, &x).enumerate() {
        let largest = line.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = line.iter().map(|value| (value - largest).exp()).sum();
        for (at, value) in line.iter().enumerate() {
            let place = (index / inner * length + at) * inner + index % inner;
            y[place] = if it.logarithm {
                value - largest - sum.ln()
            } else {
                (value - largest).exp() / sum
            };
        }
    }
    store_floats(memory, it.y, it.element, &y)
}

pub(super) fn layer_norm(it: &LayerNorm, memory: &mut Memory) -> Result<(), Error> {
    float_only(it.element)?;
    let vector = |at: Option<Address>, default: f32| match at {
        Some(at) => floats(memory, at, it.length, it.element),
        None => Ok(vec![default; it.length as usize]),
    };
    let (scale, shift) = (vector(it.scale, 1.0)?, vector(it.shift, 0.0)?);
    let mut values = floats(memory, it.x, it.rows * it.length, it.element)?;
    for row in values.chunks_exact_mut((it.length as usize).max(1)) {
        let length = row.len() as f32;
        let mean = row.iter().sum::<f32>() / length;
        let variance = row.iter().map(|it| (it - mean) * (it - mean)).sum::<f32>() / length;
        let factor = 1.0 / (variance + it.epsilon).sqrt();
        for (at, value) in row.iter_mut().enumerate() {
            *value = (*value - mean) * factor * scale[at] + shift[at];
        }
    }
    store_floats(memory, it.y, it.element, &values)
}

/// The values along the middle dimension, for each place of the outer and inner ones.
fn lines<'a, T: Copy>(span: &Span, values: &'a [T]) -> impl Iterator<Item = Vec<T>> + 'a {
    let (length, inner) = (span.length as usize, span.inner as usize);
    (0..span.reduced() as usize).map(move |index| {
        let start = index / inner * length * inner + index % inner;
        (0..length).map(|at| values[start + at * inner]).collect()
    })
}
