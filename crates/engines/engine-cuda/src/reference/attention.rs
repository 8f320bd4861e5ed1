//! Attention of heads.

use sextant_engine::Error;

use super::{
    Memory, fault,
    values::{float, from_float, store_strided, strided},
};
use crate::operation::{Attention, Element, Operand, Sizes};

pub(super) fn attention(it: &Attention, memory: &mut Memory) -> Result<(), Error> {
    if !matches!(it.element, Element::F16 | Element::Bf16) {
        return Err(fault(&format!("attention of {:?}", it.element)));
    }
    let heads = &it.heads;
    let read = |operand: &Operand, sizes: &Sizes| -> Result<Vec<f32>, Error> {
        let elements = strided(memory, operand, sizes, it.element)?;
        let floats = elements.iter().map(|bytes| float(it.element, bytes));
        Ok(floats.collect())
    };
    let (q, k) = (
        read(&it.q.operand(), &heads.of_queries())?,
        read(&it.k.operand(), &heads.of_keys())?,
    );
    let v = read(&it.v.operand(), &heads.of_keys())?;
    let mask = match &it.mask {
        Some(mask) => read(mask, &heads.of_scores())?,
        None => vec![0.0; heads.of_scores().count() as usize],
    };
    let [queries, keys, depth] = [heads.queries, heads.keys, heads.depth].map(|size| size as usize);
    let mut y = Vec::with_capacity(q.len());
    for row in 0..q.len() / depth {
        let start = row / queries * keys * depth;
        let own = start..start + keys * depth;
        let query = &q[row * depth..(row + 1) * depth];
        let mask = &mask[row * keys..(row + 1) * keys];
        let shares = shares(it, query, &k[own.clone()], mask);
        y.extend(weighted(&shares, &v[own], depth));
    }
    let bytes = y.iter().map(|value| from_float(it.element, *value));
    store_strided(
        memory,
        &it.y.operand(),
        &heads.of_queries(),
        it.element,
        bytes,
    )
}

/// The weight of each key for a query; the sum is 1.
fn shares(it: &Attention, query: &[f32], keys: &[f32], mask: &[f32]) -> Vec<f32> {
    let lowest = match it.element {
        Element::F16 => half::f16::MIN.to_f32(),
        _ => half::bf16::MIN.to_f32(),
    };
    let score = |key: &[f32], mask: f32| {
        let product: f32 = query.iter().zip(key).map(|(a, b)| a * b).sum();
        match mask <= lowest {
            true => mask,
            false => it.alpha * product + mask,
        }
    };
    let pairs = keys.chunks_exact(query.len()).zip(mask);
    let scores: Vec<f32> = pairs.map(|(key, mask)| score(key, *mask)).collect();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|it| (it - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn weighted(shares: &[f32], values: &[f32], depth: usize) -> Vec<f32> {
    let mut sum = vec![0.0; depth];
    for (share, row) in shares.iter().zip(values.chunks_exact(depth)) {
        let pairs = sum.iter_mut().zip(row);
        pairs.for_each(|(sum, value)| *sum += share * value);
    }
    sum
}
